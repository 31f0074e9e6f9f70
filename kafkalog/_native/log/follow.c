/* follow.c: a reader follows its writer; callers wait for an offset. */
#include <fcntl.h>

#include "log.h"

enum {
    RELOAD_TRIES = 2000, /* a few seconds: long changes of segments are rare */
    PAGE_LOOK_MS = 1000, /* how often a reader checks that its writer lives */
    TICK_MS = 50         /* more than the tick of Linux's clock of files, 1 to 10 ms */
};

/* ---- after a writer ------------------------------------------------------------------ */

/* A reader's state before a reload. */
typedef struct {
    kl_version *version;
    int64_t generation;
} seen_before;

/* Take all ends from a living writer's state page instead of the files. */
static kl_status load_by_page(kl_log *log, kl_dir *dir, const kl_page_values *values,
                              const seen_before *before) {
    int64_t indexless, corrupt_from;
    bool same = before->generation == values->generation;
    kl_status status =
        kl_log_load_segments(log, dir, true, same ? before->version : NULL, &indexless);
    if (status || log->version->count == 0) return status;
    kl_segment *active = kl_log_active(log);
    if (active->base_offset != values->active_base_offset) return KL_E_STALE;
    active->size = values->active_bytes;
    active->aborts.loaded = false; /* the writer may create its file at any time */
    log->log_start = values->log_start_offset;
    log->log_end = values->log_end_offset;
    log->high_watermark = values->high_watermark;
    log->last_stable = values->last_stable_offset;
    log->flushed = values->flushed_offset;
    log->generation = values->generation;
    status = kl_epochs_load(&log->epochs, dir);
    if (status == KL_E_CORRUPT) status = KL_OK;
    if (!status) status = kl_log_load_aborts(log, dir, &corrupt_from);
    if (!status && corrupt_from < active->base_offset)
        status = kl_log_load_producers(log, dir, log->log_end, corrupt_from);
    log->producers_known = false;
    return status;
}

/* A sum of the names in a directory. */
static kl_status sum_names(kl_dir *dir, uint32_t *sum) {
    kl_names names = {0};
    kl_status status = kl_dir_list(dir, &names);
    *sum = 0;
    for (size_t i = 0; i < names.count && !status; i++) /* and the 0 at its end */
        *sum = kl_crc32c_more(*sum, (const uint8_t *)names.names[i],
                              strlen(names.names[i]) + 1);
    kl_names_free(&names);
    return status;
}

/* Without a page, the folder's modification time and the last file's size show changes.  Changes
 * within a tick of the clock have one time, so the names are compared until it is over. */
static kl_status look_at_folder(kl_log *log, kl_dir *dir, bool *changed, bool *grown) {
    struct stat folder;
    uint32_t names = log->seen_names;
    if (kl_io->fstatat(AT_FDCWD, log->path, &folder, 0) != 0)
        return kl_fail_errno(errno, "log %s", log->path);
    int64_t folder_ns =
        (int64_t)folder.st_mtim.tv_sec * 1000000000 + folder.st_mtim.tv_nsec;
    int64_t bytes = 0, modified_ms;
    kl_status status = KL_OK;
    if (log->version->count)
        status = kl_file_stat(kl_log_active(log)->file, &bytes, &modified_ms);
    /* Never written, or deleted. */
    if (status == KL_E_NOT_FOUND || status == KL_E_STALE) status = KL_OK;
    const bool tells = kl_log_folder_tells(&folder, TICK_MS);
    if (!status && !(tells && log->seen_tells)) status = sum_names(dir, &names);
    *changed = folder_ns != log->seen_folder_ns || names != log->seen_names ||
               log->generation < 0 || !log->version->count ||
               bytes < kl_log_active(log)->size;
    *grown = bytes != log->seen_bytes;
    log->seen_folder_ns = folder_ns;
    log->seen_bytes = bytes;
    log->seen_names = names;
    log->seen_tells = tells;
    return status;
}

