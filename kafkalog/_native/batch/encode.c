/* encode.c: encodes columns as the records of a batch.
 *
 * Rows are resolved to positions in blocks, with one loop per kind of column, so that the loop that
 * writes records is independent of the columns. */
#include "grow.h"

enum { BLOCK_ROWS = 128, SUMMED_ROWS = 4 * BLOCK_ROWS };

/* Position of a value in its column's data; bytes -1: null. */
typedef struct {
    int64_t pos;
    int64_t bytes;
} place;

/* Rows [row, row + found) of a column; `status` is the error of row + found. */
typedef struct {
    const uint8_t *data;
    place at[BLOCK_ROWS];
    int found;
    kl_status status;
} block;

static inline bool row_valid(const kl_bytes_column *column, int64_t row) {
    if (column->validity == NULL) return true;
    int64_t bit = column->validity_shift + row;
    return column->validity[bit >> 3] >> (bit & 7) & 1;
}

static inline int64_t load32(const void *index, int64_t i) {
    int32_t v;
    memcpy(&v, (const uint8_t *)index + i * 4,
           sizeof v); /* the caller's array may be unaligned */
    return v;
}
static inline int64_t load64(const void *index, int64_t i) {
    int64_t v;
    memcpy(&v, (const uint8_t *)index + i * 8, sizeof v);
    return v;
}

/* The place of one row; false: outside the data.  `pos` is the current position in a column of
 * lengths.  Inlined with a constant `kind`. */
static inline __attribute__((always_inline)) bool row_place(const kl_bytes_column *column,
                                                            kl_bytes_kind kind, int64_t row,
                                                            int64_t pos, place *out) {
    int64_t data_bytes = (int64_t)column->data_bytes;
    switch (kind) {
    case KL_BYTES_LENGTHS32:
        out->pos = pos;
        out->bytes = load32(column->index, row);
        if (KL_UNLIKELY(out->bytes < -1 || out->bytes > data_bytes - pos)) return false;
        break;
    case KL_BYTES_OFFSETS32:
        out->pos = load32(column->index, row);
        out->bytes = load32(column->index, row + 1) - out->pos;
        break;
    case KL_BYTES_OFFSETS64:
        out->pos = load64(column->index, row);
        out->bytes = load64(column->index, row + 1);
        if (KL_UNLIKELY(out->pos < 0 || out->bytes < out->pos)) return false;
        out->bytes -= out->pos;
        break;
    case KL_BYTES_FIXED:
        out->bytes = column->fixed_bytes;
        out->pos = row * out->bytes; /* cannot overflow: see row_limit */
        break;
    default: out->pos = 0; out->bytes = -1;
    }
    if (kind == KL_BYTES_OFFSETS32 || kind == KL_BYTES_OFFSETS64) {
        if (KL_UNLIKELY(out->pos < 0 || out->bytes < 0 || out->pos > data_bytes ||
                        out->bytes > data_bytes - out->pos))
            return false;
    }
    if (kind != KL_BYTES_NONE && !row_valid(column, row)) out->bytes = -1;
    return true;
}

/* The number of rows that the column's sizes allow. */
static int64_t row_limit(const kl_bytes_column *column) {
    int64_t entries = (int64_t)KL_MIN(column->index_count, (size_t)INT64_MAX);
    switch (column->kind) {
    case KL_BYTES_NONE: return INT64_MAX;
    case KL_BYTES_LENGTHS32: return entries;
    case KL_BYTES_OFFSETS32:
    case KL_BYTES_OFFSETS64: return entries - 1;
    case KL_BYTES_FIXED:
        if (column->fixed_bytes < 0) return 0;
        if (column->fixed_bytes == 0) return INT64_MAX;
        return (int64_t)(column->data_bytes / (size_t)column->fixed_bytes);
    }
    return 0;
}

static kl_status bad_row(const kl_bytes_column *column, const char *name, int64_t row) {
    if (row >= row_limit(column))
        return kl_fail(
            KL_E_ARGUMENT,
            "column %s ends before row %lld: %zu index entries, %zu bytes of data", name,
            (long long)row, column->index_count, column->data_bytes);
    return kl_fail(KL_E_ARGUMENT,
                   "column %s, row %lld: its length or offsets do not lie within the %zu "
                   "bytes of data",
                   name, (long long)row, column->data_bytes);
}

