/* log.c: the life of a log, its state as others see it, waiting. */
#include "log.h"

#include <stdio.h>

kl_status kl_log_enter(kl_log *log) {
    if (KL_UNLIKELY(log->process_generation != atomic_load(&kl_process_generation)))
        return kl_fail(
            KL_E_FORKED,
            "log %s was opened by the parent of this process: open it again here",
            log->path);
    kl_lock(&log->lock);
    if (KL_LIKELY(!log->closed)) return KL_OK;
    kl_unlock(&log->lock);
    return kl_fail(KL_E_CLOSED, "log %s is closed", log->path);
}

kl_status kl_log_enter_write(kl_log *log) {
    if (KL_UNLIKELY(!log->writable))
        return kl_fail(KL_E_READ_ONLY, "log %s was opened with mode=\"r\"", log->path);
    kl_status status = kl_log_enter(log);
    if (KL_LIKELY(!status && !log->offline)) return status;
    if (status) return status;
    kl_unlock(&log->lock);
    return kl_fail(
        KL_E_STORAGE,
        "log %s is offline after a failed write to its disk: look at the disk, then "
        "open the log again",
        log->path);
}

static void tell_listener(const kl_log *log) {
    const kl_log_ends ends = {.log_start = log->log_start,
                              .last_stable = log->last_stable,
                              .high_watermark = log->high_watermark,
                              .log_end = log->log_end,
                              .flushed = log->flushed,
                              .appended_bytes = log->appended_bytes,
                              .ended = log->closed || log->offline};
    log->listener(log->listener_owner, &ends);
}

kl_status kl_log_listen(kl_log *log, kl_log_listener listener, void *owner) {
    kl_status status = kl_log_enter(log);
    if (status == KL_E_CLOSED && listener == NULL) { /* abandoned, not freed */
        kl_lock(&log->lock);
        log->listener = NULL;
        kl_unlock(&log->lock);
        return KL_OK;
    }
    if (status) return status;
    log->listener = listener;
    log->listener_owner = owner;
    if (listener) tell_listener(log);
    kl_log_leave(log);
    return KL_OK;
}

kl_status kl_log_fail_storage(kl_log *log, kl_status status) {
    if (!log->offline) log->offline = KL_E_STORAGE;
    if (log->listener) tell_listener(log);
    pthread_cond_broadcast(&log->changed);
    return status;
}

size_t kl_log_find_segment(const kl_log *log, int64_t offset) {
    size_t low = 0, high = log->segment_count;
    if (log->segments[high - 1]->base_offset <= offset) return high - 1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (log->segments[middle]->base_offset <= offset) low = middle;
        else high = middle;
    }
    return low;
}

int64_t kl_log_next_base(const kl_log *log, size_t index) {
    return index + 1 < log->segment_count ? log->segments[index + 1]->base_offset
                                          : log->log_end;
}

kl_status kl_log_add_segment(kl_log *log, kl_segment *segment) {
    if (log->segment_count == log->segment_capacity) {
        size_t capacity = log->segment_capacity ? log->segment_capacity * 2 : 8;
        kl_segment **grown = kl_resize(log->segments, capacity * sizeof *grown);
        if (grown == NULL) {
            kl_segment_drop(segment);
            return kl_fail(KL_E_NO_MEMORY, "no memory for %zu segments of %s", capacity,
                           log->path);
        }
        log->segments = grown;
        log->segment_capacity = capacity;
    }
    log->segments[log->segment_count++] = segment;
    return KL_OK;
}

void kl_log_drop_segments(kl_log *log, size_t from, size_t count) {
    if (count == 0) return; /* there may be no list yet */
    for (size_t i = from; i < from + count; i++) kl_segment_drop(log->segments[i]);
    memmove(log->segments + from, log->segments + from + count,
            (log->segment_count - from - count) * sizeof *log->segments);
    log->segment_count -= count;
    log->prefix_count = 0;
}

