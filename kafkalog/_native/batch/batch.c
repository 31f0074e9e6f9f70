/* batch.c: the header of a record batch: parse, check, stamp, build. */
#include "batch.h"

/* The size of the smallest message in any of Kafka's formats, an empty one of magic 0: anything
 * shorter is corrupt. */
enum { OLD_MESSAGE_BYTES_MIN = 14 };
enum { BATCH_LENGTH_MIN = POS_RECORDS - LENGTH_OVERHEAD };
/* length, attributes, two deltas, two lengths, header count: one byte each. */
enum { RECORD_BYTES_MIN = 7 };

int32_t kl_sequence_add(int32_t sequence, int32_t increment) {
    if (sequence > INT32_MAX - increment) return increment - (INT32_MAX - sequence) - 1;
    return sequence + increment;
}

/* Check the format by the 17 bytes that all formats share. */
static kl_status check_format(const uint8_t *data) {
    int32_t length = (int32_t)kl_get32(data + POS_BATCH_LENGTH);
    int8_t magic = (int8_t)data[POS_MAGIC];
    if (KL_UNLIKELY(length < OLD_MESSAGE_BYTES_MIN))
        return kl_fail(KL_E_CORRUPT_MESSAGE, "batchLength is %d, wanted at least %d",
                       length, BATCH_LENGTH_MIN);
    if (KL_UNLIKELY(magic == 0 || magic == 1))
        return kl_fail(KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT,
                       "message format magic %d is too old, wanted magic 2", magic);
    if (KL_UNLIKELY(magic != 2))
        return kl_fail(KL_E_CORRUPT_MESSAGE, "magic is %d, wanted 2", magic);
    if (KL_UNLIKELY(length < BATCH_LENGTH_MIN))
        return kl_fail(KL_E_CORRUPT_MESSAGE, "batchLength is %d, wanted at least %d",
                       length, BATCH_LENGTH_MIN);
    return KL_OK;
}

static kl_status check_counts(const kl_batch *b) {
    if (KL_UNLIKELY(b->base_offset < 0))
        return kl_fail(KL_E_CORRUPT_MESSAGE, "baseOffset is %lld, wanted at least 0",
                       (long long)b->base_offset);
    if (KL_UNLIKELY(b->last_offset_delta < 0 ||
                    b->last_offset_delta >= INT64_MAX - b->base_offset))
        return kl_fail(KL_E_CORRUPT_MESSAGE, "lastOffsetDelta is %d at baseOffset %lld",
                       b->last_offset_delta, (long long)b->base_offset);
    /* Compaction leaves fewer records than offsets, never more. */
    if (KL_UNLIKELY(b->record_count < 0 || b->record_count - 1 > b->last_offset_delta))
        return kl_fail(KL_E_CORRUPT_MESSAGE,
                       "recordsCount is %d, wanted 0 to lastOffsetDelta + 1 = %lld",
                       b->record_count, (long long)b->last_offset_delta + 1);
    int64_t records_bytes = b->batch_bytes - POS_RECORDS;
    if (KL_UNLIKELY(kl_batch_codec(b) == 0 &&
                    b->record_count > records_bytes / RECORD_BYTES_MIN))
        return kl_fail(KL_E_CORRUPT_MESSAGE,
                       "recordsCount is %d, but %lld bytes hold at most %lld records",
                       b->record_count, (long long)records_bytes,
                       (long long)(records_bytes / RECORD_BYTES_MIN));
    return KL_OK;
}

kl_status kl_batch_header(const uint8_t *data, kl_batch *out) {
    kl_status status = check_format(data);
    if (KL_UNLIKELY(status)) {
        *out = (kl_batch){0};
        return status;
    }
    out->base_offset = (int64_t)kl_get64(data + POS_BASE_OFFSET);
    out->batch_bytes =
        (int64_t)(int32_t)kl_get32(data + POS_BATCH_LENGTH) + LENGTH_OVERHEAD;
    out->leader_epoch = (int32_t)kl_get32(data + POS_LEADER_EPOCH);
    out->magic = 2;
    out->crc = kl_get32(data + POS_CRC);
    out->attributes = (int16_t)kl_get16(data + POS_ATTRIBUTES);
    out->last_offset_delta = (int32_t)kl_get32(data + POS_LAST_OFFSET_DELTA);
    out->base_timestamp = (int64_t)kl_get64(data + POS_BASE_TIMESTAMP);
    out->max_timestamp = (int64_t)kl_get64(data + POS_MAX_TIMESTAMP);
    out->producer_id = (int64_t)kl_get64(data + POS_PRODUCER_ID);
    out->producer_epoch = (int16_t)kl_get16(data + POS_PRODUCER_EPOCH);
    out->base_sequence = (int32_t)kl_get32(data + POS_BASE_SEQUENCE);
    out->record_count = (int32_t)kl_get32(data + POS_RECORD_COUNT);
    out->pos = 0;
    status = check_counts(out);
    if (KL_UNLIKELY(status)) {
        *out = (kl_batch){0};
        return status;
    }
    out->last_offset = out->base_offset + out->last_offset_delta;
    out->last_sequence = -1;
    if (out->base_sequence >= 0)
        out->last_sequence = kl_sequence_add(out->base_sequence, out->last_offset_delta);
    return KL_OK;
}

