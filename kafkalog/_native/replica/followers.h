/* followers.h: the followers of a partition led by this node, their progress, and so the high
 * watermark.  Kafka's Partition.scala.
 *
 * Locks: `telling` before the log's lock; `lock` after every other. */
#ifndef KL_FOLLOWERS_H
#define KL_FOLLOWERS_H

#include "log/log.h"

typedef struct {
    kl_follower who;
    int64_t log_end; /* its last fetch offset: it has all below; -1: no fetch yet */
    int64_t log_start;
    int64_t leader_end; /* the leader's log end then */
    int64_t fetched_ms;
    int64_t caught_up_ms; /* when it last had the whole log */
    bool told;            /* reported as able to join the ISR */
} kl_copy;

typedef struct {
    pthread_mutex_t telling; /* serialises updates of the log */
    pthread_mutex_t lock;    /* guards the members below */
    kl_copy *list;
    int32_t count;
    _Atomic int64_t shown;   /* last value passed to the log; INT64_MIN: pass it again */
    _Atomic int32_t in_sync; /* ISR size, including the leader */
    _Atomic int32_t maximal; /* the same, including members to be added */
    _Atomic int32_t minimum; /* min.insync.replicas; 0: not set */
} kl_followers;

/* A follower's Fetch. */
typedef struct {
    int32_t id;
    int64_t broker_epoch; /* -1: not reported */
    int64_t offset;       /* the follower has all below */
    int64_t log_start;
    int64_t leader_end; /* the leader's log end when it read for this fetch, */
    int64_t joins_at;   /* and the offset from which it may join the ISR */
    int64_t now_ms;
} kl_follower_fetch;

void kl_followers_init(kl_followers *followers);
void kl_followers_free(kl_followers *followers);
/* Replace the followers; with `keep`, remaining ones keep their progress.  Otherwise each must
 * fetch again, and in-sync ones count as caught up now.  KL_E_ARGUMENT, KL_E_NO_MEMORY:
 * unchanged. */
kl_status kl_followers_set(kl_followers *followers, const kl_follower *those, int32_t count,
                           bool keep, int64_t now_ms);
/* Their progress, relative to a leader that ends at `log_end`; *count of them, at most `room` are
 * copied. */
void kl_followers_get(kl_followers *followers, int64_t log_end, int64_t now_ms,
                      kl_follower_state *out, int32_t room, int32_t *count);
/* True if `id` is a follower with this broker epoch. */
bool kl_followers_have(kl_followers *followers, int32_t id, int64_t broker_epoch);
/* True if `id` is in sync. */
bool kl_followers_in_sync(kl_followers *followers, int32_t id);
/* The furthest ISR member among `nodes` that has `offset`; -1: none.  Nodes outside the ISR are
 * excluded: they may never catch up. */
int32_t kl_followers_nearest(kl_followers *followers, const int32_t *nodes, int32_t count,
                             int64_t offset);
/* Record a follower's fetch.  True if it may join the ISR and that is not reported yet; see
 * kl_followers_untold. */
bool kl_followers_fetched(kl_followers *followers, const kl_follower_fetch *fetch);
/* The report did not fit: the next fetch repeats it. */
void kl_followers_untold(kl_followers *followers, int32_t id);
/* Update the log's high watermark limit, if it has changed. */
kl_status kl_followers_tell(kl_followers *followers, kl_log *log);
/* The log was truncated: followers' records above its end are not those appended there later. Under
 * the log's lock. */
void kl_followers_cut(kl_followers *followers, int64_t log_end);
/* True if enough replicas are in sync for acks=all. */
bool kl_followers_suffice(const kl_followers *followers);

#endif
