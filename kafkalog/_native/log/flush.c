/* flush.c: group commit.  One round of syncs serves every caller that asked before it began.  A
 * sync thread runs the round, unless there is little to write: then the first caller without a
 * timeout runs it, as a hand-over would take longer than the disk.  A caller with a timeout returns
 * in time, and the round continues. */
#include "log.h"

#include <stdio.h>

#include "base/histogram.h"

enum {
    /* Above these limits a hand-over costs little compared with the disk. */
    OWN_ROUND_BYTES = 4 << 20,
    OWN_ROUND_NS = 50 * 1000 * 1000,
    /* Cap the wait, so that a disk that stalled once does not delay the next round by seconds. */
    GATHER_NS_MAX = 25 * 1000 * 1000,
    /* Above this size, start writing instead of waiting for more callers. */
    GATHER_BYTES = 256 << 10,
    RETRY_MS = 50 /* after a round that failed for lack of a resource */
};

kl_status kl_log_request_sync(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    log->sync_wanted = true;
    return kl_sync_submit(&log->sync);
}

typedef struct {
    kl_segment *segment;
    int64_t next_offset;
    bool derived; /* its derived files were synced, too */
} sync_item;

/* The files of one round, collected under the lock and synced without it. */
typedef struct {
    sync_item *items; /* `one`, or allocated */
    sync_item one;
    size_t count;
    int64_t target;
    int64_t generation;
    bool dir_dirty;
    bool texts_dirty;
    bool tried; /* the failure was a sync, not an open */
} sync_round;

static kl_status begin_round(kl_log *log, sync_round *round) {
    KL_ASSERT(log->syncing && log->flushed <= log->log_end);
    size_t first = kl_version_find(log->version, log->flushed);
    while (first > 0 && log->version->segments[first - 1]->unsynced) first--;
    round->count = log->version->count - first;
    round->items = &round->one;
    if (round->count > 1) round->items = kl_alloc(round->count * sizeof *round->items);
    if (round->items == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory to sync %s", log->path);
    for (size_t i = 0; i < round->count; i++) {
        kl_segment *segment = kl_segment_retain(log->version->segments[first + i]);
        round->items[i] =
            (sync_item){segment, kl_log_next_base(log, first + i), segment->unsynced};
        segment->unsynced = false;
    }
    round->target = log->log_end;
    round->generation = log->generation;
    round->dir_dirty = log->dir_dirty;
    round->texts_dirty = log->texts_dirty;
    log->dir_dirty = log->texts_dirty = false;
    log->sync_wanted = false;
    log->unflushed_records = 0;
    log->round_base = kl_log_active(log)->base_offset;
    log->round_size = kl_log_active(log)->size;
    return KL_OK;
}

/* The folder, partition.metadata and the epochs are synced together with the first records that
 * need them. */
typedef struct {
    kl_dir *dir;
    kl_sync_name names[3];
    size_t count;
} sync_folder;

static kl_status begin_folder(const kl_log *log, const sync_round *round,
                              sync_folder *out) {
    static const char *const texts[] = {KL_EPOCHS_NAME, KL_PARTITION_METADATA_NAME};
    kl_status status = kl_dir_open(log->path, 0, &out->dir);
    if (status) return status;
    int fd = out->dir->fd;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && round->texts_dirty; i++)
        out->names[out->count++] =
            (kl_sync_name){.dir_fd = fd, .name = texts[i], .may_lack = true};
    if (round->dir_dirty)
        out->names[out->count++] = (kl_sync_name){.dir_fd = fd, .name = "."};
    kl_sync_names_begin(out->names, out->count, log->sync.device);
    return KL_OK;
}

static kl_status sync_segments(kl_log *log, sync_round *round) {
    kl_status status = KL_OK;
    for (size_t i = 0; i < round->count && !status; i++) {
        const sync_item *item = &round->items[i];
        status = KL_FP_STATUS("flush.before_sync");
        round->tried = status != KL_OK;
        if (!status) status = kl_file_try_sync(item->segment->file, &round->tried);
        if (!status) status = kl_file_check_there(item->segment->file);
        if (!status && item->derived)
            status = kl_segment_sync_derived(item->segment, log->path, item->next_offset,
                                             &round->tried);
    }
    return status;
}

static kl_status sync_round_files(kl_log *log, sync_round *round) {
    sync_folder folder = {0};
    bool more = round->dir_dirty || round->texts_dirty;
    kl_status status = more ? begin_folder(log, round, &folder) : KL_OK;
    if (status) return status;
    status = sync_segments(log, round);
    KL_FP("flush.after_files");
    if (!more) return status;
    const kl_sync_name *failed = kl_sync_names_end(folder.names, folder.count);
    kl_dir_free(folder.dir);
    /* A failed sync is final, whatever happens to the segments later. */
    if (failed && (failed->opened || !status)) {
        status = kl_sync_name_failed(failed, log->path);
        round->tried = failed->opened;
    }
    return status;
}