/* Resolve up to `rows` rows from `row` on. */
static void resolve(const kl_bytes_column *column, const char *name, int64_t row,
                    int64_t pos, int rows, block *out) {
    int64_t limit = row_limit(column) - row;
    int n = (int)KL_MAX(KL_MIN((int64_t)rows, limit), 0);
    int i = 0;
    out->data = column->data;
    switch (column->kind) {
    case KL_BYTES_LENGTHS32:
        for (; i < n && row_place(column, KL_BYTES_LENGTHS32, row + i, pos, &out->at[i]);
             i++)
            pos += KL_MAX(load32(column->index, row + i), 0);
        break;
    case KL_BYTES_OFFSETS32:
        while (i < n && row_place(column, KL_BYTES_OFFSETS32, row + i, 0, &out->at[i])) i++;
        break;
    case KL_BYTES_OFFSETS64:
        while (i < n && row_place(column, KL_BYTES_OFFSETS64, row + i, 0, &out->at[i])) i++;
        break;
    case KL_BYTES_FIXED:
        while (i < n && row_place(column, KL_BYTES_FIXED, row + i, 0, &out->at[i])) i++;
        break;
    case KL_BYTES_NONE:
        for (; i < n; i++) out->at[i] = (place){0, -1};
        break;
    }
    out->found = i;
    out->status = i < rows ? bad_row(column, name, row + i) : KL_OK;
}

/* The position of a column of lengths after row i of its block. */
static inline int64_t pos_behind(const kl_bytes_column *column, const block *b, int64_t row,
                                 int i) {
    if (column->kind != KL_BYTES_LENGTHS32) return 0;
    return b->at[i].pos + KL_MAX(load32(column->index, row), 0);
}

static inline uint8_t *put_place(uint8_t *p, const uint8_t *data, place at) {
    p += kl_put_varint(p, at.bytes);
    if (at.bytes > 0) {
        memcpy(p, data + at.pos, (size_t)at.bytes);
        p += at.bytes;
    }
    return p;
}

/* The encoded size of a key, value or header field with its length. */
static inline size_t place_bytes(place at) {
    return kl_varint_bytes(at.bytes) + (size_t)KL_MAX(at.bytes, 0);
}

/* The headers of one record, resolved in blocks; walked twice, to measure and to write. */
typedef struct {
    const kl_columns *columns;
    int64_t row;
    int64_t name_pos;
    int64_t value_pos;
} header_walk;

static kl_status headers_changed(int64_t row) {
    return kl_fail(KL_E_ARGUMENT, "the headers from row %lld on changed during the call",
                   (long long)row);
}

/* Take the next `count` headers; with `out`, write them there and advance it, but not past `end`:
 * the caller's arrays are read a second time and may have changed. */
static kl_status take_headers(header_walk *walk, int32_t count, uint8_t **out,
                              const uint8_t *end, size_t *bytes) {
    block names, values;
    *bytes = 0;
    while (count > 0) {
        int n = KL_MIN(count, BLOCK_ROWS);
        resolve(&walk->columns->header_name, "header_name", walk->row, walk->name_pos, n,
                &names);
        if (names.status) return names.status;
        resolve(&walk->columns->header_value, "header_value", walk->row, walk->value_pos, n,
                &values);
        if (values.status) return values.status;
        for (int i = 0; i < n; i++) {
            if (names.at[i].bytes < 0)
                return kl_fail(KL_E_ARGUMENT,
                               "column header_name, row %lld: null, a header needs a name",
                               (long long)walk->row + i);
            if (names.at[i].bytes > INT32_MAX || values.at[i].bytes > INT32_MAX)
                return kl_fail(KL_E_MESSAGE_TOO_LARGE, "a header of more than 2 GiB");
            size_t more = place_bytes(names.at[i]) + place_bytes(values.at[i]);
            *bytes += more;
            if (out == NULL) continue;
            if (KL_UNLIKELY(more > (size_t)(end - *out))) return headers_changed(walk->row);
            *out = put_place(*out, names.data, names.at[i]);
            *out = put_place(*out, values.data, values.at[i]);
        }
        int64_t last = walk->row + n - 1;
        walk->name_pos = pos_behind(&walk->columns->header_name, &names, last, n - 1);
        walk->value_pos = pos_behind(&walk->columns->header_value, &values, last, n - 1);
        walk->row += n;
        count -= n;
    }
    return KL_OK;
}

