/* clean_out.c: the segment that compaction writes, and how it replaces others.
 *
 *   N.log.cleaned, N.index.cleaned, ...   written, synced
 *   N.log.swap, ...                       all renamed, synced
 *   the log's version has the new one     under the log's lock; no disk call in this step, and
 *                                         readers in other processes find N.log.swap
 *   old segments to .deleted              synced
 *   N.index, ..., last N.log              the new one has its name; generation odd until then
 *
 * After a crash from the second step on, the new segment remains (load.c), before it the old ones.
 *
 * File names and recovery are Kafka's. */
#include "clean.h"

#include <stdio.h>

enum {
    OUT_BYTES = 1 << 20, /* write size */
    SUFFIXES = 5,
    LONG_NAME_BYTES = KL_NAME_BYTES + 16
};
/* The `.log` last: its name validates the others. */
static const char *const suffixes[SUFFIXES] = {
    KL_INDEX_SUFFIX, KL_TIME_SUFFIX, KL_TXN_SUFFIX, KL_SIDECAR_SUFFIX, KL_LOG_SUFFIX};

static void name_with(char out[LONG_NAME_BYTES], int64_t base, const char *suffix,
                      const char *state) {
    char name[KL_NAME_BYTES];
    kl_segment_name(name, base, suffix);
    snprintf(out, LONG_NAME_BYTES, "%s%s", name, state);
}

static const kl_clean_group *group_of(const kl_cleaner *cleaner) {
    return &cleaner->groups[cleaner->group];
}

/* ---- writing ------------------------------------------------------------------------ */

kl_status kl_clean_out_begin(kl_cleaner *cleaner) {
    const kl_clean_group *group = group_of(cleaner);
    KL_ASSERT(cleaner->out == NULL && cleaner->group < cleaner->group_count);
    cleaner->out_buffer.bytes = 0;
    cleaner->out_changed = group->count > 1;
    kl_status status = KL_FP_STATUS("clean.before_create");
    if (status) return status;
    int64_t base_offset = cleaner->segments[group->first]->base_offset;
    return kl_segment_create_aside(cleaner->dir, base_offset, &cleaner->out);
}

static kl_status write_out(kl_cleaner *cleaner) {
    kl_buffer *buffer = &cleaner->out_buffer;
    if (buffer->bytes == 0) return KL_OK;
    kl_segment *out = cleaner->out;
    KL_ASSERT(out->size >= (int64_t)buffer->bytes); /* the unwritten end */
    kl_status status = kl_file_write(out->file, buffer->data, buffer->bytes,
                                     out->size - (int64_t)buffer->bytes);
    cleaner->done.bytes_written += (int64_t)buffer->bytes;
    cleaner->passed_bytes += (int64_t)buffer->bytes;
    buffer->bytes = 0;
    return status;
}

/* Make space at the end of the buffer, writing it if full. */
static kl_status make_room(kl_cleaner *cleaner, size_t bytes) {
    kl_segment *out = cleaner->out;
    if (out->size > INT32_MAX - (int64_t)bytes)
        return kl_fail(KL_E_RECORD_LIST_TOO_LARGE,
                       "log %s: segment %lld would pass 2^31 bytes as it is compacted",
                       cleaner->log->path, (long long)out->base_offset);
    kl_status status = KL_OK;
    if (cleaner->out_buffer.bytes + bytes > OUT_BYTES) status = write_out(cleaner);
    if (!status)
        status = kl_buffer_reserve(&cleaner->out_buffer, KL_MAX(bytes, (size_t)OUT_BYTES));
    return status;
}

/* Index the batch just added to the buffer. */
static kl_status note(kl_cleaner *cleaner, const kl_batch *batch) {
    kl_segment *out = cleaner->out;
    KL_ASSERT(batch->batch_bytes > 0);
    KL_ASSERT((size_t)batch->batch_bytes <=
              cleaner->out_buffer.capacity - cleaner->out_buffer.bytes);
    kl_status status = kl_sums_reserve(&out->sums, 1);
    if (status) return status;
    kl_sums_add(&out->sums, cleaner->out_buffer.data + cleaner->out_buffer.bytes, out->size,
                batch->batch_bytes);
    cleaner->out_buffer.bytes += (size_t)batch->batch_bytes;
    out->size += batch->batch_bytes;
    cleaner->done.records_after += kl_batch_is_control(batch) ? 0 : batch->record_count;
    return kl_segment_note(out, batch, out->size - batch->batch_bytes,
                           cleaner->index_interval_bytes);
}

