/* watch.h: tells a reader of many partitions which of them have changed, so that it need not check
 * the others.
 *
 * A partition is watched from each look at it; its first change after that adds it to the watch's
 * news, until the next look.  So a partition's changes cost its reader one notification, even if
 * the reader never returns.
 *
 * Locks: a replica's may be held when a watch's is taken, never the other way round. */
#ifndef KL_WATCH_H
#define KL_WATCH_H

#include "base/list.h"
#include "replica.h"

/* A partition's state at the last look. */
typedef struct {
    int32_t to;    /* KL_COMMITTED, KL_UNCOMMITTED, KL_LOG_END: the reader's bound */
    int64_t bound; /* its offset */
    int64_t high_watermark;
    int64_t log_start;
    int32_t leader_epoch;
} kl_seen;

/* Notifies a reader of partitions; one waiting request at a time. */
typedef struct {
    pthread_mutex_t lock; /* guards the members below */
    kl_link news;         /* of kl_watcher: changed partitions, oldest change first */
    void (*wake)(
        void *); /* NULL: no request waits.  Called once, under locks: it must be quick */
    void *owner;
    int64_t wanted; /* bytes left until the call; the end of a partition counts as all */
} kl_watch;

/* A watched partition; in the caller's memory. */
struct kl_watcher {
    kl_replica *replica; /* the caller's reference, until kl_watch_remove; NULL: none */
    kl_watch *watch;     /* guarded by the replica's lock, down to seen_bytes */
    kl_watcher *next, *previous;
    bool linked;
    kl_seen seen;
    int64_t seen_bytes; /* below its bound; -1: unknown */
    kl_link news;       /* guarded by the watch's lock */
};

void kl_watch_init(kl_watch *watch);
void kl_watch_free(kl_watch *watch); /* with no watched partitions */

/* The end of the readable part for a kind of reader. */
static inline int64_t kl_replica_bound(const kl_replica *replica, int32_t to) {
    if (to == KL_LOG_END) return atomic_load(&replica->log_end);
    return atomic_load(to == KL_COMMITTED ? &replica->last_stable
                                          : &replica->high_watermark);
}

/* Watch a partition last seen as `seen`; a change since then is news.  The same watch may watch it
 * already. */
void kl_watch_add(kl_watch *watch, kl_watcher *watcher, kl_replica *replica,
                  const kl_seen *seen);
/* Remove it from all lists. */
void kl_watch_remove(kl_watcher *watcher);
/* Remove and return the oldest of the news, or NULL. */
kl_watcher *kl_watch_next(kl_watch *watch);
/* Call `wake` once this many more bytes are readable.  False: there are news, handle them first. */
bool kl_watch_wait(kl_watch *watch, void (*wake)(void *), void *owner, int64_t wanted);
/* Do not call `wake` any more. */
void kl_watch_stop(kl_watch *watch);

/* Called by replica.c under its lock after a change; `all`: one that every reader must see. */
void kl_watchers_told(kl_replica *replica, bool all);

#endif
