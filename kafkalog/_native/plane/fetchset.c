/* fetchset.c: lists of partitions, and a session's index over them. */
#include "fetchset.h"

#include "base/hash.h"
#include "codes.h"

enum { INDEX_KEPT_SLOTS = 2048 }; /* for a request's set */

/* Keyed, because clients choose the names: see base/table.h. */
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
    kl_fetch_item **items =
        kl_room_for(set->items, &set->capacity, set->count + 1, sizeof(kl_fetch_item *));
    if (items == NULL) return false;
    set->items = items;
    return true;
}

kl_fetch_item *kl_fetch_set_add(kl_fetch_set *set, kl_fetch_topic *topic,
                                int32_t partition) {
    if (!reserve_items(set)) return NULL;
    kl_fetch_item *item = set->items[set->count];
    if (item == NULL) item = set->items[set->count] = kl_alloc(sizeof *item);
    if (item == NULL) return NULL;
    KL_ASSERT(set->count < set->capacity);
    *item = (kl_fetch_item){.topic = topic,
                            .place = set->count++,
                            .partition = partition,
                            .told_high_watermark = -1,
                            .told_log_start = -1,
                            .diverging_end = -1};
    topic->uses++;
    kl_link_last(&set->due, &item->due);
    return item;
}

static void fill_topic(kl_fetch_topic *topic, const kl_topic_key *key) {
    *topic = (kl_fetch_topic){.by_id = key->id != NULL, .name = key->name};
    if (key->id) memcpy(topic->id, key->id, sizeof topic->id);
}

kl_fetch_topic *kl_fetch_set_topic(kl_fetch_set *set, const kl_topic_key *key) {
    kl_fetch_topic **topics = kl_room_for(set->topics, &set->topic_capacity,
                                          set->topic_count + 1, sizeof(kl_fetch_topic *));
    if (topics == NULL) return NULL;
    set->topics = topics;
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
    kl_ring_init(&set->due);
}

void kl_fetch_set_init(kl_fetch_set *set) {
    kl_watch_init(&set->watch);
    kl_ring_init(&set->due);
}

static void unuse(kl_fetch_topic *topic) {
    KL_ASSERT(topic->uses > 0);
    if (--topic->uses == 0 && topic->owned) kl_release(topic);
}

void kl_fetch_set_trim(kl_fetch_set *set) {
    kl_fetch_set_clear(set);
    for (size_t i = 0; i < set->topic_capacity; i++) kl_release(set->topics[i]);
    for (size_t i = 0; i < set->capacity; i++) kl_release(set->items[i]);
    kl_release(set->topics);
    kl_release(set->items);
    set->topics = NULL;
    set->items = NULL;
    set->topic_capacity = set->capacity = 0;
    kl_table_free(&set->index);
}

void kl_fetch_set_free(kl_fetch_set *set) {
    kl_fetch_set_let_go(set);
    for (size_t i = 0; set->keeps_topics && i < set->count; i++)
        unuse(set->items[i]->topic);
    kl_fetch_set_trim(set);
    kl_watch_free(&set->watch);
}

/* ---- due items --------------------------------------------------------------------------- */

static kl_fetch_item *item_of(const kl_fetch_set *set, kl_link *link) {
    return link == &set->due ? NULL : KL_HOLDER(link, kl_fetch_item, due);
}

kl_fetch_item *kl_fetch_set_first(const kl_fetch_set *set) {
    return item_of(set, set->due.next);
}

kl_fetch_item *kl_fetch_set_behind(const kl_fetch_set *set, const kl_fetch_item *item) {
    return item_of(set, item->due.next);
}

void kl_fetch_set_due(kl_fetch_set *set, kl_fetch_item *item) {
    if (!kl_link_in(&item->due)) kl_link_last(&set->due, &item->due);
}

void kl_fetch_set_all_due(kl_fetch_set *set) {
    for (size_t i = 0; i < set->count; i++) kl_fetch_set_due(set, set->items[i]);
}

void kl_fetch_set_hear(kl_fetch_set *set) {
    for (kl_watcher *one; (one = kl_watch_next(&set->watch)) != NULL;)
        kl_fetch_set_due(set, KL_HOLDER(one, kl_fetch_item, watcher));
}

void kl_fetch_item_take(kl_fetch_item *item, kl_replica *replica) {
    if (item->replica && item->replica != replica) kl_watch_remove(&item->watcher);
    kl_replica_drop(item->replica);
    item->replica = replica;
}

