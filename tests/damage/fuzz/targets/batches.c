/* batches.c: batches for the fuzz targets: repaired so that the fuzzer gets past the checksum,
 * and read in several ways that must agree. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/batch/record.h"

/* ---- mending -------------------------------------------------------------------------- */

/* Mend the batch at `p`: its new size, at most `left`; 0 when there is no space. */
static size_t fix_one(uint8_t *p, size_t left, int64_t *next_offset, uint32_t draw) {
    if (left < POS_RECORDS) return 0;
    size_t size = (size_t)kl_get32(p + POS_BATCH_LENGTH) + LENGTH_OVERHEAD;
    if (size < POS_RECORDS || size > left) {
        if (draw & 1) return 0; /* sometimes a torn or senseless one */
        size = left;
        kl_put32(p + POS_BATCH_LENGTH, (uint32_t)(size - LENGTH_OVERHEAD));
    }
    if (draw & 2) p[POS_MAGIC] = 2;
    int64_t base = (int64_t)kl_get64(p + POS_BASE_OFFSET);
    int32_t delta = (int32_t)kl_get32(p + POS_LAST_OFFSET_DELTA);
    if ((draw & 12) && base < *next_offset) kl_put64(p, (uint64_t)(base = *next_offset));
    if (base >= 0 && delta >= 0 && base < INT64_MAX - delta - 1)
        *next_offset = base + delta + 1;
    if (draw & 0xf0)
        kl_put32(p + POS_CRC, kl_crc32c(p + POS_ATTRIBUTES, size - POS_ATTRIBUTES));
    return size;
}

void fuzz_fix_batches(uint8_t *data, size_t bytes, uint32_t draw) {
    int64_t next_offset = 0;
    for (size_t pos = 0, size = 1; pos < bytes && size > 0; pos += size) {
        size = fix_one(data + pos, bytes - pos, &next_offset, draw);
        draw = draw >> 8 | draw << 24;
    }
}

/* ---- records: the same, read in several ways ------------------------------------------- */

enum { AT_ONCE = 3 };

typedef struct {
    kl_record *list;
    size_t count;
    size_t capacity;
} records_list;

static void add_record(records_list *all, const kl_record *record) {
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 8;
        all->list = realloc(all->list, all->capacity * sizeof *all->list);
        WANT(all->list != NULL);
    }
    all->list[all->count++] = *record;
}

static void check_place(int64_t pos, int64_t length, size_t bytes) {
    WANT(pos >= 0 && length >= -1 && (uint64_t)pos <= bytes);
    WANT(length < 0 || (uint64_t)length <= bytes - (uint64_t)pos);
}

static kl_status decode_all(const kl_batch *batch, const uint8_t *records, size_t bytes,
                            records_list *all) {
    int64_t pos = 0;
    kl_status status = KL_OK;
    for (int32_t count = 1; !status && count > 0;) {
        kl_record some[AT_ONCE];
        int64_t expected = pos;
        status = kl_records_decode(batch, records, bytes, &pos, some, AT_ONCE, &count);
        WANT(count >= 0 && count <= AT_ONCE);
        for (int32_t i = 0; i < count; i++) {
            WANT(some[i].record_pos == expected && some[i].record_bytes > 0);
            expected += some[i].record_bytes;
            check_place(some[i].key_pos, some[i].key_bytes, bytes);
            check_place(some[i].value_pos, some[i].value_bytes, bytes);
            check_place(some[i].headers_pos, 0, bytes);
            add_record(all, &some[i]);
        }
        WANT(pos == expected);
    }
    WANT(status != KL_OK || (size_t)pos == bytes);
    return status;
}

static void find_agrees(const kl_batch *batch, const uint8_t *records, size_t bytes,
                        const records_list *all, int64_t time, int64_t start) {
    kl_record found;
    size_t i = 0;
    WANT(kl_records_find(batch, records, bytes, time, start, &found) == KL_OK);
    while (i < all->count &&
           (all->list[i].timestamp_ms < time || all->list[i].offset < start))
        i++;
    if (i == all->count) WANT(found.offset == -1);
    else WANT(found.record_pos == all->list[i].record_pos);
}