static kl_status reload_by_folder(kl_log *log, kl_dir *dir) {
    bool changed = false, grown = false;
    kl_recovery recovery = {.truncated_pos = -1};
    kl_status status = look_at_folder(log, dir, &changed, &grown);
    if (status || (!changed && !grown)) return status;
    if (changed) {
        status = KL_E_STALE;
        for (int tries = 0; status == KL_E_STALE && tries < 100; tries++)
            status = kl_log_load(log, dir, &recovery);
        /* What was seen is from before the load: a change during it shows at the next look. */
        if (!status && log->version->count) log->seen_bytes = kl_log_active(log)->size;
    } else {
        status = kl_log_extend_tail(log, kl_log_active(log), &log->log_end);
        if (!status)
            status = kl_log_load_producers(log, dir, log->log_end,
                                           kl_log_active(log)->base_offset);
    }
    if (status || log->version->count == 0) return status;
    log->generation = log->generation < 0 ? 0 : log->generation;
    kl_log_settle(log);
    return KL_OK;
}

/* Load the segments by a living writer's state page.  *done false: there is no such writer, or the
 * folder does not match its page. */
static kl_status reload_by_page(kl_log *log, kl_dir *dir, const seen_before *before,
                                bool *done) {
    bool settled = true;
    *done = false;
    /* Retry while the writer changes segments, or rolled between page and listing. */
    for (int tries = 0; tries < RELOAD_TRIES; tries++) {
        kl_page_values values, after;
        if (!kl_statepage_read(log->page, &values)) return KL_OK;
        settled = !(values.generation & 1);
        if (settled) {
            kl_status status = load_by_page(log, dir, &values, before);
            if (!kl_statepage_read(log->page, &after)) return KL_OK;
            settled = after.generation == values.generation;
            *done = settled && !status && log->version->count;
            if (*done) return KL_OK;
            if (settled && status && status != KL_E_STALE && status != KL_E_NOT_FOUND)
                return status;
        }
        if (tries % 100 == 99 && !kl_statepage_lives(log->page)) return KL_OK;
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
    }
    if (settled) return KL_OK;
    return kl_fail(KL_E_STALE, "log %s: its writer goes on changing its segments",
                   log->path);
}

/* A partition that was created but never opened for writing is an empty log. */
static kl_status stand_on_nothing(kl_log *log, kl_dir *dir) {
    bool made = false;
    kl_segment *absent = NULL;
    kl_status status = kl_dir_exists(dir, KL_PARTITION_METADATA_NAME, &made);
    if (!status && !made)
        status = kl_fail(KL_E_NOT_FOUND, "%s holds no log: no file named like %020d.log",
                         log->path, 0);
    int64_t base = KL_MAX(log->first_start, (int64_t)0);
    if (!status) status = kl_segment_absent(log->path, base, &absent);
    if (!status) status = kl_version_add(&log->version, absent);
    if (status) return status;
    log->log_end = base;
    log->producers_known = true;
    kl_log_settle(log);
    return KL_OK;
}