void kl_fetch_set_let_go(kl_fetch_set *set) {
    for (size_t i = 0; i < set->count; i++) kl_fetch_item_take(set->items[i], NULL);
}

/* True if there is nothing to read or report. */
static bool is_quiet(const kl_fetch_item *item) {
    return item->code == CODE_NONE && item->diverging_end < 0 && !item->cold &&
           item->slice_bytes == 0 && item->offset >= item->bound &&
           item->told_high_watermark == item->high_watermark &&
           item->told_log_start == item->log_start;
}

void kl_fetch_set_watch(kl_fetch_set *set, int32_t to, bool all) {
    kl_fetch_item *next;
    for (kl_fetch_item *item = kl_fetch_set_first(set); item; item = next) {
        next = kl_fetch_set_behind(set, item);
        bool quiet = is_quiet(item);
        if (item->replica == NULL || (!quiet && !all)) continue;
        const kl_seen seen = {to, item->bound, item->high_watermark, item->log_start,
                              item->seen_epoch};
        kl_watch_add(&set->watch, &item->watcher, item->replica, &seen);
        if (quiet) kl_link_remove(&item->due);
    }
}

/* ---- a session's ------------------------------------------------------------------------- */

/* The key of an item. */
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

/* The session's topic for a request's: the previous item's if equal, otherwise a copy.  NULL: no
 * memory, or a name longer than any topic's; sessions limit partitions, not names. */
static kl_fetch_topic *topic_in(const kl_fetch_set *set, const kl_fetch_topic *topic) {
    if (topic->name.bytes > KL_TOPIC_NAME_BYTES_MAX) return NULL;
    const kl_fetch_item *last = set->count ? set->items[set->count - 1] : NULL;
    return last && same_topic(last->topic, topic) ? last->topic : own_topic(topic);
}

static void take_numbers(kl_fetch_item *item, const kl_fetch_item *from) {
    item->offset = from->offset;
    item->leader_epoch = from->leader_epoch;
    item->last_fetched_epoch = from->last_fetched_epoch;
    item->max_bytes = from->max_bytes;
    item->follower_start = from->follower_start;
}

/* Swap two items. */
static void swap_items(kl_fetch_set *set, size_t a, size_t b) {
    KL_ASSERT(a < set->count && b < set->count);
    kl_fetch_item *item = set->items[a];
    set->items[a] = set->items[b];
    set->items[b] = item;
    set->items[a]->place = a;
    set->items[b]->place = b;
}

bool kl_fetch_set_fold(kl_fetch_set *set) {
    size_t kept = 0;
    KL_ASSERT(!set->keeps_topics && set->index.count == 0); /* a request's set */
    if (kl_table_reserve(&set->index, set->count)) return false;
    for (size_t i = 0; i < set->count; i++) {
        kl_fetch_item *item = set->items[i];
        kl_fetch_item *first = find(set, item->topic, item->partition);
        if (first) {
            take_numbers(first, item);
            kl_fetch_item_take(item, NULL);
            kl_link_remove(&item->due);
        } else {
            kl_table_put(&set->index, hash(item->topic, item->partition), item);
            swap_items(set, kept++, i); /* duplicates go to the end, to be reused */
        }
    }
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
            kl_table_put(&set->index, hash(topic, from->partition), item);
        }
        take_numbers(item, from);
        kl_fetch_set_due(set, item);
    }
    return true;
}

void kl_fetch_set_forget(kl_fetch_set *set, const kl_topic_key *wanted, int32_t partition) {
    kl_fetch_topic topic;
    fill_topic(&topic, wanted);
    kl_fetch_item *item = find(set, &topic, partition);
    if (item == NULL) return;
    KL_ASSERT(set->items[item->place] == item && set->index.count == set->count);
    kl_table_remove(&set->index, hash(item->topic, item->partition), item);
    swap_items(set, item->place, set->count - 1);
    set->items[--set->count] = NULL;
    kl_fetch_item_take(item, NULL);
    kl_link_remove(&item->due);
    unuse(item->topic);
    kl_release(item);
}

void kl_fetch_set_rotate(kl_fetch_set *set) {
    kl_link late;
    kl_ring_init(&late);
    kl_fetch_item *next;
    for (kl_fetch_item *item = kl_fetch_set_first(set); item; item = next) {
        next = kl_fetch_set_behind(set, item);
        if (item->slice_bytes > 0) kl_link_last(&late, &item->due);
    }
    for (kl_link *link; (link = kl_ring_first(&late)) != NULL;)
        kl_link_last(&set->due, link);
}
