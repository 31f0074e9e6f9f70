/* flush.c: group commit.  Requests raise `sync_wanted` and queue the log's job; one round
 * on the sync thread serves all who asked before it began. */
#include "log.h"

kl_status kl_log_request_sync(kl_log *log) {
    log->sync_wanted = true;
    return kl_sync_submit(&log->sync);
}

typedef struct {
    kl_segment *segment;
    int64_t next_offset;
    bool derived; /* its derived files, too */
} sync_item;

/* What a round works on, taken under the lock and synced outside of it. */
typedef struct {
    sync_item *items;
    size_t count;
    int64_t target;
    int64_t generation;
    bool dir_dirty;
} sync_round;

static kl_status begin_round(kl_log *log, sync_round *round) {
    size_t first = kl_log_find_segment(log, log->flushed);
    while (first > 0 && log->segments[first - 1]->unsynced) first--;
    round->count = log->segment_count - first;
    round->items = kl_alloc(round->count * sizeof *round->items);
    if (round->items == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory to sync %s", log->path);
    for (size_t i = 0; i < round->count; i++) {
        kl_segment *segment = kl_segment_retain(log->segments[first + i]);
        round->items[i] =
            (sync_item){segment, kl_log_next_base(log, first + i), segment->unsynced};
        segment->unsynced = false;
    }
    round->target = log->log_end;
    round->generation = log->generation;
    round->dir_dirty = log->dir_dirty;
    log->dir_dirty = false;
    log->sync_wanted = false;
    log->unflushed_records = 0;
    return KL_OK;
}

static kl_status sync_round_files(kl_log *log, const sync_round *round) {
    for (size_t i = 0; i < round->count; i++) {
        const sync_item *item = &round->items[i];
        kl_status status = KL_FP_STATUS("flush.before_sync");
        if (!status) status = kl_file_sync(item->segment->file);
        if (!status && item->derived)
            status = kl_segment_sync_derived(item->segment, log->path, item->next_offset);
        if (status) return status;
    }
    KL_FP("flush.after_files");
    if (!round->dir_dirty) return KL_OK;
    kl_dir *dir = NULL;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (status) return status;
    status = kl_dir_sync(dir);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* Locked.  `again`: its derived files are still to be synced. */
static void end_round(sync_round *round, bool again) {
    for (size_t i = 0; i < round->count; i++) {
        sync_item *item = &round->items[i];
        item->segment->unsynced |= again && item->derived;
        kl_segment_drop(item->segment);
    }
    kl_release(round->items);
}

void kl_log_sync_run(void *owner) {
    kl_log *log = owner;
    kl_lock(&log->lock);
    while (log->sync_wanted && !log->closed && !log->offline) {
        sync_round round = {0};
        kl_status status = begin_round(log, &round);
        if (status) {
            kl_log_fail_storage(log, status);
            break;
        }
        kl_unlock(&log->lock);
        status = sync_round_files(log, &round);
        kl_lock(&log->lock);
        /* A file that was cut or deleted meanwhile and had to be opened again: not a sync that
         * failed, as none was tried. */
        bool gone = round.generation != log->generation &&
                    (status == KL_E_STALE || status == KL_E_NOT_FOUND);
        end_round(&round, gone);
        if (status && !gone) {
            /* What was written may be lost already and a second sync would say it is there:
             * the first failure is final. */
            kl_log_fail_storage(log, status);
            break;
        }
        if (round.generation == log->generation) {
            log->flushed = KL_MAX(log->flushed, round.target);
            if (!log->closed) kl_log_publish(log);
        } else {
            log->dir_dirty |= round.dir_dirty;
            log->sync_wanted = true; /* segments were cut or swapped meanwhile: once more */
        }
        pthread_cond_broadcast(&log->changed);
    }
    pthread_cond_broadcast(&log->changed);
    kl_unlock(&log->lock);
}

kl_status kl_log_flush_start(kl_log *log, int64_t *target) {
    *target = 0;
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    *target = log->log_end;
    if (log->flushed < log->log_end || log->dir_dirty) status = kl_log_request_sync(log);
    kl_log_leave(log);
    return status;
}

kl_status kl_log_flush_wait(kl_log *log, int64_t target, int32_t timeout_ms) {
    kl_status status = kl_log_enter(log);
    if (status) return status;
    int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    /* A truncation meanwhile can leave an end below the target: all there is counts. */
    while (log->flushed < KL_MIN(target, log->log_end) ||
           (log->sync_wanted && log->dir_dirty)) {
        if (log->offline) {
            status =
                kl_fail(KL_E_STORAGE,
                        "log %s: a sync failed; what was acknowledged as flushed before is "
                        "safe, records from offset %lld on may not be; the log is offline",
                        log->path, (long long)log->flushed);
            break;
        }
        if (log->closed) {
            status = kl_fail(KL_E_CLOSED, "log %s was closed during a flush", log->path);
            break;
        }
        int64_t left_ms = end_ms - kl_monotonic_ms();
        if (left_ms <= 0) {
            status =
                kl_fail(KL_E_TIMEOUT, "log %s: offset %lld is not on disk yet, %lld is",
                        log->path, (long long)target, (long long)log->flushed);
            break;
        }
        kl_cond_wait_ms(&log->changed, &log->lock, left_ms);
    }
    kl_log_leave(log);
    return status;
}
