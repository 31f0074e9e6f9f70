/* replica.h: a partition's role on this node: its leader, up to where it may be read, and what
 * producers were promised.  watch.h notifies its readers.
 *
 * Locks: the log's lock may be held when a replica's is taken (the log reports its moves that
 * way), never the other way round. */
#ifndef KL_REPLICA_H
#define KL_REPLICA_H

#include "followers.h"

typedef struct kl_replica kl_replica;
typedef struct kl_waiter kl_waiter;
typedef struct kl_wait kl_wait;
typedef struct kl_watcher kl_watcher;

/* What a waiter waits for. */
typedef enum {
    KL_FOR_OFFSET, /* the high watermark reaches `offset` */
    KL_FOR_DISK    /* the same, and all below `offset` is on disk */
} kl_wait_kind;

/* Added to the count of users: more than there can be calls. */
#define KL_REPLICA_REMOVED ((int64_t)1 << 40)

KL_STATIC_ASSERT(KL_REPLICA_REMOVED > INT32_MAX, "more than there are threads");

/* What an acknowledgement waits for. */
typedef struct {
    kl_wait_kind kind;
    int64_t offset;
    int64_t cuts; /* of the replica, before the append */
} kl_promise;

/* One promise that a caller waits for; it is in the caller's memory. */
struct kl_waiter {
    kl_replica *replica;
    kl_wait *wait; /* what all partitions of a request share */
    kl_waiter *next, *previous;
    kl_promise promise;
    bool linked; /* guarded by the replica's lock, as are next and previous */
};

enum { KL_WAIT_OPEN = 0, KL_WAIT_ARMED = 1, KL_WAIT_WOKEN = 2 };

/* A request that waits.  `wake` is called once, when `wanted` is used up: each promise that is
 * kept takes 1; what ends a partition (removed, offline, cut) uses it up at once.  It is called
 * under a replica's lock and must be quick. */
struct kl_wait {
    void (*wake)(void *owner);
    void *owner;
    _Atomic int64_t wanted;
    _Atomic int state;
};

struct kl_replica {
    _Atomic int64_t refs; /* of the memory */
    _Atomic int64_t
        users; /* calls inside of the log; KL_REPLICA_REMOVED: no more may begin */
    kl_log *_Atomic log; /* valid between kl_replica_enter and kl_replica_leave */
    int32_t partition;   /* set when it is made, never changed */

    /* As the log reported last; read freely. */
    _Atomic int64_t log_start;
    _Atomic int64_t last_stable;
    _Atomic int64_t high_watermark;
    _Atomic int64_t log_end;
    _Atomic int64_t flushed;
    _Atomic int64_t appended_bytes;
    _Atomic int64_t cuts; /* how often records were cut off its end */
    _Atomic int ended;    /* the log is closed or offline */
    _Atomic int32_t leader_epoch;
    _Atomic int durable;
    _Atomic int follows; /* another node leads it, */
    _Atomic int32_t leader_id;
    _Atomic int throttled;
    _Atomic int hands_over;
    _Atomic int64_t tag;
    _Atomic int32_t kept_epoch;  /* in which its followers were set; -1: none */
    _Atomic int64_t epoch_start; /* its end when this leader epoch began here */
    _Atomic int64_t appending;   /* producers' calls that found it leading, */
    _Atomic int64_t appending_1; /* those of them with acks=1 */
    kl_followers followers;

    _Atomic int waiting;  /* waiters, watchers, sleepers: 0: a move takes no lock */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved; /* for sleepers, and for the last user of a removed one */
    kl_waiter *first;
    kl_watcher *watchers;
};

/* The role over an open log, which must stay open until kl_replica_remove; NULL: of a partition
 * that was never written to, which begins and ends at 0. */
kl_status kl_replica_new(kl_log *log, int32_t partition, const kl_role *role,
                         kl_replica **out);
kl_replica *kl_replica_retain(kl_replica *replica);
void kl_replica_drop(kl_replica *replica); /* NULL is fine */
/* Once it follows, no producer's append is under way, and callers that wait for one are woken.
 * Once it hands over, none with acks=1 is, unless no copy may be in sync.
 * Once it leads, its log has its epoch, so that no append of another epoch is taken.  On failure,
 * which is kl_log_set_leader_epoch's, it keeps the role that it has. */
kl_status kl_replica_set_role(kl_replica *replica, const kl_role *role);
/* See kl_server_set_followers.  Where it hands over and a copy may be in sync, no append with
 * acks=1 is under way on return. */
kl_status kl_replica_set_followers(kl_replica *replica, const kl_follower *followers,
                                   int32_t count, int64_t now_ms);
/* A follower has fetched.  True when it may join the ISR and that must be reported.  Between
 * enter and leave. */
bool kl_replica_fetched(kl_replica *replica, kl_follower_fetch *fetch);
/* The log of one that has none. */
kl_status kl_replica_attach(kl_replica *replica, kl_log *log); /* on failure: remove it */
/* Notify readers of some other change. */
void kl_replica_touch(kl_replica *replica);
/* On return no call uses the log any more; its waiters are woken. */
void kl_replica_remove(kl_replica *replica);

/* Use the log until kl_replica_leave; false when it was removed. */
bool kl_replica_enter(kl_replica *replica);
void kl_replica_leave(kl_replica *replica);

/* Append a producer's batches as the leader.  *promise: what to wait for with `acks` -1, or
 * if out->sync_due.  Between enter and leave.  Statuses of kl_log_append_batches;
 * KL_E_NOT_LEADER_OR_FOLLOWER, also if it leads in another epoch than the options say, and
 * with acks -1 KL_E_NOT_ENOUGH_REPLICAS. */
kl_status kl_replica_append(kl_replica *replica, kl_span batches,
                            const kl_append_options *options, int32_t acks,
                            kl_appended *out, kl_promise *promise);
/* Whether what it waits for was reached. */
bool kl_replica_kept(const kl_replica *replica, const kl_promise *promise);
/* Whether it never will be, as the log was cut since: the promised records may be gone, and others
 * may have their offsets. */
bool kl_replica_broken(const kl_replica *replica, const kl_promise *promise);
/* ---- waiting --------------------------------------------------------------------------- */

void kl_wait_init(kl_wait *wait, void (*wake)(void *), void *owner, int64_t wanted);
/* Add a promise: replica and promise of `waiter` are set.  The caller keeps a reference to the
 * replica until kl_wait_remove. */
void kl_wait_add(kl_wait *wait, kl_waiter *waiter);
/* All are added: false when it is over already, and `wake` will not be called. */
bool kl_wait_arm(kl_wait *wait);
/* Take it out; after it was taken out of all, `wake` is not called any more. */
void kl_wait_remove(kl_waiter *waiter);

/* Sleep until the high watermark reaches `offset` and, of a durable role or with `on_disk`,
 * all below it is on disk.  Between enter and leave.  KL_E_TIMEOUT, KL_E_STORAGE, KL_E_CLOSED
 * (removed), KL_E_STALE (cut: below `offset`, or at all since there were `cuts`, if >= 0). */
kl_status kl_replica_sleep(kl_replica *replica, int64_t offset, int64_t cuts, bool on_disk,
                           int32_t timeout_ms);

#endif
