/* append.c: appends one batch: roll if needed, write, update the state, publish. */
#include "append.h"

#include <errno.h>
#include <stdio.h>

enum {
    SMALL_BATCH_BYTES = 1 << 10,
    RESERVE_BYTES_MIN = 64 << 10, /* blocks allocated ahead: at least this, doubling, */
    RESERVE_BYTES_MAX = 16 << 20  /* up to this */
};

kl_batch_rules kl_log_rules(const kl_log *log, int64_t now_ms, int32_t origin) {
    const kl_log_config *config = &log->config;
    bool stamped = config->log_append_time;
    return (kl_batch_rules){
        .records = {now_ms, stamped ? INT64_MAX : config->timestamp_before_max_ms,
                    stamped ? INT64_MAX : config->timestamp_after_max_ms,
                    config->compacted},
        .batch_bytes_max = config->max_message_bytes,
        .segment_bytes = config->segment_bytes,
        .log_append_time = stamped,
        .from_client = origin == KL_ORIGIN_CLIENT,
    };
}

kl_status kl_log_make_dirty(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    log->touched = true;
    if (KL_LIKELY(log->marker == NULL)) return KL_OK;
    kl_log_begin_disk(log);
    kl_status status = kl_marker_remove(log->marker);
    kl_log_end_disk(log);
    if (!status) log->marker = NULL;
    if (status == KL_E_STORAGE) kl_log_fail_storage(log, status);
    return status;
}

/* ---- rolling ------------------------------------------------------------------------ */

static int64_t draw_jitter(kl_log *log) {
    int64_t bound = KL_MIN(log->config.segment_jitter_ms, log->config.segment_ms);
    if (bound <= 0) return 0;
    log->jitter_state = log->jitter_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)((log->jitter_state >> 33) % (uint64_t)bound);
}

/* Make `fresh` the active segment after `old`, which is sealed. */
static kl_status take_over(kl_log *log, kl_segment *old, kl_segment *fresh) {
    kl_lock(&log->lock);
    KL_ASSERT(log->busy && kl_log_active(log) == old);
    fresh->jitter_ms = draw_jitter(log);
    int64_t base_offset = fresh->base_offset;
    kl_status status = kl_version_add(&log->version, fresh);
    if (!status) {
        /* A follower's gap: if its batch fails now, nothing may be appended below the base. */
        log->log_end = KL_MAX(log->log_end, base_offset);
        log->dir_dirty = true;
        kl_sums_free(&old->sums);
    }
    kl_unlock(&log->lock);
    return status;
}