/* Locked.  `again`: derived files must be synced again. */
static void end_round(sync_round *round, bool again) {
    for (size_t i = 0; i < round->count; i++) {
        sync_item *item = &round->items[i];
        item->segment->unsynced |= again && item->derived;
        kl_segment_drop(item->segment);
    }
    if (round->items != &round->one) kl_release(round->items);
}

/* Locked.  True if the next round has at most `bytes_max` to write. */
static bool round_is_short(const kl_log *log, int64_t bytes_max) {
    const kl_segment *active = kl_log_active(log);
    return log->round_base == active->base_offset &&
           active->size - log->round_size <= bytes_max;
}

/* Locked.  True if a round must wait: for another round, or for a change of segments, during which
 * a name may refer to either file. */
static bool must_wait(const kl_log *log) { return log->syncing || log->generation & 1; }

/* Locked.  True if a waiting caller should run the next round itself, given how long the last one
 * took. */
static bool runs_own_round(const kl_log *log) {
    return !must_wait(log) && log->round_ns > 0 && log->round_ns <= OWN_ROUND_NS &&
           round_is_short(log, OWN_ROUND_BYTES);
}

/* Locked, but not while waiting.  Threads that flush in a loop, and producers with one request in
 * flight, return soon after the round that served them.  Wait for them, at most half a round or
 * GATHER_NS_MAX, so that the next round serves them, too.  A sync thread does not wait if other
 * logs queue for it. */
static void gather(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    if (!round_is_short(log, GATHER_BYTES) || kl_sync_is_behind(&log->sync)) return;
    int64_t wait_ns = KL_MIN(log->round_ns / 2, (int64_t)GATHER_NS_MAX), left_ns;
    int64_t end_ns = kl_monotonic_ns() + wait_ns;
    while (log->flushers < log->flushers_wanted && !log->closed &&
           (left_ns = end_ns - kl_monotonic_ns()) > 0)
        kl_cond_wait_ns(&log->gathered, &log->lock, left_ns);
}

static kl_histogram sync_times; /* of rounds that synced something, of all logs */

void kl_log_get_sync_times(kl_phase_times *out) {
    *out = (kl_phase_times){0};
    kl_histogram_get(&sync_times, out);
}

/* Locked, but not during the syncs; one round at a time.  A retriable failure is returned and loses
 * nothing; any other takes the log offline. */
static kl_status run_round(kl_log *log) {
    sync_round round = {0};
    bool passes = false;
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(!must_wait(log));
    log->syncing = true;
    gather(log);
    int32_t served = log->flushers;
    log->counted_rounds += 1;
    int64_t began_ns = kl_monotonic_ns();
    kl_status status = begin_round(log, &round);
    if (status) {
        passes = true;
        log->untried_errno = 0;
        goto out;
    }
    kl_unlock(&log->lock);
    status = sync_round_files(log, &round);
    kl_lock(&log->lock);
    /* The file was truncated or deleted since, and could not be reopened: no sync was tried, so
     * none failed. */
    bool gone = round.generation != log->generation &&
                (status == KL_E_STALE || status == KL_E_NOT_FOUND);
    passes = kl_passes(status) || (status == KL_E_IO && !round.tried);
    if (passes) log->untried_errno = kl_error_errno();
    end_round(&round, gone || passes);
    if (passes) {
        log->sync_wanted = true; /* also for callers that do not wait */
        log->dir_dirty |= round.dir_dirty;
        log->texts_dirty |= round.texts_dirty;
    } else if (status && !gone) {
        /* The written data may be lost, and a second sync would report success (fsync clears the
         * error): the first failure is final. */
        kl_log_fail_storage(log, status);
    } else if (round.generation == log->generation) {
        KL_ASSERT(round.target <= log->log_end);
        log->flushed = KL_MAX(log->flushed, round.target);
        if (!log->closed) kl_log_publish(log);
    } else {
        log->dir_dirty |= round.dir_dirty;
        log->texts_dirty |= round.texts_dirty;
        log->sync_wanted = true; /* segments were truncated or swapped: repeat */
    }
out:
    log->round_ns = kl_monotonic_ns() - began_ns;
    if (round.count > 0) kl_histogram_share(&sync_times, log->round_ns);
    log->flushers_wanted = log->flushers;
    log->flushers -= served;
    KL_ASSERT(log->flushers >= 0);
    if (passes) log->failed_rounds += 1;
    kl_log_note_point(log);
    log->syncing = false;
    pthread_cond_broadcast(&log->changed);
    return passes ? status : KL_OK;
}