/* A growing batch's records. */
typedef struct {
    const kl_columns *columns;
    kl_cursor *cursor;
    uint8_t *p;
    uint8_t *end;
    kl_encoded *encoded;
    int64_t payload; /* bytes of keys and values */
} writer;

static header_walk walk_headers(const writer *w) {
    return (header_walk){w->columns, w->cursor->header_row, w->cursor->header_name_pos,
                         w->cursor->header_value_pos};
}

static kl_status measure_headers(const writer *w, int32_t *count, size_t *bytes) {
    int64_t left = w->columns->header_total - w->cursor->header_row;
    *count = w->columns->header_count[w->cursor->row];
    if (*count < 0 || *count > left)
        return kl_fail(KL_E_ARGUMENT,
                       "column header_count, row %lld: %d, wanted 0 to the %lld of %lld "
                       "headers that are left",
                       (long long)w->cursor->row, *count, (long long)left,
                       (long long)w->columns->header_total);
    header_walk walk = walk_headers(w);
    return take_headers(&walk, *count, NULL, NULL, bytes);
}

/* Write the headers to *p; fails if their size differs from `measured`. */
static kl_status put_headers(writer *w, int32_t count, size_t measured, uint8_t **p) {
    size_t bytes;
    header_walk walk = walk_headers(w);
    kl_status status = take_headers(&walk, count, p, *p + measured, &bytes);
    if (!status && bytes != measured) status = headers_changed(w->cursor->header_row);
    if (status) return status;
    w->cursor->header_row = walk.row;
    w->cursor->header_name_pos = walk.name_pos;
    w->cursor->header_value_pos = walk.value_pos;
    return KL_OK;
}

/* The size of a record without its length field, or 0 if it cannot fit in `room`. */
static inline size_t record_body_bytes(place key, place value, int64_t timestamp_delta,
                                       int32_t offset_delta, int32_t header_count,
                                       size_t headers_bytes, size_t room) {
    /* Check each part first, so that their sum cannot overflow. */
    size_t limit = KL_MIN(room, (size_t)INT32_MAX);
    if (KL_UNLIKELY(key.bytes > (int64_t)limit || value.bytes > (int64_t)limit ||
                    headers_bytes > limit))
        return 0;
    size_t bytes = 1 + kl_varint_bytes(timestamp_delta) + kl_varint_bytes(offset_delta) +
                   place_bytes(key) + place_bytes(value) + kl_varint_bytes(header_count) +
                   headers_bytes;
    if (KL_UNLIKELY(bytes > INT32_MAX || bytes + kl_varint_bytes((int64_t)bytes) > room))
        return 0;
    return bytes;
}

/* Write the record at the cursor.  *fits false: no space, nothing written. */
static inline kl_status put_record(writer *w, const block *keys, const block *values, int i,
                                   bool *fits) {
    const kl_columns *columns = w->columns;
    kl_encoded *encoded = w->encoded;
    int64_t timestamp = columns->timestamp_ms ? columns->timestamp_ms[w->cursor->row]
                                              : columns->default_timestamp_ms;
    if (KL_UNLIKELY(timestamp < -1))
        return kl_fail_prefix(kl_batch_bad_time(timestamp), "row %lld",
                              (long long)w->cursor->row);
    int64_t base = encoded->record_count ? encoded->base_timestamp : timestamp;
    int64_t timestamp_delta = (int64_t)((uint64_t)timestamp - (uint64_t)base);
    int32_t header_count = 0;
    size_t headers_bytes = 0;
    if (columns->header_count) {
        kl_status status = measure_headers(w, &header_count, &headers_bytes);
        if (KL_UNLIKELY(status)) return status;
    }
    size_t body_bytes = record_body_bytes(keys->at[i], values->at[i], timestamp_delta,
                                          encoded->record_count, header_count,
                                          headers_bytes, (size_t)(w->end - w->p));
    *fits = body_bytes > 0;
    if (KL_UNLIKELY(!*fits)) return KL_OK;

    uint8_t *p = w->p;
    p += kl_put_varint(p, (int64_t)body_bytes);
    *p++ = 0; /* attributes */
    p += kl_put_varint(p, timestamp_delta);
    p += kl_put_varint(p, encoded->record_count);
    p = put_place(p, keys->data, keys->at[i]);
    p = put_place(p, values->data, values->at[i]);
    p += kl_put_varint(p, header_count);
    if (header_count) {
        kl_status status = put_headers(w, header_count, headers_bytes, &p);
        if (KL_UNLIKELY(status)) return status;
    }
    KL_ASSERT(p <= w->end);
    w->p = p;
    encoded->base_timestamp = base;
    encoded->max_timestamp =
        encoded->record_count ? KL_MAX(encoded->max_timestamp, timestamp) : timestamp;
    encoded->record_count++;
    w->payload += KL_MAX(keys->at[i].bytes, (int64_t)0);
    w->payload += KL_MAX(values->at[i].bytes, (int64_t)0);
    w->cursor->row++;
    return KL_OK;
}

