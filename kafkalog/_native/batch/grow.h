/* grow.h: a batch to which records are added one by one, in the caller's memory. */
#ifndef KL_GROW_H
#define KL_GROW_H

#include "batch.h"

/* A record to add; -1 bytes: null. */
typedef struct {
    const uint8_t *key;
    int64_t key_bytes;
    const uint8_t *value;
    int64_t value_bytes;
    int64_t timestamp_ms;
    const uint8_t *headers; /* their encoded count and headers; NULL: none */
    size_t headers_bytes;
} kl_addition;

typedef struct {
    uint8_t *data; /* space for the header, then the records */
    size_t bytes;  /* used, including the header's space */
    size_t bytes_max;
    int64_t record_bytes; /* of keys and values */
    size_t summed_bytes;  /* up to here `crc` covers the records */
    uint32_t crc;
    kl_encoded encoded; /* except records_bytes */
} kl_growing;

/* Begin without records.  `data` has `bytes_max` bytes and must stay valid. */
void kl_growing_begin(kl_growing *batch, uint8_t *data, size_t bytes_max);
/* KL_E_BUFFER_TOO_SMALL: full.  KL_E_MESSAGE_TOO_LARGE: too large for any batch.  KL_E_ARGUMENT:
 * its timestamp.  Unchanged on failure. */
kl_status kl_growing_add(kl_growing *batch, const kl_addition *record);

/* Decode the record at `p`, from a batch with this base timestamp, for adding; returns the position
 * after it.  NULL: no record before `end`, see kl_record_next. */
const uint8_t *kl_addition_next(const uint8_t *p, const uint8_t *end,
                                int64_t base_timestamp, bool check_headers,
                                kl_addition *out);

/* Add `count` existing records of `from`, beginning with number `first`.  As kl_growing_add. */
kl_status kl_growing_copy(kl_growing *batch, const kl_growing *from, int32_t first,
                          int32_t count);

/* Add rows from `cursor` on, in at most `bytes_max` bytes, until the batch is full, and update the
 * checksum.  KL_E_BUFFER_TOO_SMALL: not one fits.  Otherwise as kl_encode_records. */
kl_status kl_growing_fill(kl_growing *batch, const kl_columns *columns, kl_cursor *cursor,
                          size_t bytes_max);

/* Write the header before the records.  As kl_batch_seal. */
kl_status kl_growing_finish(kl_growing *batch, const kl_stamp *stamp);

/* Take the row at `cursor` of columns without headers as a record, and advance.  KL_E_ARGUMENT: no
 * such row, or it is outside its column. */
kl_status kl_columns_take(const kl_columns *columns, kl_cursor *cursor, kl_addition *out);

#endif