/* A single copy's high watermark: the end, or where promised records begin that are not on
 * disk yet.  A sync covers whole batches, so what is left of them begins at `flushed`. */
static int64_t single_high_watermark(kl_log *log) {
    if (KL_LIKELY(log->hold_until < 0)) return log->log_end;
    if (log->flushed >= log->hold_until) {
        log->hold_from = INT64_MAX;
        log->hold_until = -1;
        return log->log_end;
    }
    log->hold_from = KL_MAX(log->hold_from, log->flushed);
    return KL_MIN(log->hold_from, log->log_end);
}

void kl_log_publish(kl_log *log) {
    if (log->writable) {
        if (log->end_is_high_watermark) log->high_watermark = single_high_watermark(log);
        log->last_stable = log->high_watermark;
        if (log->producers.open_txns || log->producers.finished_count) {
            int64_t unstable =
                kl_producers_first_unstable(&log->producers, log->high_watermark);
            unstable = KL_MAX(unstable, log->log_start);
            log->last_stable = KL_MIN(unstable, log->high_watermark);
        }
        if (log->page) {
            const kl_segment *active = kl_log_active(log);
            const kl_page_values values = {
                log->generation,  log->log_start, log->log_end,        log->high_watermark,
                log->last_stable, log->flushed,   active->base_offset, active->size};
            kl_statepage_publish(log->page, &values);
        }
    }
    KL_ASSERT(log->log_start <= log->last_stable &&
              log->last_stable <= log->high_watermark &&
              log->high_watermark <= log->log_end); /* I1 */
    if (log->listener) tell_listener(log);
    if (KL_UNLIKELY(log->waiters)) pthread_cond_broadcast(&log->changed);
}

int64_t kl_log_bound(const kl_log *log, int32_t bound) {
    if (bound == KL_LOG_END) return log->log_end;
    return bound == KL_COMMITTED ? log->last_stable : log->high_watermark;
}

void kl_log_change_begin(kl_log *log) {
    KL_ASSERT((log->generation & 1) == 0);
    log->generation += 1;
    if (log->page) {
        kl_page_values values = {.generation = log->generation,
                                 .log_start_offset = log->log_start,
                                 .log_end_offset = log->log_end,
                                 .high_watermark = log->high_watermark,
                                 .last_stable_offset = log->last_stable,
                                 .flushed_offset = log->flushed};
        kl_statepage_publish(log->page, &values);
    }
}

void kl_log_change_end(kl_log *log) {
    log->generation += 1;
    log->prefix_count = 0;
    memset(log->hints, 0xff, sizeof log->hints);
    kl_log_publish(log);
}

kl_status kl_log_configure(kl_log *log, const kl_log_config *config) {
    if (config->segment_bytes < 14 || config->segment_index_bytes < 4 ||
        config->index_interval_bytes < 0 || config->max_message_bytes < 0)
        return kl_fail(
            KL_E_ARGUMENT,
            "log %s: segment.bytes %lld (at least 14), segment.index.bytes %d (at least "
            "4), index.interval.bytes %d and max.message.bytes %d (at least 0)",
            log->path, (long long)config->segment_bytes, config->segment_index_bytes,
            config->index_interval_bytes, config->max_message_bytes);
    kl_status status = kl_log_enter(log);
    if (status) return status;
    log->config = *config;
    kl_log_leave(log);
    return KL_OK;
}

kl_status kl_log_get(kl_log *log, kl_log_state *out) {
    memset(out, 0, sizeof *out);
    kl_status status = kl_log_refresh(log);
    if (status) return status;
    status = kl_log_enter(log);
    if (status) return status;
    out->log_start_offset = log->log_start;
    out->log_end_offset = log->log_end;
    out->high_watermark = log->high_watermark;
    out->last_stable_offset = log->last_stable;
    out->flushed_offset = log->flushed;
    for (size_t i = 0; i < log->segment_count; i++)
        out->size_bytes += log->segments[i]->size;
    out->generation = log->generation;
    out->segment_count = (int32_t)log->segment_count;
    out->leader_epoch = log->leader_epoch;
    out->offline = log->offline != KL_OK;
    out->producer_count = (int32_t)log->producers.count;
    const kl_segment *active = kl_log_active(log);
    out->largest_timestamp_ms = KL_MAX(active->max_timestamp, (int64_t)-1);
    kl_log_leave(log);
    return KL_OK;
}

