/* truncate.c: removes records: truncation at the end, deletion at the start.
 *
 * First the remaining part is found, then the log in memory is cut to it, then the disk: a reader
 * never waits for the disk, a writer waits for all of it.
 *
 * Order of steps on disk, so that recovery completes a log after a crash between any two: remove
 * names of later segments (last first), then snapshots above the cut, then the bytes; last the
 * indexes and epochs, which recovery can rebuild. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "read.h"

static void lower_bounds(kl_log *log, int64_t log_end) {
    log->log_end = log_end;
    log->high_watermark = KL_MIN(log->high_watermark, log_end);
    /* The followers' records above the cut differ from those appended here later. */
    if (log->show_until != INT64_MAX) log->show_until = KL_MIN(log->show_until, log_end);
    log->last_stable = KL_MIN(log->last_stable, log->high_watermark);
    log->log_start = KL_MIN(log->log_start, log->last_stable);
    log->flushed = KL_MIN(log->flushed, log_end);
    log->hold_until = KL_MIN(log->hold_until, log_end);
}

/* Not locked.  Readers in other processes, which rely on file names, wait between these two. */
static void begin_names(kl_log *log) {
    kl_lock(&log->lock);
    kl_log_change_begin(log);
    kl_unlock(&log->lock);
}

static void end_names(kl_log *log) {
    kl_lock(&log->lock);
    kl_log_change_end(log);
    kl_unlock(&log->lock);
}

/* Not locked.  After a failure, names on disk and in memory may differ: the log goes offline.  Not
 * if they agree after each step (`stepwise`) and the failure is retriable. */
static kl_status end(kl_log *log, kl_dir *dir, kl_status status, bool stepwise) {
    if (!status) status = kl_dir_sync(dir);
    kl_lock(&log->lock);
    if (!status) log->dir_dirty = false;
    else if (stepwise && kl_passes(status)) log->dir_dirty = true;
    else kl_log_fail_storage(log, status);
    kl_unlock(&log->lock);
    return status;
}

static void close_dir(kl_dir *dir) {
    kl_dir_close(dir);
    kl_dir_free(dir);
}

/* Delete the files of segments from `first` on, last first. */
static kl_status delete_from(const kl_version *version, kl_dir *dir, size_t first) {
    kl_status status = KL_OK;
    for (size_t i = version->count; !status && i-- > first;) {
        status = KL_FP_STATUS("truncate.before_delete");
        if (!status) status = kl_segment_delete(version->segments[i], dir);
    }
    return status;
}

kl_status kl_log_delete_left(kl_log *log, kl_dir *dir) {
    kl_status status = KL_OK;
    size_t done = 0;
    while (done < log->left_count) {
        status = KL_FP_STATUS("delete.before_segment");
        if (!status) status = kl_segment_delete(log->left[done], dir);
        if (status) break;
        kl_segment_drop(log->left[done++]);
    }
    if (done == 0) return status;
    log->left_count -= done;
    memmove(log->left, log->left + done, log->left_count * sizeof *log->left);
    return status;
}

/* ---- from the beginning ------------------------------------------------------------------- */

/* Locked, reserved.  Replace all segments with those of `next`, an empty version. */
static void show_restart(kl_log *log, kl_version *next, int64_t offset) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(next->count == 1 && kl_version_active(next)->base_offset == offset);
    log->version = next;
    kl_epochs_clear(&log->epochs);
    kl_producers_clear(&log->producers);
    log->log_start = log->log_end = log->high_watermark = log->last_stable = offset;
    log->flushed = offset;
    log->hold_until = KL_MIN(log->hold_until, offset);
}

/* Not locked, reserved.  On a full disk, the next append writes them; until then the file cannot be
 * wrong about any batch. */
static kl_status save_epochs(kl_log *log, kl_dir *dir) {
    kl_status status = kl_epochs_save(&log->epochs, dir, true);
    if (!status || !kl_passes(status)) return status;
    kl_lock(&log->lock);
    log->epoch_owed = true;
    kl_unlock(&log->lock);
    return KL_OK;
}

