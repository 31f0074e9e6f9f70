/* table.c: two hash tables over the same topics, under a lock that lookups share. */
#include "table.h"

enum {
    TOPIC_NAME_BYTES_MAX = 249, /* kafka's */
    PARTITIONS_MAX = 1 << 20,   /* of a topic */
    SLOTS_MIN = 64
};

struct kl_topic {
    kl_topic *next_by_name, *next_by_id;
    kl_replica **replicas; /* by partition; NULL: not opened */
    bool *offline;         /* by partition: could not be; NULL: none is */
    int32_t capacity;
    int32_t flags;
    uint8_t id[KL_TOPIC_ID_BYTES];
    bool has_id; /* not all zero */
    size_t name_bytes;
    char name[TOPIC_NAME_BYTES_MAX + 1];
};

struct kl_table {
    pthread_rwlock_t lock; /* guards what follows; never held across a call of a log */
    kl_topic **by_name;    /* lists, as many as `slots` */
    kl_topic **by_id;
    size_t slots; /* a power of two */
    size_t count;
};

static size_t hash(const void *data, size_t bytes) {
    uint64_t h = 1469598103934665603ULL; /* FNV-1a; names are the administrator's */
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211ULL;
    return (size_t)(h ^ h >> 32);
}

static kl_topic **name_slot(const kl_table *table, const void *name, size_t bytes) {
    return &table->by_name[hash(name, bytes) & (table->slots - 1)];
}

static kl_topic **id_slot(const kl_table *table, const uint8_t *id) {
    uint64_t h; /* ids are random */
    memcpy(&h, id, sizeof h);
    return &table->by_id[(h ^ h >> 32) & (table->slots - 1)];
}