/* A reader's active segment after its writer appended: what is derived lags behind. */
static void grow_active(kl_log *log, int64_t active_bytes) {
    enum { INDEX_LAG_BYTES = 1 << 20 };
    kl_segment *active = kl_log_active(log);
    if (active_bytes == active->size) return;
    active->size = active_bytes;
    active->max_timestamp = KL_UNKNOWN;
    if (active_bytes - log->seen_bytes < INDEX_LAG_BYTES) return;
    kl_index_clear(&active->offsets);
    kl_index_clear(&active->times);
    active->offsets.loaded = active->times.loaded = false;
    log->seen_bytes = active_bytes;
}

kl_status kl_log_refresh(kl_log *log) {
    if (log->writable) return KL_OK;
    kl_status status = kl_log_enter(log);
    if (status) return status;
    kl_page_values values;
    if (log->page && !kl_statepage_read(log->page, &values)) {
        kl_statepage_close(log->page, false);
        log->page = NULL;
        log->generation = -1; /* the next look is at the folder itself */
    }
    if (log->page == NULL) {
        status = kl_statepage_open(log->path, &log->page);
        if (!status && log->page && !kl_statepage_read(log->page, &values)) {
            kl_statepage_close(log->page, false);
            log->page = NULL;
        }
        if (status) goto out;
    }
    if (log->page == NULL || values.generation != log->generation) {
        status = kl_log_reload(log);
    } else if (values.active_base_offset == kl_log_active(log)->base_offset) {
        grow_active(log, values.active_bytes);
        log->log_start = values.log_start_offset;
        log->log_end = values.log_end_offset;
        log->high_watermark = values.high_watermark;
        log->last_stable = values.last_stable_offset;
        log->flushed = values.flushed_offset;
    } else {
        status = kl_log_reload(log); /* rolled */
    }
out:
    kl_log_leave(log);
    return status;
}

/* A reader's wait: the writer is another process, which tells nobody; look again soon. */
static kl_status wait_as_reader(kl_log *log, int64_t offset, int32_t bound,
                                int32_t timeout_ms) {
    int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    for (int64_t nap_ms = 1;; nap_ms = KL_MIN(nap_ms * 2, 20)) {
        kl_status status = kl_log_refresh(log);
        if (!status) status = kl_log_enter(log);
        if (status) return status;
        bool passed = kl_log_bound(log, bound) > offset;
        if (!passed && kl_monotonic_ms() < end_ms)
            kl_cond_wait_ms(&log->changed, &log->lock, nap_ms);
        kl_log_leave(log);
        if (passed) return KL_OK;
        if (kl_monotonic_ms() >= end_ms)
            return kl_fail(KL_E_TIMEOUT, "log %s did not pass offset %lld in %d ms",
                           log->path, (long long)offset, timeout_ms);
    }
}

kl_status kl_log_wait(kl_log *log, int64_t offset, int32_t bound, int32_t timeout_ms) {
    if (!log->writable) return wait_as_reader(log, offset, bound, timeout_ms);
    kl_status status = kl_log_enter(log);
    if (status) return status;
    int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    log->waiters++;
    while (!log->closed && kl_log_bound(log, bound) <= offset) {
        int64_t left_ms = end_ms - kl_monotonic_ms();
        if (left_ms <= 0) {
            status = kl_fail(KL_E_TIMEOUT, "log %s did not pass offset %lld in %d ms",
                             log->path, (long long)offset, timeout_ms);
            break;
        }
        kl_cond_wait_ms(&log->changed, &log->lock, left_ms);
    }
    if (log->closed && !status)
        status = kl_fail(KL_E_CLOSED, "log %s is closed", log->path);
    log->waiters--;
    kl_log_leave(log);
    return status;
}

