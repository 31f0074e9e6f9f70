/* lookup.c: lookups: offsets by time, aborted transactions, segments, epochs, producers. */
#include "read.h"

/* ---- by time -------------------------------------------------------------------------- */

/* The timestamps of segment `index`. */
static kl_status times_of(kl_log *log, const kl_look *look, size_t index, int64_t *largest,
                          int64_t *first) {
    kl_segment *segment = look->version->segments[index];
    bool sealed = kl_look_is_sealed(look, index);
    *largest = look->active_largest;
    *first = look->active_first;
    if (sealed ? kl_segment_get_times(segment, largest, first) : *largest != KL_UNKNOWN)
        return KL_OK;
    kl_status status = kl_log_prepare(log, look, index);
    if (!status && !sealed)
        return kl_segment_find_times(segment, look->active_bytes, largest, first);
    if (!status) status = kl_segment_load_times(segment);
    if (!status) (void)kl_segment_get_times(segment, largest, first);
    return status;
}

/* Compute the running maximum of the sealed segments' largest timestamps, kept in the version.
 * *largest: the maximum of all. */
static kl_status load_largest(kl_log *log, const kl_look *look, int64_t *largest) {
    kl_version *version = look->version;
    size_t known = atomic_load(&version->known);
    KL_ASSERT(known < version->count); /* the active segment's changes */
    int64_t max = known ? atomic_load(&version->largest[known - 1]) : -1;
    for (size_t i = known; i < version->count; i++) {
        int64_t own, first;
        kl_status status = times_of(log, look, i, &own, &first);
        if (status) return status;
        max = KL_MAX(max, own);
        if (!kl_look_is_sealed(look, i)) break;
        atomic_store(&version->largest[i], max);
        atomic_store(&version->known, i + 1);
    }
    *largest = max;
    return KL_OK;
}

/* Find the record in an uncompressed batch, or return the batch for the caller to decode. *done:
 * the search is over. */
static kl_status look_into(kl_walk *walk, kl_segment *segment, bool sealed,
                           const kl_batch *header, int64_t timestamp_ms,
                           int64_t start_offset, kl_found *found, bool *done) {
    found->leader_epoch = header->leader_epoch;
    found->segment_base_offset = segment->base_offset;
    found->pos = walk->pos - header->batch_bytes;
    found->batch_bytes = header->batch_bytes;
    found->start_offset = start_offset;
    found->offset = -1;
    found->inflate = kl_batch_codec(header) != 0;
    *done = true;
    if (found->inflate) return KL_OK;
    kl_batch batch;
    const uint8_t *data;
    bool have;
    int64_t good_pos;
    walk->pos = found->pos;
    kl_status status = kl_walk_step(walk, true, &batch, &data, &have);
    if (!status && sealed)
        status = kl_guard_check(segment, segment->size, found->pos, walk->pos,
                                (kl_span){data, (size_t)batch.batch_bytes}, found->pos,
                                &good_pos);
    if (status) return status;
    kl_record record;
    status =
        kl_records_find(&batch, data + POS_RECORDS, (size_t)batch.batch_bytes - POS_RECORDS,
                        timestamp_ms, start_offset, &record);
    if (status) return status;
    *done = record.offset >= 0;
    found->offset = record.offset;
    found->timestamp_ms = record.timestamp_ms;
    return KL_OK;
}

/* Search the batches of one segment from `pos` on. */
static kl_status search_segment(const kl_log *log, const kl_look *look, size_t index,
                                int64_t pos, int64_t timestamp_ms, kl_found *found,
                                bool *done) {
    enum { CHUNK_BYTES_MAX = 64 << 10 };
    kl_segment *segment = look->version->segments[index];
    int64_t end_pos = kl_look_bytes(look, index);
    kl_walk walk;
    *done = false;
    /* The first batch is probably the right one: read its header and records at once. */
    size_t offsets, times;
    kl_segment_count_entries(segment, &offsets, &times);
    int64_t apart = end_pos / (int64_t)(offsets + 1);
    kl_walk_init(
        &walk, segment->file, pos, end_pos,
        (size_t)KL_MIN(KL_MAX(apart, (int64_t)KL_CHUNK_LOOKUP_BYTES), CHUNK_BYTES_MAX));
    for (kl_batch batch; !*done && kl_walk_more(&walk, &batch);) {
        if (batch.max_timestamp < timestamp_ms || batch.last_offset < look->log_start)
            continue;
        walk.status = look_into(&walk, segment, kl_look_is_sealed(look, index), &batch,
                                timestamp_ms, look->log_start, found, done);
    }
    kl_status status = kl_walk_end(&walk);
    return status ? kl_fail_prefix(status, "log %s, looking for a time", log->path) : KL_OK;
}

