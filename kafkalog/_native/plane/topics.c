/* topics.c: two hash tables of topics, by name and by id, under a read-write lock. */
#include "topics.h"

#include "base/hash.h"
#include "base/table.h"

enum { PARTITIONS_MAX = 1 << 20 }; /* per topic */

typedef struct {
    kl_replica *replica; /* NULL: not opened */
    bool offline;        /* opening failed */
} place;

struct kl_topic {
    place *places; /* by partition */
    int32_t capacity;
    int32_t flags;
    uint8_t id[KL_TOPIC_ID_BYTES];
    bool has_id;              /* not all zero */
    int64_t gone[KL_TRAFFIC]; /* of removed partitions; guarded by the lock */
    size_t name_bytes;
    char name[KL_TOPIC_NAME_BYTES_MAX + 1];
};

struct kl_topics {
    pthread_mutex_t changing; /* serialises changes */
    pthread_rwlock_t lock; /* guards the members below; never held across a call of a log */
    pthread_mutex_t gate;  /* held while a change waits, so that an endless stream of */
    atomic_bool change_waits; /* lookups lets it through; musl's rwlock does not */
    kl_table by_name;
    kl_table by_id;           /* topics with an id */
    int64_t gone[KL_TRAFFIC]; /* of removed topics */
};

static uint64_t hash_id(const uint8_t *id) { return kl_hash(id, KL_TOPIC_ID_BYTES); }

static bool same_name(const void *entry, const void *key) {
    const kl_topic *topic = entry;
    const kl_span *name = key;
    return topic->name_bytes == name->bytes &&
           memcmp(topic->name, name->data, name->bytes) == 0;
}

static bool same_id(const void *entry, const void *key) {
    return memcmp(((const kl_topic *)entry)->id, key, KL_TOPIC_ID_BYTES) == 0;
}

