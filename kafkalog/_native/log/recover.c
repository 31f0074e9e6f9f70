/* recover.c: checks the tail of a log that was not closed, and truncates it at the first bad
 * batch. */
#include "segment/kept.h"
#include "log.h"

/* No space to back up the bytes after `valid_bytes`: leave them, and truncate before the next
 * write. */
static kl_status leave_tail(kl_log *log, kl_dir *dir, kl_segment *segment,
                            int64_t valid_bytes) {
    KL_ASSERT(valid_bytes <= segment->size && segment->owed_end == 0);
    segment->owed_end = segment->reserved = segment->size;
    segment->size = valid_bytes;
    log->dir_dirty = true;
    return kl_sidecar_drop(dir, segment->base_offset);
}

kl_status kl_log_settle_tail(kl_log *log) {
    kl_segment *active = kl_log_active(log);
    KL_ASSERT_HELD(&log->lock);
    if (KL_LIKELY(active->owed_end == 0)) return KL_OK;
    KL_ASSERT(active->owed_end >= active->size);
    kl_dir *dir = NULL;
    char kept[KL_NAME_BYTES] = {0};
    kl_log_begin_disk(log);
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_keep_tail(active, dir, active->size, active->owed_end, kept);
    if (!status) status = kl_file_truncate(active->file, active->size);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_log_end_disk(log);
    if (status) return kl_fail_prefix(status, "log %s, a torn tail", log->path);
    active->reserved = active->size;
    active->owed_end = 0;
    return KL_OK;
}

/* Truncate a segment at `pos`: the last one in place, as it grows again. */
static kl_status cut_at(kl_segment *segment, kl_dir *dir, int64_t pos, bool last,
                        kl_segment **out) {
    kl_segment *cut = NULL;
    kl_status status = kl_sidecar_drop(dir, segment->base_offset);
    if (!status && last) {
        status = kl_segment_shorten(segment, pos, &cut);
        if (!status && pos < segment->size) status = kl_segment_trim(cut);
    } else if (!status) {
        status = kl_segment_copy(segment, dir, pos, &cut);
        if (!status) status = kl_segment_place(cut, dir);
    }
    if (status) kl_segment_drop(cut);
    *out = status ? NULL : cut;
    return status;
}

/* Truncate segment `index` at `valid_bytes` and drop later segments, last first, so that this can
 * be repeated after a crash.  The bytes are kept in `.damaged` files. */
static kl_status cut_tail(kl_log *log, kl_dir *dir, size_t index, int64_t valid_bytes,
                          kl_recovery *recovery) {
    kl_segment *segment = log->version->segments[index];
    bool last = index + 1 == log->version->count;
    KL_ASSERT(valid_bytes >= 0 && valid_bytes <= segment->size);
    recovery->truncated_segment = segment->base_offset;
    recovery->truncated_pos = valid_bytes;
    recovery->truncated_bytes += segment->size - valid_bytes;
    kl_status status = KL_OK;
    if (log->writable && !last) status = kl_kept_check(dir); /* it may need some more */
    if (!status && log->writable && valid_bytes < segment->size)
        status = kl_keep_tail(segment, dir, valid_bytes, segment->size, recovery->kept);
    bool owed = status == KL_E_NO_SPACE;
    if (owed) status = KL_OK;
    for (size_t i = log->version->count; !status && i-- > index + 1;) {
        recovery->segments_dropped++;
        recovery->truncated_bytes += log->version->segments[i]->size;
        if (log->writable)
            status = kl_keep_segment(log->version->segments[i], dir, recovery->kept);
        if (!status && log->writable)
            status = kl_segment_delete(log->version->segments[i], dir);
        KL_FP("recover.after_drop");
        if (!status) status = kl_version_remove(&log->version, i, 1);
    }
    if (status) return status;
    if (!log->writable) {
        segment->size = valid_bytes;
        return KL_OK;
    }
    if (owed) return leave_tail(log, dir, segment, valid_bytes);
    kl_segment *cut = NULL;
    status = cut_at(segment, dir, valid_bytes, last, &cut);
    if (status) return status;
    if (cut != segment) {
        /* The new file takes over the indexes built in memory. */
        cut->offsets = segment->offsets;
        cut->times = segment->times;
        cut->max_timestamp = segment->max_timestamp;
        cut->max_timestamp_offset = segment->max_timestamp_offset;
        cut->first_timestamp = segment->first_timestamp;
        cut->bytes_since_entry = segment->bytes_since_entry;
        cut->sums = segment->sums;
        segment->sums = (kl_sums){0};
        kl_index_init(&segment->offsets, KL_OFFSET_INDEX, segment->base_offset);
        kl_index_init(&segment->times, KL_TIME_INDEX, segment->base_offset);
    }
    log->dir_dirty = true;
    return kl_version_replace(&log->version, index, cut);
}