/* Locked, but not while waiting.  Retry later: callers may wait for records that are held back. */
static void wait_for_means(kl_log *log) {
    int64_t end_ms = kl_monotonic_ms() + RETRY_MS, left_ms;
    while (!log->closed && (left_ms = end_ms - kl_monotonic_ms()) > 0)
        kl_cond_wait_ms(&log->changed, &log->lock, left_ms);
    log->sync_wanted = true;
}

void kl_log_sync_run(void *owner) {
    kl_log *log = owner;
    kl_lock(&log->lock);
    while (log->sync_wanted && !log->closed && !log->offline) {
        if (must_wait(log)) kl_cond_wait_ms(&log->changed, &log->lock, -1);
        else if (run_round(log)) wait_for_means(log);
    }
    pthread_cond_broadcast(&log->changed);
    kl_unlock(&log->lock);
}

kl_status kl_log_flush_start(kl_log *log, int64_t *target) {
    *target = 0;
    kl_status status = kl_log_enter_writer(log);
    if (status) return status;
    *target = log->log_end;
    if (log->flushed < log->log_end || log->dir_dirty) status = kl_log_request_sync(log);
    kl_log_leave(log);
    return status;
}

/* Locked.  If a truncation moved the end below the target, the whole log counts. */
static bool on_disk(const kl_log *log, int64_t target) {
    return log->flushed >= KL_MIN(target, log->log_end) && !log->noting &&
           !(log->sync_wanted && log->dir_dirty);
}

static kl_status fail_offline(const kl_log *log) {
    char what[120];
    snprintf(what, sizeof what,
             "what was acknowledged as flushed before is safe, records from offset %lld on "
             "may not be",
             (long long)log->flushed);
    return kl_log_is_offline(log, what);
}

static kl_status fail_untried(const kl_log *log) {
    static const char *const what =
        "log %s: a sync was not tried, %s: offset %lld is not on disk yet, %lld is";
    long long end = log->log_end, flushed = log->flushed;
    if (!log->untried_errno)
        return kl_fail(KL_E_NO_MEMORY, what, log->path, "for want of memory", end, flushed);
    return kl_fail_errno(log->untried_errno, what, log->path,
                         "as no file could be opened for it", end, flushed);
}

/* Locked.  KL_E_TIMEOUT, KL_E_CLOSED, KL_E_STORAGE, and retriable errors. */
static kl_status wait_for(kl_log *log, int64_t target, int32_t timeout_ms) {
    const int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    const bool limited = timeout_ms >= 0;
    /* A round in progress began before this call. */
    int64_t failed_rounds = log->failed_rounds + (log->syncing ? 1 : 0);
    while (!on_disk(log, target)) {
        if (log->offline) return fail_offline(log);
        if (log->closed)
            return kl_fail(KL_E_CLOSED, "log %s was closed during a flush", log->path);
        int64_t left_ms = limited ? end_ms - kl_monotonic_ms() : -1;
        if (limited && left_ms <= 0)
            return kl_fail(KL_E_TIMEOUT, "log %s: offset %lld is not on disk yet, %lld is",
                           log->path, (long long)target, (long long)log->flushed);
        if (log->failed_rounds > failed_rounds) return fail_untried(log);
        if (!limited && runs_own_round(log)) {
            kl_status failed = run_round(log);
            if (failed) return failed;
            continue;
        }
        kl_status status = must_wait(log) ? KL_OK : kl_log_request_sync(log);
        if (status) return status;
        kl_cond_wait_ms(&log->changed, &log->lock, left_ms);
    }
    return KL_OK;
}

kl_status kl_log_flush(kl_log *log, int64_t *target, int32_t timeout_ms) {
    bool begin = *target < 0;
    kl_status status = begin ? kl_log_enter_writer(log) : kl_log_enter(log);
    if (status) return status;
    if (begin) {
        *target = log->log_end;
        log->sync_wanted |= log->dir_dirty;
    }
    if (!on_disk(log, *target)) {
        int64_t counted_rounds = log->counted_rounds;
        log->flushers += 1;
        if (log->flushers == log->flushers_wanted) pthread_cond_signal(&log->gathered);
        KL_FP("flush.joined");
        status = wait_for(log, *target, timeout_ms);
        /* A round that counted this caller has subtracted it already. */
        if (log->counted_rounds == counted_rounds) log->flushers -= 1;
        KL_ASSERT(log->flushers >= 0);
    }
    kl_log_leave(log);
    return status;
}

kl_status kl_log_flush_all(kl_log *log) {
    int64_t target = -1;
    return kl_log_flush(log, &target, -1);
}
