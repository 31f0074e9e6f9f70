/* watch.h: tells a reader of many partitions which of them moved, so that it need not check the
 * others.
 *
 * A partition is watched from the moment it was looked at; its first move after that puts it among
 * the watch's news, where it stays until it is looked at again.  So a busy reader costs a
 * partition's moves once, even if it never returns.
 *
 * Locks: a replica's may be held when a watch's is taken, never the other way round. */
#ifndef KL_WATCH_H
#define KL_WATCH_H

#include "base/list.h"
#include "replica.h"

/* What was seen of a partition when it was looked at. */
typedef struct {
    int32_t to;    /* KL_COMMITTED, KL_UNCOMMITTED, KL_LOG_END: how far its reader sees */
    int64_t bound; /* that end */
    int64_t high_watermark;
    int64_t log_start;
    int32_t leader_epoch;
} kl_seen;

/* What a reader of partitions waits with: one request at a time. */
typedef struct {
    pthread_mutex_t lock; /* guards what follows */
    kl_link news;         /* of kl_watcher, those that moved: the first first */
    void (*wake)(
        void *); /* NULL: no request waits.  Called once, under locks: it must be quick */
    void *owner;
    int64_t wanted; /* bytes, until it is called; what ends a partition is all of them */
} kl_watch;

/* One watched partition; it is in the caller's memory. */
struct kl_watcher {
    kl_replica *replica; /* the caller's reference, until kl_watch_remove; NULL: none */
    kl_watch *watch;     /* guarded by the replica's lock, as is what follows */
    kl_watcher *next, *previous;
    bool linked;
    kl_seen seen;
    int64_t seen_bytes; /* below its bound; -1: not known */
    kl_link news;       /* guarded by the watch's lock */
};

void kl_watch_init(kl_watch *watch);
void kl_watch_free(kl_watch *watch); /* nothing is watched any more */

/* The end of what readers of a kind may see. */
static inline int64_t kl_replica_bound(const kl_replica *replica, int32_t to) {
    if (to == KL_LOG_END) return atomic_load(&replica->log_end);
    return atomic_load(to == KL_COMMITTED ? &replica->last_stable
                                          : &replica->high_watermark);
}

/* Watch a partition of which `seen` was found; if it moved since, it is among the news.  It may
 * be watched already, by the same watch. */
void kl_watch_add(kl_watch *watch, kl_watcher *watcher, kl_replica *replica,
                  const kl_seen *seen);
/* It is in no list any more. */
void kl_watch_remove(kl_watcher *watcher);
/* Remove and return the first of the news; NULL: there are none. */
kl_watcher *kl_watch_next(kl_watch *watch);
/* Call `wake` once this many more bytes are available.  False: there are news, handle them first.
 * */
bool kl_watch_wait(kl_watch *watch, void (*wake)(void *), void *owner, int64_t wanted);
/* `wake` is not called any more. */
void kl_watch_stop(kl_watch *watch);

/* replica.c's, under the replica's lock.  It moved; `all`: in a way that each must look at. */
void kl_watchers_told(kl_replica *replica, bool all);

#endif
