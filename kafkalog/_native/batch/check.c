/* check.c: the rules of a batch and of its records. */
#include "check.h"

#include <stdio.h>

#include "record_parts.h"

/* ---- records ------------------------------------------------------------------------ */

static bool time_is_within(int64_t timestamp_ms, const kl_record_rules *rules) {
    /* Unsigned: the difference from a client's timestamp may not fit into 63 bits. */
    uint64_t now = (uint64_t)rules->now_ms, timestamp = (uint64_t)timestamp_ms;
    if (timestamp_ms == -1) return true;
    return timestamp_ms <= rules->now_ms
               ? now - timestamp <= (uint64_t)rules->before_max_ms ||
                     rules->before_max_ms == INT64_MAX
               : timestamp - now <= (uint64_t)rules->after_max_ms ||
                     rules->after_max_ms == INT64_MAX;
}

/* True if the settings refuse a valid record; *out says why. */
static inline bool is_refused(const kl_record_rules *rules, const kl_record_view *record,
                              int64_t timestamp_ms, int32_t index, kl_refused_record *out) {
    bool no_key = rules->need_keys && record->key == NULL;
    if (KL_LIKELY(!no_key && time_is_within(timestamp_ms, rules))) return false;
    *out = (kl_refused_record){timestamp_ms, index, no_key};
    return true;
}

void kl_refused_why(const kl_refused_record *record, const kl_record_rules *rules,
                    char *text, size_t text_bytes) {
    bool after = record->timestamp_ms > rules->now_ms;
    uint64_t now = (uint64_t)rules->now_ms, timestamp = (uint64_t)record->timestamp_ms;
    if (record->no_key)
        snprintf(text, text_bytes, "a compacted topic takes no record without a key");
    else
        snprintf(
            text, text_bytes,
            "timestamp %lld is %llu ms %s now, message.timestamp.%s.max.ms allows %lld",
            (long long)record->timestamp_ms,
            (unsigned long long)(after ? timestamp - now : now - timestamp),
            after ? "after" : "before", after ? "after" : "before",
            (long long)(after ? rules->after_max_ms : rules->before_max_ms));
}

static kl_status refuse(const kl_batch *batch, const kl_record_rules *rules,
                        const kl_refused_record *record) {
    char why[200];
    kl_refused_why(record, rules, why, sizeof why);
    return kl_fail(record->no_key ? KL_E_INVALID_RECORD : KL_E_INVALID_TIMESTAMP,
                   "batch at offset %lld, record %d: %s", (long long)batch->base_offset,
                   record->index, why);
}

static kl_status check_delta(const kl_batch *batch, int32_t i, int32_t delta,
                             int32_t delta_before, int strict) {
    if (strict ? delta == i : delta > delta_before && delta <= batch->last_offset_delta)
        return KL_OK;
    if (strict)
        return kl_fail(KL_E_INVALID_RECORD,
                       "batch at offset %lld: record %d has offsetDelta %d, wanted %d",
                       (long long)batch->base_offset, i, delta, i);
    return kl_fail(KL_E_INVALID_RECORD,
                   "batch at offset %lld: record %d has offsetDelta %d, wanted %d to %d",
                   (long long)batch->base_offset, i, delta, delta_before + 1,
                   batch->last_offset_delta);
}

/* ---- plain records -------------------------------------------------------------------------- */

/* A batch's leading plain records, and the facts collected from them. */
typedef struct {
    const uint8_t *p; /* the position after them */
    int32_t count;
    int32_t delta_min; /* range of their timestamp deltas */
    int32_t delta_max;
    bool bad; /* the next record is not plain */
} plain_run;

/* A varint with at least two readable bytes; returned in zig-zag form. */
static inline const uint8_t *take_varint(plain_run *run, const uint8_t *p,
                                         const uint8_t *end, uint32_t *u) {
    const uint8_t *next = kl_get_uvarint_near(p, end, u);
    if (KL_LIKELY(next != NULL)) return next;
    *u = 0;
    run->bad = true;
    return p;
}

/* The position after a key or value; the only valid negative length is -1, null. */
static inline const uint8_t *skip_part(plain_run *run, const uint8_t *p, uint32_t length) {
    run->bad |= (length & 1) && length != 1;
    return p + (length >> 1);
}

