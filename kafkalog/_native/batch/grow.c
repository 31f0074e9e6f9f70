/* grow.c: see grow.h. */
#include "grow.h"

#include "record.h"

enum { RECORD_BYTES_MAX = INT32_MAX };

void kl_growing_begin(kl_growing *batch, uint8_t *data, size_t bytes_max) {
    *batch = (kl_growing){.data = data,
                          .bytes = POS_RECORDS,
                          .bytes_max = bytes_max,
                          .summed_bytes = POS_RECORDS};
    batch->encoded = (kl_encoded){.base_timestamp = -1, .max_timestamp = -1};
}

static size_t part_bytes(int64_t bytes) {
    return kl_varint_bytes(bytes) + (size_t)KL_MAX(bytes, (int64_t)0);
}

static uint8_t *put_part(uint8_t *p, const uint8_t *data, int64_t bytes) {
    p += kl_put_varint(p, bytes);
    if (bytes > 0) {
        memcpy(p, data, (size_t)bytes);
        p += bytes;
    }
    return p;
}

kl_status kl_growing_add(kl_growing *batch, const kl_addition *record) {
    kl_encoded *encoded = &batch->encoded;
    int32_t count = encoded->record_count;
    if (KL_UNLIKELY(record->timestamp_ms < -1))
        return kl_batch_bad_time(record->timestamp_ms);
    if (KL_UNLIKELY(record->key_bytes > RECORD_BYTES_MAX / 4 ||
                    record->value_bytes > RECORD_BYTES_MAX / 4 ||
                    record->headers_bytes > RECORD_BYTES_MAX / 4))
        return kl_fail(KL_E_MESSAGE_TOO_LARGE, "a record of more than 512 MiB");
    int64_t base = count ? encoded->base_timestamp : record->timestamp_ms;
    int64_t delta = (int64_t)((uint64_t)record->timestamp_ms - (uint64_t)base);
    size_t headers_bytes = record->headers ? record->headers_bytes : 1;
    size_t body = 1 + kl_varint_bytes(delta) + kl_varint_bytes(count) +
                  part_bytes(record->key_bytes) + part_bytes(record->value_bytes) +
                  headers_bytes;
    size_t bytes = kl_varint_bytes((int64_t)body) + body;
    if (batch->bytes > batch->bytes_max || bytes > batch->bytes_max - batch->bytes)
        return KL_E_BUFFER_TOO_SMALL; /* the usual end of a batch: no message */

    uint8_t *p = batch->data + batch->bytes;
    p += kl_put_varint(p, (int64_t)body);
    *p++ = 0; /* attributes */
    p += kl_put_varint(p, delta);
    p += kl_put_varint(p, count);
    p = put_part(p, record->key, record->key_bytes);
    p = put_part(p, record->value, record->value_bytes);
    if (record->headers) memcpy(p, record->headers, headers_bytes);
    else *p = 0; /* none */
    batch->bytes += bytes;
    batch->record_bytes +=
        KL_MAX(record->key_bytes, (int64_t)0) + KL_MAX(record->value_bytes, (int64_t)0);
    encoded->base_timestamp = base;
    encoded->max_timestamp =
        count ? KL_MAX(encoded->max_timestamp, record->timestamp_ms) : record->timestamp_ms;
    encoded->record_count++;
    return KL_OK;
}

const uint8_t *kl_addition_next(const uint8_t *p, const uint8_t *end,
                                int64_t base_timestamp, bool check_headers,
                                kl_addition *out) {
    kl_record_view view;
    p = kl_record_next(p, end, check_headers, &view);
    if (p == NULL) return NULL;
    uint64_t base = (uint64_t)base_timestamp;
    *out = (kl_addition){.key = view.key,
                         .key_bytes = view.key_bytes,
                         .value = view.value,
                         .value_bytes = view.value_bytes,
                         .timestamp_ms = (int64_t)(base + (uint64_t)view.timestamp_delta)};
    if (view.header_count) {
        out->headers = view.headers - kl_varint_bytes(view.header_count);
        out->headers_bytes = (size_t)(p - out->headers);
    }
    return p;
}

kl_status kl_growing_copy(kl_growing *batch, const kl_growing *from, int32_t first,
                          int32_t count) {
    const uint8_t *p = from->data + POS_RECORDS, *end = from->data + from->bytes;
    for (int32_t i = 0; i < first + count; i++) {
        kl_addition record;
        p = kl_addition_next(p, end, from->encoded.base_timestamp, false, &record);
        if (p == NULL) return kl_fail(KL_E_ARGUMENT, "record %d is not there", (int)i);
        if (i < first) continue;
        kl_status status = kl_growing_add(batch, &record);
        if (status) return status;
    }
    return KL_OK;
}