/* Not locked, but no other thread appends.  *lost: the new segment's files could not be removed. */
static kl_status roll(kl_log *log, kl_segment *old, int64_t base_offset, kl_status *lost) {
    kl_dir *dir = NULL;
    kl_segment *fresh = NULL;
    KL_ASSERT(log->busy);
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (status) return status;
    status = kl_segment_seal(old, dir);
    if (status) goto out;
    KL_FP("log.roll.before_snapshot");
    status = kl_log_write_snapshot(&log->producers, dir, base_offset, false);
    if (!status) status = kl_sidecar_write(old, dir);
    if (status) goto out;
    KL_FP("log.roll.before_create");
    status = kl_segment_create(dir, base_offset, &fresh);
    if (!status) status = take_over(log, old, fresh);
    /* After a failed roll the next open would end the log at this empty segment, below later
     * records: remove it, or accept no more appends. */
    if (status) *lost = kl_segment_unmake(dir, base_offset);
out:
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

kl_status kl_log_roll_locked(kl_log *log, int64_t base_offset) {
    kl_segment *old = kl_log_active(log);
    kl_status lost = KL_OK;
    KL_ASSERT_HELD(&log->lock);
    if (old->base_offset == base_offset && old->size == 0) return KL_OK;
    KL_ASSERT(base_offset > old->base_offset && base_offset >= log->log_end);
    kl_status status = kl_log_make_dirty(log);
    if (!status) status = kl_log_settle_tail(log);
    if (status) return status;
    kl_segment_retain(old);
    kl_log_begin_disk(log);
    status = roll(log, old, base_offset, &lost);
    kl_log_end_disk(log);
    old->unsynced = true; /* a round since then may have missed part of it */
    kl_segment_drop(old);
    if (lost) kl_log_fail_storage(log, lost);
    if (status) return status;
    KL_FP("log.roll.after_create");
    /* Like Kafka, sync a sealed segment in the background, so that retention and recovery find it
     * complete. */
    status = kl_log_request_sync(log);
    kl_log_publish(log);
    return status;
}

/* Batches to append with one write. */
typedef struct {
    int64_t bytes;
    int64_t first_offset;
    int64_t last_offset;
    int64_t max_timestamp;
    size_t batches;
    size_t producers; /* unknown producers among them, at most */
} run_facts;

/* Index entries that a run adds, at most: two are more than an interval apart. */
static size_t entries_of(const kl_log *log, const run_facts *run) {
    size_t intervals = (size_t)(run->bytes / (log->config.index_interval_bytes + 1LL));
    return KL_MIN(run->batches, intervals + 2);
}

static bool index_full(const kl_log *log, const kl_segment *active, const run_facts *run) {
    size_t bytes = (size_t)log->config.segment_index_bytes, more = entries_of(log, run);
    return active->offsets.count + more > bytes / OFFSET_ENTRY_BYTES ||
           active->times.count + more >= bytes / TIME_ENTRY_BYTES;
}

static bool roll_is_due(const kl_log *log, const kl_segment *active, const run_facts *run,
                        int64_t now_ms) {
    if (run->last_offset - active->base_offset > INT32_MAX) return true;
    if (active->size == 0) return false;
    if (active->size > log->config.segment_bytes - run->bytes) return true;
    if (index_full(log, active, run)) return true;
    int64_t waited_ms = now_ms - active->created_ms;
    if (active->first_timestamp >= 0 && run->max_timestamp >= 0)
        waited_ms = run->max_timestamp - active->first_timestamp;
    return waited_ms > log->config.segment_ms - active->jitter_ms;
}

/* Roll first if the settings require it. */
static kl_status maybe_roll(kl_log *log, const run_facts *run, int64_t now_ms) {
    if (KL_LIKELY(!roll_is_due(log, kl_log_active(log), run, now_ms))) return KL_OK;
    /* The new base is the log end, so that recovery does not take a follower's gap for a hole. */
    int64_t base = log->log_end;
    if (run->last_offset - base > INT32_MAX) base = KL_MAX(run->first_offset, base);
    return kl_log_roll_locked(log, base);
}

/* ---- writing ------------------------------------------------------------------------ */

/* Allocate blocks for [size, size + bytes) and some ahead, so that a full disk fails an append,
 * which can be retried, and not a sync, which is final. */
static kl_status reserve(kl_log *log, kl_segment *active, int64_t bytes) {
    int64_t end = active->size + bytes;
    int64_t ahead = KL_MIN(KL_MAX(active->size, (int64_t)RESERVE_BYTES_MIN),
                           (int64_t)RESERVE_BYTES_MAX);
    if (log->config.preallocate) ahead = log->config.segment_bytes;
    int64_t until = KL_MIN(end + ahead, KL_MAX(log->config.segment_bytes, end));
    kl_status status =
        kl_file_reserve(active->file, active->reserved, until - active->reserved);
    if (status == KL_E_NO_SPACE) {
        until = end;
        status = kl_file_reserve(active->file, active->reserved, until - active->reserved);
    }
    if (!status) active->reserved = until;
    KL_ASSERT(status || active->reserved >= end);
    return status;
}

/* Allocate blocks for `bytes` more. */
static kl_status make_room(kl_log *log, int64_t bytes) {
    kl_segment *active = kl_log_active(log);
    if (KL_LIKELY(active->size + bytes <= active->reserved)) return KL_OK;
    kl_status status = reserve(log, active, bytes);
    return status ? kl_fail_prefix(status, "log %s, append", log->path) : KL_OK;
}

/* Truncate the file to the valid size: it may end with part of an unacknowledged batch. */
static kl_status take_back_bytes(kl_log *log, kl_segment *active) {
    kl_log_begin_disk(log);
    kl_status status = kl_file_truncate(active->file, active->size);
    kl_log_end_disk(log);
    active->torn = status != KL_OK;
    if (!status) active->reserved = active->size;
    else if (!kl_passes(status)) kl_log_fail_storage(log, status);
    return status ? kl_fail_prefix(status, "log %s, append", log->path) : KL_OK;
}

/* Remove the .txnindex entry of an abort marker that was not written. */
static kl_status take_back_entry(kl_log *log, kl_segment *active) {
    kl_dir *dir = NULL;
    kl_log_begin_disk(log);
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_aborts_cut(&active->aborts, dir);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_log_end_disk(log);
    active->stale_aborts = status != KL_OK;
    if (status && !kl_passes(status)) kl_log_fail_storage(log, status);
    return status;
}

/* Finish the undo of a failed append. */
static kl_status take_back(kl_log *log) {
    kl_segment *active = kl_log_active(log);
    kl_status status = KL_OK;
    if (KL_UNLIKELY(active->torn)) status = take_back_bytes(log, active);
    if (KL_UNLIKELY(!status && active->stale_aborts)) status = take_back_entry(log, active);
    return status;
}

kl_status kl_log_write(kl_log *log, const uint8_t *data, size_t bytes) {
    kl_segment *active = kl_log_active(log);
    kl_status status = kl_log_make_dirty(log);
    if (KL_UNLIKELY(status)) return status;
    status = kl_log_settle_tail(log);
    if (KL_UNLIKELY(status)) return status;
    status = take_back(log);
    if (KL_UNLIKELY(status)) return status;
    status = make_room(log, (int64_t)bytes);
    if (KL_UNLIKELY(status)) return status;
    KL_TEST_ASSERT(active == kl_log_active(log)); /* no other thread rolls */
    KL_ASSERT(active->size + (int64_t)bytes <= active->reserved);
    KL_ASSERT(!active->torn && !active->stale_aborts && active->owed_end == 0);
    KL_FP("append.before_write");
    status = kl_file_write(active->file, data, bytes, active->size);
    if (KL_LIKELY(!status)) {
        KL_FP("append.after_write");
        return KL_OK;
    }
    status = kl_fail_prefix(status, "log %s, append", log->path);
    if (status == KL_E_IO && kl_error_errno() == EIO) {
        kl_log_fail_storage(log, status); /* the disk lost bytes, and may lose more */
        (void)kl_file_truncate(active->file, active->size);
        return status;
    }
    active->torn = true;
    (void)take_back_bytes(log, active);
    return status;
}

/* Reserve the memory for all updates that must not fail after the write. */
static kl_status reserve_notes(kl_log *log, const run_facts *run) {
    kl_segment *active = kl_log_active(log);
    size_t regions = (size_t)(run->bytes / KL_REGION_BYTES) + 2;
    kl_status status = kl_segment_reserve_notes(active, entries_of(log, run));
    if (!status) status = kl_sums_reserve(&active->sums, KL_MIN(run->batches, regions));
    if (!status && run->producers)
        status = kl_producers_reserve(&log->producers, run->producers);
    return status;
}

static kl_status note_producer(kl_log *log, const kl_batch *batch, const uint8_t *data,
                               int64_t now_ms) {
    if (!kl_batch_is_control(batch))
        return kl_producers_apply(&log->producers, batch, now_ms);
    int32_t type, coordinator_epoch;
    kl_status status = kl_batch_control(batch, data, &type, &coordinator_epoch);
    if (status) return status;
    if (type != KL_CONTROL_ABORT && type != KL_CONTROL_COMMIT) return KL_OK;
    int64_t first_offset;
    return kl_producers_apply_marker(
        &log->producers, batch->producer_id, batch->producer_epoch, coordinator_epoch,
        batch->last_offset, batch->max_timestamp, now_ms, &first_offset);
}

/* Before an abort marker is written, write its .txnindex entry, so that the entry is on file when
 * the end passes it and a full disk refuses it before anything changes.  A crash in between leaves
 * an entry above the end, which an open ignores. */
static kl_status note_abort(kl_log *log, const kl_batch *batch, bool *noted) {
    const kl_producer_entry *entry = kl_producers_find(&log->producers, batch->producer_id);
    if (entry == NULL || entry->txn_start_offset < 0) return KL_OK;
    kl_status status = kl_log_make_dirty(log);
    if (!status) status = kl_log_settle_tail(log);
    if (!status) status = make_room(log, batch->batch_bytes);
    if (status) return status;
    /* The last stable offset just after the marker, as in Kafka's ProducerStateManager. */
    int64_t open = kl_producers_first_open_besides(&log->producers, entry);
    const kl_aborted aborted = {batch->producer_id, entry->txn_start_offset,
                                batch->last_offset, KL_MIN(open, batch->last_offset + 1)};
    kl_segment *active = kl_log_active(log);
    kl_dir *dir = NULL;
    status = kl_aborts_add(&active->aborts, &aborted);
    *noted = !status;
    if (status) return status;
    kl_log_begin_disk(log);
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_aborts_save(&active->aborts, dir, false);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_log_end_disk(log);
    active->unsynced = log->dir_dirty = true;
    return status;
}

/* The marker was not written: remove its entry. */
static void take_back_abort(kl_log *log, const kl_batch *batch) {
    kl_segment *active = kl_log_active(log);
    kl_aborts_truncate(&active->aborts, batch->last_offset);
    (void)take_back_entry(log, active);
}

kl_status kl_log_save_epochs(kl_log *log, bool sync) {
    kl_dir *dir = NULL;
    kl_buffer text = {0};
    kl_status status = kl_epochs_encode(&log->epochs, &text);
    if (status) goto out;
    log->epochs.changed = false;
    kl_log_begin_disk(log);
    status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_epochs_write(&text, dir, sync);
    kl_dir_close(dir);
    kl_dir_free(dir);
    kl_log_end_disk(log);
    if (status) log->epochs.changed = true;
out:
    kl_buffer_free(&text);
    return status;
}

/* A new leader epoch is on disk before the first batch that carries it. */
static kl_status note_epoch(kl_log *log, const kl_batch *batch) {
    bool owed = log->epoch_owed;
    if (KL_LIKELY(batch->leader_epoch <= kl_epochs_latest(&log->epochs) && !owed))
        return KL_OK;
    kl_status status = kl_log_make_dirty(log);
    if (!status)
        status = kl_epochs_assign(&log->epochs, batch->leader_epoch, batch->base_offset);
    if (status) return status;
    if (!log->epochs.changed) { /* already written by a close or a truncation */
        log->epoch_owed = false;
        return KL_OK;
    }
    KL_FP("append.before_epoch");
    status = kl_log_save_epochs(log, true);
    if (!status) log->epoch_owed = false;
    else if (!owed) kl_epochs_truncate_end(&log->epochs, batch->base_offset);
    return status;
}

/* The batch is in the file: update the state of the log.  A failure from here on is final. */
static kl_status take_in(kl_log *log, const kl_batch *batch, const uint8_t *data,
                         int64_t now_ms) {
    kl_segment *active = kl_log_active(log);
    KL_ASSERT(batch->base_offset >= log->log_end); /* I2 */
    KL_ASSERT(batch->last_offset >= batch->base_offset);
    KL_ASSERT(batch->last_offset - active->base_offset <= INT32_MAX);
    kl_status status =
        kl_segment_note(active, batch, active->size, log->config.index_interval_bytes);
    kl_sums_add(&active->sums, data, active->size, batch->batch_bytes);
    active->size += batch->batch_bytes;
    if (!status && batch->producer_id >= 0)
        status = note_producer(log, batch, data, now_ms);
    log->log_end = batch->last_offset + 1;
    log->unflushed_records += batch->record_count;
    log->appended_bytes += batch->batch_bytes;
    return status;
}

kl_status kl_log_append_one_locked(kl_log *log, const kl_batch *batch, const uint8_t *data,
                                   int64_t now_ms) {
    int32_t control_type = -1, coordinator_epoch;
    bool noted = false;
    KL_ASSERT_HELD(&log->lock);
    kl_status status = KL_OK;
    const run_facts run = {batch->batch_bytes,
                           batch->base_offset,
                           batch->last_offset,
                           batch->max_timestamp,
                           1,
                           batch->producer_id >= 0};
    if (batch->producer_id >= 0 && kl_batch_is_control(batch))
        status = kl_batch_control(batch, data, &control_type, &coordinator_epoch);
    if (status) return kl_fail_prefix(status, "log %s", log->path);
    status = maybe_roll(log, &run, now_ms);
    if (!status) status = note_epoch(log, batch);
    if (!status) status = reserve_notes(log, &run);
    if (!status && control_type == KL_CONTROL_ABORT)
        status = note_abort(log, batch, &noted);
    if (!status) status = kl_log_write(log, data, (size_t)batch->batch_bytes);
    if (status && noted) take_back_abort(log, batch);
    if (status) return status;
    status = take_in(log, batch, data, now_ms);
    kl_log_publish(log);
    return status ? kl_log_fail_storage(log, status) : KL_OK;
}

/* Locked.  Whether a batch like this would cause a roll. */
static bool wants_roll(const kl_log *log, const kl_upcoming *next) {
    KL_ASSERT_HELD(&log->lock);
    const run_facts run = {next->bytes,
                           log->log_end,
                           log->log_end + next->offsets - 1,
                           next->max_timestamp,
                           1,
                           1};
    return next->offsets <= INT32_MAX &&
           next->bytes <=
               KL_MIN(log->config.max_message_bytes, log->config.segment_bytes) &&
           roll_is_due(log, kl_log_active(log), &run, next->now_ms);
}

/* Locked.  Whether a failed operation must be undone before the next append. */
static bool is_owed(const kl_segment *active) {
    return active->owed_end > 0 || active->torn || active->stale_aborts;
}

bool kl_log_is_ready(kl_log *log, const kl_upcoming *next) {
    if (kl_log_enter(log)) return true; /* the append reports the error */
    bool ready = log->offline ||
                 (!log->busy && log->marker == NULL && !is_owed(kl_log_active(log)) &&
                  !log->epoch_owed && log->leader_epoch <= kl_epochs_latest(&log->epochs) &&
                  !wants_roll(log, next));
    kl_log_leave(log);
    return ready;
}

void kl_log_make_ready(kl_log *log, const kl_upcoming *next) {
    if (kl_log_enter_write(log)) return;
    kl_status status = kl_log_make_dirty(log);
    if (!status) status = kl_log_settle_tail(log);
    if (!status) status = take_back(log);
    if (!status && wants_roll(log, next)) status = kl_log_roll_locked(log, log->log_end);
    const kl_batch first = {.base_offset = log->log_end, .leader_epoch = log->leader_epoch};
    if (!status) (void)note_epoch(log, &first);
    kl_log_leave(log);
}

/* Describe a run of batches; *first is its first batch. */
static kl_status look_at_run(const kl_log *log, kl_span run, run_facts *out,
                             kl_batch *first) {
    int64_t before = -1; /* the producer of the previous batch */
    *out = (run_facts){.bytes = (int64_t)run.bytes, .max_timestamp = -1};
    for (size_t pos = 0; pos < run.bytes;) {
        kl_batch batch;
        kl_status status = kl_batch_parse(run.data + pos, run.bytes - pos, &batch);
        if (status) return status;
        KL_ASSERT(!kl_batch_is_control(&batch)); /* the caller separates them */
        if (pos == 0) *first = batch;
        out->last_offset = batch.last_offset;
        out->max_timestamp = KL_MAX(out->max_timestamp, batch.max_timestamp);
        out->batches++;
        if (batch.producer_id >= 0 && batch.producer_id != before)
            out->producers += !kl_producers_find(&log->producers, batch.producer_id);
        before = batch.producer_id;
        pos += (size_t)batch.batch_bytes;
    }
    KL_ASSERT(out->batches > 0);
    out->first_offset = first->base_offset;
    /* Beyond this number, new producers evict the first ones. */
    out->producers = KL_MIN(out->producers, (size_t)KL_PRODUCERS_MAX);
    return KL_OK;
}

kl_status kl_log_append_run_locked(kl_log *log, kl_span run, int64_t now_ms) {
    run_facts facts;
    kl_batch batch = {0};
    KL_ASSERT_HELD(&log->lock);
    kl_status status = look_at_run(log, run, &facts, &batch);
    if (!status) status = maybe_roll(log, &facts, now_ms);
    if (!status) status = note_epoch(log, &batch);
    if (!status) status = reserve_notes(log, &facts);
    if (!status) status = kl_log_write(log, run.data, run.bytes);
    if (status) goto out;
    for (size_t pos = 0; !status && pos < run.bytes; pos += (size_t)batch.batch_bytes) {
        status = kl_batch_header(run.data + pos, &batch);
        if (!status) status = take_in(log, &batch, run.data + pos, now_ms);
    }
    kl_log_publish(log);
    if (status) status = kl_log_fail_storage(log, status);
out:
    kl_producers_trim(&log->producers);
    return status;
}

/* ---- one record ----------------------------------------------------------------------- */

static kl_status append_one(kl_log *log, const char *key, int64_t key_bytes,
                            const char *value, int64_t value_bytes, int64_t timestamp_ms,
                            int64_t *offset) {
    bool stamped = log->config.log_append_time;
    int64_t now_ms = kl_now_ms();
    if (timestamp_ms < 0) timestamp_ms = now_ms;
    const kl_batch_rules rules = kl_log_rules(log, now_ms, KL_ORIGIN_CLIENT);
    size_t bytes = kl_batch_one_bytes(key_bytes, value_bytes);
    kl_status status = kl_check_size(&rules, (int64_t)bytes);
    if (!status) status = kl_check_time(&rules, timestamp_ms);
    /* A small batch is built on the stack: with ten thousand logs, each one's scratch is out of
     * cache. */
    uint8_t small[SMALL_BATCH_BYTES], *data = small;
    if (!status && bytes > sizeof small) {
        log->scratch.bytes = 0;
        status = kl_buffer_reserve(&log->scratch, bytes);
        data = log->scratch.data;
    }
    if (KL_UNLIKELY(status)) return kl_fail_prefix(status, "log %s", log->path);
    kl_batch_build_one(data, (const uint8_t *)key, key_bytes, (const uint8_t *)value,
                       value_bytes, timestamp_ms);
    if (stamped) kl_batch_set_time(data, bytes, now_ms, true);
    kl_batch_assign(data, log->log_end, log->leader_epoch);
    const kl_batch batch = {.base_offset = log->log_end,
                            .last_offset = log->log_end,
                            .base_timestamp = timestamp_ms,
                            .max_timestamp = stamped ? now_ms : timestamp_ms,
                            .producer_id = -1,
                            .batch_bytes = (int64_t)bytes,
                            .leader_epoch = log->leader_epoch,
                            .record_count = 1};
    *offset = log->log_end;
    return kl_log_append_one_locked(log, &batch, data, now_ms);
}

/* Check the arguments of kl_log_append. */
static kl_status check_one(const kl_log *log, int64_t key_bytes, int64_t value_bytes,
                           int64_t timestamp_ms) {
    if (KL_UNLIKELY(log->config.compressed))
        return kl_fail(KL_E_UNSUPPORTED_COMPRESSION_TYPE,
                       "log %s compresses its records: wanted a batch of them", log->path);
    if (KL_UNLIKELY(key_bytes < -1 || key_bytes > KL_PART_BYTES_MAX || value_bytes < -1 ||
                    value_bytes > KL_PART_BYTES_MAX))
        return kl_fail(KL_E_MESSAGE_TOO_LARGE,
                       "log %s: a key of %lld and a value of %lld bytes, wanted at most %d",
                       log->path, (long long)key_bytes, (long long)value_bytes,
                       KL_PART_BYTES_MAX);
    if (KL_UNLIKELY(timestamp_ms < -1)) return kl_batch_bad_time(timestamp_ms);
    if (KL_UNLIKELY(log->config.compacted && key_bytes < 0))
        return kl_fail(KL_E_INVALID_RECORD,
                       "log %s is compacted: its records need a key, found none",
                       log->path);
    return KL_OK;
}

int64_t kl_log_append(kl_log *log, const char *key, int64_t key_bytes, const char *value,
                      int64_t value_bytes, int64_t timestamp_ms, int32_t *sync_due) {
    *sync_due = 0;
    kl_status status = kl_log_enter_write(log);
    if (KL_UNLIKELY(status)) return -(int64_t)status;
    int64_t offset = -1;
    status = check_one(log, key_bytes, value_bytes, timestamp_ms);
    if (!status)
        status = append_one(log, key, key_bytes, value, value_bytes, timestamp_ms, &offset);
    if (!status) *sync_due = log->unflushed_records >= log->config.flush_messages;
    kl_log_leave(log);
    return status ? -(int64_t)status : offset;
}

/* ---- columns ---------------------------------------------------------------------------- */

static kl_status append_column_batch(kl_log *log, const kl_columns *columns,
                                     kl_cursor *cursor, size_t batch_bytes, int64_t now_ms,
                                     kl_appended *out) {
    log->scratch.bytes = 0;
    kl_status status = kl_buffer_reserve(&log->scratch, batch_bytes);
    if (status) return status;
    uint8_t *data = log->scratch.data;
    kl_cursor next = *cursor;
    kl_encoded encoded;
    status = kl_encode_records(columns, &next, data + POS_RECORDS,
                               batch_bytes - POS_RECORDS, INT32_MAX, &encoded);
    if (status)
        return kl_fail_prefix(status, "log %s, record %lld of this call", log->path,
                              (long long)next.row);
    kl_stamp stamp = {.producer_id = -1, .base_sequence = -1, .producer_epoch = -1};
    if (log->config.log_append_time) {
        stamp.attributes = KL_ATTR_LOG_APPEND_TIME;
        encoded.max_timestamp = now_ms;
        out->log_append_time_ms = now_ms;
    }
    size_t bytes = POS_RECORDS + encoded.records_bytes;
    status = kl_batch_seal(data, bytes, &encoded, &stamp);
    if (status) return status;
    kl_batch_assign(data, log->log_end, log->leader_epoch);
    kl_batch batch;
    status = kl_batch_parse(data, bytes, &batch);
    if (status) return status;
    const kl_batch_rules rules = kl_log_rules(log, now_ms, KL_ORIGIN_CLIENT);
    if (kl_check_is_needed(&rules))
        status = kl_records_check(&batch, data + POS_RECORDS, encoded.records_bytes, 1,
                                  &rules.records, NULL);
    if (status) return kl_fail_prefix(status, "log %s", log->path);
    status = kl_log_append_one_locked(log, &batch, data, now_ms);
    if (status) return status;
    if (out->base_offset < 0) out->base_offset = batch.base_offset;
    out->last_offset = batch.last_offset;
    out->batch_count++;
    *cursor = next;
    return KL_OK;
}

kl_status kl_log_append_columns(kl_log *log, const kl_columns *columns, kl_cursor *cursor,
                                int64_t batch_bytes, int64_t now_ms, kl_appended *out) {
    enum { CALL_BYTES = 64 << 20, BATCH_BYTES = 1 << 20 };
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0, 0};
    kl_status status = KL_OK;
    int64_t limit = batch_bytes > 0 ? batch_bytes : BATCH_BYTES, written = 0;
    while (!status && cursor->row < columns->count && written < CALL_BYTES) {
        status = kl_log_enter_write(log);
        if (status) return status;
        int64_t max = KL_MIN(log->config.max_message_bytes, log->config.segment_bytes);
        int64_t room = KL_MIN(limit, max);
        kl_cursor start = *cursor;
        status = append_column_batch(
            log, columns, cursor, (size_t)KL_MAX(room, (int64_t)POS_RECORDS), now_ms, out);
        /* A record larger than the wanted batch size gets its own batch, up to the limit. */
        if (status == KL_E_MESSAGE_TOO_LARGE && room < max && cursor->row == start.row)
            status =
                append_column_batch(log, columns, cursor,
                                    (size_t)KL_MAX(max, (int64_t)POS_RECORDS), now_ms, out);
        out->log_start_offset = log->log_start;
        out->sync_due = log->unflushed_records >= log->config.flush_messages;
        written += room;
        kl_log_leave(log);
    }
    return status;
}