/* Write rows up to the end of the block; *fits false: the space ended first. */
static kl_status put_block(writer *w, int rows, bool *fits) {
    const kl_columns *columns = w->columns;
    block keys, values;
    resolve(&columns->key, "key", w->cursor->row, w->cursor->key_pos, rows, &keys);
    resolve(&columns->value, "value", w->cursor->row, w->cursor->value_pos, keys.found,
            &values);
    int found = values.found;
    kl_status status = KL_OK;
    int i = 0;
    for (; i < found; i++) {
        status = put_record(w, &keys, &values, i, fits);
        if (KL_UNLIKELY(status || !*fits)) break;
    }
    if (i > 0) {
        int64_t last = w->cursor->row - 1;
        w->cursor->key_pos = pos_behind(&columns->key, &keys, last, i - 1);
        w->cursor->value_pos = pos_behind(&columns->value, &values, last, i - 1);
    }
    if (status || i < found) return status;
    return values.status ? values.status : keys.status;
}

/* The place of row `row` alone, and the next position in a column of lengths. */
static kl_status one_place(const kl_bytes_column *column, const char *name, int64_t row,
                           int64_t *pos, place *out) {
    if (row >= row_limit(column) || !row_place(column, column->kind, row, *pos, out))
        return bad_row(column, name, row);
    if (column->kind == KL_BYTES_LENGTHS32)
        *pos = out->pos + KL_MAX(load32(column->index, row), (int64_t)0);
    return KL_OK;
}

kl_status kl_columns_take(const kl_columns *columns, kl_cursor *cursor, kl_addition *out) {
    int64_t row = cursor->row, key_pos = cursor->key_pos, value_pos = cursor->value_pos;
    place key, value;
    kl_status status = one_place(&columns->key, "key", row, &key_pos, &key);
    if (!status) status = one_place(&columns->value, "value", row, &value_pos, &value);
    if (KL_UNLIKELY(status)) return status;
    *out = (kl_addition){
        .key = key.bytes > 0 ? columns->key.data + key.pos : NULL,
        .key_bytes = key.bytes,
        .value = value.bytes > 0 ? columns->value.data + value.pos : NULL,
        .value_bytes = value.bytes,
        .timestamp_ms = columns->timestamp_ms ? columns->timestamp_ms[row]
                                              : columns->default_timestamp_ms,
    };
    cursor->row = row + 1;
    cursor->key_pos = key_pos;
    cursor->value_pos = value_pos;
    return KL_OK;
}

static kl_status check_cursor(const kl_columns *columns, const kl_cursor *cursor) {
    if (cursor->row < 0 || cursor->row > columns->count || cursor->key_pos < 0 ||
        cursor->value_pos < 0 || cursor->header_row < 0 || cursor->header_name_pos < 0 ||
        cursor->header_value_pos < 0)
        return kl_fail(KL_E_ARGUMENT, "the cursor is at row %lld, wanted 0 to %lld",
                       (long long)cursor->row, (long long)columns->count);
    return KL_OK;
}

/* Append records to the writer's batch. */
static kl_status encode_more(writer *w, int32_t max_records) {
    kl_cursor *cursor = w->cursor;
    int32_t before = w->encoded->record_count;
    kl_status status = check_cursor(w->columns, cursor);
    if (status) return status;
    size_t out_bytes = (size_t)(w->end - w->p);
    const uint8_t *begin = w->p;
    bool fits = true;
    while (!status && fits && cursor->row < w->columns->count &&
           w->encoded->record_count - before < max_records) {
        int64_t rows = KL_MIN(w->columns->count - cursor->row, BLOCK_ROWS);
        rows = KL_MIN(rows, max_records - (w->encoded->record_count - before));
        status = put_block(w, (int)rows, &fits);
    }
    w->encoded->records_bytes += (size_t)(w->p - begin);
    if (w->encoded->record_count > before) return KL_OK; /* the next call fails */
    if (!status && !fits)
        return kl_fail(KL_E_MESSAGE_TOO_LARGE,
                       "the record of row %lld does not fit into %zu bytes",
                       (long long)cursor->row, out_bytes);
    return status;
}

