/* record.c: records inside a batch: decode, find. */
#include "record.h"

/* Bytes that the fixed fields up to the key's length can take at most: length 5,
 * attributes 1, timestamp delta 10, offset delta 5, key length 5. */
enum { RECORD_PREFIX_BYTES_MAX = 26 };
/* Fewest bytes of a header: two lengths. */
enum { HEADER_BYTES_MIN = 2 };

/* A varint of at most 5 bytes that are known to lie in memory.  Two bytes, which hold a
 * length up to 8191, are decoded without a loop. */
static inline const uint8_t *get_varint_there(const uint8_t *p, int32_t *out) {
    uint32_t u = p[0];
    if (KL_LIKELY(u < 0x80)) {
        *out = (int32_t)((u >> 1) ^ (0U - (u & 1)));
        return p + 1;
    }
    if (KL_LIKELY(p[1] < 0x80)) {
        u = (u & 0x7f) | (uint32_t)p[1] << 7;
        *out = (int32_t)((u >> 1) ^ (0U - (u & 1)));
        return p + 2;
    }
    return kl_get_varint(p, p + KL_VARINT_BYTES_MAX, out);
}

/* The fields before the key, whose bytes may run out anywhere. */
static const uint8_t *get_prefix_checked(const uint8_t *p, const uint8_t *end,
                                         int32_t *length, const uint8_t **body,
                                         kl_record_view *out) {
    p = kl_get_varint(p, end, length);
    if (p == NULL || p == end) return NULL;
    *body = p++; /* attributes are ignored, as Kafka does */
    p = kl_get_varlong(p, end, KL_VARLONG_BYTES_MAX, &out->timestamp_delta);
    if (p == NULL) return NULL;
    p = kl_get_varint(p, end, &out->offset_delta);
    if (p == NULL) return NULL;
    return kl_get_varint(p, end, &out->key_bytes);
}

static inline const uint8_t *get_prefix(const uint8_t *p, const uint8_t *end,
                                        int32_t *length, const uint8_t **body,
                                        kl_record_view *out) {
    if (KL_UNLIKELY(end - p < RECORD_PREFIX_BYTES_MAX))
        return get_prefix_checked(p, end, length, body, out);
    p = get_varint_there(p, length);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    *body = p++;
    p = kl_get_varlong(p, end, KL_VARLONG_BYTES_MAX, &out->timestamp_delta);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    p = get_varint_there(p, &out->offset_delta);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    return get_varint_there(p, &out->key_bytes);
}

const uint8_t *kl_header_next(const uint8_t *p, const uint8_t *end, kl_header_view *out) {
    p = kl_get_varint(p, end, &out->name_bytes);
    if (p == NULL || out->name_bytes < 0 || out->name_bytes > end - p) return NULL;
    out->name = p;
    p = kl_get_varint(p + out->name_bytes, end, &out->value_bytes);
    if (p == NULL || out->value_bytes < -1) return NULL;
    if (out->value_bytes < 0) {
        out->value = NULL;
        return p;
    }
    if (out->value_bytes > end - p) return NULL;
    out->value = p;
    return p + out->value_bytes;
}

static bool headers_fill(const kl_record_view *view, const uint8_t *end) {
    const uint8_t *p = view->headers;
    kl_header_view header;
    for (int32_t i = 0; i < view->header_count && p; i++)
        p = kl_header_next(p, end, &header);
    return p == end;
}

const uint8_t *kl_record_next(const uint8_t *p, const uint8_t *end, bool check_headers,
                              kl_record_view *out) {
    int32_t length;
    const uint8_t *body;
    p = get_prefix(p, end, &length, &body, out);
    if (KL_UNLIKELY(p == NULL || length < 0 || length > end - body)) return NULL;
    const uint8_t *record_end = body + length;

    out->key = NULL;
    if (out->key_bytes >= 0) {
        if (KL_UNLIKELY(out->key_bytes > record_end - p)) return NULL;
        out->key = p;
        p += out->key_bytes;
    } else if (KL_UNLIKELY(out->key_bytes < -1)) {
        return NULL;
    }

    if (KL_LIKELY(record_end - p >= KL_VARINT_BYTES_MAX))
        p = get_varint_there(p, &out->value_bytes);
    else p = p > record_end ? NULL : kl_get_varint(p, record_end, &out->value_bytes);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    out->value = NULL;
    if (out->value_bytes >= 0) {
        if (KL_UNLIKELY(out->value_bytes > record_end - p)) return NULL;
        out->value = p;
        p += out->value_bytes;
    } else if (KL_UNLIKELY(out->value_bytes < -1)) {
        return NULL;
    }

    p = kl_get_varint(p, record_end, &out->header_count);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    out->headers = p;
    if (KL_LIKELY(out->header_count == 0)) return p == record_end ? p : NULL;
    if (out->header_count < 0 || out->header_count > (record_end - p) / HEADER_BYTES_MIN)
        return NULL;
    if (check_headers && !headers_fill(out, record_end)) return NULL;
    return record_end;
}

kl_status kl_record_bad(kl_status status, const kl_batch *batch, int64_t pos) {
    return kl_fail(
        status,
        "batch at offset %lld: the bytes at %lld of its records are not a record "
        "(a length passes the end or disagrees with the fields)",
        (long long)batch->base_offset, (long long)pos);
}

/* The record at `pos` (below `bytes`) with positions instead of pointers. */
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