kl_status kl_batch_parse(const uint8_t *data, size_t bytes, kl_batch *out) {
    if (KL_UNLIKELY(bytes < POS_RECORDS)) {
        *out = (kl_batch){0};
        if (bytes >= MAGIC_BYTES_NEEDED) {
            kl_status status = check_format(data);
            if (status) return status;
        }
        return kl_fail(KL_E_BUFFER_TOO_SMALL, "%zu bytes are left, a batch header has %d",
                       bytes, POS_RECORDS);
    }
    kl_status status = kl_batch_header(data, out);
    if (KL_UNLIKELY(status)) return status;
    if (KL_UNLIKELY((size_t)out->batch_bytes > bytes))
        return kl_fail(KL_E_BUFFER_TOO_SMALL, "the batch has %lld bytes, %zu are left",
                       (long long)out->batch_bytes, bytes);
    return KL_OK;
}

kl_status kl_batch_check(const uint8_t *data, size_t bytes, kl_batch *out) {
    kl_status status = kl_batch_parse(data, bytes, out);
    if (KL_UNLIKELY(status)) return status;
    uint32_t computed =
        kl_crc32c(data + POS_ATTRIBUTES, (size_t)out->batch_bytes - POS_ATTRIBUTES);
    if (KL_UNLIKELY(computed != out->crc))
        return kl_fail(KL_E_CORRUPT_MESSAGE,
                       "batch at offset %lld: crc %08x is stored, its bytes give %08x",
                       (long long)out->base_offset, out->crc, computed);
    return KL_OK;
}

int kl_batch_time_is_lost(const kl_batch *batch) {
    return kl_batch_codec(batch) != 0 && batch->record_count > 0 &&
           batch->max_timestamp < batch->base_timestamp;
}

static void put_crc(uint8_t *batch, size_t bytes) {
    kl_put32(batch + POS_CRC, kl_crc32c(batch + POS_ATTRIBUTES, bytes - POS_ATTRIBUTES));
}

void kl_batch_set_time(uint8_t *batch, size_t bytes, int64_t max_timestamp,
                       bool log_append_time) {
    KL_ASSERT(bytes >= POS_RECORDS);
    if (log_append_time) {
        uint16_t attributes = kl_get16(batch + POS_ATTRIBUTES);
        kl_put16(batch + POS_ATTRIBUTES, (uint16_t)(attributes | KL_ATTR_LOG_APPEND_TIME));
    }
    kl_put64(batch + POS_MAX_TIMESTAMP, (uint64_t)max_timestamp);
    put_crc(batch, bytes);
}

static void put_fields(uint8_t *out, size_t batch_bytes, const kl_batch *header) {
    KL_ASSERT(batch_bytes >= POS_RECORDS && batch_bytes - LENGTH_OVERHEAD <= INT32_MAX);
    kl_put64(out + POS_BASE_OFFSET, (uint64_t)header->base_offset);
    kl_put32(out + POS_BATCH_LENGTH, (uint32_t)(batch_bytes - LENGTH_OVERHEAD));
    kl_put32(out + POS_LEADER_EPOCH, (uint32_t)header->leader_epoch);
    out[POS_MAGIC] = 2;
    kl_put16(out + POS_ATTRIBUTES, (uint16_t)header->attributes);
    kl_put32(out + POS_LAST_OFFSET_DELTA, (uint32_t)header->last_offset_delta);
    kl_put64(out + POS_BASE_TIMESTAMP, (uint64_t)header->base_timestamp);
    kl_put64(out + POS_MAX_TIMESTAMP, (uint64_t)header->max_timestamp);
    kl_put64(out + POS_PRODUCER_ID, (uint64_t)header->producer_id);
    kl_put16(out + POS_PRODUCER_EPOCH, (uint16_t)header->producer_epoch);
    kl_put32(out + POS_BASE_SEQUENCE, (uint32_t)header->base_sequence);
    kl_put32(out + POS_RECORD_COUNT, (uint32_t)header->record_count);
}

