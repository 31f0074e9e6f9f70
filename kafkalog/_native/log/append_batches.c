/* append_batches.c: whole batches: as the leader (checked, offsets given), as a follower
 * (offsets as they are), and transaction markers. */
#include "append.h"

#include <stdio.h>

static kl_status check_window(const kl_log *log, const kl_batch *batch,
                              const uint8_t *records, size_t bytes, int64_t now_ms) {
    const uint8_t *p = records, *end = records + bytes;
    for (int32_t i = 0; i < batch->record_count; i++) {
        kl_record_view record;
        p = kl_record_next(p, end, false, &record);
        if (p == NULL)
            return kl_fail(KL_E_INVALID_RECORD, "log %s: record %d of %d does not parse",
                           log->path, i, batch->record_count);
        kl_status status = kl_append_check_time(
            log, kl_record_timestamp(batch, record.timestamp_delta), now_ms);
        if (status) return kl_fail_prefix(status, "record %d", i);
        if (log->config.compacted && record.key == NULL)
            return kl_fail(
                KL_E_INVALID_RECORD,
                "log %s is compacted: its records need a key, record %d has none",
                log->path, i);
    }
    return KL_OK;
}

kl_status kl_append_check_records(const kl_log *log, kl_batch *batch,
                                  const uint8_t *records, size_t bytes, int64_t now_ms,
                                  bool deep) {
    const kl_log_config *config = &log->config;
    if (deep) {
        int64_t max_timestamp;
        kl_status status =
            kl_records_check(batch, records, bytes, 1, config->compacted, &max_timestamp);
        if (status) return kl_fail_prefix(status, "log %s", log->path);
        batch->max_timestamp = max_timestamp;
    }
    bool window =
        !config->log_append_time && (config->timestamp_before_max_ms != INT64_MAX ||
                                     config->timestamp_after_max_ms != INT64_MAX);
    if (!window && (deep || !config->compacted)) return KL_OK;
    return check_window(log, batch, records, bytes, now_ms);
}

/* Why the settings refuse a record; false: they do not. */
static bool find_fault(const kl_log *log, const kl_record_view *record,
                       int64_t timestamp_ms, int64_t now_ms, kl_record_fault *out) {
    const kl_log_config *config = &log->config;
    if (config->compacted && record->key == NULL) {
        snprintf(out->text, sizeof out->text,
                 "a compacted topic takes no record without a key");
        return true;
    }
    if (config->log_append_time || kl_append_check_time(log, timestamp_ms, now_ms) == KL_OK)
        return false;
    snprintf(
        out->text, sizeof out->text,
        "timestamp %lld is out of range: now is %lld, %lld ms before and %lld ms after "
        "are allowed",
        (long long)timestamp_ms, (long long)now_ms,
        (long long)config->timestamp_before_max_ms,
        (long long)config->timestamp_after_max_ms);
    return true;
}

kl_status kl_log_find_faults(kl_log *log, kl_span batch, int64_t now_ms,
                             kl_record_faults *out) {
    kl_batch header;
    out->count = 0;
    kl_status status = kl_batch_check(batch.data, batch.bytes, &header);
    if (status || kl_batch_codec(&header) != 0) return status;
    status = kl_log_enter(log);
    if (status) return status;
    const uint8_t *p = batch.data + POS_RECORDS, *end = batch.data + header.batch_bytes;
    for (int32_t i = 0; p && i < header.record_count && out->count < out->max; i++) {
        kl_record_view record;
        p = kl_record_next(p, end, false, &record);
        if (p == NULL) break;
        kl_record_fault *fault = &out->faults[out->count];
        fault->index = i;
        out->count +=
            find_fault(log, &record, kl_record_timestamp(&header, record.timestamp_delta),
                       now_ms, fault);
    }
    kl_log_leave(log);
    return KL_OK;
}