/* Write the rebuilt indexes; for a sealed segment also its closing time entry and side-car. */
static kl_status save_recovered(kl_log *log, kl_dir *dir, kl_segment *segment,
                                bool sealed) {
    if (sealed && segment->max_timestamp >= 0) {
        kl_status status = kl_index_add_time(&segment->times, segment->max_timestamp,
                                             segment->max_timestamp_offset);
        if (status) return status;
    }
    if (!log->writable) return KL_OK;
    segment->unsynced = log->dir_dirty = true;
    kl_status status = kl_index_rewrite_if_room(&segment->offsets, dir);
    if (!status) status = kl_index_rewrite_if_room(&segment->times, dir);
    if (status || !sealed) return status;
    status = kl_sidecar_write(segment, dir);
    if (status == KL_E_NO_SPACE) status = kl_sidecar_drop(dir, segment->base_offset);
    kl_sums_free(&segment->sums);
    return status;
}

/* Segment `index` ends before the next one begins: its unflushed tail is lost, so later segments
 * must go.  Not after compaction, which leaves gaps below the recovery point; but the point may be
 * unknown, and Kafka compacts above it. */
static bool is_hole(const kl_log *log, size_t index, int64_t end_offset,
                    int64_t recovery_point) {
    if (index + 1 == log->version->count || recovery_point < 0 || log->config.compacted)
        return false;
    int64_t next_base = log->version->segments[index + 1]->base_offset;
    /* Wider than a segment: a follower rolled at a gap of its leader. */
    if (next_base - log->version->segments[index]->base_offset > INT32_MAX) return false;
    return end_offset < next_base && next_base > recovery_point &&
           !log->version->segments[index]->has_gaps;
}

/* No crash damages bytes that were on disk: whole batches may follow the bad ones below `known`.
 * `ends`: the segment is too short, not bad. */
static kl_status refuse_cut(const kl_log *log, const kl_segment *segment, int64_t pos,
                            int64_t offset, bool ends) {
    return kl_fail(KL_E_CORRUPT,
                   "log %s: %s %s at byte %lld, where offset %lld was expected, and "
                   "%s: nothing was cut; kafkalog verify tells what is wrong, kafkalog "
                   "repair mends what can be mended and keeps the rest",
                   log->path, kl_file_name(segment->file), ends ? "ends" : "is damaged",
                   (long long)pos, (long long)offset,
                   log->clean ? "the log was closed cleanly"
                              : "that had been flushed to disk");
}

kl_status kl_log_recover_tail(kl_log *log, kl_dir *dir, int64_t recovery_point,
                              int64_t known, kl_recovery *recovery) {
    kl_status status = KL_OK;
    size_t i = recovery_point < 0 ? 0 : kl_version_find(log->version, recovery_point);
    /* A roll at the recovery point: the earlier batches are on disk, their indexes perhaps not. */
    if (i > 0 && log->writable &&
        log->version->segments[i]->base_offset == recovery_point) {
        kl_segment *before = log->version->segments[i - 1];
        status = kl_segment_renew_indexes(
            before,
            &(kl_index_source){.dir = dir,
                               .end_pos = before->size,
                               .index_interval_bytes = log->config.index_interval_bytes,
                               .writable = true});
        before->unsynced = log->dir_dirty = true;
    }
    for (; !status && i < log->version->count; i++) {
        kl_segment *segment = log->version->segments[i];
        int64_t valid_bytes, end_offset;
        status = KL_FP_STATUS("recover.before_segment");
        if (!status)
            status = kl_log_recover_segment(log, segment, &log->epochs, &valid_bytes,
                                            &end_offset);
        if (status) break;
        recovery->segments_recovered++;
        recovery->indexes_rebuilt++;
        log->log_end = end_offset;
        bool damaged = valid_bytes < segment->size;
        bool overlaps = i + 1 < log->version->count &&
                        end_offset > log->version->segments[i + 1]->base_offset;
        bool hole = is_hole(log, i, end_offset, recovery_point);
        int64_t bad_offset = damaged || hole ? end_offset : kl_log_next_base(log, i);
        if ((damaged || overlaps || hole) && bad_offset < known)
            status = refuse_cut(log, segment, valid_bytes, bad_offset, hole && !damaged);
        else if (damaged || overlaps || hole)
            status = cut_tail(log, dir, i, valid_bytes, recovery);
        else if (i + 1 == log->version->count) status = kl_log_check_end(log, end_offset);
        if (!status)
            status = save_recovered(log, dir, log->version->segments[i],
                                    i + 1 < log->version->count);
    }
    return status;
}