kl_status kl_clean_out_batch(kl_cleaner *cleaner, const kl_batch *batch,
                             const uint8_t *data) {
    kl_status status = make_room(cleaner, (size_t)batch->batch_bytes);
    if (status) return status;
    kl_buffer *buffer = &cleaner->out_buffer;
    memcpy(buffer->data + buffer->bytes, data, (size_t)batch->batch_bytes);
    return note(cleaner, batch);
}

kl_status kl_clean_out_built(kl_cleaner *cleaner, const kl_batch *header,
                             const uint8_t *records, size_t bytes) {
    kl_batch batch = *header;
    if (bytes > INT32_MAX - POS_RECORDS)
        return kl_fail(KL_E_MESSAGE_TOO_LARGE,
                       "log %s: the batch at offset %lld would have %zu bytes of records",
                       cleaner->log->path, (long long)header->base_offset, bytes);
    batch.batch_bytes = (int64_t)(POS_RECORDS + bytes);
    kl_status status = make_room(cleaner, POS_RECORDS + bytes);
    if (status) return status;
    uint8_t *at = cleaner->out_buffer.data + cleaner->out_buffer.bytes;
    if (bytes) memcpy(at + POS_RECORDS, records, bytes);
    kl_batch_put_header(at, POS_RECORDS + bytes, &batch);
    cleaner->out_changed = true;
    return note(cleaner, &batch);
}

/* ---- finishing ---------------------------------------------------------------------- */

static kl_status write_small(kl_cleaner *cleaner, const char *suffix, const uint8_t *data,
                             size_t bytes) {
    char name[LONG_NAME_BYTES];
    kl_file *file = NULL;
    name_with(name, cleaner->out->base_offset, suffix, KL_CLEANED_SUFFIX);
    kl_status status = kl_file_create(cleaner->log->path, name, &file);
    if (!status && bytes) status = kl_file_write(file, data, bytes, 0);
    if (!status) status = kl_file_sync(file);
    kl_file_drop(file);
    return status;
}

/* If the old segment had a .txnindex, write one even if empty: after a crash during the swap the
 * old one must not remain. */
static kl_status write_aborts(kl_cleaner *cleaner) {
    kl_aborts *aborts = &cleaner->out->aborts;
    bool old = cleaner->segments[group_of(cleaner)->first]->aborts.count > 0;
    if (aborts->count == 0 && !old) return KL_OK;
    uint8_t *data = NULL;
    size_t bytes;
    kl_status status = kl_aborts_encode(aborts, 0, &data, &bytes);
    if (!status) status = write_small(cleaner, KL_TXN_SUFFIX, data, bytes);
    if (!status) aborts->saved = aborts->count;
    kl_release(data);
    return status;
}

static kl_status write_sidecar(kl_cleaner *cleaner, kl_dir *dir) {
    kl_buffer file = {0};
    kl_status status = kl_sidecar_encode(cleaner->out, dir, &file);
    if (!status) status = write_small(cleaner, KL_SIDECAR_SUFFIX, file.data, file.bytes);
    kl_buffer_free(&file);
    kl_sums_free(&cleaner->out->sums);
    return status;
}