/* ---- closing ------------------------------------------------------------------------ */

static kl_status close_cleanly(kl_log *log, bool sync) {
    kl_dir *dir = NULL;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (status) return status;
    kl_segment *active = kl_log_active(log);
    status = KL_FP_STATUS("log.close.before_seal");
    if (!status) status = kl_segment_seal(active, dir);
    KL_FP("log.close.before_snapshot");
    if (!status) status = kl_log_write_snapshot(log, dir, log->log_end, sync);
    if (!status) status = kl_log_trim_snapshots(log, dir, INT64_MAX);
    for (size_t i = 0; i < log->segment_count && !status && sync; i++)
        if (log->segments[i]->unsynced)
            status = kl_segment_sync_derived(log->segments[i], log->path,
                                             kl_log_next_base(log, i));
    KL_FP("log.close.before_sync");
    if (!status && sync) status = kl_dir_sync(dir);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* Locked.  The records are on disk, also those of an append that came after the flush. */
static kl_status sync_records(kl_log *log) {
    kl_status status = KL_OK;
    if (log->flushed < log->log_end)
        for (size_t i = kl_log_find_segment(log, log->flushed);
             i < log->segment_count && !status; i++)
            status = kl_file_sync(log->segments[i]->file);
    if (!status) log->flushed = log->log_end;
    return status;
}

static kl_status close_log(kl_log *log, bool sync) {
    if (log->process_generation != atomic_load(&kl_process_generation)) {
        kl_log_abandon(log);
        return KL_OK;
    }
    kl_status status = KL_OK;
    if (log->writable && sync) {
        status = kl_log_flush_all(log);
        if (status == KL_E_CLOSED) return KL_OK;
    }
    kl_lock(&log->lock);
    if (log->closed) {
        kl_unlock(&log->lock);
        return KL_OK;
    }
    if (log->writable && !status && log->offline && !sync)
        status = kl_fail(KL_E_STORAGE, "log %s is offline after a failed write to its disk",
                         log->path);
    /* When something is not synced, the folder is not clean. */
    if (log->writable && !status && !log->offline) {
        if (sync) status = sync_records(log);
        if (!status && log->touched) status = close_cleanly(log, sync);
    }
    kl_unlock(&log->lock);
    kl_log_abandon(log);
    return status;
}

kl_status kl_log_close(kl_log *log) { return close_log(log, true); }

kl_status kl_log_close_unsynced(kl_log *log) { return close_log(log, false); }

void kl_log_abandon(kl_log *log) {
    bool forked = log->process_generation != atomic_load(&kl_process_generation);
    if (forked) {
        /* The lock may be held by a thread that this process does not have. */
        log->closed = true;
        return;
    }
    kl_lock(&log->lock);
    bool was_closed = log->closed;
    log->closed = true;
    if (log->listener && !was_closed) tell_listener(log);
    pthread_cond_broadcast(&log->changed);
    while (log->cleaner_busy || log->syncing)
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
    kl_unlock(&log->lock);
    if (was_closed) return;
    kl_sync_drain(&log->sync);
    kl_lock(&log->lock);
    kl_statepage_close(log->page, log->writable);
    log->page = NULL;
    kl_log_drop_segments(log, 0, log->segment_count);
    kl_unlock(&log->lock);
}

void kl_log_free(kl_log *log) {
    if (log == NULL) return;
    kl_log_abandon(log);
    if (log->process_generation == atomic_load(&kl_process_generation)) {
        kl_producers_free(&log->producers);
        kl_epochs_free(&log->epochs);
        kl_buffer_free(&log->scratch);
        kl_release(log->segments);
        kl_release(log->path);
        pthread_cond_destroy(&log->changed);
        pthread_cond_destroy(&log->gathered);
        pthread_mutex_destroy(&log->lock);
        kl_release(log);
    }
}
