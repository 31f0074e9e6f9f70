/* state.c: shared by all parts of a log: entering it, its segments, its ends, its failures. */
#include "log.h"

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

/* Entered.  KL_E_STORAGE, and unlocked, if the storage failed. */
static kl_status refuse_offline(kl_log *log) {
    if (KL_LIKELY(!log->offline)) return KL_OK;
    kl_status status = kl_log_is_offline(log, "look at the disk, then open the log again");
    kl_unlock(&log->lock);
    return status;
}

static kl_status refuse_reader(const kl_log *log) {
    if (KL_LIKELY(log->writable)) return KL_OK;
    return kl_fail(KL_E_READ_ONLY, "log %s was opened with mode=\"r\"", log->path);
}

kl_status kl_log_enter_writer(kl_log *log) {
    kl_status status = refuse_reader(log);
    if (!status) status = kl_log_enter(log);
    return status ? status : refuse_offline(log);
}

kl_status kl_log_enter_write(kl_log *log) {
    kl_status status = refuse_reader(log);
    if (KL_UNLIKELY(status)) return status;
    while (!(status = kl_log_enter(log)) && KL_UNLIKELY(log->busy)) {
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
        kl_unlock(&log->lock);
    }
    return KL_UNLIKELY(status) ? status : refuse_offline(log);
}

void kl_log_begin_disk(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(!log->busy);
    log->busy = true;
    kl_unlock(&log->lock);
}

void kl_log_end_disk(kl_log *log) {
    kl_lock(&log->lock);
    KL_ASSERT(log->busy);
    log->busy = false;
    pthread_cond_broadcast(&log->changed);
}

void kl_log_tell(const kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    if (log->listener == NULL) return;
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
    kl_log_tell(log);
    kl_log_leave(log);
    return KL_OK;
}

kl_status kl_log_is_offline(const kl_log *log, const char *what) {
    const char *why = log->offline_why ? log->offline_why : "no memory to say which";
    return kl_fail(KL_E_STORAGE,
                   "log %s is offline after a failed write to its disk, %s; %s", log->path,
                   why, what);
}

static _Atomic int64_t logs_failed;

int64_t kl_logs_failed(void) { return atomic_load(&logs_failed); }

kl_status kl_log_fail_storage(kl_log *log, kl_status status) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(status != KL_OK);
    if (!log->offline) {
        log->offline = KL_E_STORAGE;
        atomic_fetch_add(&logs_failed, 1);
        const char *why = kl_error_message();
        log->offline_why = kl_alloc(strlen(why) + 1);
        if (log->offline_why) strcpy(log->offline_why, why);
    }
    kl_log_tell(log);
    pthread_cond_broadcast(&log->changed);
    return status;
}

kl_look kl_log_see(const kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    const kl_segment *active = kl_log_active(log);
    return (kl_look){
        .version = log->version,
        .generation = log->generation,
        .log_start = log->log_start,
        .last_stable = log->last_stable,
        .high_watermark = log->high_watermark,
        .log_end = log->log_end,
        .active_bytes = active->size,
        .active_largest = log->writable ? active->max_timestamp : KL_UNKNOWN,
        .active_first = log->writable ? active->first_timestamp : KL_UNKNOWN,
        .index_interval_bytes = log->config.index_interval_bytes,
    };
}

kl_status kl_log_peek(kl_log *log, kl_look *out) {
    kl_status status = kl_log_enter(log);
    if (status) return status;
    *out = kl_log_see(log);
    kl_version_retain(out->version);
    kl_log_leave(log);
    return KL_OK;
}

void kl_look_drop(kl_look *look) {
    kl_version_drop(look->version);
    look->version = NULL;
}

int64_t kl_log_next_base(const kl_log *log, size_t index) {
    return index + 1 < log->version->count ? log->version->segments[index + 1]->base_offset
                                           : log->log_end;
}

