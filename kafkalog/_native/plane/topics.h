/* topics.h: the topics and partitions known to the fast path, by name and by id. */
#ifndef KL_TOPICS_H
#define KL_TOPICS_H

#include "replica/replica.h"

typedef struct kl_topics kl_topics;
typedef struct kl_topic kl_topic;

enum {
    KL_TOPIC_ID_BYTES = 16,       /* a UUID */
    KL_TOPIC_NAME_BYTES_MAX = 249 /* Kafka's limit; a request may name longer ones */
};

/* A request's name of a topic. */
typedef struct {
    kl_span name;
    const uint8_t *id; /* KL_TOPIC_ID_BYTES, or NULL: by name */
} kl_topic_key;

/* Locks: a log's lock may be taken while `changing` is held, never while the lookup lock is: a
 * lookup by a network thread waits for no log. */
kl_status kl_topics_new(kl_topics **out);
/* Remove all topics.  On return no call uses a log. */
void kl_topics_clear(kl_topics *topics);
void kl_topics_free(kl_topics *topics); /* clears it; NULL is fine */

/* Lookups, between lock and unlock; results are valid until unlock. */
void kl_topics_lock(kl_topics *topics);
void kl_topics_unlock(kl_topics *topics);
const kl_topic *kl_topics_find(const kl_topics *topics, const kl_topic_key *key);
kl_span kl_topic_name(const kl_topic *topic);
int32_t kl_topic_flags(const kl_topic *topic);
/* The partition, retained; NULL: not in the table.  `empty`: also one without a log, which can only
 * be read. */
kl_replica *kl_topic_replica(const kl_topic *topic, int32_t partition, bool empty);

/* True if its log could not be opened. */
bool kl_topic_offline(const kl_topic *topic, int32_t partition);

/* As kl_server_get_traffic. */
void kl_topics_traffic(kl_topics *topics, kl_topic_traffic *out, size_t room, size_t *count,
                       int64_t *all);

/* Make all readers with remembered results look again. */
void kl_topics_touch(kl_topics *topics);

/* Changes.  KL_E_ARGUMENT, KL_E_NOT_FOUND (no such topic), KL_E_NO_MEMORY. */
kl_status kl_topics_put_topic(kl_topics *topics, const char *name, const uint8_t *id,
                              int32_t flags);
kl_status kl_topics_put_partition(kl_topics *topics, const char *name, int32_t partition,
                                  kl_log *log, const kl_role *role);
kl_status kl_topics_put_offline(kl_topics *topics, const char *name, int32_t partition,
                                bool offline);
/* All partitions, or one (partition >= 0).  On return no call uses their logs. */
kl_status kl_topics_remove(kl_topics *topics, const char *name, int32_t partition);

#endif