/* Kafka's rules for a batch that a client sent: kafka.md 2.2, steps 2 and 5. */
static kl_status check_client_batch(const kl_log *log, const kl_batch *batch,
                                    int32_t origin) {
    const char *wrong = NULL;
    if (batch->base_offset != 0 && origin == KL_ORIGIN_CLIENT)
        wrong = "its base offset should be 0";
    else if (batch->record_count <= 0 ||
             batch->last_offset_delta + 1 != batch->record_count)
        wrong = "its record count and last offset delta do not agree";
    else if (kl_batch_is_control(batch) && origin == KL_ORIGIN_CLIENT)
        wrong = "clients may not write control batches";
    else if (batch->producer_id >= 0 &&
             (batch->producer_epoch < 0 ||
              (batch->base_sequence < 0 && origin == KL_ORIGIN_CLIENT)))
        wrong = "a producer id needs an epoch and a sequence";
    else if (kl_batch_is_transactional(batch) && batch->producer_id < 0)
        wrong = "a transactional batch needs a producer id";
    if (wrong)
        return kl_fail(
            KL_E_INVALID_RECORD,
            "log %s: batch at byte %lld (base offset %lld, %d records, last offset "
            "delta %d, producer %lld/%d, sequence %d): %s",
            log->path, (long long)batch->pos, (long long)batch->base_offset,
            batch->record_count, batch->last_offset_delta, (long long)batch->producer_id,
            batch->producer_epoch, batch->base_sequence, wrong);
    if (kl_batch_codec(batch) > 4)
        return kl_fail(
            KL_E_UNSUPPORTED_COMPRESSION_TYPE,
            "log %s: codec %d; known are 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
            log->path, kl_batch_codec(batch));
    if (batch->attributes & KL_ATTR_LOG_APPEND_TIME)
        return kl_fail(
            KL_E_INVALID_TIMESTAMP,
            "log %s: a client sent a batch marked LogAppendTime; only the log sets it",
            log->path);
    if (batch->batch_bytes > log->config.max_message_bytes)
        return kl_fail(KL_E_MESSAGE_TOO_LARGE,
                       "log %s: a batch of %lld bytes, max.message.bytes allows %d",
                       log->path, (long long)batch->batch_bytes,
                       log->config.max_message_bytes);
    if (batch->batch_bytes > log->config.segment_bytes)
        return kl_fail(KL_E_RECORD_LIST_TOO_LARGE,
                       "log %s: a batch of %lld bytes does not fit segment.bytes %lld",
                       log->path, (long long)batch->batch_bytes,
                       (long long)log->config.segment_bytes);
    return KL_OK;
}

/* Check all of `data`, our copy, before a byte is appended; a partial batch at the end is
 * left out.  A client's maxTimestamp is not believed but set to what its records say.
 * *whole: bytes of whole batches; *count of them. */
static kl_status check_all(const kl_log *log, uint8_t *data, size_t bytes,
                           const kl_append_options *options, int64_t now_ms, size_t *whole,
                           int32_t *count) {
    size_t pos = 0;
    *count = 0;
    while (pos < bytes) {
        kl_batch batch;
        kl_status status = kl_batch_check(data + pos, bytes - pos, &batch);
        if (status == KL_E_BUFFER_TOO_SMALL) break;
        if (status)
            return kl_fail_prefix(status, "log %s: batch at byte %zu", log->path, pos);
        batch.pos = (int64_t)pos;
        status = check_client_batch(log, &batch, options->origin);
        int64_t claimed = batch.max_timestamp;
        if (!status && kl_batch_codec(&batch) == 0)
            status = kl_append_check_records(log, &batch, data + pos + POS_RECORDS,
                                             (size_t)batch.batch_bytes - POS_RECORDS,
                                             now_ms, true);
        if (status) return status;
        if (batch.max_timestamp != claimed && !log->config.log_append_time)
            kl_batch_set_time(data + pos, (size_t)batch.batch_bytes, batch.max_timestamp,
                              false);
        pos += (size_t)batch.batch_bytes;
        *count += 1;
    }
    *whole = pos;
    if (options->one_batch && *count != 1)
        return kl_fail(KL_E_INVALID_RECORD, "log %s: %d batches, expected exactly one",
                       log->path, *count);
    return KL_OK;
}

/* Offsets, epoch, times: stamp the copy at `data` and describe it. */
static kl_status stamp_batch(const kl_log *log, uint8_t *data, int64_t now_ms,
                             kl_batch *batch) {
    kl_status status = kl_batch_parse(data, (size_t)batch->batch_bytes, batch);
    if (status) return status;
    size_t bytes = (size_t)batch->batch_bytes;
    if (log->config.log_append_time) kl_batch_set_time(data, bytes, now_ms, true);
    kl_batch_assign(data, log->log_end, log->leader_epoch);
    return kl_batch_parse(data, bytes, batch);
}

