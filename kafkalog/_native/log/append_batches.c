/* append_batches.c: appends whole batches as the leader, assigning offsets; transaction markers. */
#include "append.h"

#include <stdio.h>

static const kl_appended NOTHING = {-1, -1, -1, -1, 0, 0, 0, 0};

/* ---- what was wrong ----------------------------------------------------------------- */

kl_status kl_log_find_faults(kl_log *log, kl_span batch, int64_t now_ms,
                             kl_record_faults *out) {
    enum { FAULTS_MAX = 100 };
    kl_refused_record found[FAULTS_MAX];
    kl_refused_records refused = {found, (int32_t)KL_MIN(out->max, (size_t)FAULTS_MAX), 0};
    kl_batch header;
    out->count = 0;
    kl_status status = kl_batch_check(batch.data, batch.bytes, &header);
    if (status || kl_batch_codec(&header) != 0) return status;
    status = kl_log_enter(log);
    if (status) return status;
    const kl_batch_rules rules = kl_log_rules(log, now_ms, KL_ORIGIN_CLIENT);
    kl_log_leave(log);
    kl_records_refused(&header, batch.data + POS_RECORDS,
                       (size_t)header.batch_bytes - POS_RECORDS, &rules.records, &refused);
    for (; out->count < (size_t)refused.count; out->count++) {
        kl_record_fault *fault = &out->faults[out->count];
        fault->index = found[out->count].index;
        kl_refused_why(&found[out->count], &rules.records, fault->text, sizeof fault->text);
    }
    return KL_OK;
}

/* ---- as the leader ------------------------------------------------------------------ */

/* Batches being appended. */
typedef struct {
    uint8_t *data;
    size_t bytes;    /* of whole batches, after check_all */
    int32_t count;   /* number of batches */
    kl_buffer owned; /* their copy, unless they are appended in place */
    kl_append_options how;
    int64_t now_ms;
} arrival;

/* Check all before a byte is appended; ignore a partial batch at the end. */
static kl_status check_all(const kl_log *log, const kl_batch_rules *rules, arrival *in) {
    size_t pos = 0, bytes = in->bytes;
    bool control = false;
    while (pos < bytes) {
        kl_batch batch;
        kl_status status = kl_check_batch(rules, in->data + pos, bytes - pos, &batch);
        if (status == KL_E_BUFFER_TOO_SMALL) break;
        if (status)
            return kl_fail_prefix(status, "log %s: batch at byte %zu", log->path, pos);
        control |= kl_batch_is_control(&batch);
        pos += (size_t)batch.batch_bytes;
        in->count++;
    }
    if (control && in->count > 1)
        return kl_fail(KL_E_INVALID_RECORD, "log %s: a control batch among %d batches",
                       log->path, in->count);
    in->bytes = pos;
    if (in->how.one_batch && in->count != 1)
        return kl_fail(KL_E_INVALID_RECORD, "log %s: %d batches, expected exactly one",
                       log->path, in->count);
    return KL_OK;
}

/* Locked.  Check the caller's expected epoch and end offset. */
static kl_status check_expected(const kl_log *log, const kl_append_options *how) {
    if (how->leader_epoch >= 0 && how->leader_epoch != log->leader_epoch)
        return kl_fail(KL_E_FENCED_LEADER_EPOCH, "log %s: leader epoch %d, expected %d",
                       log->path, log->leader_epoch, how->leader_epoch);
    if (how->expects && how->expected_offset != log->log_end)
        return kl_fail(KL_E_UNEXPECTED_APPEND_OFFSET,
                       "log %s: the next offset is %lld, expected %lld", log->path,
                       (long long)log->log_end, (long long)how->expected_offset);
    return KL_OK;
}

/* Copy the batches, so that the caller cannot change them between check and write, and check
 * without the lock all that needs none. */
static kl_status take_batches(kl_log *log, kl_span batches, arrival *in) {
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    const kl_batch_rules rules = kl_log_rules(log, in->now_ms, in->how.origin);
    status = check_expected(log, &in->how);
    if (!in->how.in_place) { /* borrow the log's scratch until give_back */
        in->owned = log->scratch;
        log->scratch = (kl_buffer){0};
    }
    kl_log_leave(log);
    if (status) return status;
    if (!in->how.in_place) {
        in->owned.bytes = 0;
        status = kl_buffer_append(&in->owned, batches.data, batches.bytes);
        if (status) return status;
    }
    in->data = in->how.in_place ? (uint8_t *)(uintptr_t)batches.data : in->owned.data;
    in->bytes = batches.bytes;
    return check_all(log, &rules, in);
}

