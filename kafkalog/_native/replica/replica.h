/* replica.h: a partition's role on this node: its leader, its high watermark, promises to
 * producers. watch.h notifies readers.
 *
 * Locks: the log's lock may be held when a replica's is taken (the log reports changes that way),
 * never the other way round. */
#ifndef KL_REPLICA_H
#define KL_REPLICA_H

#include "base/count.h"
#include "followers.h"

typedef struct kl_replica kl_replica;
typedef struct kl_waiter kl_waiter;
typedef struct kl_wait kl_wait;
typedef struct kl_watcher kl_watcher;

/* The condition of a wait. */
typedef enum {
    KL_FOR_OFFSET, /* the high watermark reaches `offset` */
    KL_FOR_DISK    /* the same, and all below `offset` is on disk */
} kl_wait_kind;

/* Added to the count of users: more than possible calls. */
#define KL_REPLICA_REMOVED ((int64_t)1 << 40)

KL_STATIC_ASSERT(KL_REPLICA_REMOVED > INT32_MAX, "more than there are threads");

/* The condition of an acknowledgement. */
typedef struct {
    kl_wait_kind kind;
    int64_t offset;
    int64_t cuts; /* the replica's, before the append */
} kl_promise;

/* A caller's wait for one promise; in the caller's memory. */
struct kl_waiter {
    kl_replica *replica;
    kl_wait *wait; /* shared by all partitions of a request */
    kl_waiter *next, *previous;
    kl_promise promise;
    bool linked; /* guarded by the replica's lock, as are next and previous */
};

enum { KL_WAIT_OPEN = 0, KL_WAIT_ARMED = 1, KL_WAIT_WOKEN = 2 };

/* A waiting request.  `wake` is called once, when `wanted` reaches 0: each kept promise subtracts
 * 1, the end of a partition (removed, offline, truncated) everything.  It is called under a
 * replica's lock and must be quick. */
struct kl_wait {
    void (*wake)(void *owner);
    void *owner;
    _Atomic int64_t wanted;
    _Atomic int state;
};

struct kl_replica {
    _Atomic int64_t refs;  /* of the memory */
    _Atomic int64_t users; /* calls using the log; KL_REPLICA_REMOVED: none may begin */
    kl_log *_Atomic log;   /* valid between kl_replica_enter and kl_replica_leave */
    int32_t partition;     /* set at creation, immutable */

    /* The log's last report; read without a lock. */
    _Atomic int64_t log_start;
    _Atomic int64_t last_stable;
    _Atomic int64_t high_watermark;
    _Atomic int64_t log_end;
    _Atomic int64_t flushed;
    _Atomic int64_t appended_bytes;
    _Atomic int64_t cuts; /* number of truncations of its end */
    _Atomic int ended;    /* the log is closed or offline */
    _Atomic int32_t leader_epoch;
    _Atomic int durable;
    _Atomic int follows; /* another node is the leader */
    _Atomic int32_t leader_id;
    _Atomic int throttled;
    _Atomic int hands_over;
    _Atomic int64_t tag;
    _Atomic int32_t kept_epoch;  /* epoch of its followers; -1: none */
    _Atomic int64_t epoch_start; /* log end when this leader epoch began */
    _Atomic int64_t appending;   /* producers' appends in progress, */
    _Atomic int64_t appending_1; /* those with acks=1 */
    kl_followers followers;
    kl_count traffic[KL_TRAFFIC]; /* written by kl_count_share */

    _Atomic int waiting;  /* waiters, watchers, sleepers; 0: a change takes no lock */
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t moved; /* for sleepers, and for the removal to await users */
    kl_waiter *first;
    kl_watcher *watchers;
};

/* Create a role for an open log, which must stay open until kl_replica_remove; NULL: a partition
 * never written to, which begins and ends at 0. */
kl_status kl_replica_new(kl_log *log, int32_t partition, const kl_role *role,
                         kl_replica **out);
kl_replica *kl_replica_retain(kl_replica *replica);
void kl_replica_drop(kl_replica *replica); /* NULL is fine */
/* On return: a follower has no producer's append in progress, and waiting callers are woken; a
 * leader that hands over has none with acks=1, unless no follower may be in sync; a new leader's
 * log has its epoch, and appends of other epochs are refused.  On failure, that of
 * kl_log_set_leader_epoch, the role is unchanged. */
kl_status kl_replica_set_role(kl_replica *replica, const kl_role *role);
/* See kl_server_set_followers.  If the leader hands over and a follower may be in sync, no append
 * with acks=1 is in progress on return. */
kl_status kl_replica_set_followers(kl_replica *replica, const kl_follower *followers,
                                   int32_t count, int64_t now_ms);
/* Record a follower's fetch.  True if it may join the ISR and that must be reported.  Between enter
 * and leave. */
bool kl_replica_fetched(kl_replica *replica, kl_follower_fetch *fetch);
/* Give a replica without a log its log. */
kl_status kl_replica_attach(kl_replica *replica, kl_log *log); /* on failure: remove it */
/* Notify readers of any other change. */
void kl_replica_touch(kl_replica *replica);
/* On return no call uses the log; its waiters are woken. */
void kl_replica_remove(kl_replica *replica);

/* Use the log until kl_replica_leave; false: it was removed. */
bool kl_replica_enter(kl_replica *replica);
void kl_replica_leave(kl_replica *replica);

/* Append a producer's batches as the leader.  *promise: wait for it with `acks` -1, or if
 * out->sync_due.  Between enter and leave.  Statuses of kl_log_append_batches;
 * KL_E_NOT_LEADER_OR_FOLLOWER, also if the epoch differs from the options', and with acks -1
 * KL_E_NOT_ENOUGH_REPLICAS. */
kl_status kl_replica_append(kl_replica *replica, kl_span batches,
                            const kl_append_options *options, int32_t acks,
                            kl_appended *out, kl_promise *promise);
/* True if the promise is fulfilled. */
bool kl_replica_kept(const kl_replica *replica, const kl_promise *promise);
/* True if it never will be, because the log was truncated: the records may be gone, and others may
 * have their offsets. */
bool kl_replica_broken(const kl_replica *replica, const kl_promise *promise);
/* ---- waiting --------------------------------------------------------------------------- */

void kl_wait_init(kl_wait *wait, void (*wake)(void *), void *owner, int64_t wanted);
/* Add a promise: set replica and promise of `waiter` before.  The caller keeps a reference to the
 * replica until kl_wait_remove. */
void kl_wait_add(kl_wait *wait, kl_waiter *waiter);
/* After all were added; false: the wait is over, and `wake` will not be called. */
bool kl_wait_arm(kl_wait *wait);
/* Remove a promise; once all are removed, `wake` is not called any more. */
void kl_wait_remove(kl_waiter *waiter);

/* Sleep until the high watermark reaches `offset` and, in a durable role or with `on_disk`, all
 * below is on disk.  Between enter and leave.  KL_E_TIMEOUT, KL_E_STORAGE, KL_E_CLOSED (removed),
 * KL_E_STALE (truncated: below `offset`, or at all since there were `cuts`, if >= 0). */
kl_status kl_replica_sleep(kl_replica *replica, int64_t offset, int64_t cuts, bool on_disk,
                           int32_t timeout_ms);

#endif