/* ---- written again as columns ---------------------------------------------------------- */

/* The columns of records whose bytes lie one after another in `data`. */
typedef struct {
    kl_buffer keys, values, names, header_values;
    int32_t *key_lengths, *value_lengths, *header_counts;
    kl_buffer name_lengths, header_lengths;
    int64_t *times;
    int64_t header_total;
} columns_of;

static void add_bytes(kl_buffer *data, const uint8_t *bytes, int64_t length) {
    if (length > 0) WANT(kl_buffer_append(data, bytes, (size_t)length) == KL_OK);
}

static void add_headers(columns_of *out, const uint8_t *p, const uint8_t *end,
                        int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        kl_header_view header;
        p = kl_header_next(p, end, &header);
        WANT(p != NULL);
        add_bytes(&out->names, header.name, header.name_bytes);
        add_bytes(&out->header_values, header.value, header.value_bytes);
        add_bytes(&out->name_lengths, (const uint8_t *)&header.name_bytes, 4);
        add_bytes(&out->header_lengths, (const uint8_t *)&header.value_bytes, 4);
    }
    WANT(p == end);
    out->header_total += count;
}

static void take_columns(const records_list *all, const uint8_t *records, columns_of *out) {
    *out = (columns_of){.key_lengths = calloc(all->count, 4),
                        .value_lengths = calloc(all->count, 4),
                        .header_counts = calloc(all->count, 4),
                        .times = calloc(all->count, 8)};
    for (size_t i = 0; i < all->count; i++) {
        const kl_record *record = &all->list[i];
        out->key_lengths[i] = (int32_t)record->key_bytes;
        out->value_lengths[i] = (int32_t)record->value_bytes;
        out->header_counts[i] = record->header_count;
        out->times[i] = KL_MAX(record->timestamp_ms, (int64_t)-1); /* no column has less */
        add_bytes(&out->keys, records + record->key_pos, record->key_bytes);
        add_bytes(&out->values, records + record->value_pos, record->value_bytes);
        add_headers(out, records + record->headers_pos,
                    records + record->record_pos + record->record_bytes,
                    record->header_count);
    }
}

static void free_columns(columns_of *columns) {
    free(columns->key_lengths);
    free(columns->value_lengths);
    free(columns->header_counts);
    free(columns->times);
    kl_buffer *buffers[] = {&columns->keys,         &columns->values,
                            &columns->names,        &columns->header_values,
                            &columns->name_lengths, &columns->header_lengths};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kl_buffer_free(buffers[i]);
}

static kl_bytes_column lengths_column(const kl_buffer *data, const void *lengths,
                                      size_t count) {
    return (kl_bytes_column){.kind = KL_BYTES_LENGTHS32,
                             .data = data->data,
                             .data_bytes = data->bytes,
                             .index = lengths,
                             .index_count = count};
}

static bool same_bytes(const uint8_t *a, int64_t a_pos, int64_t a_bytes, const uint8_t *b,
                       int64_t b_pos, int64_t b_bytes) {
    return a_bytes == b_bytes &&
           (a_bytes <= 0 || memcmp(a + a_pos, b + b_pos, (size_t)a_bytes) == 0);
}