/* Locked.  Return the larger buffer to the log as its scratch. */
static void give_back(kl_log *log, arrival *in) {
    KL_ASSERT_HELD(&log->lock);
    if (in->owned.capacity <= log->scratch.capacity) return;
    kl_buffer smaller = log->scratch;
    log->scratch = in->owned;
    in->owned = smaller;
}

bool kl_log_is_open(kl_log *log, const kl_batch *batch) {
    if (kl_log_enter(log)) return true; /* the append reports the error */
    bool open = kl_producers_is_open(&log->producers, batch);
    kl_log_leave(log);
    return open;
}

/* Locked.  Whether a client's batch may begin or continue a transaction.  With version 2 (KIP-890)
 * the batch itself begins it, at sequence 0: a batch that overtook a producer's first one must
 * wait. */
static kl_status check_open(const kl_log *log, const kl_append_options *how,
                            const kl_batch *batch) {
    if (!how->continues || !kl_batch_is_transactional(batch)) return KL_OK;
    if (kl_producers_is_open(&log->producers, batch)) return KL_OK;
    if (how->continues == 2) {
        if (batch->base_sequence == 0) return KL_OK;
        if (kl_producers_find(&log->producers, batch->producer_id)) return KL_OK;
        return kl_fail(
            KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER,
            "producer %lld, epoch %d, is new in this partition: sequence %d, wanted 0",
            (long long)batch->producer_id, batch->producer_epoch, batch->base_sequence);
    }
    return kl_fail(KL_E_INVALID_TXN_STATE,
                   "producer %lld/%d has no transaction open in this partition",
                   (long long)batch->producer_id, batch->producer_epoch);
}

/* Locked.  Refuse a marker from an older coordinator than the producer's last one, or one that does
 * not end the open transaction. */
static kl_status check_marker(kl_log *log, const kl_batch *batch, const uint8_t *data,
                              bool raised) {
    int32_t type, coordinator_epoch;
    kl_status status = kl_batch_control(batch, data, &type, &coordinator_epoch);
    if (status || (type != KL_CONTROL_ABORT && type != KL_CONTROL_COMMIT)) return status;
    if (batch->producer_epoch < 0)
        return kl_fail(KL_E_INVALID_RECORD,
                       "marker of producer %lld: epoch %d, wanted at least 0",
                       (long long)batch->producer_id, batch->producer_epoch);
    return kl_producers_check_marker(&log->producers, batch->producer_id,
                                     batch->producer_epoch, coordinator_epoch, raised);
}

/* Locked.  Check that a producer's batch may follow its earlier ones.  *known: the batch is a
 * duplicate of this one. */
static kl_status check_producer(kl_log *log, const arrival *in, kl_producers *after,
                                const kl_batch *batch, const uint8_t *data,
                                const kl_producer_batch **known) {
    if (batch->producer_id < 0) return KL_OK;
    if (kl_batch_is_control(batch)) return check_marker(log, batch, data, in->how.raised);
    return kl_producers_try(&log->producers, in->count > 1 ? after : NULL, batch,
                            in->how.origin == KL_ORIGIN_CLIENT, known);
}

static void tell_duplicate(const kl_log *log, const kl_producer_batch *known,
                           kl_appended *out) {
    out->duplicate = 1;
    if (out->base_offset < 0) out->base_offset = known->last_offset - known->offset_delta;
    out->last_offset = known->last_offset;
    if (log->config.log_append_time) out->log_append_time_ms = known->timestamp_ms;
}

/* Locked.  Assign offsets and check that each batch may follow the previous ones.  Drop duplicates
 * and close the gaps. */
static kl_status admit(kl_log *log, arrival *in, kl_batch *last, kl_appended *out) {
    kl_producers after = {0}; /* state of their producers after each batch */
    kl_status status = KL_OK;
    int64_t next_offset = log->log_end;
    size_t kept = 0, bytes;
    KL_ASSERT_HELD(&log->lock);
    if (in->count > 1) kl_producers_init(&after);
    for (size_t pos = 0; !status && pos < in->bytes; pos += bytes) {
        const kl_producer_batch *known = NULL;
        kl_batch batch;
        kl_batch_assign(in->data + pos, next_offset, log->leader_epoch);
        status = kl_batch_parse(in->data + pos, in->bytes - pos, &batch);
        if (status) break;
        bytes = (size_t)batch.batch_bytes;
        status = check_producer(log, in, &after, &batch, in->data + pos, &known);
        if (!status && !known) status = check_open(log, &in->how, &batch);
        if (status) break;
        if (known) {
            tell_duplicate(log, known, out);
            continue;
        }
        if (kept < pos) memmove(in->data + kept, in->data + pos, bytes);
        kept += bytes;
        next_offset = batch.last_offset + 1;
        if (out->base_offset < 0) out->base_offset = batch.base_offset;
        out->last_offset = batch.last_offset;
        out->batch_count++;
        *last = batch;
    }
    KL_ASSERT(kept <= in->bytes);
    in->bytes = kept;
    kl_producers_free(&after);
    /* All go into one segment, whose relative offsets have 31 bits. */
    if (!status && next_offset - log->log_end > INT32_MAX)
        status = kl_fail(KL_E_RECORD_LIST_TOO_LARGE,
                         "batches with %lld offsets, wanted at most %d in one call",
                         (long long)(next_offset - log->log_end), INT32_MAX);
    if (!status && (int64_t)kept > log->config.segment_bytes)
        status = kl_fail(KL_E_RECORD_LIST_TOO_LARGE,
                         "%zu bytes of batches do not fit segment.bytes %lld", kept,
                         (long long)log->config.segment_bytes);
    return status ? kl_fail_prefix(status, "log %s", log->path) : KL_OK;
}