static kl_status write_cleaned(kl_cleaner *cleaner, kl_dir *dir) {
    kl_segment *out = cleaner->out;
    const kl_clean_group *group = group_of(cleaner);
    kl_segment *last = cleaner->segments[group->first + group->count - 1];
    int64_t bytes, modified_ms;
    kl_status status = write_out(cleaner);
    if (!status && out->max_timestamp >= 0)
        status =
            kl_index_add_time(&out->times, out->max_timestamp, out->max_timestamp_offset);
    if (!status)
        status = write_small(cleaner, KL_INDEX_SUFFIX, out->offsets.entries.data,
                             out->offsets.entries.bytes);
    if (!status)
        status = write_small(cleaner, KL_TIME_SUFFIX, out->times.entries.data,
                             out->times.entries.bytes);
    if (!status) status = write_aborts(cleaner);
    if (!status) status = write_sidecar(cleaner, dir);
    /* Retention uses the file's age for a segment without timestamps. */
    if (!status) status = kl_file_stat(last->file, &bytes, &modified_ms);
    if (!status) status = kl_file_set_modified(out->file, modified_ms);
    if (status) return status;
    out->created_ms = modified_ms;
    out->reserved = out->size;
    KL_FP("clean.before_sync");
    return kl_file_sync(out->file);
}

/* From `.cleaned` to `.swap`; readers ignore both. */
static kl_status rename_to_swap(kl_cleaner *cleaner, kl_dir *dir) {
    kl_status status = kl_dir_sync(dir);
    for (int i = 0; !status && i < SUFFIXES; i++) {
        char from[LONG_NAME_BYTES], to[LONG_NAME_BYTES];
        name_with(from, cleaner->out->base_offset, suffixes[i], KL_CLEANED_SUFFIX);
        name_with(to, cleaner->out->base_offset, suffixes[i], KL_SWAP_SUFFIX);
        status = KL_FP_STATUS("clean.before_swap_name");
        if (!status && i == SUFFIXES - 1)
            status = kl_file_rename(cleaner->out->file, dir, to);
        else if (!status) status = kl_dir_rename(dir, from, to);
        if (status == KL_E_NOT_FOUND && strcmp(suffixes[i], KL_TXN_SUFFIX) == 0)
            status = KL_OK;
    }
    KL_FP("clean.after_swap_names");
    return status ? status : kl_dir_sync(dir);
}

static kl_status give_final_name(kl_cleaner *cleaner, kl_dir *dir, int i) {
    char from[LONG_NAME_BYTES], to[KL_NAME_BYTES];
    name_with(from, cleaner->out->base_offset, suffixes[i], KL_SWAP_SUFFIX);
    kl_segment_name(to, cleaner->out->base_offset, suffixes[i]);
    if (i == SUFFIXES - 1) return kl_file_rename(cleaner->out->file, dir, to);
    if (strcmp(suffixes[i], KL_TXN_SUFFIX) != 0) return kl_dir_rename(dir, from, to);
    kl_status status = cleaner->out->aborts.count ? kl_dir_rename(dir, from, to)
                                                  : kl_dir_unlink(dir, from);
    return status == KL_E_NOT_FOUND ? KL_OK : status;
}

static kl_status rename_to_final(kl_cleaner *cleaner, kl_dir *dir) {
    kl_status status = KL_OK;
    for (int i = 0; !status && i < SUFFIXES; i++) {
        KL_FP("clean.before_final_name");
        status = give_final_name(cleaner, dir, i);
        if (status != KL_E_NO_SPACE) continue;
        size_t files = 0, left = 0; /* old segments occupy the names */
        status = kl_log_unlink_deleted(dir, INT64_MAX, &files, &left);
        if (!status) status = give_final_name(cleaner, dir, i);
    }
    return status;
}

/* Locked.  Readers see the new segment from here on; its indexes stay in memory until their files
 * have their names. */
static kl_status show(kl_cleaner *cleaner) {
    kl_log *log = cleaner->log;
    const kl_clean_group *group = group_of(cleaner);
    KL_ASSERT_HELD(&log->lock);
    size_t at = kl_version_find(log->version, cleaner->segments[group->first]->base_offset);
    KL_ASSERT(at + group->count < log->version->count); /* the active segment stays */
    kl_status status =
        kl_version_replace(&log->version, at, kl_segment_retain(cleaner->out));
    if (status) return status;
    /* Cannot fail: the version is exclusive, as no thread took it in between. */
    status = kl_version_remove(&log->version, at + 1, group->count - 1);
    KL_ASSERT(status == KL_OK);
    kl_log_change_begin(log);
    log->dir_dirty = true;
    kl_log_change_end(log);
    return KL_OK;
}