/* Check one record; returns the position after it, or NULL if it is not plain. */
static inline const uint8_t *take_plain(plain_run *run, const uint8_t *end, bool keyed) {
    uint32_t length, time, delta, key, value;
    const uint8_t *p =
        take_varint(run, run->p, end, &length); /* zig-zag: odd is negative */
    const uint8_t *record_end = p + (length >> 1);
    p = take_varint(run, p + 1, end, &time); /* skip the attributes */
    p = take_varint(run, p, end, &delta);
    p = take_varint(run, p, end, &key);
    run->bad |= (length & 1) || delta != 2 * (uint32_t)run->count || (keyed && key == 1);
    p = skip_part(run, p, key);
    /* The value's length and the header count follow. */
    if (KL_UNLIKELY(run->bad || record_end > end || record_end - p < 2)) return NULL;
    p = take_varint(run, p, end, &value);
    p = skip_part(run, p, value);
    if (KL_UNLIKELY(run->bad || p != record_end - 1 || *p != 0)) return NULL;
    int32_t ms = (int32_t)((time >> 1) ^ (0U - (time & 1)));
    run->delta_min = KL_MIN(run->delta_min, ms);
    run->delta_max = KL_MAX(run->delta_max, ms);
    return record_end;
}

/* Check the leading records without headers, with consecutive offsets and nothing to refuse: in
 * most batches, all.  The general walk, which reports what is wrong, takes over after them; it is
 * three times slower. */
static plain_run take_plain_ones(const kl_batch *batch, const uint8_t *records,
                                 const uint8_t *end, const kl_record_rules *rules) {
    const bool keyed = rules && rules->need_keys;
    plain_run run = {.p = records, .delta_min = INT32_MAX, .delta_max = INT32_MIN};
    while (run.count < batch->record_count && end - run.p >= RECORD_PREFIX_BYTES_MAX) {
        const uint8_t *next = take_plain(&run, end, keyed);
        if (KL_UNLIKELY(next == NULL)) break;
        run.p = next;
        run.count++;
    }
    const plain_run none = {.p = records};
    if (run.count == 0) return none;
    /* If the earliest and latest timestamps are within the limits, all are. */
    bool plain_time = batch->base_timestamp >= 0 && batch->base_timestamp <= INT64_MAX / 2;
    if (rules && plain_time)
        plain_time = time_is_within(batch->base_timestamp + run.delta_min, rules) &&
                     time_is_within(batch->base_timestamp + run.delta_max, rules);
    return plain_time ? run : none;
}

/* ---- all records ---------------------------------------------------------------------------- */

kl_status kl_records_check(const kl_batch *batch, const uint8_t *records, size_t bytes,
                           int strict, const kl_record_rules *rules,
                           int64_t *max_timestamp) {
    const uint8_t *end = records + bytes;
    plain_run run = {.p = records};
    int64_t max = -1;
    int32_t delta_before = -1;
    if (strict && batch->record_count - 1 != batch->last_offset_delta)
        return kl_fail(
            KL_E_INVALID_RECORD,
            "batch at offset %lld: recordsCount %d and lastOffsetDelta %d, wanted "
            "one record per offset",
            (long long)batch->base_offset, batch->record_count, batch->last_offset_delta);
    if (strict) run = take_plain_ones(batch, records, end, rules);
    if (run.count > 0) max = KL_MAX(max, batch->base_timestamp + run.delta_max);
    const uint8_t *p = run.p;
    for (int32_t i = run.count; i < batch->record_count; i++) {
        kl_record_view view;
        kl_refused_record refused;
        const uint8_t *next = kl_record_next(p, end, true, &view);
        if (KL_UNLIKELY(next == NULL))
            return kl_record_bad(KL_E_INVALID_RECORD, batch, p - records);
        kl_status status = check_delta(batch, i, view.offset_delta, delta_before, strict);
        if (KL_UNLIKELY(status)) return status;
        delta_before = view.offset_delta;
        int64_t timestamp =
            (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)view.timestamp_delta);
        if (rules && is_refused(rules, &view, timestamp, i, &refused))
            return refuse(batch, rules, &refused);
        max = KL_MAX(max, timestamp);
        p = next;
    }
    if (p != end)
        return kl_fail(
            KL_E_INVALID_RECORD, "batch at offset %lld: %lld bytes follow its %d records",
            (long long)batch->base_offset, (long long)(end - p), batch->record_count);
    if (max_timestamp) *max_timestamp = max;
    return KL_OK;
}

int64_t kl_records_longest(const uint8_t *records, size_t bytes) {
    const uint8_t *p = records, *end = records + bytes;
    int64_t longest = 0;
    int32_t length;
    while ((p = kl_get_varint(p, end, &length)) != NULL && length >= 0 &&
           length <= end - p) {
        longest = KL_MAX(longest, length);
        p += length;
    }
    return longest;
}