static void tell_duplicate(const kl_log *log, const kl_producer_batch *known,
                           kl_appended *out) {
    out->duplicate = 1;
    if (out->base_offset < 0) out->base_offset = known->last_offset - known->offset_delta;
    out->last_offset = known->last_offset;
    if (log->config.log_append_time) out->log_append_time_ms = known->timestamp_ms;
}

/* What is shown ends here until the batch is on disk; decided before it is written. */
static kl_status append_held(kl_log *log, const kl_batch *batch, const uint8_t *data,
                             int64_t now_ms) {
    int64_t from = log->hold_from, until = log->hold_until;
    log->hold_from = KL_MIN(from, log->high_watermark);
    log->hold_until = KL_MAX(until, batch->last_offset + 1);
    kl_status status = kl_log_append_one_locked(log, batch, data, now_ms);
    if (status && log->log_end <= batch->base_offset) {
        log->hold_from = from;
        log->hold_until = until;
    }
    return status;
}

static kl_status append_all(kl_log *log, kl_span whole, const kl_append_options *options,
                            int64_t now_ms, kl_appended *out) {
    kl_status status = KL_OK;
    if (log->config.log_append_time) out->log_append_time_ms = now_ms;
    for (size_t pos = 0; !status && pos < whole.bytes;) {
        uint8_t *data = (uint8_t *)(uintptr_t)whole.data + pos;
        kl_batch batch;
        status = kl_batch_parse(data, whole.bytes - pos, &batch);
        if (!status) status = stamp_batch(log, data, now_ms, &batch);
        if (status) return status;
        pos += (size_t)batch.batch_bytes;
        if (batch.producer_id >= 0) {
            const kl_producer_batch *known = NULL;
            status = kl_producers_check(&log->producers, &batch,
                                        options->origin == KL_ORIGIN_CLIENT, &known);
            if (status) return kl_fail_prefix(status, "log %s", log->path);
            if (known) {
                tell_duplicate(log, known, out);
                continue;
            }
        }
        if (options->durable) status = append_held(log, &batch, data, now_ms);
        else status = kl_log_append_one_locked(log, &batch, data, now_ms);
        if (status) return status;
        if (out->base_offset < 0) out->base_offset = batch.base_offset;
        out->last_offset = batch.last_offset;
        out->batch_count++;
    }
    return status;
}

/* Locked.  The batches, checked, in memory of ours: what was checked is what is written,
 * whatever the caller's memory does. */
static kl_status take_batches(kl_log *log, kl_span batches,
                              const kl_append_options *options, int64_t now_ms,
                              kl_span *whole) {
    int32_t count = 0;
    uint8_t *data = (uint8_t *)(uintptr_t)batches.data;
    if (options->leader_epoch >= 0 && options->leader_epoch != log->leader_epoch)
        return kl_fail(KL_E_FENCED_LEADER_EPOCH, "log %s: leader epoch %d, expected %d",
                       log->path, options->leader_epoch, log->leader_epoch);
    if (options->expects && options->expected_offset != log->log_end)
        return kl_fail(KL_E_UNEXPECTED_APPEND_OFFSET,
                       "log %s: the next offset is %lld, expected %lld", log->path,
                       (long long)log->log_end, (long long)options->expected_offset);
    if (!options->in_place) {
        log->scratch.bytes = 0;
        kl_status status = kl_buffer_append(&log->scratch, batches.data, batches.bytes);
        if (status) return status;
        data = log->scratch.data;
    }
    *whole = (kl_span){data, 0};
    return check_all(log, data, batches.bytes, options, now_ms, &whole->bytes, &count);
}

/* Locked.  What the disk is to do after the append: *wait tells whether the caller must. */
static kl_status ask_for_sync(kl_log *log, const kl_append_options *options,
                              kl_appended *out, bool *wait) {
    bool due = log->unflushed_records >= log->config.flush_messages;
    *wait = due && !options->no_wait;
    out->sync_due = due && options->no_wait;
    if (!options->durable && !out->sync_due) return KL_OK;
    /* A repeated batch may not be on disk yet. */
    if (log->flushed > out->last_offset) return KL_OK;
    log->flushers += 1; /* its acknowledgement waits as a thread would */
    if (log->flushers == log->flushers_wanted) pthread_cond_signal(&log->gathered);
    return kl_log_request_sync(log);
}