/* Not locked.  Delete the old segments and snapshots, and give `fresh` its name. */
static kl_status restart_names(const kl_version *old, kl_dir *dir, kl_segment *fresh) {
    kl_status status = delete_from(old, dir, 0);
    KL_FP("truncate_fully.before_snapshots");
    if (!status) status = kl_log_trim_snapshots(NULL, dir, -1, INT64_MAX);
    KL_FP("truncate_fully.before_create");
    if (!status) status = kl_segment_clear(dir, fresh->base_offset);
    return status ? status : kl_segment_place(fresh, dir);
}

/* Not locked, reserved.  Empty the log; it begins at `offset`. */
static kl_status restart(kl_log *log, kl_dir *dir, int64_t offset) {
    kl_segment *fresh = NULL;
    kl_version *next = NULL;
    kl_status status = kl_log_delete_left(log, dir); /* their names may be needed */
    if (!status) status = kl_log_forget_point(log, dir);
    if (!status) status = kl_segment_create_aside(dir, offset, &fresh);
    if (status) return status; /* nothing has changed */
    kl_lock(&log->lock);
    status = kl_version_begin(log->version, 0, kl_segment_retain(fresh), &next);
    kl_unlock(&log->lock);
    if (status) {
        (void)kl_dir_unlink(dir, kl_file_name(fresh->file));
        kl_segment_drop(fresh);
        return status;
    }
    kl_version *old = log->version;
    kl_lock(&log->lock);
    kl_log_change_begin(log);
    show_restart(log, next, offset);
    kl_log_publish(log);
    kl_unlock(&log->lock);
    status = restart_names(old, dir, fresh);
    end_names(log);
    if (!status) status = save_epochs(log, dir);
    kl_segment_drop(fresh);
    kl_lock(&log->lock);
    kl_version_drop(old);
    kl_unlock(&log->lock);
    return end(log, dir, status, false);
}

/* Locked, reserved. */
static kl_status restart_reserved(kl_log *log, int64_t offset) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(log->changing);
    kl_dir *dir = NULL;
    kl_status status = kl_log_settle_tail(log);
    if (!status) status = kl_log_make_dirty(log);
    if (status) return status;
    kl_log_begin_disk(log);
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = restart(log, dir, offset);
    close_dir(dir);
    kl_log_end_disk(log);
    return status;
}