void kl_records_refused(const kl_batch *batch, const uint8_t *records, size_t bytes,
                        const kl_record_rules *rules, kl_refused_records *out) {
    const uint8_t *p = records, *end = records + bytes;
    out->count = 0;
    for (int32_t i = 0; i < batch->record_count && out->count < out->max; i++) {
        kl_record_view view;
        p = kl_record_next(p, end, false, &view);
        if (p == NULL) return;
        int64_t timestamp_ms = kl_record_timestamp(batch, view.timestamp_delta);
        out->count += is_refused(rules, &view, timestamp_ms, i, &out->records[out->count]);
    }
}

/* ---- batches ------------------------------------------------------------------------ */

kl_status kl_check_time(const kl_batch_rules *rules, int64_t timestamp_ms) {
    if (KL_LIKELY(time_is_within(timestamp_ms, &rules->records))) return KL_OK;
    const kl_refused_record record = {timestamp_ms, 0, 0};
    char why[200];
    kl_refused_why(&record, &rules->records, why, sizeof why);
    return kl_fail(KL_E_INVALID_TIMESTAMP, "%s", why);
}

kl_status kl_check_size(const kl_batch_rules *rules, int64_t bytes) {
    if (KL_UNLIKELY(bytes > rules->batch_bytes_max))
        return kl_fail(KL_E_MESSAGE_TOO_LARGE,
                       "a batch of %lld bytes, max.message.bytes allows %lld",
                       (long long)bytes, (long long)rules->batch_bytes_max);
    if (KL_UNLIKELY(bytes > rules->segment_bytes))
        return kl_fail(KL_E_RECORD_LIST_TOO_LARGE,
                       "%lld bytes of batches do not fit segment.bytes %lld",
                       (long long)bytes, (long long)rules->segment_bytes);
    return KL_OK;
}

bool kl_check_is_needed(const kl_batch_rules *rules) {
    return rules->records.need_keys || rules->records.before_max_ms != INT64_MAX ||
           rules->records.after_max_ms != INT64_MAX;
}

/* Check the header alone; NULL: valid. */
static const char *wrong_header(const kl_batch_rules *rules, const kl_batch *batch) {
    if (batch->base_offset != 0 && rules->from_client) return "its base offset should be 0";
    if (batch->record_count <= 0 || batch->record_count - 1 != batch->last_offset_delta)
        return "its record count and last offset delta do not agree";
    if (kl_batch_is_control(batch) && rules->from_client)
        return "clients may not write control batches";
    if (batch->producer_id >= 0 &&
        (batch->producer_epoch < 0 || (batch->base_sequence < 0 && rules->from_client)))
        return "a producer id needs an epoch and a sequence";
    if (kl_batch_is_transactional(batch) && batch->producer_id < 0)
        return "a transactional batch needs a producer id";
    return NULL;
}

static kl_status check_header(const kl_batch_rules *rules, const kl_batch *batch) {
    const char *wrong = wrong_header(rules, batch);
    if (wrong)
        return kl_fail(KL_E_INVALID_RECORD,
                       "the batch (base offset %lld, %d records, last offset "
                       "delta %d, producer %lld/%d, sequence %d): %s",
                       (long long)batch->base_offset, batch->record_count,
                       batch->last_offset_delta, (long long)batch->producer_id,
                       batch->producer_epoch, batch->base_sequence, wrong);
    if (kl_batch_codec(batch) > 4)
        return kl_fail(KL_E_UNSUPPORTED_COMPRESSION_TYPE,
                       "codec %d; known are 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
                       kl_batch_codec(batch));
    if (batch->attributes & KL_ATTR_LOG_APPEND_TIME)
        return kl_fail(KL_E_INVALID_TIMESTAMP,
                       "a client sent a batch marked LogAppendTime; only the log sets it");
    return kl_check_size(rules, batch->batch_bytes);
}

kl_status kl_check_batch(const kl_batch_rules *rules, uint8_t *data, size_t bytes,
                         kl_batch *out) {
    kl_status status = kl_batch_check(data, bytes, out);
    if (KL_UNLIKELY(status)) return status;
    status = check_header(rules, out);
    if (KL_UNLIKELY(status)) return status;
    int64_t max_timestamp = out->max_timestamp;
    if (kl_batch_codec(out) == 0)
        status = kl_records_check(out, data + POS_RECORDS,
                                  (size_t)out->batch_bytes - POS_RECORDS, 1,
                                  &rules->records, &max_timestamp);
    else if (rules->from_client && !kl_batch_time_is_lost(out))
        status = kl_check_time(rules, max_timestamp); /* only the header can be checked */
    if (KL_UNLIKELY(status)) return status;
    if (rules->log_append_time) max_timestamp = rules->records.now_ms;
    if (max_timestamp == out->max_timestamp && !rules->log_append_time) return KL_OK;
    kl_batch_set_time(data, (size_t)out->batch_bytes, max_timestamp,
                      rules->log_append_time);
    return kl_batch_header(data, out);
}
