/* grow.h: a batch that grows one record at a time, in its caller's memory. */
#ifndef KL_GROW_H
#define KL_GROW_H

#include "batch.h"

/* A record to be added; -1 bytes: null. */
typedef struct {
    const uint8_t *key;
    int64_t key_bytes;
    const uint8_t *value;
    int64_t value_bytes;
    int64_t timestamp_ms;
    const uint8_t *headers; /* their count and they, encoded; NULL: none */
    size_t headers_bytes;
} kl_addition;

typedef struct {
    uint8_t *data; /* room for the header, then the records */
    size_t bytes;  /* used of it, the header's room too */
    size_t bytes_max;
    int64_t record_bytes; /* of keys and values */
    size_t
        summed_bytes; /* the header's room, and the records that `crc` is the kl_crc32c of */
    uint32_t crc;
    kl_encoded encoded; /* records_bytes is not kept */
} kl_growing;

/* Without records.  `data` has room for `bytes_max`, and is the caller's for as long. */
void kl_growing_begin(kl_growing *batch, uint8_t *data, size_t bytes_max);
/* KL_E_BUFFER_TOO_SMALL: it is full.  KL_E_MESSAGE_TOO_LARGE: no batch can hold the record.
 * KL_E_ARGUMENT: its timestamp.  On failure nothing has changed. */
kl_status kl_growing_add(kl_growing *batch, const kl_addition *record);

/* The record at `p`, whose batch has this base time, as one to be added; the place behind it.
 * NULL: there is none before `end`, see kl_record_next. */
const uint8_t *kl_addition_next(const uint8_t *p, const uint8_t *end,
                                int64_t base_timestamp, bool check_headers,
                                kl_addition *out);

/* Add `count` records of `from`, which has them, from number `first` on.  As kl_growing_add. */
kl_status kl_growing_copy(kl_growing *batch, const kl_growing *from, int32_t first,
                          int32_t count);

/* Add rows from `cursor` on, in at most `bytes_max` bytes, until the batch is full, and keep
 * their checksum.  KL_E_BUFFER_TOO_SMALL: not one fits.  Else as kl_encode_records. */
kl_status kl_growing_fill(kl_growing *batch, const kl_columns *columns, kl_cursor *cursor,
                          size_t bytes_max);

/* Write its header in front of the records.  As kl_batch_seal. */
kl_status kl_growing_finish(kl_growing *batch, const kl_stamp *stamp);

/* Take the row at `cursor` of columns without headers as a record, and move on to the next.
 * KL_E_ARGUMENT: the row is not there, or does not lie within its column. */
kl_status kl_columns_take(const kl_columns *columns, kl_cursor *cursor, kl_addition *out);

#endif