/* The first segment with a record of this time or later; the active one if no sealed one has
 * any. */
static size_t first_reaching(const kl_version *version, int64_t timestamp_ms) {
    size_t low = 0, high = version->count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (atomic_load(&version->largest[middle]) >= timestamp_ms) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* The position at which to begin in a segment: records before it are older. */
static kl_status first_candidate(const kl_look *look, size_t index, int64_t timestamp_ms,
                                 int64_t *pos) {
    kl_segment *segment = look->version->segments[index];
    kl_lock(&segment->lock);
    kl_time_entry floor = kl_index_find_time(&segment->times, timestamp_ms);
    *pos =
        kl_index_find_offset(&segment->offsets, KL_MAX(floor.offset, look->log_start)).pos;
    kl_unlock(&segment->lock);
    if (floor.timestamp < 0 || floor.timestamp >= timestamp_ms ||
        floor.offset < look->log_start)
        return KL_OK;
    return kl_segment_locate(segment, kl_look_bytes(look, index), floor.offset + 1, pos);
}

static kl_status find_time(kl_log *log, const kl_look *look, int64_t timestamp_ms,
                           kl_found *found) {
    size_t index;
    int64_t pos, largest, first;
    bool resumed = found->batch_bytes > 0, done = false;
    kl_status status = load_largest(log, look, &largest);
    if (status) return status;
    if (resumed) {
        index = kl_version_find(look->version, found->segment_base_offset);
        pos = found->pos + found->batch_bytes;
    } else {
        if (largest < timestamp_ms) {
            found->offset = -1;
            return KL_OK;
        }
        index = first_reaching(look->version, timestamp_ms);
        status = kl_log_prepare(log, look, index);
        if (!status) status = first_candidate(look, index, timestamp_ms, &pos);
        if (status) return status;
    }
    for (; index < look->version->count; index++, pos = 0) {
        status = times_of(log, look, index, &largest, &first);
        if (!status && largest < timestamp_ms) continue;
        if (!status)
            status = search_segment(log, look, index, pos, timestamp_ms, found, &done);
        if (status || done) return status;
    }
    *found = (kl_found){.offset = -1};
    return KL_OK;
}

/* The largest timestamp of a batch with records: indexes also count batches that compaction
 * emptied. */
static kl_status largest_of_records(kl_log *log, const kl_look *look, int64_t *largest) {
    kl_status status = KL_OK;
    *largest = -1;
    for (size_t i = 0; !status && i < look->version->count; i++) {
        int64_t own, first;
        kl_walk walk;
        status = times_of(log, look, i, &own, &first);
        if (status || own <= *largest) continue;
        kl_walk_init(&walk, look->version->segments[i]->file, 0, kl_look_bytes(look, i),
                     KL_CHUNK_RECOVER_BYTES);
        for (kl_batch batch; kl_walk_more(&walk, &batch);)
            if (batch.record_count > 0 && batch.last_offset >= look->log_start)
                *largest = KL_MAX(*largest, batch.max_timestamp);
        status = kl_walk_end(&walk);
    }
    return status ? kl_fail_prefix(status, "log %s, looking for a time", log->path) : KL_OK;
}

/* The first record with the largest timestamp. */
static kl_status find_largest(kl_log *log, const kl_look *look, kl_found *found) {
    const kl_found resume = *found;
    int64_t largest;
    kl_status status = load_largest(log, look, &largest);
    if (status) return status;
    *found = resume;
    if (largest < 0) *found = (kl_found){.offset = -1};
    if (largest >= 0) status = find_time(log, look, largest, found);
    if (status || largest < 0 || found->offset >= 0 || found->inflate) return status;
    *found = resume;
    status = largest_of_records(log, look, &largest);
    if (!status && largest < 0) found->offset = -1;
    else if (!status) status = find_time(log, look, largest, found);
    return status;
}

/* `largest`: search for the largest timestamp. */
static kl_status find_once(kl_log *log, bool largest, int64_t timestamp_ms,
                           kl_found *found) {
    kl_look look;
    kl_status status = kl_log_look(log, &look);
    if (status) return status;
    found->inflate = 0;
    status = largest ? find_largest(log, &look, found)
                     : find_time(log, &look, timestamp_ms, found);
    kl_status changed = kl_log_unchanged(log, look.generation);
    kl_look_drop(&look);
    return changed ? changed : status;
}

/* Retry while segments change.  If a resumed search finds the log changed, its caller must start
 * over. */
static kl_status find_steadily(kl_log *log, bool largest, int64_t timestamp_ms,
                               kl_found *found) {
    const kl_found from = *found;
    int tries_left = from.batch_bytes > 0 ? 1 : KL_STALE_TRIES;
    kl_status status = KL_E_STALE;
    while (status == KL_E_STALE && tries_left-- > 0) {
        *found = from;
        status = find_once(log, largest, timestamp_ms, found);
    }
    return status;
}

kl_status kl_log_find_time(kl_log *log, int64_t timestamp_ms, kl_found *found) {
    return find_steadily(log, false, timestamp_ms, found);
}

kl_status kl_log_find_largest_time(kl_log *log, kl_found *found) {
    return find_steadily(log, true, -1, found);
}

/* ---- lists ------------------------------------------------------------------------------ */

/* Locked.  A reader's: its writer adds to the active segment's file before it moves the end. */
static kl_status reload_aborts(kl_log *log) {
    kl_dir *dir = NULL;
    KL_ASSERT_HELD(&log->lock);
    kl_aborts *aborts = &kl_log_active(log)->aborts;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) {
        kl_aborts_clear(aborts);
        status = kl_aborts_load(aborts, dir, INT64_MAX);
        if (status == KL_E_CORRUPT) status = KL_OK; /* a partial entry: above our end */
    }
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* A range of aborted transactions, from one version: each segment's list is read under the lock,
 * its side-car before. */
typedef struct {
    int64_t start;
    int64_t stop;
    kl_aborted *out;
    size_t max_entries;
    size_t *count;
} aborted_range;

/* Position of a walk over the lists. */
typedef struct {
    size_t index;
    int64_t quiet_from; /* lists are empty from this segment on */
    bool done;
} aborted_walk;

static kl_status aborted_of(kl_log *log, const kl_look *look, const aborted_range *range,
                            aborted_walk *walk) {
    kl_version *version = look->version;
    const kl_segment *segment = version->segments[walk->index];
    bool sealed = kl_look_is_sealed(look, walk->index);
    KL_FP("log.aborted.look");
    kl_status status = kl_log_enter_aborts(log, look, walk->index);
    if (status) return status;
    walk->done = kl_aborts_find(&segment->aborts, range->start, range->stop, range->out,
                                range->max_entries, range->count);
    /* An unchecked list may be lost: segments have changed since the look. */
    if (!sealed || segment->aborts.count > 0 || !segment->aborts_checked) {
        kl_version_note_quiet(version, walk->quiet_from, segment->base_offset);
        walk->quiet_from = kl_look_next_base(look, walk->index);
    }
    walk->index = kl_version_skip_quiet(version, walk->index + 1);
    kl_log_leave(log);
    return KL_OK;
}

static kl_status aborted_once(kl_log *log, const aborted_range *range) {
    kl_look look;
    aborted_walk walk = {0};
    *range->count = 0;
    kl_status status = log->writable ? KL_OK : kl_log_refresh(log);
    if (!status) status = kl_log_enter(log);
    if (status) return status;
    if (!log->writable && log->page) status = reload_aborts(log);
    look = kl_log_see(log);
    kl_version_retain(look.version);
    walk.index = kl_version_find(look.version, range->start);
    walk.quiet_from = look.version->segments[walk.index]->base_offset;
    walk.index = kl_version_skip_quiet(look.version, walk.index);
    kl_log_leave(log);
    while (!status && !walk.done && walk.index < look.version->count)
        status = aborted_of(log, &look, range, &walk);
    kl_status changed = kl_log_unchanged(log, look.generation);
    kl_look_drop(&look);
    return changed ? changed : status;
}

kl_status kl_log_aborted(kl_log *log, int64_t start, int64_t stop, kl_aborted *out,
                         size_t max_entries, size_t *count) {
    const aborted_range range = {start, stop, out, max_entries, count};
    kl_status status = KL_E_STALE;
    for (int tries = 0; status == KL_E_STALE && tries < KL_STALE_TRIES; tries++)
        status = aborted_once(log, &range);
    return status;
}

static kl_status describe(kl_log *log, const kl_look *look, size_t i, bool whole,
                          kl_segment_info *out) {
    kl_segment *segment = look->version->segments[i];
    *out = (kl_segment_info){
        .base_offset = segment->base_offset,
        .next_offset = kl_look_next_base(look, i),
        .size_bytes = kl_look_bytes(look, i),
        .created_ms = segment->created_ms,
        .active = !kl_look_is_sealed(look, i),
    };
    if (!whole) return KL_OK;
    kl_status status = kl_log_prepare(log, look, i);
    if (!status)
        status =
            times_of(log, look, i, &out->largest_timestamp_ms, &out->first_timestamp_ms);
    if (status) return status;
    size_t offsets, times;
    kl_segment_count_entries(segment, &offsets, &times);
    out->offset_index_entries = (int64_t)offsets;
    out->time_index_entries = (int64_t)times;
    return KL_OK;
}

static kl_status segments_once(kl_log *log, int64_t from_offset, bool whole,
                               kl_segment_info *out, size_t max_entries, size_t *count) {
    kl_look look;
    kl_status status = kl_log_look(log, &look);
    if (status) return status;
    size_t first = kl_version_find(look.version, from_offset);
    *count = look.version->count - first;
    for (size_t i = 0; !status && i < KL_MIN(*count, max_entries); i++)
        status = describe(log, &look, first + i, whole, &out[i]);
    kl_status changed = kl_log_unchanged(log, look.generation);
    kl_look_drop(&look);
    return changed ? changed : status;
}

kl_status kl_log_segments(kl_log *log, int64_t from_offset, int32_t whole,
                          kl_segment_info *out, size_t max_entries, size_t *count) {
    kl_status status = KL_E_STALE;
    for (int tries = 0; status == KL_E_STALE && tries < KL_STALE_TRIES; tries++)
        status = segments_once(log, from_offset, whole, out, max_entries, count);
    return status;
}

/* ---- epochs, producers, bounds -------------------------------------------------------------- */

kl_status kl_log_epochs(kl_log *log, kl_epoch *out, size_t max_entries, size_t *count) {
    kl_status status = kl_log_enter(log);
    if (status) return status;
    *count = log->epochs.count;
    size_t bytes = KL_MIN(max_entries, log->epochs.count) * sizeof *out;
    if (bytes) memcpy(out, log->epochs.entries, bytes);
    kl_log_leave(log);
    return KL_OK;
}

kl_status kl_log_epoch_end(kl_log *log, int32_t epoch, int32_t *found_epoch,
                           int64_t *end_offset) {
    kl_status status = kl_log_enter(log);
    if (status) return status;
    kl_epochs_end(&log->epochs, epoch, log->log_end, found_epoch, end_offset);
    kl_log_leave(log);
    return KL_OK;
}

kl_status kl_log_keep_epochs(kl_log *log) {
    kl_status status = kl_log_save_epochs(log, false);
    if (!status) {
        log->dir_dirty = log->texts_dirty = true;
        return KL_OK;
    }
    /* Written before the first batch with this epoch: a log that is only read needs no space. */
    log->epoch_owed = true;
    return kl_passes(status) ? KL_OK : status;
}

kl_status kl_log_set_leader_epoch(kl_log *log, int32_t epoch) {
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    if (epoch < log->leader_epoch && epoch < kl_epochs_latest(&log->epochs)) {
        status = kl_fail(KL_E_FENCED_LEADER_EPOCH,
                         "log %s: leader epoch %d, known is %d already", log->path, epoch,
                         kl_epochs_latest(&log->epochs));
        goto out;
    }
    if (epoch == log->leader_epoch && epoch == kl_epochs_latest(&log->epochs)) goto out;
    status = kl_log_make_dirty(log);
    if (!status) status = kl_epochs_assign(&log->epochs, epoch, log->log_end);
    if (!status && log->epochs.changed) status = kl_log_keep_epochs(log);
    if (!status) log->leader_epoch = epoch;
out:
    kl_log_leave(log);
    return status;
}

kl_status kl_log_show_until(kl_log *log, int64_t offset) {
    kl_status status = kl_log_enter_writer(log);
    if (status) return status;
    log->show_until = offset;
    kl_log_publish(log);
    kl_log_leave(log);
    return KL_OK;
}

kl_status kl_log_producers(kl_log *log, kl_producer *out, size_t max_entries,
                           size_t *count) {
    *count = 0;
    kl_status status = log->writable ? KL_OK : kl_log_refresh(log);
    if (!status) status = kl_log_enter(log);
    if (status) return status;
    if (!log->writable && log->page) {
        /* A reader keeps none while a writer is active, and loads a snapshot and replays each
         * time. */
        kl_dir *dir = NULL;
        status = kl_dir_open(log->path, 0, &dir);
        if (!status) status = kl_log_load_producers(log, dir, log->log_end, INT64_MAX);
        kl_dir_close(dir);
        kl_dir_free(dir);
    }
    if (!status) {
        *count = kl_producers_list(&log->producers, out, max_entries);
    }
    kl_log_leave(log);
    if (*count <= max_entries) kl_producers_sort(out, *count);
    return status;
}

kl_status kl_log_expire_producers(kl_log *log, int64_t before_ms, size_t *expired) {
    *expired = 0;
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    *expired = kl_producers_expire(&log->producers, before_ms);
    kl_log_leave(log);
    return KL_OK;
}