kl_status kl_log_restart_at(kl_log *log, int64_t offset) {
    kl_log_claim(log);
    kl_status status = restart_reserved(log, offset);
    kl_log_release(log);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------ */

/* A truncation's preparations, made before any change. */
typedef struct {
    kl_look look;        /* the current log */
    size_t index;        /* the segment to be cut, */
    int64_t pos;         /* and the position in it */
    bool copying;        /* it is sealed, or being sent in part */
    kl_segment *cut;     /* the remaining part; owned by `version`, */
    kl_version *version; /* where it is the last */
    kl_producers producers;
    int64_t log_end;
} cut_plan;

static kl_segment *whole_of(const cut_plan *plan) {
    return plan->look.version->segments[plan->index];
}

/* Check for space for the files that a truncation rewrites, before any change: later, a full disk
 * would leave files and memory different. */
static kl_status try_room(const kl_log *log, const cut_plan *plan, kl_dir *dir) {
    static const char name[] = KL_EPOCHS_NAME ".tmp"; /* the next save overwrites it */
    enum { BYTES_MIN = 32 << 10, EPOCH_LINE_BYTES_MAX = 40 };
    size_t offset_count, time_count;
    kl_segment_count_entries(whole_of(plan), &offset_count, &time_count);
    size_t bytes = BYTES_MIN + log->epochs.count * EPOCH_LINE_BYTES_MAX +
                   offset_count * OFFSET_ENTRY_BYTES + time_count * TIME_ENTRY_BYTES;
    if (plan->copying) bytes += (size_t)plan->pos;
    kl_file *file = NULL;
    kl_status status = kl_file_create(log->path, name, &file);
    if (status) goto out;
    status = kl_file_reserve(file, 0, (int64_t)bytes);
    kl_status removed = kl_dir_unlink(dir, name);
    if (!status) status = removed;
out:
    kl_file_drop(file);
    return status ? kl_fail_prefix(status, "log %s, truncate", log->path) : KL_OK;
}

/* Check the remaining part; truncations are rare, and a sealed segment gets its in-memory indexes
 * this way.  Keeps the entries of aborted transactions. */
static kl_status read_back(const kl_log *log, const cut_plan *plan, kl_segment *cut,
                           int64_t *log_end) {
    int64_t valid_bytes;
    kl_status status = kl_log_recover_segment(log, cut, NULL, &valid_bytes, log_end);
    if (!status && valid_bytes < plan->pos)
        return kl_fail(KL_E_CORRUPT,
                       "log %s: the kept part of segment %lld is damaged at %lld",
                       log->path, (long long)cut->base_offset, (long long)valid_bytes);
    const kl_aborts *aborts = &whole_of(plan)->aborts;
    for (size_t i = 0; !status && i < aborts->count; i++)
        if (aborts->entries[i].last_offset < *log_end)
            status = kl_aborts_add(&cut->aborts, &aborts->entries[i]);
    cut->aborts.loaded = true;
    return status;
}

/* Not locked, reserved: nothing has changed yet. */
static kl_status make_plan(kl_log *log, kl_dir *dir, int64_t offset, cut_plan *plan) {
    plan->index = kl_version_find(plan->look.version, offset);
    kl_segment *segment = whole_of(plan);
    kl_status status = kl_log_prepare(log, &plan->look, plan->index);
    if (!status) status = kl_log_enter_aborts(log, &plan->look, plan->index);
    if (!status) kl_log_leave(log);
    if (!status) status = kl_segment_locate(segment, segment->size, offset, &plan->pos);
    plan->copying =
        kl_look_is_sealed(&plan->look, plan->index) || atomic_load(&segment->slices) > 0;
    if (!status) status = try_room(log, plan, dir);
    if (!status) status = kl_segment_shorten(segment, plan->pos, &plan->cut);
    if (status) return status;
    kl_lock(&log->lock); /* protects readers' notes in the version */
    status = kl_version_begin(plan->look.version, plan->index, plan->cut, &plan->version);
    kl_unlock(&log->lock);
    if (!status) status = read_back(log, plan, plan->cut, &plan->log_end);
    if (!status)
        status = kl_log_derive_producers(log, plan->version, &plan->producers, dir,
                                         plan->log_end, INT64_MAX);
    return status ? status : kl_log_forget_point(log, dir);
}

static void free_plan(kl_log *log, cut_plan *plan) {
    kl_producers_free(&plan->producers);
    kl_lock(&log->lock);
    kl_version_drop(plan->version);
    kl_look_drop(&plan->look);
    kl_unlock(&log->lock);
}

/* Not locked: from here on every caller sees the shorter log.  KL_E_STALE: bytes to be cut in place
 * are being sent.  Readers in other processes wait until end_names. */
static kl_status show_cut(kl_log *log, cut_plan *plan) {
    kl_status status = KL_OK;
    kl_lock(&log->lock);
    if (!plan->copying && atomic_load(&whole_of(plan)->slices) > 0) {
        status = KL_E_STALE;
    } else {
        kl_log_change_begin(log);
        kl_version_drop(log->version);
        log->version = kl_version_retain(plan->version);
        const kl_producers before = log->producers;
        log->producers = plan->producers;
        plan->producers = before;
        kl_epochs_truncate_end(&log->epochs, plan->log_end);
        lower_bounds(log, plan->log_end);
        kl_log_publish(log);
    }
    kl_unlock(&log->lock);
    return status;
}

/* Not locked.  Replace the segment with a copy of the remaining part, as other threads may map it
 * or send from it. */
static kl_status cut_by_copy(kl_log *log, kl_dir *dir, const cut_plan *plan) {
    kl_segment *copy = NULL;
    int64_t log_end;
    kl_status status = kl_segment_copy(whole_of(plan), dir, plan->pos, &copy);
    if (!status) status = read_back(log, plan, copy, &log_end);
    if (status) {
        kl_segment_drop(copy);
        return status;
    }
    begin_names(log);
    status = kl_segment_place(copy, dir);
    kl_lock(&log->lock);
    if (!status) status = kl_version_replace(&log->version, plan->index, copy);
    else kl_segment_drop(copy);
    kl_log_change_end(log);
    kl_unlock(&log->lock);
    return status;
}

/* Not locked: make the disk match the log in memory. */
static kl_status cut_on_disk(kl_log *log, kl_dir *dir, const cut_plan *plan) {
    kl_status status = delete_from(plan->look.version, dir, plan->index + 1);
    end_names(log);
    KL_FP("truncate.before_snapshots");
    if (!status)
        status = kl_log_trim_snapshots(plan->version, dir, plan->log_end, INT64_MAX);
    if (!status) status = kl_dir_sync(dir); /* no later snapshot survives the truncation */
    if (!status) status = kl_sidecar_drop(dir, plan->cut->base_offset);
    if (!status)
        status = plan->copying ? cut_by_copy(log, dir, plan) : kl_segment_trim(plan->cut);
    if (status) return status;
    kl_segment *cut = kl_log_active(log);
    KL_FP("truncate.before_indexes");
    status = kl_index_rewrite_if_room(&cut->offsets, dir);
    if (!status) status = kl_index_rewrite_if_room(&cut->times, dir);
    if (!status) status = kl_aborts_rewrite(&cut->aborts, dir, true);
    KL_FP("truncate.before_epochs");
    if (!status) status = save_epochs(log, dir);
    if (!status) status = kl_file_sync(cut->file);
    KL_FP("truncate.before_producers");
    return status;
}

/* Reserved.  True if no visible record would remain.  Batches below the start may have epochs that
 * the leader never had, or had later: its batches after them would be out of order. */
static bool leaves_nothing(const kl_log *log, int64_t offset) {
    int64_t base = log->version->segments[0]->base_offset;
    return offset < base || (offset <= log->log_start && base < log->log_start);
}

/* Not locked, reserved.  *stale: retry by copying. */
static kl_status truncate_once(kl_log *log, kl_dir *dir, int64_t offset, bool *stale) {
    cut_plan plan = {0};
    kl_producers_init(&plan.producers);
    kl_status status = kl_log_peek(log, &plan.look);
    if (status) return status;
    status = make_plan(log, dir, offset, &plan);
    if (status) goto out;
    if (leaves_nothing(log, plan.log_end)) {
        status = restart(log, dir, plan.log_end);
        goto out;
    }
    *stale = show_cut(log, &plan) != KL_OK;
    if (*stale) goto out;
    status = cut_on_disk(log, dir, &plan);
    kl_lock(&log->lock);
    kl_log_active(log)->unsynced = true;
    kl_unlock(&log->lock);
    status = end(log, dir, status, false);
out:
    free_plan(log, &plan);
    return status;
}

/* Locked, reserved. */
static kl_status truncate_reserved(kl_log *log, int64_t offset) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(log->changing && offset < log->log_end);
    kl_dir *dir = NULL;
    bool stale = true;
    kl_status status = kl_log_settle_tail(log);
    if (!status) status = kl_log_make_dirty(log);
    if (status) return status;
    kl_log_begin_disk(log);
    status = kl_dir_open(log->path, 0, &dir);
    while (!status && stale) {
        stale = false;
        status = truncate_once(log, dir, offset, &stale);
    }
    close_dir(dir);
    kl_log_end_disk(log);
    return status;
}