kl_status kl_encode_records(const kl_columns *columns, kl_cursor *cursor, uint8_t *out,
                            size_t out_bytes, int32_t max_records, kl_encoded *encoded) {
    *encoded = (kl_encoded){.base_timestamp = -1, .max_timestamp = -1};
    writer w = {columns, cursor, out, out + out_bytes, encoded, 0};
    return encode_more(&w, max_records);
}

/* Extend the checksum to all records. */
static void sum_up(kl_growing *batch) {
    size_t from = batch->summed_bytes;
    KL_ASSERT(from <= batch->bytes);
    batch->crc = kl_crc32c_more(batch->crc, batch->data + from, batch->bytes - from);
    batch->summed_bytes = batch->bytes;
}

kl_status kl_growing_fill(kl_growing *batch, const kl_columns *columns, kl_cursor *cursor,
                          size_t bytes_max) {
    if (batch->bytes >= batch->bytes_max) return KL_E_BUFFER_TOO_SMALL;
    size_t room = KL_MIN(bytes_max, batch->bytes_max - batch->bytes);
    uint8_t *out = batch->data + batch->bytes;
    writer w = {columns, cursor, out, out + room, &batch->encoded, 0};
    kl_status status;
    int64_t first = cursor->row, row;
    do { /* in steps, so that records are summed while in cache */
        row = cursor->row;
        status = encode_more(&w, SUMMED_ROWS);
        batch->bytes = (size_t)(w.p - batch->data);
        sum_up(batch);
    } while (!status && cursor->row - row == SUMMED_ROWS);
    batch->record_bytes += w.payload;
    if (row > first) return KL_OK; /* the next call reports the error */
    return status == KL_E_MESSAGE_TOO_LARGE ? KL_E_BUFFER_TOO_SMALL : status;
}

/* Fill in the header's fields, except those not known yet. */
static kl_status header_of(size_t out_bytes, const kl_encoded *encoded,
                           const kl_stamp *stamp, kl_batch *out) {
    if (encoded->record_count < 1)
        return kl_fail(KL_E_ARGUMENT, "record_count is %d, wanted at least 1",
                       encoded->record_count);
    if (out_bytes < POS_RECORDS || encoded->records_bytes > out_bytes - POS_RECORDS)
        return kl_fail(KL_E_BUFFER_TOO_SMALL,
                       "a header and %zu bytes of records do not fit into %zu bytes",
                       encoded->records_bytes, out_bytes);
    if (encoded->records_bytes > INT32_MAX - POS_RECORDS)
        return kl_fail(KL_E_MESSAGE_TOO_LARGE, "%zu bytes of records in one batch",
                       encoded->records_bytes);
    bool known = stamp->producer_id >= 0;
    *out = (kl_batch){
        .leader_epoch = -1,
        .attributes = stamp->attributes,
        .last_offset_delta = encoded->record_count - 1,
        .base_timestamp = encoded->base_timestamp,
        .max_timestamp = encoded->max_timestamp,
        .producer_id = known ? stamp->producer_id : -1,
        .producer_epoch = known ? stamp->producer_epoch : (int16_t)-1,
        .base_sequence = known ? stamp->base_sequence : -1,
        .record_count = encoded->record_count,
    };
    return KL_OK;
}

kl_status kl_batch_seal(uint8_t *out, size_t out_bytes, const kl_encoded *encoded,
                        const kl_stamp *stamp) {
    kl_batch header;
    kl_status status = header_of(out_bytes, encoded, stamp, &header);
    if (!status) kl_batch_put_header(out, POS_RECORDS + encoded->records_bytes, &header);
    return status;
}

kl_status kl_growing_finish(kl_growing *batch, const kl_stamp *stamp) {
    kl_batch header;
    kl_encoded encoded = batch->encoded;
    encoded.records_bytes = batch->bytes - POS_RECORDS;
    kl_status status = header_of(batch->bytes, &encoded, stamp, &header);
    if (status) return status;
    if (batch->summed_bytes == POS_RECORDS) {
        kl_batch_put_header(batch->data, batch->bytes, &header);
        return KL_OK;
    }
    sum_up(batch);
    kl_batch_put_header_over(batch->data, batch->bytes, &header, batch->crc);
    return KL_OK;
}
