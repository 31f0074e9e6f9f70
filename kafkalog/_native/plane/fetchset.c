/* fetchset.c: lists of partitions, and a session's index over its own. */
#include "fetchset.h"

static size_t hash(uint64_t seed, const kl_fetch_topic *topic, int32_t partition) {
    uint64_t h = seed ^ (uint32_t)partition * 0x9e3779b97f4a7c15ULL;
    const uint8_t *p = topic->by_id ? topic->id : topic->name.data;
    size_t bytes = topic->by_id ? sizeof topic->id : topic->name.bytes;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211ULL;
    return (size_t)(h ^ h >> 29);
}

static bool same_topic(const kl_fetch_topic *a, const kl_fetch_topic *b) {
    if (a == b) return true;
    if (a->by_id || b->by_id)
        return a->by_id && b->by_id && memcmp(a->id, b->id, sizeof a->id) == 0;
    return a->name.bytes == b->name.bytes &&
           memcmp(a->name.data, b->name.data, a->name.bytes) == 0;
}

/* ---- growing ------------------------------------------------------------------------------ */

static bool reserve_items(kl_fetch_set *set) {
    if (set->count < set->capacity) return true;
    size_t capacity = set->capacity ? set->capacity * 2 : 8;
    kl_fetch_item *items = kl_resize(set->items, capacity * sizeof *items);
    if (items == NULL) return false;
    set->items = items;
    uint32_t *order = kl_resize(set->order, 2 * capacity * sizeof *order);
    if (order == NULL) return false;
    set->order = order;
    set->capacity = capacity;
    return true;
}

kl_fetch_item *kl_fetch_set_add(kl_fetch_set *set, kl_fetch_topic *topic,
                                int32_t partition) {
    if (!reserve_items(set)) return NULL;
    set->order[set->count] = (uint32_t)set->count;
    kl_fetch_item *item = &set->items[set->count++];
    *item = (kl_fetch_item){.topic = topic,
                            .partition = partition,
                            .told_high_watermark = -1,
                            .told_log_start = -1,
                            .diverging_end = -1};
    topic->uses++;
    return item;
}

static void fill_topic(kl_fetch_topic *topic, const kl_topic_key *key) {
    *topic = (kl_fetch_topic){.by_id = key->id != NULL, .name = key->name};
    if (key->id) memcpy(topic->id, key->id, sizeof topic->id);
}

kl_fetch_topic *kl_fetch_set_topic(kl_fetch_set *set, const kl_topic_key *key) {
    if (set->topic_count == set->topic_capacity) {
        size_t capacity = set->topic_capacity ? set->topic_capacity * 2 : 4;
        kl_fetch_topic **grown = kl_resize(set->topics, capacity * sizeof *grown);
        if (grown == NULL) return NULL;
        memset(grown + set->topic_capacity, 0,
               (capacity - set->topic_capacity) * sizeof *grown);
        set->topics = grown;
        set->topic_capacity = capacity;
    }
    kl_fetch_topic **place = &set->topics[set->topic_count];
    if (*place == NULL) *place = kl_alloc(sizeof **place);
    if (*place == NULL) return NULL;
    set->topic_count++;
    fill_topic(*place, key);
    return *place;
}

void kl_fetch_set_clear(kl_fetch_set *set) {
    set->count = 0;
    set->topic_count = 0;
}

static void unuse(kl_fetch_topic *topic) {
    if (--topic->uses == 0 && topic->owned) kl_release(topic);
}

void kl_fetch_set_free(kl_fetch_set *set) {
    if (set->slots) /* a session's: topics are its items' */
        for (size_t i = 0; i < set->count; i++) unuse(set->items[i].topic);
    for (size_t i = 0; i < set->topic_capacity; i++) kl_release(set->topics[i]);
    kl_release(set->topics);
    kl_release(set->items);
    kl_release(set->order);
    kl_release(set->slots);
    *set = (kl_fetch_set){0};
}

/* ---- a session's ------------------------------------------------------------------------- */

/* The slot of a partition, or the free one where it belongs. */
static uint32_t *find_slot(const kl_fetch_set *set, const kl_fetch_topic *topic,
                           int32_t partition) {
    size_t at = hash(set->seed, topic, partition) & (set->slot_count - 1);
    for (;; at = (at + 1) & (set->slot_count - 1)) {
        if (set->slots[at] == 0) return &set->slots[at];
        const kl_fetch_item *item = &set->items[set->slots[at] - 1];
        if (item->partition == partition && same_topic(item->topic, topic))
            return &set->slots[at];
    }
}