/* Locked, reserved.  Drop epochs without records: otherwise a leader that wrote nothing would
 * diverge from the next leader's log forever. */
static kl_status drop_empty_epochs(kl_log *log, int64_t offset) {
    const kl_epochs *epochs = &log->epochs;
    if (epochs->count == 0 || epochs->entries[epochs->count - 1].start_offset < offset)
        return KL_OK;
    kl_status status = kl_log_make_dirty(log);
    if (status) return status;
    kl_epochs_truncate_end(&log->epochs, offset);
    return kl_log_keep_epochs(log);
}

/* kl_log_reserve, and wait until no compaction step runs: its output has the name of our copy.  The
 * next step finds that segments have changed. */
static kl_status reserve_alone(kl_log *log) {
    kl_status status;
    while (!(status = kl_log_reserve(log)) && log->cleaner_busy) {
        kl_log_release(log);
        kl_cond_wait_ms(&log->changed, &log->lock, -1);
        kl_log_leave(log);
    }
    return status;
}

kl_status kl_log_truncate(kl_log *log, int64_t offset) {
    kl_status status = reserve_alone(log);
    if (status) return status;
    if (offset < 0)
        status = kl_fail(KL_E_OFFSET_OUT_OF_RANGE, "log %s: truncate to offset %lld",
                         log->path, (long long)offset);
    else if (leaves_nothing(log, offset)) status = restart_reserved(log, offset);
    else if (offset < log->log_end) status = truncate_reserved(log, offset);
    else status = drop_empty_epochs(log, offset);
    kl_log_release(log);
    kl_log_leave(log);
    return status;
}

