/* followers.h: the other replicas of a partition that is led here: how far each is, and so up to
 * where records are visible.  Kafka's Partition.scala.
 *
 * Locks: `telling` before the log's lock; `lock` after every other. */
#ifndef KL_FOLLOWERS_H
#define KL_FOLLOWERS_H

#include "log/log.h"

typedef struct {
    kl_follower who;
    int64_t log_end; /* what it fetched from last: all below is there; -1: not yet */
    int64_t log_start;
    int64_t leader_end; /* here, when it did */
    int64_t fetched_ms;
    int64_t caught_up_ms; /* when it last had all that was here */
    bool told;            /* it was reported that it may join the ISR */
} kl_copy;

typedef struct {
    pthread_mutex_t telling; /* the log gets one state after the other */
    pthread_mutex_t lock;    /* guards what follows */
    kl_copy *list;
    int32_t count;
    _Atomic int64_t shown;   /* what the log got last; INT64_MIN: it gets it again */
    _Atomic int32_t in_sync; /* copies in the ISR, with the leader's own */
    _Atomic int32_t maximal; /* the same, with those that may be in it */
    _Atomic int32_t minimum; /* min.insync.replicas; 0: not set */
} kl_followers;

/* A follower's Fetch. */
typedef struct {
    int32_t id;
    int64_t broker_epoch; /* -1: not reported */
    int64_t offset;       /* all below is there */
    int64_t log_start;
    int64_t leader_end; /* here, when it was read for, */
    int64_t joins_at;   /* and from where on it may be in the ISR */
    int64_t now_ms;
} kl_follower_fetch;

void kl_followers_init(kl_followers *followers);
void kl_followers_free(kl_followers *followers);
/* Replace them; with `keep`, those that stay keep what they fetched.  Otherwise each must fetch
 * again, and in-sync ones count as caught up now.  KL_E_ARGUMENT, KL_E_NO_MEMORY: nothing is
 * changed. */
kl_status kl_followers_set(kl_followers *followers, const kl_follower *those, int32_t count,
                           bool keep, int64_t now_ms);
/* How far each is of a leader that ends at `log_end`; *count of them, `room` are copied. */
void kl_followers_get(kl_followers *followers, int64_t log_end, int64_t now_ms,
                      kl_follower_state *out, int32_t room, int32_t *count);
/* Whether it is one of them, with this broker epoch. */
bool kl_followers_have(kl_followers *followers, int32_t id, int64_t broker_epoch);
/* Whether it is in sync. */
bool kl_followers_in_sync(kl_followers *followers, int32_t id);
/* Of these nodes the one in the ISR whose copy has what is read from `offset` on and is the
 * furthest; -1: none.  One outside the ISR may never catch up. */
int32_t kl_followers_nearest(kl_followers *followers, const int32_t *nodes, int32_t count,
                             int64_t offset);
/* A follower has fetched.  True if it may join the ISR and that has not been reported yet; see
 * kl_followers_untold. */
bool kl_followers_fetched(kl_followers *followers, const kl_follower_fetch *fetch);
/* There was no room to report it: its next fetch reports it again. */
void kl_followers_untold(kl_followers *followers, int32_t id);
/* Tell the log up to where records are visible, if that has changed. */
kl_status kl_followers_tell(kl_followers *followers, kl_log *log);
/* The log was cut: what they have above its end is not what comes there next.  Under its lock. */
void kl_followers_cut(kl_followers *followers, int64_t log_end);
/* Whether acks=all may be promised. */
bool kl_followers_suffice(const kl_followers *followers);

#endif
