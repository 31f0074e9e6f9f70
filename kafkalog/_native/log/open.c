/* open.c: opens and closes a log. */
#include <fcntl.h>

#include "log.h"

static kl_status open_writer(kl_log *log, const kl_open *how, kl_recovery *recovery) {
    kl_dir *dir = NULL;
    struct stat folder;
    kl_status status = kl_dir_open(log->path, 1, &dir);
    if (status) return status;
    if (kl_io->fstat(dir->fd, &folder))
        status = kl_fail_errno(errno, "log %s: cannot stat its folder", log->path);
    else log->sync.device = (uint64_t)folder.st_dev;
    /* Recovery would truncate records that another writer is about to append. */
    if (!status && !log->clean) status = kl_statepage_check(log->path, &folder);
    if (!status) status = kl_log_load(log, dir, recovery);
    if (!status && log->version->count == 0) {
        kl_segment *first = NULL;
        log->log_end = KL_MAX(KL_MAX(how->first_offset, how->log_start_offset), (int64_t)0);
        status = kl_segment_create(dir, log->log_end, &first);
        if (!status) status = kl_version_add(&log->version, first);
        log->dir_dirty = log->texts_dirty = log->touched = true;
        log->producers_known = true;
    }
    if (status) goto out;
    status = kl_log_check_point(log, dir);
    if (status) goto out;
    bool gone = log->log_end < log->first_start;
    if (gone) status = kl_log_restart_at(log, log->first_start);
    if (status) goto out;
    bool rebuilt = log->epochs.changed; /* otherwise the next epoch writes the file */
    kl_log_settle(log);
    int32_t latest = kl_epochs_latest(&log->epochs);
    /* A leader that has appended nothing begins at the log end (I3).  After a crash such an entry
     * is dropped, as its records may be lost; but the epoch existed, so no later batch may have a
     * lower one. */
    kl_epochs_truncate_end(&log->epochs, log->log_end + (log->clean ? 1 : 0));
    kl_epochs_truncate_start(&log->epochs, log->log_start);
    if (!status && log->epochs.changed && (rebuilt || !log->clean))
        status = kl_epochs_save(&log->epochs, dir, true);
    if (status == KL_E_NO_SPACE) status = KL_OK; /* written with the next epoch */
    log->leader_epoch = how->leader_epoch;
    if (log->leader_epoch < 0) {
        log->leader_epoch = KL_MAX(latest, 0);
        /* A crash may have lost records that clients saw: a new epoch tells them. */
        if (!log->clean && log->end_is_high_watermark && log->log_end > log->log_start)
            log->leader_epoch += 1;
    }
    if (!log->clean) log->dir_dirty = log->touched = true;
    if (!status)
        status = kl_statepage_create(log->path, &folder, kl_log_active(log)->offsets.count,
                                     &log->page);
    if (log->page) log->generation = (kl_statepage_generation(log->page) + 3) & ~(int64_t)1;
    if (!status) kl_log_publish(log);
out:
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

static kl_status log_new(const char *path, const kl_open *how, kl_marker *marker,
                         kl_log **out) {
    kl_log *log = kl_alloc(sizeof *log);
    char *copy = kl_alloc(strlen(path) + 1);
    if (log == NULL || copy == NULL || kl_version_new(&log->version)) {
        kl_release(log);
        kl_release(copy);
        return kl_fail(KL_E_NO_MEMORY, "no memory to open log %s", path);
    }
    log->path = strcpy(copy, path);
    log->writable = how->mode == KL_WRITE;
    log->end_is_high_watermark = how->end_is_high_watermark;
    log->show_until =
        how->end_is_high_watermark ? INT64_MAX : KL_MAX(how->high_watermark, 0);
    log->hold_from = INT64_MAX;
    log->hold_until = -1;
    log->process_generation = atomic_load(&kl_process_generation);
    log->marker = log->writable ? marker : NULL;
    log->clean = how->clean;
    log->recovery_point = how->recovery_point;
    log->noted = how->recovery_point;
    log->reached = how->reached;
    log->keeps_point = log->writable && how->keeps_point;
    log->derived_sum = how->clean ? how->derived_sum : -1;
    log->first_start = how->log_start_offset;
    log->first_high_watermark = how->high_watermark;
    log->generation = log->writable ? 0 : -1;
    log->jitter_state = (uint64_t)kl_monotonic_ms() ^ (uint64_t)(uintptr_t)log;
    memset(log->hints, 0xff, sizeof log->hints);
    pthread_mutex_init(&log->lock, NULL);
    kl_cond_init(&log->changed);
    kl_cond_init(&log->gathered);
    kl_producers_init(&log->producers);
    log->sync.run = kl_log_sync_run;
    log->sync.owner = log;
    *out = log;
    return KL_OK;
}

kl_status kl_log_open(const char *path, const kl_log_config *config, const kl_open *how,
                      kl_marker *marker, kl_log **out, kl_recovery *recovery) {
    *out = NULL;
    memset(recovery, 0, sizeof *recovery);
    recovery->truncated_pos = -1;
    kl_log *log = NULL;
    kl_status status = log_new(path, how, marker, &log);
    if (status) return status;
    status = kl_log_configure(log, config);
    if (!status && how->keeps_point && !how->clean) status = kl_log_load_point(log);
    if (!status && log->writable) {
        kl_lock(&log->lock);
        status = open_writer(log, how, recovery);
        kl_unlock(&log->lock);
    } else if (!status) {
        status = kl_log_refresh(log);
    }
    if (status) {
        kl_log_free(log);
        return status;
    }
    *out = log;
    return KL_OK;
}

kl_status kl_log_husk(const char *path, kl_log **out) {
    const kl_open how = {.mode = KL_WRITE};
    kl_status status = log_new(path, &how, NULL, out);
    if (!status) (*out)->closed = true;
    return status;
}

/* ---- closing ------------------------------------------------------------------------ */

/* Not locked; no thread writes. */
static kl_status close_cleanly(kl_log *log, bool sync) {
    kl_dir *dir = NULL;
    bool tried;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (status) return status;
    (void)kl_log_delete_left(log, dir); /* else the next open does */
    kl_segment *active = kl_log_active(log);
    status = KL_FP_STATUS("log.close.before_seal");
    if (!status) status = kl_segment_seal(active, dir);
    if (!status) active->unsynced = true;
    KL_FP("log.close.before_snapshot");
    if (!status) status = kl_log_write_snapshot(&log->producers, dir, log->log_end, sync);
    if (!status) status = kl_log_trim_snapshots(log->version, dir, INT64_MAX, INT64_MAX);
    if (!status && log->epochs.changed) status = kl_epochs_save(&log->epochs, dir, sync);
    for (size_t i = 0; i < log->version->count && !status && sync; i++)
        if (log->version->segments[i]->unsynced)
            status = kl_segment_sync_derived(log->version->segments[i], log->path,
                                             kl_log_next_base(log, i), &tried);
    KL_FP("log.close.before_sync");
    if (!status && sync) status = kl_dir_sync(dir);
    if (!status) log->derived_sum = kl_log_sum_derived(log);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* Not locked; no thread writes.  Sync all records, including appends after the flush. */
static kl_status sync_records(const kl_log *log) {
    kl_status status = KL_OK;
    if (log->flushed < log->log_end)
        for (size_t i = kl_version_find(log->version, log->flushed);
             i < log->version->count && !status; i++)
            status = kl_file_sync(log->version->segments[i]->file);
    return status;
}

/* Locked.  Wait for changes of segments and syncs in progress. */
static void wait_for_others(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    for (;;) {
        kl_log_settle_changes(log);
        if (!log->syncing) return;
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
    }
}

/* Locked, but not while working: the last change of segments and the last round of syncs.  Reads
 * continue. */
static const char AS_IT_IS[] = "it was closed as it is";

static kl_status work_off(kl_log *log, bool sync) {
    kl_status status = log->touched ? kl_log_settle_tail(log) : KL_OK;
    if (status) return status;
    wait_for_others(log); /* a round may have begun while the tail was settled */
    if (log->closed) return KL_OK;
    if (log->offline) return kl_log_is_offline(log, AS_IT_IS);
    KL_ASSERT(!log->syncing);
    log->syncing = true;
    kl_log_claim(log);
    kl_log_begin_disk(log);
    if (sync) status = sync_records(log);
    if (!status && log->touched) status = close_cleanly(log, sync);
    kl_log_end_disk(log);
    log->syncing = false;
    kl_log_release(log);
    KL_ASSERT(log->flushed <= log->log_end);
    if (!status && sync) log->flushed = log->log_end;
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
    wait_for_others(log);
    if (log->closed) {
        kl_unlock(&log->lock);
        return KL_OK;
    }
    /* Check again after the flush: the folder must not be marked clean. */
    if (log->writable && !status && log->offline) status = kl_log_is_offline(log, AS_IT_IS);
    if (log->writable && !status) status = work_off(log, sync);
    log->closed = true; /* no thread writes after this */
    kl_log_tell(log);
    kl_unlock(&log->lock);
    kl_log_abandon(log);
    return status;
}

int64_t kl_log_derived_sum(const kl_log *log) { return log->derived_sum; }

kl_status kl_log_close(kl_log *log) { return close_log(log, true); }

kl_status kl_log_close_unsynced(kl_log *log) { return close_log(log, false); }

void kl_log_abandon(kl_log *log) {
    bool forked = log->process_generation != atomic_load(&kl_process_generation);
    if (forked) {
        /* A thread that does not exist in this process may hold the lock. */
        log->closed = true;
        return;
    }
    kl_lock(&log->lock);
    bool was_closed = log->closed;
    log->closed = true;
    if (!was_closed) kl_log_tell(log);
    pthread_cond_broadcast(&log->changed);
    while (log->cleaner_busy || log->syncing || log->changing || log->busy)
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
    kl_unlock(&log->lock);
    /* Also after a failed close: release everything once. */
    kl_sync_drain(&log->sync);
    kl_lock(&log->lock);
    kl_statepage_close(log->page, log->writable);
    log->page = NULL;
    kl_version_drop(log->version);
    log->version = NULL;
    for (size_t i = 0; i < log->left_count; i++) kl_segment_drop(log->left[i]);
    log->left_count = 0;
    kl_unlock(&log->lock);
}

void kl_log_free(kl_log *log) {
    if (log == NULL) return;
    kl_log_abandon(log);
    if (log->process_generation == atomic_load(&kl_process_generation)) {
        kl_producers_free(&log->producers);
        kl_epochs_free(&log->epochs);
        kl_buffer_free(&log->scratch);
        kl_release(log->left);
        kl_release(log->offline_why);
        kl_release(log->path);
        pthread_cond_destroy(&log->changed);
        pthread_cond_destroy(&log->gathered);
        pthread_mutex_destroy(&log->lock);
        kl_release(log);
    }
}
