/* truncate.c: what takes records away: truncation at the end, deletion at the start.
 *
 * Order of steps, so that a crash between any two leaves a log that recovery makes whole:
 * names of later segments go first (from the last down), then snapshots above the cut, then
 * the bytes, then indexes and epochs, which recovery could make anew. */
#include <stdio.h>
#include <time.h>

#include "read.h"

static void lower_bounds(kl_log *log) {
    log->high_watermark = KL_MIN(log->high_watermark, log->log_end);
    log->last_stable = KL_MIN(log->last_stable, log->high_watermark);
    log->log_start = KL_MIN(log->log_start, log->last_stable);
    log->flushed = KL_MIN(log->flushed, log->log_end);
    log->hold_until = KL_MIN(log->hold_until, log->log_end);
}

/* Begin a change of segments: folder open, marker gone, readers told to wait. */
static kl_status begin(kl_log *log, kl_dir **dir) {
    *dir = NULL;
    kl_status status = kl_log_make_dirty(log);
    if (!status) status = kl_dir_open(log->path, 0, dir);
    if (!status) kl_log_change_begin(log);
    return status;
}

/* The same, for a cut: nothing speaks any more of what is cut as being on disk. */
static kl_status begin_cut(kl_log *log, kl_dir **dir) {
    kl_status status = begin(log, dir);
    if (status) return status;
    status = kl_log_forget_point(log, *dir);
    if (status) {
        kl_log_change_end(log);
        kl_dir_close(*dir);
        kl_dir_free(*dir);
        *dir = NULL;
    }
    return status;
}

/* Names on disk and in memory may disagree after a failure: then the log is offline.  Not
 * when they agree after each step (`stepwise`) and what failed passes. */
