/* record.c: records inside a batch: decode, find. */
#include "record_next.h"

const uint8_t *kl_record_next(const uint8_t *p, const uint8_t *end, bool check_headers,
                              kl_record_view *out) {
    return kl_record_next_here(p, end, check_headers, out);
}

kl_status kl_record_bad(kl_status status, const kl_batch *batch, int64_t pos) {
    return kl_fail(
        status,
        "batch at offset %lld: the bytes at %lld of its records are not a record "
        "(a length passes the end or disagrees with the fields)",
        (long long)batch->base_offset, (long long)pos);
}

/* Decode the record at `pos` (below `bytes`), with positions instead of pointers. */
static kl_status decode_at(const kl_batch *batch, const uint8_t *records, size_t bytes,
                           int64_t pos, kl_record *out) {
    kl_record_view view;
    const uint8_t *next = kl_record_next(records + pos, records + bytes, true, &view);
    if (KL_UNLIKELY(next == NULL)) return kl_record_bad(KL_E_CORRUPT_MESSAGE, batch, pos);
    if (KL_UNLIKELY(view.offset_delta < 0 || view.offset_delta > batch->last_offset_delta))
        return kl_fail(KL_E_CORRUPT_MESSAGE,
                       "batch at offset %lld: a record has offsetDelta %d, wanted 0 to %d",
                       (long long)batch->base_offset, view.offset_delta,
                       batch->last_offset_delta);
    out->offset = batch->base_offset + view.offset_delta;
    out->timestamp_ms = kl_record_timestamp(batch, view.timestamp_delta);
    out->key_pos = view.key ? view.key - records : 0;
    out->key_bytes = view.key_bytes;
    out->value_pos = view.value ? view.value - records : 0;
    out->value_bytes = view.value_bytes;
    out->headers_pos = view.headers - records;
    out->record_pos = pos;
    out->record_bytes = (next - records) - pos;
    out->header_count = view.header_count;
    return KL_OK;
}

kl_status kl_records_decode(const kl_batch *batch, const uint8_t *records, size_t bytes,
                            int64_t *pos, kl_record *out, int32_t max_records,
                            int32_t *count) {
    *count = 0;
    if (*pos < 0 || (uint64_t)*pos > bytes)
        return kl_fail(KL_E_ARGUMENT, "pos is %lld, wanted 0 to %zu", (long long)*pos,
                       bytes);
    while (*count < max_records && (size_t)*pos < bytes) {
        kl_status status = decode_at(batch, records, bytes, *pos, &out[*count]);
        if (KL_UNLIKELY(status)) return status;
        *pos += out[*count].record_bytes;
        *count += 1;
    }
    return KL_OK;
}

kl_status kl_records_find(const kl_batch *batch, const uint8_t *records, size_t bytes,
                          int64_t timestamp_ms, int64_t start_offset, kl_record *out) {
    for (int64_t pos = 0; (size_t)pos < bytes; pos += out->record_bytes) {
        kl_status status = decode_at(batch, records, bytes, pos, out);
        if (KL_UNLIKELY(status)) return status;
        if (out->offset >= start_offset && out->timestamp_ms >= timestamp_ms) return KL_OK;
    }
    *out = (kl_record){.offset = -1, .timestamp_ms = -1};
    return KL_OK;
}

kl_status kl_batch_control(const kl_batch *batch, const uint8_t *data, int32_t *type,
                           int32_t *coordinator_epoch) {
    enum { KEY_BYTES_MIN = 4, MARKER_VALUE_BYTES_MIN = 6 };
    *type = -1;
    *coordinator_epoch = -1;
    if (batch->record_count == 0) return KL_OK;
    kl_record_view view;
    const uint8_t *p =
        kl_record_next(data + POS_RECORDS, data + batch->batch_bytes, false, &view);
    if (p == NULL) return kl_record_bad(KL_E_CORRUPT_MESSAGE, batch, 0);
    if (view.key_bytes < KEY_BYTES_MIN || (int16_t)kl_get16(view.key) < 0)
        return kl_fail(
            KL_E_CORRUPT_MESSAGE,
            "control batch at offset %lld: its key has %d bytes, wanted a version "
            "of at least 0 and a type",
            (long long)batch->base_offset, view.key_bytes);
    int32_t found = (int16_t)kl_get16(view.key + 2);
    if (found == KL_CONTROL_ABORT || found == KL_CONTROL_COMMIT) {
        if (view.value_bytes < MARKER_VALUE_BYTES_MIN || (int16_t)kl_get16(view.value) < 0)
            return kl_fail(
                KL_E_CORRUPT_MESSAGE,
                "marker at offset %lld: its value has %d bytes, wanted a version "
                "of at least 0 and a coordinator epoch",
                (long long)batch->base_offset, view.value_bytes);
        *coordinator_epoch = (int32_t)kl_get32(view.value + 2);
    }
    *type = found;
    return KL_OK;
}