kl_status kl_table_new(kl_table **out) {
    kl_table *table = *out = kl_alloc(sizeof *table);
    if (table == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a table of topics");
    table->slots = SLOTS_MIN;
    table->by_name = kl_alloc(SLOTS_MIN * sizeof(kl_topic *));
    table->by_id = kl_alloc(SLOTS_MIN * sizeof(kl_topic *));
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    /* Lookups never end; a change must come through nevertheless. */
    pthread_rwlockattr_setkind_np(&attributes,
                                  PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&table->lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    if (table->by_name && table->by_id) return KL_OK;
    kl_table_free(table);
    *out = NULL;
    return kl_fail(KL_E_NO_MEMORY, "no memory for a table of topics");
}

void kl_table_lock(kl_table *table) { KL_ASSERT(pthread_rwlock_rdlock(&table->lock) == 0); }

static void lock_for_change(kl_table *table) {
    KL_ASSERT(pthread_rwlock_wrlock(&table->lock) == 0);
}

void kl_table_unlock(kl_table *table) {
    KL_ASSERT(pthread_rwlock_unlock(&table->lock) == 0);
}

static kl_topic *find_name(const kl_table *table, const void *name, size_t bytes) {
    kl_topic *topic = *name_slot(table, name, bytes);
    while (topic && (topic->name_bytes != bytes || memcmp(topic->name, name, bytes) != 0))
        topic = topic->next_by_name;
    return topic;
}

const kl_topic *kl_table_find(const kl_table *table, const kl_topic_key *key) {
    if (key->id == NULL) return find_name(table, key->name.data, key->name.bytes);
    const kl_topic *topic = *id_slot(table, key->id);
    while (topic && memcmp(topic->id, key->id, KL_TOPIC_ID_BYTES) != 0)
        topic = topic->next_by_id;
    return topic;
}

int32_t kl_topic_flags(const kl_topic *topic) { return topic->flags; }

kl_replica *kl_topic_replica(const kl_topic *topic, int32_t partition) {
    if (partition < 0 || partition >= topic->capacity) return NULL;
    kl_replica *replica = topic->replicas[partition];
    return replica ? kl_replica_retain(replica) : NULL;
}

bool kl_topic_offline(const kl_topic *topic, int32_t partition) {
    return topic->offline && partition >= 0 && partition < topic->capacity &&
           topic->offline[partition];
}

/* ---- changes --------------------------------------------------------------------------- */

static void link_topic(kl_table *table, kl_topic *topic) {
    kl_topic **slot = name_slot(table, topic->name, topic->name_bytes);
    topic->next_by_name = *slot;
    *slot = topic;
    if (!topic->has_id) return;
    slot = id_slot(table, topic->id);
    topic->next_by_id = *slot;
    *slot = topic;
}

static void unlink_id(kl_table *table, kl_topic *topic) {
    if (!topic->has_id) return;
    kl_topic **at = id_slot(table, topic->id);
    while (*at != topic) at = &(*at)->next_by_id;
    *at = topic->next_by_id;
}

static void unlink_topic(kl_table *table, kl_topic *topic) {
    kl_topic **at = name_slot(table, topic->name, topic->name_bytes);
    while (*at != topic) at = &(*at)->next_by_name;
    *at = topic->next_by_name;
    unlink_id(table, topic);
    table->count--;
}

/* Twice as many lists when there are as many topics; when there is no memory they get long. */
static void grow(kl_table *table) {
    if (table->count < table->slots) return;
    kl_topic **by_name = kl_alloc(table->slots * 2 * sizeof *by_name);
    kl_topic **by_id = kl_alloc(table->slots * 2 * sizeof *by_id);
    if (by_name == NULL || by_id == NULL) {
        kl_release(by_name);
        kl_release(by_id);
        return;
    }
    kl_topic **old = table->by_name;
    size_t old_slots = table->slots;
    kl_release(table->by_id);
    table->by_name = by_name;
    table->by_id = by_id;
    table->slots *= 2;
    for (size_t i = 0; i < old_slots; i++)
        for (kl_topic *topic = old[i], *next; topic; topic = next) {
            next = topic->next_by_name;
            link_topic(table, topic);
        }
    kl_release(old);
}

static bool is_zero(const uint8_t *id) {
    static const uint8_t zero[KL_TOPIC_ID_BYTES];
    return memcmp(id, zero, sizeof zero) == 0;
}

kl_status kl_table_put_topic(kl_table *table, const char *name, const uint8_t *id,
                             int32_t flags) {
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > TOPIC_NAME_BYTES_MAX)
        return kl_fail(KL_E_ARGUMENT, "a topic's name of %zu bytes, wanted 1 to %d", bytes,
                       TOPIC_NAME_BYTES_MAX);
    kl_status status = KL_OK;
    lock_for_change(table);
    kl_topic *topic = find_name(table, name, bytes);
    if (topic) {
        unlink_topic(table, topic); /* its id may be another now */
    } else {
        topic = kl_alloc(sizeof *topic);
        if (topic == NULL) {
            status = kl_fail(KL_E_NO_MEMORY, "no memory for topic %s", name);
            goto out;
        }
        topic->name_bytes = bytes;
        memcpy(topic->name, name, bytes);
    }
    memcpy(topic->id, id, KL_TOPIC_ID_BYTES);
    topic->has_id = !is_zero(id);
    topic->flags = flags;
    grow(table);
    link_topic(table, topic);
    table->count++;
out:
    kl_table_unlock(table);
    return status;
}

/* Locked.  A place for the partition. */
static kl_status reserve(kl_topic *topic, int32_t partition) {
    if (partition < topic->capacity) return KL_OK;
    int32_t capacity = KL_MAX(partition + 1, KL_MIN(topic->capacity * 2, PARTITIONS_MAX));
    kl_replica **grown =
        kl_resize(topic->replicas, (size_t)capacity * sizeof(kl_replica *));
    if (grown == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %d partitions", capacity);
    kl_release(topic->offline); /* it is said again when one is asked for */
    topic->offline = NULL;
    memset(grown + topic->capacity, 0,
           (size_t)(capacity - topic->capacity) * sizeof(kl_replica *));
    topic->replicas = grown;
    topic->capacity = capacity;
    return KL_OK;
}

kl_status kl_table_put_partition(kl_table *table, const char *name, int32_t partition,
                                 kl_log *log, const kl_role *role) {
    if (partition < 0 || partition >= PARTITIONS_MAX)
        return kl_fail(KL_E_ARGUMENT, "partition %d, wanted 0 to %d", partition,
                       PARTITIONS_MAX - 1);
    kl_replica *fresh = NULL;
    lock_for_change(table);
    kl_topic *topic = find_name(table, name, strlen(name));
    kl_status status = topic ? reserve(topic, partition)
                             : kl_fail(KL_E_NOT_FOUND, "there is no topic %s", name);
    if (status) goto out;
    kl_replica *old = topic->replicas[partition];
    if (old && old->log == log) {
        kl_replica_set_role(old, role);
        goto out;
    }
    if (old) {
        status =
            kl_fail(KL_E_ARGUMENT, "partition %s-%d has a log already: remove it first",
                    name, partition);
        goto out;
    }
    status = kl_replica_new(log, partition, role, &fresh);
    if (!status) topic->replicas[partition] = fresh;
out:
    kl_table_unlock(table);
    return status;
}

kl_status kl_table_put_offline(kl_table *table, const char *name, int32_t partition,
                               bool offline) {
    if (partition < 0 || partition >= PARTITIONS_MAX)
        return kl_fail(KL_E_ARGUMENT, "partition %d, wanted 0 to %d", partition,
                       PARTITIONS_MAX - 1);
    lock_for_change(table);
    kl_topic *topic = find_name(table, name, strlen(name));
    kl_status status = topic ? reserve(topic, partition)
                             : kl_fail(KL_E_NOT_FOUND, "there is no topic %s", name);
    if (status) goto out;
    if (topic->offline == NULL && offline) {
        topic->offline = kl_alloc((size_t)topic->capacity * sizeof *topic->offline);
        if (topic->offline == NULL)
            status = kl_fail(KL_E_NO_MEMORY, "no memory for an offline partition");
    }
    if (topic->offline) topic->offline[partition] = offline;
out:
    kl_table_unlock(table);
    return status;
}

/* Nobody finds it any more; the calls that did are waited for. */
static void end_replica(kl_replica *replica) {
    if (replica == NULL) return;
    kl_replica_remove(replica);
    kl_replica_drop(replica);
}

static void end_topic(kl_topic *topic) {
    for (int32_t i = 0; i < topic->capacity; i++) end_replica(topic->replicas[i]);
    kl_release(topic->replicas);
    kl_release(topic->offline);
    kl_release(topic);
}

kl_status kl_table_remove(kl_table *table, const char *name, int32_t partition) {
    kl_replica *replica = NULL;
    lock_for_change(table);
    kl_topic *topic = find_name(table, name, strlen(name));
    if (topic && partition < 0) {
        unlink_topic(table, topic);
    } else if (topic && partition < topic->capacity) {
        replica = topic->replicas[partition];
        topic->replicas[partition] = NULL;
    }
    kl_table_unlock(table);
    if (topic == NULL) return kl_fail(KL_E_NOT_FOUND, "there is no topic %s", name);
    if (partition < 0) end_topic(topic);
    else if (replica) end_replica(replica);
    else return kl_fail(KL_E_NOT_FOUND, "there is no partition %s-%d", name, partition);
    return KL_OK;
}

void kl_table_clear(kl_table *table) {
    kl_topic *all = NULL, *next;
    lock_for_change(table);
    for (size_t i = 0; i < table->slots; i++)
        for (kl_topic *topic = table->by_name[i]; topic; topic = next) {
            next = topic->next_by_name;
            topic->next_by_name = all;
            all = topic;
        }
    memset(table->by_name, 0, table->slots * sizeof *table->by_name);
    memset(table->by_id, 0, table->slots * sizeof *table->by_id);
    table->count = 0;
    kl_table_unlock(table);
    for (; all; all = next) {
        next = all->next_by_name;
        end_topic(all);
    }
}

void kl_table_free(kl_table *table) {
    if (table == NULL) return;
    if (table->by_name && table->by_id) kl_table_clear(table);
    kl_release(table->by_name);
    kl_release(table->by_id);
    pthread_rwlock_destroy(&table->lock);
    kl_release(table);
}