void kl_batch_put_header(uint8_t *out, size_t batch_bytes, const kl_batch *header) {
    put_fields(out, batch_bytes, header);
    put_crc(out, batch_bytes);
}

void kl_batch_put_header_over(uint8_t *out, size_t batch_bytes, const kl_batch *header,
                              uint32_t records_crc) {
    put_fields(out, batch_bytes, header);
    uint32_t crc = kl_crc32c(out + POS_ATTRIBUTES, POS_RECORDS - POS_ATTRIBUTES);
    kl_put32(out + POS_CRC, kl_crc32c_joined(crc, records_crc, batch_bytes - POS_RECORDS));
}

/* A null is -1 and no bytes. */
static uint8_t *put_bytes(uint8_t *p, const uint8_t *data, int64_t bytes) {
    p += kl_put_varint(p, bytes < 0 ? -1 : bytes);
    if (bytes > 0) {
        memcpy(p, data, (size_t)bytes);
        p += bytes;
    }
    return p;
}

/* The size of a record without deltas and headers, excluding its length field. */
static size_t body_bytes_of(int64_t key_bytes, int64_t value_bytes) {
    return 4 + kl_varint_bytes(key_bytes) + kl_varint_bytes(value_bytes) +
           (size_t)KL_MAX(key_bytes, 0) + (size_t)KL_MAX(value_bytes, 0);
}

/* Write such a record to `out`; returns its size. */
static size_t put_record(uint8_t *out, const uint8_t *key, int64_t key_bytes,
                         const uint8_t *value, int64_t value_bytes) {
    uint8_t *p = out;
    p += kl_put_varint(p, (int64_t)body_bytes_of(key_bytes, value_bytes));
    *p++ = 0; /* attributes */
    *p++ = 0; /* timestamp delta */
    *p++ = 0; /* offset delta */
    p = put_bytes(p, key, key_bytes);
    p = put_bytes(p, value, value_bytes);
    *p++ = 0; /* headers */
    return (size_t)(p - out);
}

kl_status kl_batch_bad_time(int64_t timestamp_ms) {
    return kl_fail(KL_E_ARGUMENT, "timestamp_ms is %lld, wanted at least 0, or -1 for none",
                   (long long)timestamp_ms);
}

size_t kl_batch_one_bytes(int64_t key_bytes, int64_t value_bytes) {
    size_t body_bytes = body_bytes_of(key_bytes, value_bytes);
    return POS_RECORDS + kl_varint_bytes((int64_t)body_bytes) + body_bytes;
}

void kl_batch_build_one(uint8_t *out, const uint8_t *key, int64_t key_bytes,
                        const uint8_t *value, int64_t value_bytes, int64_t timestamp_ms) {
    size_t bytes =
        POS_RECORDS + put_record(out + POS_RECORDS, key, key_bytes, value, value_bytes);
    kl_batch header = {
        .leader_epoch = -1,
        .base_timestamp = timestamp_ms,
        .max_timestamp = timestamp_ms,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = 1,
    };
    kl_batch_put_header(out, bytes, &header);
}

/* Key: i16 version, i16 type.  Value of a marker: i16 version, i32 coordinator epoch. */
enum { CONTROL_KEY_BYTES = 4, MARKER_VALUE_BYTES = 6 };

size_t kl_batch_build_marker(uint8_t *out, int64_t producer_id, int16_t producer_epoch,
                             int32_t coordinator_epoch, int32_t type,
                             int64_t timestamp_ms) {
    KL_ASSERT(type == KL_CONTROL_ABORT || type == KL_CONTROL_COMMIT);
    uint8_t key[CONTROL_KEY_BYTES] = {0};
    uint8_t value[MARKER_VALUE_BYTES] = {0};
    kl_put16(key + 2, (uint16_t)type);
    kl_put32(value + 2, (uint32_t)coordinator_epoch);
    size_t bytes =
        POS_RECORDS + put_record(out + POS_RECORDS, key, sizeof key, value, sizeof value);
    KL_ASSERT(bytes <= KL_MARKER_BYTES_MAX);
    kl_batch header = {
        .leader_epoch = -1,
        .attributes = KL_ATTR_CONTROL | KL_ATTR_TRANSACTIONAL,
        .base_timestamp = timestamp_ms,
        .max_timestamp = timestamp_ms,
        .producer_id = producer_id,
        .producer_epoch = producer_epoch,
        .base_sequence = -1,
        .record_count = 1,
    };
    kl_batch_put_header(out, bytes, &header);
    return bytes;
}
