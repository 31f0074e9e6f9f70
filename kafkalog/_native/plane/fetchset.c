/* fetchset.c: lists of partitions, and a session's index over its own. */
#include "fetchset.h"

#include "base/hash.h"

enum { INDEX_KEPT_SLOTS = 2048 }; /* of a request's set */

/* Clients choose the names: see base/table.h. */
static uint64_t hash(const kl_fetch_topic *topic, int32_t partition) {
    const uint8_t *p = topic->by_id ? topic->id : topic->name.data;
    size_t bytes = topic->by_id ? sizeof topic->id : topic->name.bytes;
    return kl_hash_pair((uint32_t)partition, p, bytes);
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
    kl_fetch_item **items = kl_resize(set->items, capacity * sizeof(kl_fetch_item *));
    if (items == NULL) return false;
    memset(items + set->capacity, 0, (capacity - set->capacity) * sizeof(kl_fetch_item *));
    set->items = items;
    kl_fetch_item **late = kl_resize(set->late, capacity * sizeof(kl_fetch_item *));
    if (late == NULL) return false;
    set->late = late;
    set->capacity = capacity;
    return true;
}

kl_fetch_item *kl_fetch_set_add(kl_fetch_set *set, kl_fetch_topic *topic,
                                int32_t partition) {
    if (!reserve_items(set)) return NULL;
    kl_fetch_item *item = set->items[set->count];
    if (item == NULL) item = set->items[set->count] = kl_alloc(sizeof *item);
    if (item == NULL) return NULL;
    set->count++;
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
    for (size_t i = 0; set->keeps_topics && i < set->count; i++)
        unuse(set->items[i]->topic);
    for (size_t i = 0; i < set->topic_capacity; i++) kl_release(set->topics[i]);
    for (size_t i = 0; i < set->capacity; i++) kl_release(set->items[i]);
    kl_release(set->topics);
    kl_release(set->items);
    kl_release(set->late);
    kl_table_free(&set->index);
    *set = (kl_fetch_set){0};
}

/* ---- a session's ------------------------------------------------------------------------- */

/* What an item is found by. */
typedef struct {
    const kl_fetch_topic *topic;
    int32_t partition;
} key;

static bool same_item(const void *entry, const void *wanted) {
    const kl_fetch_item *item = entry;
    const key *of = wanted;
    return item->partition == of->partition && same_topic(item->topic, of->topic);
}

static kl_fetch_item *find(const kl_fetch_set *set, const kl_fetch_topic *topic,
                           int32_t partition) {
    const key wanted = {topic, partition};
    return kl_table_find(&set->index, hash(topic, partition), &wanted, same_item);
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
    const kl_fetch_item *last = set->count ? set->items[set->count - 1] : NULL;
    return last && same_topic(last->topic, topic) ? last->topic : own_topic(topic);
}

static void take_numbers(kl_fetch_item *item, const kl_fetch_item *from) {
    item->offset = from->offset;
    item->leader_epoch = from->leader_epoch;
    item->last_fetched_epoch = from->last_fetched_epoch;
    item->max_bytes = from->max_bytes;
}

bool kl_fetch_set_fold(kl_fetch_set *set) {
    size_t kept = 0, folded = 0;
    if (kl_table_reserve(&set->index, set->count)) return false;
    for (size_t i = 0; i < set->count; i++) {
        kl_fetch_item *item = set->items[i];
        kl_fetch_item *first = find(set, item->topic, item->partition);
        if (first) {
            take_numbers(first, item);
            kl_replica_drop(item->replica);
            item->replica = NULL;
            set->late[folded++] = item; /* to be used again */
        } else {
            (void)kl_table_add(&set->index, hash(item->topic, item->partition), item);
            set->items[kept++] = item;
        }
    }
    memcpy(set->items + kept, set->late, folded * sizeof(kl_fetch_item *));
    set->count = kept;
    if (set->index.slot_count > INDEX_KEPT_SLOTS) kl_table_free(&set->index);
    else kl_table_clear(&set->index);
    return true;
}

bool kl_fetch_set_merge(kl_fetch_set *set, const kl_fetch_set *asked) {
    set->keeps_topics = true;
    if (kl_table_reserve(&set->index, asked->count)) return false;
    for (size_t i = 0; i < asked->count; i++) {
        const kl_fetch_item *from = asked->items[i];
        kl_fetch_item *item = find(set, from->topic, from->partition);
        if (item == NULL) {
            kl_fetch_topic *topic = topic_in(set, from->topic);
            item = topic ? kl_fetch_set_add(set, topic, from->partition) : NULL;
            if (item == NULL && topic && topic->uses == 0) kl_release(topic);
            if (item == NULL) return false;
            (void)kl_table_add(&set->index, hash(topic, from->partition), item);
        }
        take_numbers(item, from);
    }
    return true;
}

void kl_fetch_set_forget(kl_fetch_set *set, const kl_topic_key *wanted, int32_t partition) {
    kl_fetch_topic topic;
    fill_topic(&topic, wanted);
    kl_fetch_item *item = find(set, &topic, partition);
    if (item) item->forgotten = true;
}

void kl_fetch_set_sweep(kl_fetch_set *set) {
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        kl_fetch_item *item = set->items[i];
        set->items[i] = NULL;
        if (item->forgotten) {
            kl_table_remove(&set->index, hash(item->topic, item->partition), item);
            unuse(item->topic);
            kl_release(item);
        } else {
            set->items[kept++] = item;
        }
    }
    set->count = kept;
}

void kl_fetch_set_rotate(kl_fetch_set *set) {
    size_t early_count = 0, late_count = 0;
    for (size_t i = 0; i < set->count; i++) {
        kl_fetch_item *item = set->items[i];
        if (item->slice_bytes > 0) set->late[late_count++] = item;
        else set->items[early_count++] = item;
    }
    memcpy(set->items + early_count, set->late, late_count * sizeof(kl_fetch_item *));
}