kl_status kl_topics_new(kl_topics **out) {
    kl_topics *topics = *out = kl_alloc(sizeof *topics);
    if (topics == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a table of topics");
    pthread_mutex_init(&topics->changing, NULL);
    pthread_mutex_init(&topics->gate, NULL);
    pthread_rwlock_init(&topics->lock, NULL);
    return KL_OK;
}

void kl_topics_lock(kl_topics *topics) {
    if (KL_UNLIKELY(atomic_load_explicit(&topics->change_waits, memory_order_relaxed))) {
        kl_lock(&topics->gate);
        kl_unlock(&topics->gate);
    }
    KL_ASSERT(pthread_rwlock_rdlock(&topics->lock) == 0);
}

/* Under `changing`. */
static void lock_for_change(kl_topics *topics) {
    KL_ASSERT_HELD(&topics->changing);
    kl_lock(&topics->gate);
    atomic_store_explicit(&topics->change_waits, true, memory_order_relaxed);
    KL_ASSERT(pthread_rwlock_wrlock(&topics->lock) == 0);
    atomic_store_explicit(&topics->change_waits, false, memory_order_relaxed);
    kl_unlock(&topics->gate);
}

void kl_topics_unlock(kl_topics *topics) {
    KL_ASSERT(pthread_rwlock_unlock(&topics->lock) == 0);
}

static kl_topic *find_name(const kl_topics *topics, kl_span name) {
    return kl_table_find(&topics->by_name, kl_hash(name.data, name.bytes), &name,
                         same_name);
}

static kl_topic *find_text(const kl_topics *topics, const char *name) {
    return find_name(topics, (kl_span){(const uint8_t *)name, strlen(name)});
}

const kl_topic *kl_topics_find(const kl_topics *topics, const kl_topic_key *key) {
    if (key->id == NULL) return find_name(topics, key->name);
    return kl_table_find(&topics->by_id, hash_id(key->id), key->id, same_id);
}

kl_span kl_topic_name(const kl_topic *topic) {
    return (kl_span){(const uint8_t *)topic->name, topic->name_bytes};
}

int32_t kl_topic_flags(const kl_topic *topic) { return topic->flags; }

kl_replica *kl_topic_replica(const kl_topic *topic, int32_t partition, bool empty) {
    if (partition < 0 || partition >= topic->capacity) return NULL;
    kl_replica *replica = topic->places[partition].replica;
    bool there = replica && (empty || replica->log);
    return there ? kl_replica_retain(replica) : NULL;
}

bool kl_topic_offline(const kl_topic *topic, int32_t partition) {
    return partition >= 0 && partition < topic->capacity &&
           topic->places[partition].offline;
}

/* ---- changes: each under `changing`, so that results of a lookup stay valid --------------- */

static bool is_zero(const uint8_t *id) {
    static const uint8_t zero[KL_TOPIC_ID_BYTES];
    return memcmp(id, zero, sizeof zero) == 0;
}

static void unlink_id(kl_topics *topics, kl_topic *topic) {
    if (topic->has_id) kl_table_remove(&topics->by_id, hash_id(topic->id), topic);
    topic->has_id = false;
}

static void unlink_topic(kl_topics *topics, kl_topic *topic) {
    kl_table_remove(&topics->by_name, kl_hash(topic->name, topic->name_bytes), topic);
    unlink_id(topics, topic);
}

static kl_status new_topic(kl_topics *topics, kl_span name, kl_topic **out) {
    kl_topic *topic = *out = kl_alloc(sizeof *topic);
    if (topic == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a topic");
    KL_ASSERT(name.bytes <= KL_TOPIC_NAME_BYTES_MAX);
    topic->name_bytes = name.bytes;
    memcpy(topic->name, name.data, name.bytes);
    return kl_table_add(&topics->by_name, kl_hash(topic->name, name.bytes), topic);
}

/* Under `changing`.  Readers' knowledge is outdated: they must look again. */
static void touch(const kl_topic *topic) {
    for (int32_t i = 0; i < topic->capacity; i++)
        if (topic->places[i].replica) kl_replica_touch(topic->places[i].replica);
}

static void add_traffic(int64_t *sum, const int64_t *more) {
    for (int i = 0; i < KL_TRAFFIC; i++) sum[i] += more[i];
}

static void add_replica(int64_t *sum, const kl_replica *replica) {
    for (int i = 0; replica && i < KL_TRAFFIC; i++)
        sum[i] += kl_count_get(&replica->traffic[i]);
}

static void add_topic(int64_t *sum, const kl_topic *topic) {
    add_traffic(sum, topic->gone);
    for (int32_t i = 0; i < topic->capacity; i++)
        add_replica(sum, topic->places[i].replica);
}

void kl_topics_traffic(kl_topics *topics, kl_topic_traffic *out, size_t room, size_t *count,
                       int64_t *all) {
    size_t at = 0;
    *count = 0;
    kl_lock(&topics->changing); /* lookups go on during the walk */
    memcpy(all, topics->gone, sizeof topics->gone);
    for (kl_topic *topic; (topic = kl_table_next(&topics->by_name, &at)) != NULL;) {
        kl_topic_traffic found = {.name = ""};
        add_topic(found.counts, topic);
        add_traffic(all, found.counts);
        memcpy(found.name, topic->name, topic->name_bytes);
        if (*count < room) out[*count] = found;
        *count += 1;
    }
    kl_unlock(&topics->changing);
}

void kl_topics_touch(kl_topics *topics) {
    size_t at = 0;
    kl_lock(&topics->changing); /* no topic is added or removed during the walk */
    for (kl_topic *topic; (topic = kl_table_next(&topics->by_name, &at)) != NULL;)
        touch(topic);
    kl_unlock(&topics->changing);
}

kl_status kl_topics_put_topic(kl_topics *topics, const char *text, const uint8_t *id,
                              int32_t flags) {
    const kl_span name = {(const uint8_t *)text, strlen(text)};
    if (name.bytes == 0 || name.bytes > KL_TOPIC_NAME_BYTES_MAX)
        return kl_fail(KL_E_ARGUMENT, "a topic's name of %zu bytes, wanted 1 to %d",
                       name.bytes, KL_TOPIC_NAME_BYTES_MAX);
    kl_lock(&topics->changing);
    lock_for_change(topics);
    kl_topic *topic = find_name(topics, name), *fresh = NULL;
    bool other =
        topic && (topic->flags != flags || memcmp(topic->id, id, sizeof topic->id));
    kl_status status = kl_table_reserve(&topics->by_id, 1);
    if (!status && topic == NULL) {
        status = new_topic(topics, name, &fresh);
        topic = fresh;
    }
    if (!status) {
        unlink_id(topics, topic); /* the id may have changed */
        memcpy(topic->id, id, KL_TOPIC_ID_BYTES);
        topic->has_id = !is_zero(id);
        topic->flags = flags;
        if (topic->has_id) kl_table_put(&topics->by_id, hash_id(id), topic);
    } else {
        kl_release(fresh);
    }
    kl_topics_unlock(topics);
    if (!status && other) touch(topic);
    kl_unlock(&topics->changing);
    return status;
}

/* Locked for change.  A place for a partition of an existing topic. */
static kl_status reserve(kl_topics *topics, const char *name, int32_t partition,
                         place **out) {
    if (partition < 0 || partition >= PARTITIONS_MAX)
        return kl_fail(KL_E_ARGUMENT, "partition %d, wanted 0 to %d", partition,
                       PARTITIONS_MAX - 1);
    kl_topic *topic = find_text(topics, name);
    if (topic == NULL) return kl_fail(KL_E_NOT_FOUND, "there is no topic %s", name);
    if (partition >= topic->capacity) {
        int32_t capacity =
            KL_MAX(partition + 1, KL_MIN(topic->capacity * 2, PARTITIONS_MAX));
        place *grown = kl_resize(topic->places, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return kl_fail(KL_E_NO_MEMORY, "no memory for %d partitions", capacity);
        memset(grown + topic->capacity, 0,
               (size_t)(capacity - topic->capacity) * sizeof *grown);
        topic->places = grown;
        topic->capacity = capacity;
    }
    KL_ASSERT(partition < topic->capacity && topic->capacity <= PARTITIONS_MAX);
    *out = &topic->places[partition];
    return KL_OK;
}

/* Under `changing`.  Remove a replica that could not get its log. */
static void take_out(kl_topics *topics, place *at) {
    kl_replica *replica = at->replica;
    lock_for_change(topics);
    KL_ASSERT(at->replica == replica); /* no other change since */
    at->replica = NULL;
    kl_topics_unlock(topics);
    kl_replica_remove(replica);
    kl_replica_drop(replica);
}

kl_status kl_topics_put_partition(kl_topics *topics, const char *name, int32_t partition,
                                  kl_log *log, const kl_role *role) {
    kl_replica *old = NULL, *fresh = NULL;
    place *at = NULL;
    kl_lock(&topics->changing);
    lock_for_change(topics);
    kl_status status = reserve(topics, name, partition, &at);
    if (!status) old = at->replica;
    kl_topics_unlock(topics);
    kl_log *known = !status && old ? old->log : NULL;
    if (!status && old && (log == NULL || known == NULL || known == log)) {
        status = kl_replica_set_role(old, role);
        if (!status && log && known == NULL) {
            status = kl_replica_attach(old, log);
            if (status) take_out(topics, at);
        }
    } else if (!status && old)
        status =
            kl_fail(KL_E_ARGUMENT, "partition %s-%d has a log already: remove it first",
                    name, partition);
    else if (!status) status = kl_replica_new(log, partition, role, &fresh);
    if (fresh) {
        lock_for_change(topics); /* no other change since: the place exists */
        KL_ASSERT(at->replica == NULL);
        at->replica = fresh;
        kl_topics_unlock(topics);
    }
    kl_unlock(&topics->changing);
    return status;
}

kl_status kl_topics_put_offline(kl_topics *topics, const char *name, int32_t partition,
                                bool offline) {
    place *at;
    kl_lock(&topics->changing);
    lock_for_change(topics);
    kl_status status = reserve(topics, name, partition, &at);
    if (!status) at->offline = offline;
    bool empty = !status && at->replica && at->replica->log == NULL;
    kl_topics_unlock(topics);
    if (offline && empty) take_out(topics, at); /* its log exists, but cannot be opened */
    kl_unlock(&topics->changing);
    return status;
}

/* The replica is in no table any more: wait for calls in progress. */
static void end_replica(kl_replica *replica) {
    if (replica == NULL) return;
    kl_replica_remove(replica);
    kl_replica_drop(replica);
}

static void end_topic(kl_topic *topic) {
    for (int32_t i = 0; i < topic->capacity; i++) end_replica(topic->places[i].replica);
    kl_release(topic->places);
    kl_release(topic);
}

kl_status kl_topics_remove(kl_topics *topics, const char *name, int32_t partition) {
    kl_replica *replica = NULL;
    kl_lock(&topics->changing);
    lock_for_change(topics);
    kl_topic *topic = find_text(topics, name);
    if (topic && partition < 0) {
        add_topic(topics->gone, topic);
        unlink_topic(topics, topic);
    } else if (topic && partition < topic->capacity) {
        replica = topic->places[partition].replica;
        topic->places[partition].replica = NULL;
        add_replica(topic->gone, replica);
    }
    kl_topics_unlock(topics);
    kl_unlock(&topics->changing);
    if (topic == NULL) return kl_fail(KL_E_NOT_FOUND, "there is no topic %s", name);
    if (partition < 0) end_topic(topic);
    else if (replica) end_replica(replica);
    else return kl_fail(KL_E_NOT_FOUND, "there is no partition %s-%d", name, partition);
    return KL_OK;
}

void kl_topics_clear(kl_topics *topics) {
    kl_lock(&topics->changing);
    lock_for_change(topics);
    kl_table all = topics->by_name;
    topics->by_name = (kl_table){0};
    kl_table_clear(&topics->by_id);
    size_t at = 0;
    for (kl_topic *topic; (topic = kl_table_next(&all, &at)) != NULL;)
        add_topic(topics->gone, topic);
    kl_topics_unlock(topics);
    kl_unlock(&topics->changing);
    at = 0;
    for (kl_topic *topic; (topic = kl_table_next(&all, &at)) != NULL;) end_topic(topic);
    kl_table_free(&all);
}

void kl_topics_free(kl_topics *topics) {
    if (topics == NULL) return;
    kl_topics_clear(topics);
    kl_table_free(&topics->by_id);
    pthread_rwlock_destroy(&topics->lock);
    pthread_mutex_destroy(&topics->changing);
    pthread_mutex_destroy(&topics->gate);
    kl_release(topics);
}