static kl_status append_arrived(kl_log *log, const arrival *in, const kl_batch *last) {
    if (last->base_offset == log->log_end)
        return kl_log_append_one_locked(log, last, in->data, in->now_ms);
    return kl_log_append_run_locked(log, (kl_span){in->data, in->bytes}, in->now_ms);
}

/* Cap the high watermark at its present value until the batches are on disk; set before they are
 * written. */
static kl_status append_held(kl_log *log, const arrival *in, const kl_batch *last) {
    int64_t from = log->hold_from, until = log->hold_until;
    log->hold_from = KL_MIN(from, log->high_watermark);
    log->hold_until = KL_MAX(until, last->last_offset + 1);
    kl_status status = append_arrived(log, in, last);
    if (status && log->log_end <= last->base_offset) {
        log->hold_from = from;
        log->hold_until = until;
    }
    return status;
}

/* Locked.  Request a sync if the settings or the caller require it. */
static kl_status ask_for_sync(kl_log *log, const kl_append_options *options,
                              kl_appended *out) {
    out->sync_due = log->unflushed_records >= log->config.flush_messages;
    if (options->durable != 1 && !(out->sync_due && options->begin_sync)) return KL_OK;
    /* A duplicate may not be on disk yet. */
    if (log->flushed > out->last_offset) return KL_OK;
    log->flushers += 1; /* counts like a waiting thread, until acknowledged */
    if (log->flushers == log->flushers_wanted) pthread_cond_signal(&log->gathered);
    return kl_log_request_sync(log);
}

/* Locked. */
static kl_status append_all(kl_log *log, arrival *in, kl_appended *out) {
    kl_batch last;
    kl_status status = check_expected(log, &in->how);
    if (!status && log->config.log_append_time) out->log_append_time_ms = in->now_ms;
    if (!status) status = admit(log, in, &last, out);
    if (!status && out->batch_count)
        status =
            in->how.durable ? append_held(log, in, &last) : append_arrived(log, in, &last);
    if (status) *out = NOTHING;
    out->log_start_offset = log->log_start;
    if (status) return status;
    KL_ASSERT(out->batch_count == 0 || log->log_end == last.last_offset + 1);
    status = ask_for_sync(log, &in->how, out);
    /* The next sync also raises the high watermark over held records. */
    return !status || kl_passes(status) ? status : kl_log_fail_storage(log, status);
}

kl_status kl_log_append_batches(kl_log *log, const uint8_t *batches, size_t bytes,
                                const kl_append_options *options, kl_appended *out) {
    arrival in = {.how = *options};
    in.now_ms = options->now_ms >= 0 ? options->now_ms : kl_now_ms();
    *out = NOTHING;
    kl_status status = take_batches(log, (kl_span){batches, bytes}, &in);
    if (!status) status = kl_log_enter_write(log);
    if (!status) {
        status = append_all(log, &in, out);
        give_back(log, &in);
        kl_log_leave(log);
    }
    kl_buffer_free(&in.owned);
    return status;
}

/* ---- markers ------------------------------------------------------------------------------- */

kl_status kl_log_append_marker(kl_log *log, int64_t producer_id, int16_t producer_epoch,
                               int32_t coordinator_epoch, int32_t control_type,
                               int64_t timestamp_ms, kl_appended *out) {
    *out = NOTHING;
    if (control_type != KL_CONTROL_ABORT && control_type != KL_CONTROL_COMMIT)
        return kl_fail(KL_E_ARGUMENT, "control type %d: expected 0 (abort) or 1 (commit)",
                       control_type);
    if (producer_id < 0 || producer_epoch < 0)
        return kl_fail(KL_E_ARGUMENT, "producer %lld/%d: a marker needs both",
                       (long long)producer_id, producer_epoch);
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    status = kl_producers_check_marker(&log->producers, producer_id, producer_epoch,
                                       coordinator_epoch, false);
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