/* The encoder's output decodes to the same records, from one batch or several. */
static void encode_again(const records_list *all, const uint8_t *records, size_t bytes) {
    columns_of c;
    take_columns(all, records, &c);
    kl_columns columns = {
        .count = (int64_t)all->count,
        .key = lengths_column(&c.keys, c.key_lengths, all->count),
        .value = lengths_column(&c.values, c.value_lengths, all->count),
        .timestamp_ms = c.times,
        .header_count = c.header_counts,
        .header_total = c.header_total,
        .header_name =
            lengths_column(&c.names, c.name_lengths.data, (size_t)c.header_total),
        .header_value =
            lengths_column(&c.header_values, c.header_lengths.data, (size_t)c.header_total),
    };
    size_t room = POS_RECORDS + bytes + 40 * all->count;
    uint8_t *out = malloc(room);
    kl_cursor cursor = {0};
    for (size_t seen = 0; seen < all->count;) {
        kl_encoded encoded;
        kl_stamp stamp = {.producer_id = -1};
        kl_batch batch;
        int64_t pos = 0;
        WANT(kl_encode_records(&columns, &cursor, out + POS_RECORDS, room - POS_RECORDS, 5,
                               &encoded) == KL_OK);
        WANT(kl_batch_seal(out, room, &encoded, &stamp) == KL_OK);
        WANT(kl_batch_check(out, POS_RECORDS + encoded.records_bytes, &batch) == KL_OK);
        WANT(kl_records_check(&batch, out + POS_RECORDS, encoded.records_bytes, 1, NULL,
                              NULL) == KL_OK);
        for (int32_t i = 0; i < encoded.record_count; i++, seen++) {
            kl_record record, was = all->list[seen];
            int32_t count;
            WANT(kl_records_decode(&batch, out + POS_RECORDS, encoded.records_bytes, &pos,
                                   &record, 1, &count) == KL_OK &&
                 count == 1);
            const uint8_t *there = out + POS_RECORDS;
            WANT(record.timestamp_ms == KL_MAX(was.timestamp_ms, (int64_t)-1));
            WANT(record.offset == i);
            WANT(same_bytes(records, was.key_pos, was.key_bytes, there, record.key_pos,
                            record.key_bytes));
            WANT(same_bytes(records, was.value_pos, was.value_bytes, there,
                            record.value_pos, record.value_bytes));
            WANT(record.header_count == was.header_count);
        }
    }
    WANT(cursor.row == columns.count && cursor.header_row == c.header_total);
    free(out);
    free_columns(&c);
}

void fuzz_records(const kl_batch *batch, const uint8_t *records, size_t bytes) {
    records_list all = {0};
    int64_t largest = 0;
    kl_status strict = kl_records_check(batch, records, bytes, 1, NULL, NULL);
    kl_status loose = kl_records_check(batch, records, bytes, 0, NULL, &largest);
    const kl_record_rules need_keys = {0, INT64_MAX, INT64_MAX, 1};
    kl_status keyed = kl_records_check(batch, records, bytes, 0, &need_keys, NULL);
    kl_status decoded = decode_all(batch, records, bytes, &all);
    WANT(strict != KL_OK || loose == KL_OK);
    WANT(keyed != KL_OK || loose == KL_OK);
    WANT(decoded == KL_OK || loose != KL_OK);
    if (loose == KL_OK) {
        int64_t max = -1;
        bool stamped = batch->attributes & KL_ATTR_LOG_APPEND_TIME;
        WANT(all.count == (size_t)batch->record_count);
        for (size_t i = 0; i < all.count; i++) {
            max = KL_MAX(max, all.list[i].timestamp_ms);
            WANT(i == 0 || all.list[i].offset > all.list[i - 1].offset);
            WANT(strict != KL_OK || all.list[i].offset == batch->base_offset + (int64_t)i);
            WANT(all.list[i].offset <= batch->last_offset);
        }
        WANT(stamped || max == largest);
    }
    if (decoded == KL_OK) {
        find_agrees(batch, records, bytes, &all, INT64_MIN, batch->base_offset);
        find_agrees(batch, records, bytes, &all, INT64_MAX, 0);
        for (size_t i = 0; i < all.count; i += 1 + all.count / 4)
            find_agrees(batch, records, bytes, &all, all.list[i].timestamp_ms,
                        all.list[all.count / 2].offset);
        if (all.count > 0) encode_again(&all, records, bytes);
    }
    free(all.list);
}