/* The high watermark of a single replica: the log end, or the start of records that must be on disk
 * first.  A sync covers whole batches, so the unsynced rest begins at `flushed`. */
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
    KL_ASSERT_HELD(&log->lock);
    if (log->writable) {
        int64_t shown = KL_MIN(single_high_watermark(log), log->show_until);
        log->high_watermark = KL_MAX(log->high_watermark, shown);
        log->last_stable = log->high_watermark;
        if (log->producers.open_txns || log->producers.finished_count) {
            int64_t unstable =
                kl_producers_first_unstable(&log->producers, log->high_watermark);
            unstable = KL_MAX(unstable, log->log_start);
            log->last_stable = KL_MIN(unstable, log->high_watermark);
        }
        KL_ASSERT(log->flushed <= log->log_end); /* I4 */
        KL_TEST_ASSERT(kl_log_active(log)->base_offset <= log->log_end);
        if (log->page) {
            kl_segment *active = kl_log_active(log);
            if (KL_UNLIKELY(active->unshown)) kl_segment_share(active, log->page);
            const kl_page_values values = {.generation = log->generation,
                                           .log_start_offset = log->log_start,
                                           .log_end_offset = log->log_end,
                                           .high_watermark = log->high_watermark,
                                           .last_stable_offset = log->last_stable,
                                           .flushed_offset = log->flushed,
                                           .active_base_offset = active->base_offset,
                                           .active_bytes = active->size};
            kl_statepage_publish(log->page, &values);
        }
    }
    KL_ASSERT(log->log_start <= log->last_stable &&
              log->last_stable <= log->high_watermark &&
              log->high_watermark <= log->log_end); /* I1 */
    kl_log_tell(log);
    if (KL_UNLIKELY(log->waiters)) pthread_cond_broadcast(&log->changed);
}

int64_t kl_look_bound(const kl_look *look, int32_t bound) {
    if (bound == KL_LOG_END) return look->log_end;
    return bound == KL_COMMITTED ? look->last_stable : look->high_watermark;
}

void kl_log_settle_changes(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    while (log->changing || log->noting || log->busy)
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
}

kl_status kl_log_reserve(kl_log *log) {
    kl_status status;
    while (!(status = kl_log_enter_write(log)) && (log->changing || log->noting)) {
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
        kl_log_leave(log);
    }
    if (!status) kl_log_claim(log);
    return status;
}

void kl_log_claim(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(!log->changing && !log->noting);
    log->changing = true;
    if (log->page) kl_statepage_change(log->page, true);
}

void kl_log_release(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(log->changing);
    log->changing = false;
    if (log->page) kl_statepage_change(log->page, false);
    pthread_cond_broadcast(&log->changed);
}

void kl_log_change_begin(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT((log->generation & 1) == 0);
    log->generation += 1;
    if (log->page) {
        const kl_page_values values = {.generation = log->generation,
                                       .log_start_offset = log->log_start,
                                       .log_end_offset = log->log_end,
                                       .high_watermark = log->high_watermark,
                                       .last_stable_offset = log->last_stable,
                                       .flushed_offset = log->flushed};
        kl_statepage_publish(log->page, &values);
    }
}

void kl_log_change_end(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(log->generation & 1);
    log->generation += 1;
    memset(log->hints, 0xff, sizeof log->hints);
    kl_log_publish(log);
    pthread_cond_broadcast(&log->changed); /* a round of syncs may wait for this */
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

/* ---- its folder ---------------------------------------------------------------------- */

/* A file system's clock may be ahead of ours, but not by more. */
enum { AHEAD_MS = 60000 };

bool kl_log_folder_tells(const struct stat *folder, int64_t tick_ms) {
    int64_t seconds = (int64_t)folder->st_mtim.tv_sec;
    int64_t modified_ms = seconds * 1000 + folder->st_mtim.tv_nsec / 1000000;
    int64_t age_ms = kl_now_ms() - modified_ms;
    return seconds > 0 && (age_ms > tick_ms || age_ms < -AHEAD_MS);
}
