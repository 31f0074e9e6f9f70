/* replica.h: a partition's role on this node: where it leads, how far it may be read, who
 * waits for it to move.
 *
 * Locks: the log's lock may be held when a replica's is taken (the log tells of its moves
 * so), never the other way round. */
#ifndef KL_REPLICA_H
#define KL_REPLICA_H

#include "log/log.h"

typedef struct kl_replica kl_replica;
typedef struct kl_waiter kl_waiter;
typedef struct kl_wait kl_wait;

/* What a waiter waits for. */
typedef enum {
    KL_FOR_OFFSET,    /* the high watermark reaches `offset` */
    KL_FOR_DISK,      /* the same, and all below `offset` is on disk */
    KL_FOR_SHOWN,     /* there is more below the high watermark: counts bytes */
    KL_FOR_COMMITTED, /* the same, below the last stable offset */
    KL_FOR_END        /* the same, below the log end */
} kl_wait_kind;

/* What an acknowledgement waits for. */
typedef struct {
    kl_wait_kind kind; /* KL_FOR_DISK or KL_FOR_OFFSET */
    int64_t offset;
    int64_t cuts; /* of the replica, before the append */
} kl_promise;

/* One partition that somebody waits for; it lies in the caller's memory. */
struct kl_waiter {
    kl_replica *replica;
    kl_wait *wait; /* what all partitions of a request share */
    kl_waiter *next, *previous;
    kl_wait_kind kind;
    kl_promise promise; /* KL_FOR_OFFSET, KL_FOR_DISK */
    int64_t seen_bytes; /* below its bound, when it was last looked at; -1: not known */
    bool linked; /* guarded by the replica's lock, as are next, previous, seen_bytes */
};

enum { KL_WAIT_OPEN = 0, KL_WAIT_ARMED = 1, KL_WAIT_WOKEN = 2 };

/* A request that waits.  `wake` is called once, when `wanted` is used up: of KL_FOR_OFFSET
 * and KL_FOR_DISK each partition takes 1, of the others as many as there are new bytes; what
 * ends a partition (removed, offline, cut) uses it up at once.  It is called under a
 * replica's lock and must be quick. */
struct kl_wait {
    void (*wake)(void *owner);
    void *owner;
    _Atomic int64_t wanted;
    _Atomic int state;
};

struct kl_replica {
    _Atomic int64_t refs;  /* of the memory */
    _Atomic int64_t users; /* calls inside of the log; REMOVED: no more may begin */
    kl_log *log;           /* valid between kl_replica_enter and kl_replica_leave */
    int32_t partition;     /* set when it is made, never changed */

    /* As the log told last; read freely. */
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

    _Atomic int waiting;  /* waiters and sleepers: 0 lets a move pass without the lock */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved; /* for sleepers, and for the last user of a removed one */
    kl_waiter *first;
};

/* The role over an open log, which must stay open until kl_replica_remove. */
kl_status kl_replica_new(kl_log *log, int32_t partition, const kl_role *role,
                         kl_replica **out);
kl_replica *kl_replica_retain(kl_replica *replica);
void kl_replica_drop(kl_replica *replica); /* NULL is fine */
void kl_replica_set_role(kl_replica *replica, const kl_role *role);
/* No call uses the log when this returns, nor will one; its waiters are woken. */
void kl_replica_remove(kl_replica *replica);

/* Use the log until kl_replica_leave; false when it was removed. */
bool kl_replica_enter(kl_replica *replica);
void kl_replica_leave(kl_replica *replica);

/* Append a producer's batches as the leader.  *promise: what is to be waited for with `acks`
 * -1, or when out->sync_due.  Between enter and leave.  The statuses of
 * kl_log_append_batches. */
kl_status kl_replica_append(kl_replica *replica, kl_span batches,
                            const kl_append_options *options, int32_t acks,
                            kl_appended *out, kl_promise *promise);
/* Whether what it waits for was reached. */
bool kl_replica_kept(const kl_replica *replica, const kl_promise *promise);
/* Whether it never will be, as the log was cut since: what was promised may be gone, and other
 * records stand in its place. */
bool kl_replica_broken(const kl_replica *replica, const kl_promise *promise);
/* The end of what a wait kind may see. */
int64_t kl_replica_bound(const kl_replica *replica, kl_wait_kind kind);

/* ---- waiting --------------------------------------------------------------------------- */

void kl_wait_init(kl_wait *wait, void (*wake)(void *), void *owner, int64_t wanted);
/* Add a partition: replica, kind and promise of `waiter` are set.  The caller keeps a
 * reference to the replica until kl_wait_remove.  `bound`: what it saw as the kind's end,
 * so that a move in between counts. */
void kl_wait_add(kl_wait *wait, kl_waiter *waiter, int64_t bound);
/* All are added: false when it is over already, and `wake` will not be called. */
bool kl_wait_arm(kl_wait *wait);
/* Take it out; after it was taken out of all, `wake` is not called any more. */
void kl_wait_remove(kl_waiter *waiter);

/* Sleep until the high watermark reaches `offset` and, of a durable role or with `on_disk`,
 * all below it is on disk.  Between enter and leave.  KL_E_TIMEOUT, KL_E_STORAGE, KL_E_CLOSED
 * (removed), KL_E_STALE (cut). */
kl_status kl_replica_sleep(kl_replica *replica, int64_t offset, bool on_disk,
                           int32_t timeout_ms);

#endif