kl_status kl_log_append_batches(kl_log *log, const uint8_t *batches, size_t bytes,
                                const kl_append_options *options, kl_appended *out) {
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0};
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    int64_t now_ms = options->now_ms >= 0 ? options->now_ms : kl_now_ms();
    kl_append_options how = *options;
    how.durable &= log->end_is_high_watermark;
    kl_span whole = {0};
    bool wait = false;
    status = take_batches(log, (kl_span){batches, bytes}, &how, now_ms, &whole);
    if (!status) status = append_all(log, whole, &how, now_ms, out);
    out->log_start_offset = log->log_start;
    /* A batch before one that failed is in the log, and promised like the others. */
    kl_status asked = ask_for_sync(log, &how, out, &wait);
    if (asked) kl_log_fail_storage(log, asked); /* what is held would never be shown */
    kl_log_leave(log);
    if (!status) status = asked;
    if (wait && !status) status = kl_log_flush_all(log);
    return status;
}

/* ---- follower ---------------------------------------------------------------------------- */

static kl_status append_follower_batch(kl_log *log, const uint8_t *data, size_t bytes,
                                       int64_t now_ms, kl_batch *batch) {
    kl_status status = kl_batch_check(data, bytes, batch);
    if (status) return kl_fail_prefix(status, "log %s", log->path);
    if (batch->base_offset < log->log_end) {
        /* The leader sent the batch that straddles our start: begin at it. */
        bool straddles = kl_log_active(log)->size == 0 && log->version->count == 1 &&
                         log->log_start == log->log_end &&
                         batch->last_offset >= log->log_start;
        if (!straddles)
            return kl_fail(KL_E_UNEXPECTED_APPEND_OFFSET,
                           "log %s: batch begins at offset %lld, the log ends at %lld",
                           log->path, (long long)batch->base_offset,
                           (long long)log->log_end);
        status = kl_log_restart_at(log, batch->base_offset);
        if (status) return status;
    }
    if (batch->leader_epoch >= 0 && batch->leader_epoch > log->leader_epoch)
        log->leader_epoch = batch->leader_epoch;
    return kl_log_append_one_locked(log, batch, data, now_ms);
}

kl_status kl_log_append_follower(kl_log *log, const uint8_t *batches, size_t bytes,
                                 kl_appended *out) {
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0};
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    int64_t now_ms = kl_now_ms();
    for (size_t pos = 0; !status && pos < bytes;) {
        kl_batch batch;
        status = append_follower_batch(log, batches + pos, bytes - pos, now_ms, &batch);
        if (status == KL_E_BUFFER_TOO_SMALL) {
            status = KL_OK; /* a fetch may end inside of a batch */
            break;
        }
        if (status) break;
        pos += (size_t)batch.batch_bytes;
        if (out->base_offset < 0) out->base_offset = batch.base_offset;
        out->last_offset = batch.last_offset;
        out->batch_count++;
    }
    out->log_start_offset = log->log_start;
    kl_log_leave(log);
    return status;
}

/* ---- markers ------------------------------------------------------------------------------- */

kl_status kl_log_append_marker(kl_log *log, int64_t producer_id, int16_t producer_epoch,
                               int32_t coordinator_epoch, int32_t control_type,
                               int64_t timestamp_ms, kl_appended *out) {
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0};
    if (control_type != KL_CONTROL_ABORT && control_type != KL_CONTROL_COMMIT)
        return kl_fail(KL_E_ARGUMENT, "control type %d: expected 0 (abort) or 1 (commit)",
                       control_type);
    if (producer_id < 0 || producer_epoch < 0)
        return kl_fail(KL_E_ARGUMENT, "producer %lld/%d: a marker needs both",
                       (long long)producer_id, producer_epoch);
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    status = kl_producers_check_marker(&log->producers, producer_id, producer_epoch,
                                       coordinator_epoch);
    if (status) goto out;
    int64_t now_ms = timestamp_ms >= 0 ? timestamp_ms : kl_now_ms();
    uint8_t data[KL_MARKER_BYTES_MAX];
    size_t bytes = kl_batch_build_marker(data, producer_id, producer_epoch,
                                         coordinator_epoch, control_type, now_ms);
    kl_batch_assign(data, log->log_end, log->leader_epoch);
    kl_batch batch;
    status = kl_batch_parse(data, bytes, &batch);
    if (!status) status = kl_log_append_one_locked(log, &batch, data, now_ms);
    if (status) goto out;
    out->base_offset = out->last_offset = batch.base_offset;
    out->batch_count = 1;
    out->log_start_offset = log->log_start;
out:
    kl_log_leave(log);
    return status;
}