/* The index anew, with room for `more` besides. */
static bool index_again(kl_fetch_set *set, size_t more) {
    size_t wanted = 16;
    while (wanted < 2 * (set->count + more)) wanted *= 2;
    uint32_t *slots = kl_alloc(wanted * sizeof *slots);
    if (slots == NULL) return false;
    kl_release(set->slots);
    set->slots = slots;
    set->slot_count = wanted;
    for (size_t i = 0; i < set->count; i++)
        *find_slot(set, set->items[i].topic, set->items[i].partition) = (uint32_t)i + 1;
    return true;
}

/* A copy that outlives the request's frame. */
static kl_fetch_topic *own_topic(const kl_fetch_topic *topic) {
    kl_fetch_topic *copy = kl_alloc(sizeof *copy + topic->name.bytes);
    if (copy == NULL) return NULL;
    *copy = *topic;
    copy->uses = 0;
    copy->owned = true;
    uint8_t *name = (uint8_t *)(copy + 1);
    if (topic->name.bytes) memcpy(name, topic->name.data, topic->name.bytes);
    copy->name.data = name;
    return copy;
}

/* The session's own topic for one of a request: that of the item before, when it is the
 * same. */
static kl_fetch_topic *topic_in(const kl_fetch_set *set, const kl_fetch_topic *topic) {
    const kl_fetch_item *last = set->count ? &set->items[set->count - 1] : NULL;
    return last && same_topic(last->topic, topic) ? last->topic : own_topic(topic);
}

bool kl_fetch_set_merge(kl_fetch_set *set, const kl_fetch_set *asked) {
    bool room = set->slots && set->slot_count >= 2 * (set->count + asked->count);
    if (!room && !index_again(set, asked->count)) return false;
    for (size_t i = 0; i < asked->count; i++) {
        const kl_fetch_item *from = &asked->items[i];
        uint32_t *slot = find_slot(set, from->topic, from->partition);
        kl_fetch_item *item = *slot ? &set->items[*slot - 1] : NULL;
        if (item == NULL) {
            kl_fetch_topic *topic = topic_in(set, from->topic);
            item = topic ? kl_fetch_set_add(set, topic, from->partition) : NULL;
            if (item == NULL && topic && topic->uses == 0) kl_release(topic);
            if (item == NULL) return false;
            *slot = (uint32_t)set->count;
        }
        item->offset = from->offset;
        item->leader_epoch = from->leader_epoch;
        item->last_fetched_epoch = from->last_fetched_epoch;
        item->max_bytes = from->max_bytes;
    }
    return true;
}

void kl_fetch_set_forget(kl_fetch_set *set, const kl_topic_key *key, int32_t partition) {
    kl_fetch_topic topic;
    fill_topic(&topic, key);
    uint32_t *slot = find_slot(set, &topic, partition);
    if (*slot) set->items[*slot - 1].forgotten = true;
}

bool kl_fetch_set_sweep(kl_fetch_set *set) {
    size_t kept = 0, ordered = 0;
    /* Where each stays, noted in a field that a run makes anew. */
    for (size_t i = 0; i < set->count; i++)
        set->items[i].aborted_at = set->items[i].forgotten ? SIZE_MAX : kept++;
    if (kept == set->count) return true;
    for (size_t i = 0; i < set->count; i++) {
        size_t place = set->items[set->order[i]].aborted_at;
        if (place != SIZE_MAX) set->order[ordered++] = (uint32_t)place;
    }
    for (size_t i = 0; i < set->count; i++) {
        size_t place = set->items[i].aborted_at;
        if (place == SIZE_MAX) unuse(set->items[i].topic);
        else if (place != i) set->items[place] = set->items[i];
    }
    set->count = kept;
    return index_again(set, 0);
}

void kl_fetch_set_rotate(kl_fetch_set *set) {
    uint32_t *late = set->order + set->capacity; /* as long as the order itself */
    size_t early_count = 0, late_count = 0;
    for (size_t i = 0; i < set->count; i++) {
        uint32_t index = set->order[i];
        if (set->items[index].slice_bytes > 0) late[late_count++] = index;
        else set->order[early_count++] = index;
    }
    memcpy(set->order + early_count, late, late_count * sizeof *late);
}