/* Load the directory's present state into a reader. */
static kl_status reload(kl_log *log) {
    kl_dir *dir = NULL;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (status) return status;
    memset(log->hints, 0xff, sizeof log->hints);
    const seen_before before = {kl_version_retain(log->version), log->generation};
    bool done = false;
    if (log->page) status = reload_by_page(log, dir, &before, &done);
    if (log->page && !done) log->generation = -1;
    if (!status && !done) {
        kl_statepage_close(log->page, false);
        log->page = NULL;
        status = reload_by_folder(log, dir);
    }
    if (!status && log->version->count == 0) status = stand_on_nothing(log, dir);
    if (status &&
        before.version->count > 0) { /* keep the old list instead of half a list */
        kl_version_drop(log->version);
        log->version = kl_version_retain(before.version);
        log->generation = -1;
    }
    kl_version_drop(before.version);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* Follow the writer's appends to the active segment. */
static kl_status grow_active(kl_log *log, const kl_page_values *values) {
    kl_segment *active = kl_log_active(log);
    if (values->active_bytes == active->size) return KL_OK;
    active->size = values->active_bytes;
    kl_segment_forget_times(active);
    return kl_segment_follow(active, log->page, values, true);
}

/* True if the page is up to date.  A killed writer leaves it unchanged, and the next writer may
 * have no page, or one of another user elsewhere. */
static bool page_is_kept(kl_log *log, kl_page_values *values) {
    if (!kl_statepage_read(log->page, values)) return false;
    int64_t now_ms = kl_monotonic_ms();
    if (KL_LIKELY(now_ms - log->page_looked_ms < PAGE_LOOK_MS)) return true;
    log->page_looked_ms = now_ms;
    return kl_statepage_lives(log->page);
}

kl_status kl_log_refresh(kl_log *log) {
    if (log->writable) return KL_OK;
    kl_status status = kl_log_enter(log);
    if (status) return status;
    kl_page_values values;
    if (log->page && !page_is_kept(log, &values)) {
        kl_statepage_close(log->page, false);
        log->page = NULL;
        log->generation = -1; /* next time, read the folder itself */
    }
    if (log->page == NULL) {
        status = kl_statepage_open(log->path, &log->page);
        log->page_looked_ms = kl_monotonic_ms();
        if (!status && log->page && !kl_statepage_read(log->page, &values)) {
            kl_statepage_close(log->page, false);
            log->page = NULL;
        }
        if (status) goto out;
    }
    if (log->page == NULL || values.generation != log->generation) {
        status = reload(log);
    } else if (values.active_base_offset == kl_log_active(log)->base_offset) {
        status = grow_active(log, &values);
        log->log_start = values.log_start_offset;
        log->log_end = values.log_end_offset;
        log->high_watermark = values.high_watermark;
        log->last_stable = values.last_stable_offset;
        log->flushed = values.flushed_offset;
        if (status == KL_E_STALE) status = reload(log);
    } else {
        status = reload(log); /* the writer rolled */
    }
out:
    kl_log_leave(log);
    return status;
}

int64_t kl_log_changes(const char *path) {
    kl_statepage *page = NULL;
    if (kl_statepage_open(path, &page) != KL_OK || page == NULL) return -1;
    int64_t changes = kl_statepage_changes(page);
    kl_statepage_close(page, false);
    return changes;
}

/* ---- its state ----------------------------------------------------------------------- */

kl_status kl_log_look(kl_log *log, kl_look *out) {
    kl_status status = log->writable ? KL_OK : kl_log_refresh(log);
    return status ? status : kl_log_peek(log, out);
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
    for (size_t i = 0; i < log->version->count; i++)
        out->size_bytes += log->version->segments[i]->size;
    out->generation = log->generation;
    out->segment_count = (int32_t)log->version->count;
    out->leader_epoch = log->leader_epoch;
    out->last_epoch = kl_epochs_latest(&log->epochs);
    out->offline = log->offline != KL_OK;
    out->producer_count = (int32_t)log->producers.count;
    kl_log_leave(log);
    return KL_OK;
}

void kl_log_get_each(kl_log **logs, size_t count, kl_log_state *out, kl_status *statuses) {
    for (size_t i = 0; i < count; i++) statuses[i] = kl_log_get(logs[i], &out[i]);
}

/* Locked. */
static int64_t bound_of(const kl_log *log, int32_t bound) {
    const kl_look look = kl_log_see(log);
    return kl_look_bound(&look, bound);
}

/* A reader polls: its writer is another process and cannot notify it. */
static kl_status wait_as_reader(kl_log *log, int64_t offset, int32_t bound,
                                int32_t timeout_ms) {
    int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    for (int64_t nap_ms = 1;; nap_ms = KL_MIN(nap_ms * 2, 20)) {
        kl_status status = kl_log_refresh(log);
        if (!status) status = kl_log_enter(log);
        if (status) return status;
        bool passed = bound_of(log, bound) > offset;
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
    while (!log->closed && bound_of(log, bound) <= offset) {
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
