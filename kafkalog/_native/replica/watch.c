/* watch.c: see watch.h. */
#include "watch.h"

void kl_watch_init(kl_watch *watch) {
    pthread_mutex_init(&watch->lock, NULL);
    kl_ring_init(&watch->news);
    watch->wake = NULL;
}

void kl_watch_free(kl_watch *watch) {
    KL_ASSERT(kl_ring_first(&watch->news) == NULL);
    pthread_mutex_destroy(&watch->lock);
}

/* ---- a partition's watchers: under its lock ----------------------------------------------- */

static void link_watcher(kl_replica *replica, kl_watcher *watcher) {
    KL_ASSERT_HELD(&replica->lock);
    if (watcher->linked) return;
    watcher->previous = NULL;
    watcher->next = replica->watchers;
    if (watcher->next) watcher->next->previous = watcher;
    replica->watchers = watcher;
    watcher->linked = true;
    atomic_fetch_add(&replica->waiting, 1);
}

static void unlink_watcher(kl_replica *replica, kl_watcher *watcher) {
    KL_ASSERT_HELD(&replica->lock);
    if (!watcher->linked) return;
    KL_ASSERT((watcher->previous ? watcher->previous->next : replica->watchers) == watcher);
    if (watcher->next) watcher->next->previous = watcher->previous;
    if (watcher->previous) watcher->previous->next = watcher->next;
    else replica->watchers = watcher->next;
    watcher->linked = false;
    int before = atomic_fetch_sub(&replica->waiting, 1);
    KL_ASSERT(before > 0);
}

static kl_seen look(const kl_replica *replica, int32_t to) {
    /* In this order: loading the high watermark makes all earlier stores visible. */
    int64_t high_watermark = atomic_load(&replica->high_watermark);
    return (kl_seen){to, kl_replica_bound(replica, to), high_watermark,
                     atomic_load(&replica->log_start), atomic_load(&replica->leader_epoch)};
}

static bool same(const kl_seen *a, const kl_seen *b) {
    return a->bound == b->bound && a->high_watermark == b->high_watermark &&
           a->log_start == b->log_start && a->leader_epoch == b->leader_epoch;
}

/* Bytes below `bound` since the log was opened; -1: unknown, as it is not the end. */
static int64_t shown_bytes(const kl_replica *replica, int64_t bound) {
    /* Reverse to the order of the stores, so that the bytes never exceed the end. */
    int64_t bytes = atomic_load(&replica->appended_bytes);
    return bound == atomic_load(&replica->log_end) ? bytes : -1;
}

/* Add the watcher to the news.  `bytes` more are readable. */
static void tell(kl_replica *replica, kl_watcher *watcher, int64_t bytes) {
    kl_watch *watch = watcher->watch;
    KL_ASSERT(bytes >= 0);
    kl_lock(&watch->lock);
    if (!kl_link_in(&watcher->news)) kl_link_last(&watch->news, &watcher->news);
    bool waits = watch->wake != NULL;
    if (waits) {
        watch->wanted -= KL_MIN(bytes, watch->wanted);
        if (watch->wanted == 0) {
            watch->wake(watch->owner);
            watch->wake = NULL;
        }
    }
    kl_unlock(&watch->lock);
    if (!waits) unlink_watcher(replica, watcher); /* until the next look */
}

void kl_watchers_told(kl_replica *replica, bool all) {
    kl_watcher *next;
    for (kl_watcher *watcher = replica->watchers; watcher; watcher = next) {
        next = watcher->next;
        const kl_seen before = watcher->seen;
        int64_t before_bytes = watcher->seen_bytes, bytes = 0;
        watcher->seen = look(replica, before.to);
        if (!all && same(&before, &watcher->seen)) continue;
        watcher->seen_bytes = shown_bytes(replica, watcher->seen.bound);
        bool known = before_bytes >= 0 && watcher->seen_bytes >= 0;
        if (all || watcher->seen.bound < before.bound) bytes = INT64_MAX;
        else if (watcher->seen.bound > before.bound)
            bytes = known ? watcher->seen_bytes - before_bytes : INT64_MAX;
        tell(replica, watcher, bytes);
    }
}

/* ---- watchers -------------------------------------------------------------------------------- */

void kl_watch_add(kl_watch *watch, kl_watcher *watcher, kl_replica *replica,
                  const kl_seen *seen) {
    kl_lock(&replica->lock);
    KL_ASSERT(!watcher->linked || (watcher->watch == watch && watcher->replica == replica));
    link_watcher(replica, watcher); /* later changes find it */
    const kl_seen now = look(replica, seen->to);
    watcher->replica = replica;
    watcher->watch = watch;
    watcher->seen = *seen;
    watcher->seen_bytes = shown_bytes(replica, seen->bound);
    if (!same(&now, seen) || atomic_load(&replica->ended) ||
        atomic_load(&replica->users) >= KL_REPLICA_REMOVED)
        tell(replica, watcher, INT64_MAX);
    kl_unlock(&replica->lock);
}

void kl_watch_remove(kl_watcher *watcher) {
    if (watcher->replica == NULL) return;
    kl_lock(&watcher->replica->lock);
    unlink_watcher(watcher->replica, watcher);
    kl_unlock(&watcher->replica->lock);
    kl_lock(&watcher->watch->lock); /* no thread changes `watch` now */
    kl_link_remove(&watcher->news);
    kl_unlock(&watcher->watch->lock);
    watcher->replica = NULL;
}

kl_watcher *kl_watch_next(kl_watch *watch) {
    kl_lock(&watch->lock);
    kl_link *first = kl_ring_first(&watch->news);
    if (first) kl_link_remove(first);
    kl_unlock(&watch->lock);
    return first ? KL_HOLDER(first, kl_watcher, news) : NULL;
}

bool kl_watch_wait(kl_watch *watch, void (*wake)(void *), void *owner, int64_t wanted) {
    kl_lock(&watch->lock);
    KL_ASSERT(watch->wake == NULL && wanted > 0); /* one request at a time */
    bool waits = kl_ring_first(&watch->news) == NULL;
    if (waits) {
        watch->wake = wake;
        watch->owner = owner;
        watch->wanted = wanted;
    }
    kl_unlock(&watch->lock);
    return waits;
}

void kl_watch_stop(kl_watch *watch) {
    kl_lock(&watch->lock);
    watch->wake = NULL;
    kl_unlock(&watch->lock);
}
