/* record.h: fast decoding of one record in a batch; docs/format.md, "Record". */
#ifndef KL_RECORD_H
#define KL_RECORD_H

#include "batch.h"

/* A record, pointing into the batch; deltas are as stored. */
typedef struct {
    const uint8_t *key;     /* NULL: null */
    const uint8_t *value;   /* NULL: null */
    const uint8_t *headers; /* of the first header */
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_bytes; /* -1: null */
    int32_t value_bytes;
    int32_t header_count;
} kl_record_view;

/* The record at `p`; returns the position after it, or NULL if it is not a record: a length
 * exceeds `end` or does not agree with its fields.  Headers are walked only if `check_headers`
 * (the record's end is known from its length). */
const uint8_t *kl_record_next(const uint8_t *p, const uint8_t *end, bool check_headers,
                              kl_record_view *out);

typedef struct {
    const uint8_t *name;
    const uint8_t *value; /* NULL: null */
    int32_t name_bytes;
    int32_t value_bytes; /* -1: null */
} kl_header_view;
/* The header at `p`; returns the position after it, or NULL. */
const uint8_t *kl_header_next(const uint8_t *p, const uint8_t *end, kl_header_view *out);

/* Report that the bytes at `pos` of a batch's records are not a record; returns `status`. */
kl_status kl_record_bad(kl_status status, const kl_batch *batch, int64_t pos);

/* The timestamp that readers see: maxTimestamp of a LogAppendTime batch, otherwise base + delta. */
static inline int64_t kl_record_timestamp(const kl_batch *batch, int64_t delta) {
    if (batch->attributes & KL_ATTR_LOG_APPEND_TIME) return batch->max_timestamp;
    return (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)delta);
}

#endif