kl_status kl_log_truncate_fully(kl_log *log, int64_t offset) {
    kl_status status = reserve_alone(log);
    if (status) return status;
    if (offset < 0)
        status = kl_fail(KL_E_OFFSET_OUT_OF_RANGE, "log %s: start again at offset %lld",
                         log->path, (long long)offset);
    else status = restart_reserved(log, offset);
    kl_log_release(log);
    kl_log_leave(log);
    return status;
}

kl_status kl_log_roll(kl_log *log) {
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    if (kl_log_active(log)->size > 0) status = kl_log_roll_locked(log, log->log_end);
    kl_log_leave(log);
    return status;
}

/* ---- the start ---------------------------------------------------------------------------- */

kl_status kl_log_set_start(kl_log *log, int64_t offset) {
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    if (offset < 0 || offset > log->high_watermark) {
        status =
            kl_fail(KL_E_OFFSET_OUT_OF_RANGE,
                    "log %s: delete before offset %lld, expected one from %lld (start) to "
                    "%lld (high watermark)",
                    log->path, (long long)offset, (long long)log->log_start,
                    (long long)log->high_watermark);
    } else if (offset > log->log_start) {
        status = kl_log_make_dirty(log);
        if (!status && offset > log->log_start) { /* retention may run at the same time */
            log->log_start = offset;
            kl_epochs_truncate_start(&log->epochs, offset);
            kl_log_publish(log);
        }
    }
    kl_log_leave(log);
    return status;
}

/* Segments to delete, and the one to sync first. */
typedef struct {
    kl_segment **oldest; /* a reference to each */
    size_t count;
    kl_segment *boundary; /* the last one, if its derived files may not be synced */
    int64_t next_offset;
} deletion;

static void deletion_done(deletion *gone) {
    for (size_t i = 0; i < gone->count; i++) kl_segment_drop(gone->oldest[i]);
    kl_release(gone->oldest);
}

