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

kl_status kl_log_restart_at(kl_log *log, int64_t offset) {
    kl_dir *dir = NULL;
    kl_segment *fresh = NULL;
    kl_status status = begin(log, &dir);
    if (status) {
        kl_dir_free(dir);
        return status;
    }
    status = delete_from(log, dir, 0);
    KL_FP("truncate_fully.before_snapshots");
    if (!status) status = kl_log_trim_snapshots(log, dir, -1);
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
        char name[KL_NAME_BYTES];
        kl_segment_name(name, offset, KL_LOG_SUFFIX);
        if (kl_segment_open(log->path, name, offset, false, &fresh) == KL_OK)
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
    kl_status status = kl_segment_locate(segment, offset, &pos);
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
    kl_status status = kl_log_prepare(log, index);
    if (status) return status;
    kl_segment *segment = log->version->segments[index];
    int64_t kept = 0;
    if (index + 1 < log->version->count) /* a sealed one is cut by a copy of what is kept */
        status = kl_segment_locate(segment, offset, &kept);
    if (status) return status;
    size_t bytes = BYTES_MIN + (size_t)kept + log->epochs.count * EPOCH_LINE_BYTES_MAX +
                   segment->offsets.count * OFFSET_ENTRY_BYTES +
                   segment->times.count * TIME_ENTRY_BYTES;
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
    kl_status status = kl_log_prepare(log, index);
    if (!status) status = delete_from(log, dir, index + 1);
    if (status) return status;
    KL_FP("truncate.before_snapshots");
    status = kl_log_trim_snapshots(log, dir, offset);
    if (!status) status = kl_dir_sync(dir); /* no later snapshot survives the cut */
    if (!status) status = cut_segment(log, dir, index, offset, active);
    if (!status) status = kl_log_trim_snapshots(log, dir, log->log_end);
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
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    kl_dir *dir = NULL;
    if (offset < 0) {
        status = kl_fail(KL_E_OFFSET_OUT_OF_RANGE, "log %s: truncate to offset %lld",
                         log->path, (long long)offset);
    } else if (offset < log->version->segments[0]->base_offset) {
        status = kl_log_restart_at(log, offset);
    } else if (offset < log->log_end) {
        status = try_room(log, offset);
        if (!status) status = begin(log, &dir);
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

/* What replaces the segments that end at or below `before_offset` is durable before they
 * go: the snapshot that keeps their producers, and the segment behind them. */
static kl_status sync_boundary(kl_log *log, kl_dir *dir, int64_t before_offset) {
    size_t i = kl_version_find(log->version, before_offset);
    if (i == 0 || !log->version->segments[i - 1]->unsynced) return KL_OK;
    kl_status status = kl_segment_sync_derived(log->version->segments[i - 1], log->path,
                                               log->version->segments[i]->base_offset);
    return status ? status : kl_dir_sync(dir);
}

static kl_status delete_oldest(kl_log *log, kl_dir *dir, int64_t before_offset,
                               int64_t *bases, size_t max_bases, size_t *deleted) {
    kl_status status = KL_OK;
    while (!status && log->version->count > 1 &&
           log->version->segments[1]->base_offset <= before_offset) {
        int64_t base = log->version->segments[0]->base_offset;
        status = KL_FP_STATUS("delete.before_segment");
        if (!status) status = kl_segment_delete(log->version->segments[0], dir);
        if (!status) status = kl_version_remove(&log->version, 0, 1);
        if (status) break;
        if (*deleted < max_bases) bases[*deleted] = base;
        *deleted += 1;
        log->log_start = KL_MAX(log->log_start, log->version->segments[0]->base_offset);
    }
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

/* What can be done for the whole log when it goes and there is no room for the indexes and
 * the snapshot of a roll: an empty segment behind it, which takes no blocks. */
static kl_status put_empty_segment(kl_log *log, kl_dir *dir) {
    kl_segment *fresh = NULL;
    kl_status status = kl_segment_create(dir, log->log_end, &fresh);
    if (!status) status = kl_version_add(&log->version, fresh);
    return status;
}

/* The new start in the epochs' file, and who produced, by the snapshot at the new base. */
static kl_status note_deletion(kl_log *log, kl_dir *dir, bool snapshot) {
    kl_epochs_truncate_start(&log->epochs, log->log_start);
    kl_status status = kl_epochs_save(&log->epochs, dir, true);
    if (!status && snapshot) status = kl_log_write_snapshot(log, dir, log->log_end, true);
    return status;
}

kl_status kl_log_delete_segments(kl_log *log, int64_t before_offset, int64_t *bases,
                                 size_t max_bases, size_t *deleted) {
    *deleted = 0;
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    kl_dir *dir = NULL;
    bool bare = false;
    size_t files = 0;
    before_offset =
        KL_MIN(before_offset, log->high_watermark); /* never what is not committed */
    if (before_offset >= log->log_end && kl_log_active(log)->size > 0) {
        status = kl_log_roll_locked(log, log->log_end);
        bare = status == KL_E_NO_SPACE;
    }
    if (bare) status = KL_OK;
    if (status || (!bare && (log->version->count < 2 ||
                             log->version->segments[1]->base_offset > before_offset)))
        goto out;
    status = begin(log, &dir);
    if (status) goto out;
    if (bare) status = put_empty_segment(log, dir);
    else status = sync_boundary(log, dir, before_offset);
    if (!status) status = delete_oldest(log, dir, before_offset, bases, max_bases, deleted);
    kl_status noted = status ? status : note_deletion(log, dir, bare);
    if (noted == KL_E_NO_SPACE) { /* what was deleted gives some, at once */
        noted = unlink_deleted(dir, INT64_MAX, &files);
        if (!noted) noted = note_deletion(log, dir, bare);
    }
    /* Without them the next open finds the epochs below the start, and drops them. */
    if (!status && noted != KL_E_NO_SPACE) status = noted;
    KL_FP("delete.before_snapshots");
    if (!status) status = kl_log_trim_snapshots(log, dir, INT64_MAX);
    log->last_stable = KL_MAX(log->last_stable, log->log_start);
    status = end(log, dir, status, true);
out:
    kl_log_leave(log);
    return status;
}

kl_status kl_log_purge(kl_log *log, int64_t before_ms, size_t *files) {
    *files = 0;
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    kl_dir *dir = NULL;
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = unlink_deleted(dir, before_ms, files);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_log_leave(log);
    return status;
}