static kl_status end(kl_log *log, kl_dir *dir, kl_status status, bool stepwise) {
    if (!status) status = kl_dir_sync(dir);
    if (!status) log->dir_dirty = false;
    else if (stepwise && kl_passes(status)) log->dir_dirty = true;
    else kl_log_fail_storage(log, status);
    kl_log_change_end(log);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

static kl_status delete_from(kl_log *log, kl_dir *dir, size_t first) {
    kl_status status = KL_OK;
    for (size_t i = log->version->count; !status && i-- > first;) {
        status = KL_FP_STATUS("truncate.before_delete");
        if (!status) status = kl_segment_delete(log->version->segments[i], dir);
        if (!status) status = kl_version_remove(&log->version, i, 1);
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

static kl_status clear_left(kl_log *log) {
    kl_dir *dir = NULL;
    if (log->left_count == 0) return KL_OK;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_log_delete_left(log, dir);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

kl_status kl_log_restart_at(kl_log *log, int64_t offset) {
    kl_dir *dir = NULL;
    kl_segment *fresh = NULL;
    kl_log_settle_changes(log);
    if (log->closed) return kl_fail(KL_E_CLOSED, "log %s is closed", log->path);
    kl_status status = clear_left(log); /* the new one may get a name of theirs */
    if (!status && log->version->count) status = kl_log_settle_tail(log);
    if (!status) status = begin_cut(log, &dir);
    if (status) {
        kl_dir_free(dir);
        return status;
    }
    status = delete_from(log, dir, 0);
    KL_FP("truncate_fully.before_snapshots");
    if (!status) status = kl_log_trim_snapshots(log->version, dir, -1, INT64_MAX);
    KL_FP("truncate_fully.before_create");
    if (!status) status = kl_segment_create(dir, offset, &fresh);
    if (!status) status = kl_version_add(&log->version, fresh);
    kl_epochs_clear(&log->epochs);
    if (!status) status = kl_epochs_save(&log->epochs, dir, true);
    kl_producers_clear(&log->producers);
    if (status && log->version->count == 0) {
        /* Nothing left to stand on: an empty segment in memory only, and offline. */
        kl_log_fail_storage(log, status);
        fresh = NULL;
        if (kl_segment_absent(log->path, offset, &fresh) == KL_OK)
            (void)kl_version_add(&log->version, fresh);
    }
    log->log_start = log->log_end = log->high_watermark = log->last_stable = offset;
    log->flushed = offset;
    log->hold_until = KL_MIN(log->hold_until, offset);
    if (log->version->count == 0) {
        log->closed = true;
        kl_dir_close(dir);
        kl_dir_free(dir);
        return status;
    }
    return end(log, dir, status, false);
}

/* The kept part of the segment that the cut lies in becomes the active one. */
static kl_status cut_segment(kl_log *log, kl_dir *dir, size_t index, int64_t offset,
                             bool active) {
    kl_segment *segment = log->version->segments[index], *cut = NULL;
    int64_t pos;
    kl_status status = kl_segment_locate(segment, segment->size, offset, &pos);
    if (!status) status = kl_segment_cut(segment, dir, pos, active, &cut);
    if (status) return status;
    kl_segment_retain(cut);
    status = kl_version_replace(&log->version, index, cut);
    if (status) goto out;
    kl_index_free(&cut->offsets);
    kl_index_free(&cut->times);
    kl_index_init(&cut->offsets, KL_OFFSET_INDEX, cut->base_offset);
    kl_index_init(&cut->times, KL_TIME_INDEX, cut->base_offset);
    KL_FP("truncate.before_indexes");
    /* Read back and checked: a cut is rare, and a segment that was sealed gets its
     * in-memory indexes this way. */
    int64_t valid_bytes, end_offset;
    status = kl_log_recover_segment(log, cut, &valid_bytes, &end_offset);
    if (!status && valid_bytes < pos)
        status = kl_fail(KL_E_CORRUPT,
                         "log %s: the kept part of segment %lld is damaged at %lld",
                         log->path, (long long)cut->base_offset, (long long)valid_bytes);
    if (!status) log->log_end = KL_MAX(end_offset, cut->base_offset);
    if (!status) status = kl_index_rewrite(&cut->offsets, dir, false);
    if (!status) status = kl_index_rewrite(&cut->times, dir, false);
    cut->unsynced = true;
out:
    kl_segment_drop(cut);
    return status;
}

/* Whether there is room for the small files that a truncation writes anew, before anything
 * is changed: behind that, a full disk would leave files and memory apart. */
static kl_status try_room(kl_log *log, int64_t offset) {
    static const char name[] = KL_EPOCHS_NAME ".tmp"; /* the next save takes it anyhow */
    enum { BYTES_MIN = 32 << 10, EPOCH_LINE_BYTES_MAX = 40 };
    size_t index = kl_version_find(log->version, offset);
    kl_dir *dir = NULL;
    kl_file *file = NULL;
    const kl_look look = kl_log_see(log);
    kl_status status = kl_log_prepare(log, &look, index);
    if (status) return status;
    kl_segment *segment = log->version->segments[index];
    int64_t kept = 0;
    /* What is sealed, or sent just now, is cut by a copy of what is kept. */
    if (kl_look_is_sealed(&look, index) || atomic_load(&segment->slices) > 0)
        status = kl_segment_locate(segment, segment->size, offset, &kept);
    if (status) return status;
    size_t offset_count, time_count;
    kl_segment_count_entries(segment, &offset_count, &time_count);
    size_t bytes = BYTES_MIN + (size_t)kept + log->epochs.count * EPOCH_LINE_BYTES_MAX +
                   offset_count * OFFSET_ENTRY_BYTES + time_count * TIME_ENTRY_BYTES;
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_file_create(log->path, name, &file);
    if (status) goto out;
    status = kl_file_reserve(file, 0, (int64_t)bytes);
    kl_status removed = kl_dir_unlink(dir, name);
    if (!status) status = removed;
out:
    kl_file_drop(file);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status ? kl_fail_prefix(status, "log %s, truncate", log->path) : KL_OK;
}

static kl_status truncate_to(kl_log *log, kl_dir *dir, int64_t offset) {
    size_t index = kl_version_find(log->version, offset);
    bool active = index + 1 == log->version->count;
    const kl_look look = kl_log_see(log);
    kl_status status = kl_log_prepare(log, &look, index);
    if (!status) status = delete_from(log, dir, index + 1);
    if (status) return status;
    KL_FP("truncate.before_snapshots");
    status = kl_log_trim_snapshots(log->version, dir, offset, INT64_MAX);
    if (!status) status = kl_dir_sync(dir); /* no later snapshot survives the cut */
    if (!status) status = cut_segment(log, dir, index, offset, active);
    if (!status) status = kl_log_trim_snapshots(log->version, dir, log->log_end, INT64_MAX);
    KL_FP("truncate.before_epochs");
    kl_epochs_truncate_end(&log->epochs, log->log_end);
    if (!status) status = kl_epochs_save(&log->epochs, dir, true);
    if (!status) status = kl_file_sync(log->version->segments[index]->file);
    KL_FP("truncate.before_producers");
    int64_t rebuild = kl_log_active(log)->base_offset;
    if (!status) status = kl_log_load_producers(log, dir, log->log_end, rebuild);
    return status;
}

kl_status kl_log_truncate(kl_log *log, int64_t offset) {
    kl_status status = kl_log_reserve(log);
    if (status) return status;
    kl_log_release(log); /* the lock is held to the end */
    kl_dir *dir = NULL;
    if (offset < 0) {
        status = kl_fail(KL_E_OFFSET_OUT_OF_RANGE, "log %s: truncate to offset %lld",
                         log->path, (long long)offset);
    } else if (offset < log->version->segments[0]->base_offset) {
        status = kl_log_restart_at(log, offset);
    } else if (offset < log->log_end) {
        status = kl_log_settle_tail(log);
        if (!status) status = try_room(log, offset);
        if (!status) status = begin_cut(log, &dir);
        if (!status) {
            status = truncate_to(log, dir, offset);
            lower_bounds(log);
            status = end(log, dir, status, false);
        }
    }
    kl_log_leave(log);
    return status;
}

kl_status kl_log_truncate_fully(kl_log *log, int64_t offset) {
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    if (offset < 0)
        status = kl_fail(KL_E_OFFSET_OUT_OF_RANGE, "log %s: start again at offset %lld",
                         log->path, (long long)offset);
    else status = kl_log_restart_at(log, offset);
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
        if (!status) {
            log->log_start = offset;
            kl_epochs_truncate_start(&log->epochs, offset);
            kl_log_publish(log);
        }
    }
    kl_log_leave(log);
    return status;
}

/* What goes, and what must be on disk before it does. */
typedef struct {
    kl_segment **oldest; /* a reference to each */
    size_t count;
    kl_segment *boundary; /* the last one, when its derived files may not be synced */
    int64_t next_offset;
} deletion;

static void deletion_done(deletion *gone) {
    for (size_t i = 0; i < gone->count; i++) kl_segment_drop(gone->oldest[i]);
    kl_release(gone->oldest);
}

/* Locked.  The segments that end at or below `before_offset`, but the active one. */
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
    if (last->unsynced || log->syncing) gone->boundary = last; /* a round is not over */
    return KL_OK;
}

/* Locked, in a change of segments.  Nobody is shown them from here on.  The epochs' file waits
 * for the next epoch or the close: what it says below the start is dropped by whoever opens. */
static kl_status forget_oldest(kl_log *log, const deletion *gone) {
    kl_status status = kl_version_remove(&log->version, 0, gone->count);
    if (status) return status;
    log->log_start = KL_MAX(log->log_start, gone->next_offset);
    log->last_stable = KL_MAX(log->last_stable, log->log_start);
    kl_epochs_truncate_start(&log->epochs, log->log_start);
    log->dir_dirty = true;
    return KL_OK;
}

static void unleave(kl_log *log, size_t count) {
    while (count-- > 0) kl_segment_drop(log->left[--log->left_count]);
}

/* Whose names go now: those that are left from before, and then `gone`. */
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

/* The names go, the oldest first.  What fails now is tried again: later ones never go before
 * earlier ones, which would leave a hole. */
static kl_status delete_names(kl_log *log, kl_dir *dir, int64_t *bases, size_t max_bases,
                              size_t *deleted) {
    size_t before = log->left_count;
    for (size_t i = 0; i < KL_MIN(before, max_bases); i++)
        bases[i] = log->left[i]->base_offset;
    kl_status status = kl_log_delete_left(log, dir);
    *deleted = before - log->left_count;
    return status;
}

/* Reserved, not locked.  What replaces them is durable before they go: the snapshot that keeps
 * their producers, and the segment behind them.  Their readers go on with what they hold. */
static kl_status delete_chosen(kl_log *log, kl_dir *dir, const deletion *gone,
                               int64_t *bases, size_t max_bases, size_t *deleted) {
    kl_status status = KL_OK;
    if (gone->boundary)
        status = kl_segment_sync_derived(gone->boundary, log->path, gone->next_offset);
    if (!status && gone->boundary) status = kl_dir_sync(dir);
    if (status) return status; /* nothing is changed */
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

static kl_status unlink_deleted(kl_dir *dir, int64_t before_ms, size_t *files) {
    kl_names names = {0};
    kl_status status = kl_dir_list(dir, &names);
    for (size_t i = 0; !status && i < names.count; i++) {
        const char *dot = strrchr(names.names[i], '.');
        if (dot == NULL || strcmp(dot, KL_DELETED_SUFFIX) != 0) continue;
        struct stat file;
        /* A rename sets the change time of the inode: how long ago it was deleted. */
        if (kl_io->fstatat(dir->fd, names.names[i], &file, 0) != 0) continue;
        int64_t deleted_ms =
            (int64_t)file.st_ctim.tv_sec * 1000 + file.st_ctim.tv_nsec / 1000000;
        if (deleted_ms >= before_ms) continue;
        KL_FP("purge.before_unlink");
        status = kl_dir_unlink(dir, names.names[i]);
        if (!status) *files += 1;
    }
    kl_names_free(&names);
    return status;
}

/* Locked.  What can be done for the whole log when it goes and there is no room for the indexes
 * and the snapshot of a roll: an empty segment behind it, which takes no blocks. */
static kl_status delete_all_bare(kl_log *log, int64_t *bases, size_t max_bases,
                                 size_t *deleted) {
    kl_dir *dir = NULL;
    kl_segment *fresh = NULL;
    deletion gone = {0};
    size_t files = 0;
    kl_status status = begin(log, &dir);
    if (status) return status;
    status = kl_segment_create(dir, log->log_end, &fresh);
    if (!status) status = kl_version_add(&log->version, fresh);
    if (!status) status = choose(log, log->log_end, &gone);
    if (!status) status = leave(log, &gone);
    if (!status && (status = forget_oldest(log, &gone)) != KL_OK) unleave(log, gone.count);
    if (!status) status = delete_names(log, dir, bases, max_bases, deleted);
    if (!status) status = kl_log_write_snapshot(log, dir, log->log_end, true);
    if (status == KL_E_NO_SPACE) {
        status = unlink_deleted(dir, INT64_MAX, &files);
        if (!status) status = kl_log_write_snapshot(log, dir, log->log_end, true);
        if (status == KL_E_NO_SPACE) status = KL_OK;
    }
    if (!status) status = kl_log_trim_snapshots(log->version, dir, INT64_MAX, INT64_MAX);
    status = end(log, dir, status, true);
    deletion_done(&gone);
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
        KL_MIN(before_offset, log->high_watermark); /* never what is not committed */
    if (before_offset >= log->log_end && kl_log_active(log)->size > 0) {
        status = kl_log_roll_locked(log, log->log_end);
        if (status == KL_E_NO_SPACE) {
            status = delete_all_bare(log, bases, max_bases, deleted);
            goto out;
        }
    }
    if (!status) status = choose(log, before_offset, &gone);
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

kl_status kl_log_purge(kl_log *log, int64_t before_ms, size_t *files) {
    *files = 0;
    kl_status status = kl_log_reserve(log);
    if (status) return status;
    kl_log_leave(log);
    kl_dir *dir = NULL;
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = unlink_deleted(dir, before_ms, files);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_lock(&log->lock);
    kl_log_release(log);
    kl_log_leave(log);
    return status;
}