/* Locked.  The segments that end at or below `before_offset`, except the active one. */
static kl_status choose(const kl_log *log, int64_t before_offset, deletion *gone) {
    const kl_version *version = log->version;
    *gone = (deletion){0};
    size_t count = 0;
    while (count + 1 < version->count &&
           version->segments[count + 1]->base_offset <= before_offset)
        count++;
    if (count == 0) return KL_OK;
    gone->oldest = kl_alloc(count * sizeof *gone->oldest);
    if (gone->oldest == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory to delete %zu segments", count);
    for (; gone->count < count; gone->count++)
        gone->oldest[gone->count] = kl_segment_retain(version->segments[gone->count]);
    gone->next_offset = version->segments[count]->base_offset;
    kl_segment *last = gone->oldest[count - 1];
    if (last->unsynced || log->syncing) gone->boundary = last; /* a round is in progress */
    return KL_OK;
}

/* Locked, in a change of segments.  Remove the segments from the log in memory.  The epoch file is
 * written with the next epoch or the close: an open drops entries below the start. */
static kl_status forget_oldest(kl_log *log, const deletion *gone) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(gone->count < log->version->count); /* the active segment stays */
    kl_status status = kl_version_remove(&log->version, 0, gone->count);
    if (status) return status;
    KL_ASSERT(log->version->segments[0]->base_offset == gone->next_offset);
    log->log_start = KL_MAX(log->log_start, gone->next_offset);
    log->last_stable = KL_MAX(log->last_stable, log->log_start);
    kl_epochs_truncate_start(&log->epochs, log->log_start);
    log->dir_dirty = true;
    return KL_OK;
}

static void unleave(kl_log *log, size_t count) {
    KL_ASSERT(count <= log->left_count);
    while (count-- > 0) kl_segment_drop(log->left[--log->left_count]);
}