/* Not locked.  Rename the files to match the version. */
static kl_status exchange_names(kl_cleaner *cleaner, kl_dir *dir) {
    kl_log *log = cleaner->log;
    const kl_clean_group *group = group_of(cleaner);
    kl_status status = KL_OK;
    for (size_t i = 0; !status && i < group->count; i++) {
        KL_FP("clean.before_delete");
        status = kl_segment_delete(cleaner->segments[group->first + i], dir);
    }
    KL_FP("clean.after_deletes");
    if (!status) status = kl_dir_sync(dir);
    kl_lock(&log->lock);
    kl_log_change_begin(log);
    kl_unlock(&log->lock);
    if (!status) status = rename_to_final(cleaner, dir);
    kl_lock(&log->lock);
    if (status) kl_log_fail_storage(log, status); /* the next open needs its files */
    kl_log_change_end(log);
    kl_unlock(&log->lock);
    KL_FP("clean.after_final_names");
    return status;
}

static kl_status swap(kl_cleaner *cleaner, kl_dir *dir) {
    kl_log *log = cleaner->log;
    kl_status status = kl_log_reserve(log);
    if (status) return status;
    if (log->generation != cleaner->generation)
        status = kl_fail(KL_E_STALE,
                         "log %s was truncated or deleted from while it was compacted",
                         log->path);
    if (!status) status = show(cleaner);
    if (!status) {
        kl_log_leave(log);
        status = exchange_names(cleaner, dir);
        /* Loaded again on demand: otherwise a long log would keep all indexes in memory. */
        kl_segment_unload_indexes(cleaner->out);
        kl_clean_out_drop(cleaner, false);
        kl_lock(&log->lock);
        cleaner->generation = log->generation;
    }
    kl_log_release(log);
    kl_log_leave(log);
    return status;
}

kl_status kl_clean_out_end(kl_cleaner *cleaner) {
    cleaner->done.segments_after++;
    cleaner->done.bytes_after += cleaner->out->size;
    if (!cleaner->out_changed) {
        kl_clean_out_drop(cleaner, true);
        return KL_OK;
    }
    kl_dir *dir = cleaner->dir;
    kl_status status = write_cleaned(cleaner, dir);
    if (!status) status = rename_to_swap(cleaner, dir);
    if (!status) status = swap(cleaner, dir);
    /* Until the names are on disk, a crash leaves the .swap, and the open repeats this. */
    if (!status) status = kl_dir_sync(dir);
    KL_FP("clean.after_swap");
    return status;
}

/* A .swap is ignored while a .cleaned with its base exists: rename the .log to .cleaned first and
 * remove it last. */
static void unlink_out(const kl_cleaner *cleaner, kl_dir *dir) {
    static const char *const states[] = {KL_CLEANED_SUFFIX, KL_SWAP_SUFFIX};
    int64_t base = cleaner->out->base_offset;
    char log_swap[LONG_NAME_BYTES], log_cleaned[LONG_NAME_BYTES];
    name_with(log_swap, base, KL_LOG_SUFFIX, KL_SWAP_SUFFIX);
    name_with(log_cleaned, base, KL_LOG_SUFFIX, KL_CLEANED_SUFFIX);
    kl_status status = kl_dir_rename(dir, log_swap, log_cleaned);
    if (!status) status = kl_dir_sync(dir);
    if (status && status != KL_E_NOT_FOUND) return; /* the .swap is complete */
    for (int i = 0; i < SUFFIXES - 1; i++)
        for (size_t j = 0; j < sizeof states / sizeof *states; j++) {
            char name[LONG_NAME_BYTES];
            name_with(name, base, suffixes[i], states[j]);
            (void)kl_dir_unlink(dir, name);
        }
    if (!kl_dir_sync(dir)) (void)kl_dir_unlink(dir, log_cleaned);
}

void kl_clean_out_drop(kl_cleaner *cleaner, bool unlink) {
    if (cleaner->out == NULL) return;
    if (unlink) unlink_out(cleaner, cleaner->dir);
    kl_segment_drop(cleaner->out);
    cleaner->out = NULL;
}