/* Append `gone` to the segments whose files remain to be deleted. */
static kl_status leave(kl_log *log, const deletion *gone) {
    if (gone->count == 0) return KL_OK;
    size_t count = log->left_count + gone->count;
    kl_segment **left = kl_resize(log->left, count * sizeof *left);
    if (left == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory to delete %zu segments", count);
    log->left = left;
    for (size_t i = 0; i < gone->count; i++)
        left[log->left_count++] = kl_segment_retain(gone->oldest[i]);
    return KL_OK;
}

/* Delete files, oldest first.  A failed deletion is retried: a later segment never goes before an
 * earlier one, which would leave a hole. */
static kl_status delete_names(kl_log *log, kl_dir *dir, int64_t *bases, size_t max_bases,
                              size_t *deleted) {
    size_t before = log->left_count;
    for (size_t i = 0; i < KL_MIN(before, max_bases); i++)
        bases[i] = log->left[i]->base_offset;
    kl_status status = kl_log_delete_left(log, dir);
    *deleted = before - log->left_count;
    return status;
}

/* Reserved, not locked.  First make their replacements durable: the snapshot with their producers,
 * and the next segment.  Their readers keep their references. */
static kl_status delete_chosen(kl_log *log, kl_dir *dir, const deletion *gone,
                               int64_t *bases, size_t max_bases, size_t *deleted) {
    kl_status status = KL_OK;
    bool tried;
    KL_ASSERT(log->changing);
    if (gone->boundary)
        status =
            kl_segment_sync_derived(gone->boundary, log->path, gone->next_offset, &tried);
    if (!status && gone->boundary) status = kl_dir_sync(dir);
    if (status) return status; /* nothing has changed */
    kl_lock(&log->lock);
    status = leave(log, gone);
    if (!status && gone->count) {
        kl_log_change_begin(log);
        status = forget_oldest(log, gone);
        if (status) unleave(log, gone->count);
        kl_log_change_end(log);
    }
    kl_look look = kl_log_see(log);
    kl_version_retain(look.version);
    kl_unlock(&log->lock);
    if (status) goto out;
    int64_t until = kl_version_active(look.version)->base_offset + 1;
    status = delete_names(log, dir, bases, max_bases, deleted);
    KL_FP("delete.before_snapshots");
    if (!status) status = kl_log_trim_snapshots(look.version, dir, INT64_MAX, until);
    if (!status) status = kl_dir_sync(dir);
    if (!status) goto out;
    kl_lock(&log->lock);
    log->dir_dirty = true;
    if (!kl_passes(status)) kl_log_fail_storage(log, status);
    kl_unlock(&log->lock);
out:
    kl_look_drop(&look);
    return status;
}

kl_status kl_log_unlink_deleted(kl_dir *dir, int64_t before_ms, size_t *files,
                                size_t *left) {
    kl_names names = {0};
    kl_status status = kl_dir_list(dir, &names);
    for (size_t i = 0; !status && i < names.count; i++) {
        const char *dot = strrchr(names.names[i], '.');
        if (dot == NULL || strcmp(dot, KL_DELETED_SUFFIX) != 0) continue;
        struct stat file;
        *left += 1;
        /* A rename sets the inode's change time: the time of the deletion. */
        if (kl_io->fstatat(dir->fd, names.names[i], &file, 0) != 0) continue;
        int64_t deleted_ms =
            (int64_t)file.st_ctim.tv_sec * 1000 + file.st_ctim.tv_nsec / 1000000;
        if (deleted_ms >= before_ms) continue;
        KL_FP("purge.before_unlink");
        status = kl_dir_unlink(dir, names.names[i]);
        if (!status) *files += 1;
        if (!status) *left -= 1;
    }
    kl_names_free(&names);
    return status;
}

/* Not locked, reserved.  Add an empty segment, and move all others out of the log. */
static kl_status leave_all(kl_log *log, kl_dir *dir, deletion *gone) {
    kl_segment *fresh = NULL;
    int64_t base_offset = log->log_end;
    kl_status status = kl_segment_create(dir, base_offset, &fresh);
    if (status) return status;
    kl_lock(&log->lock);
    kl_log_change_begin(log);
    status = kl_version_add(&log->version, fresh);
    bool added = !status;
    if (!status) status = choose(log, log->log_end, gone);
    if (!status) status = leave(log, gone);
    if (!status && (status = forget_oldest(log, gone)) != KL_OK) unleave(log, gone->count);
    kl_log_change_end(log);
    kl_unlock(&log->lock);
    if (!added) (void)kl_segment_unmake(dir, base_offset);
    return status;
}

/* Not locked, reserved.  Delete the whole log when a roll's indexes and snapshot find no space: an
 * empty segment after it needs no blocks. */
static kl_status delete_all_bare(kl_log *log, kl_dir *dir, int64_t *bases, size_t max_bases,
                                 size_t *deleted) {
    deletion gone = {0};
    size_t files = 0, left = 0;
    int64_t end_offset = log->log_end;
    kl_status status = leave_all(log, dir, &gone);
    if (!status) status = delete_names(log, dir, bases, max_bases, deleted);
    if (!status) status = kl_log_write_snapshot(&log->producers, dir, end_offset, true);
    if (status == KL_E_NO_SPACE) {
        status = kl_log_unlink_deleted(dir, INT64_MAX, &files, &left);
        if (!status) status = kl_log_write_snapshot(&log->producers, dir, end_offset, true);
        if (status == KL_E_NO_SPACE) status = KL_OK;
    }
    if (!status) status = kl_log_trim_snapshots(log->version, dir, INT64_MAX, INT64_MAX);
    deletion_done(&gone);
    return end(log, dir, status, true);
}

/* Locked, reserved.  Seal the last segment before it is deleted.  *gone: all are deleted
 * already. */
static kl_status seal_last(kl_log *log, int64_t *bases, size_t max_bases, size_t *deleted,
                           bool *gone) {
    KL_ASSERT_HELD(&log->lock);
    kl_dir *dir = NULL;
    *gone = false;
    if (kl_log_active(log)->size == 0) return KL_OK;
    kl_status status = kl_log_roll_locked(log, log->log_end);
    /* A tail that must be backed up first stays with its segment. */
    if (status != KL_E_NO_SPACE || kl_log_active(log)->owed_end > 0) return status;
    *gone = true;
    status = kl_log_make_dirty(log);
    if (status) return status;
    kl_log_begin_disk(log);
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = delete_all_bare(log, dir, bases, max_bases, deleted);
    close_dir(dir);
    kl_log_end_disk(log);
    return status;
}

kl_status kl_log_delete_segments(kl_log *log, int64_t before_offset, int64_t *bases,
                                 size_t max_bases, size_t *deleted) {
    kl_dir *dir = NULL;
    deletion gone = {0};
    *deleted = 0;
    kl_status status = kl_log_reserve(log);
    if (status) return status;
    before_offset =
        KL_MIN(before_offset, log->high_watermark); /* never uncommitted records */
    bool all_gone = false;
    if (before_offset >= log->log_end)
        status = seal_last(log, bases, max_bases, deleted, &all_gone);
    if (all_gone) goto out;
    const kl_status full = status == KL_E_NO_SPACE ? status : KL_OK;
    if (full) status = KL_OK; /* earlier segments free space */
    if (!status) status = choose(log, before_offset, &gone);
    if (!status && gone.count + log->left_count == 0) status = full;
    if (status || gone.count + log->left_count == 0) goto out;
    status = kl_log_make_dirty(log);
    if (!status) status = kl_dir_open(log->path, 0, &dir);
    if (status) goto out;
    kl_log_leave(log);
    status = delete_chosen(log, dir, &gone, bases, max_bases, deleted);
    kl_lock(&log->lock);
out:
    kl_log_release(log);
    kl_log_leave(log);
    kl_dir_close(dir);
    kl_dir_free(dir);
    deletion_done(&gone);
    return status;
}

enum { COARSE_TICK_MS = 3000 }; /* more than any file system's: a purge can wait */

/* True if no name has changed since the folder had no .deleted file. */
static bool is_purged(const struct stat *folder, const struct timespec *purged) {
    return kl_log_folder_tells(folder, COARSE_TICK_MS) &&
           folder->st_mtim.tv_sec == purged->tv_sec &&
           folder->st_mtim.tv_nsec == purged->tv_nsec;
}

/* Not locked, nor reserved: a rename that is under way is seen by the next purge. */
static kl_status is_purged_now(kl_log *log, bool *purged) {
    kl_status status = kl_log_enter_writer(log);
    if (status) return status;
    const struct timespec known = log->purged;
    kl_log_leave(log);
    struct stat folder;
    *purged =
        kl_io->fstatat(AT_FDCWD, log->path, &folder, 0) == 0 && is_purged(&folder, &known);
    return KL_OK;
}

/* Reserved, not locked. */
static kl_status purge(kl_log *log, kl_dir *dir, int64_t before_ms, size_t *files,
                       size_t *left) {
    struct stat folder;
    const bool known =
        kl_io->fstat(dir->fd, &folder) == 0 && kl_log_folder_tells(&folder, COARSE_TICK_MS);
    kl_status status = kl_log_unlink_deleted(dir, before_ms, files, left);
    if (status || !known || *files + *left > 0) return status;
    kl_lock(&log->lock);
    log->purged = folder.st_mtim;
    kl_unlock(&log->lock);
    return KL_OK;
}

/* One deletion lets a directory of ten thousand logs ask all of them, mostly in vain: that costs
 * one call to the system each. */
kl_status kl_log_purge(kl_log *log, int64_t before_ms, size_t *files, size_t *left) {
    *files = *left = 0;
    bool purged;
    kl_status status = is_purged_now(log, &purged);
    if (status || purged) return status;
    status = kl_log_reserve(log);
    if (status) return status;
    kl_log_leave(log);
    kl_dir *dir = NULL;
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = purge(log, dir, before_ms, files, left);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_lock(&log->lock);
    kl_log_release(log);
    kl_log_leave(log);
    return status;
}
