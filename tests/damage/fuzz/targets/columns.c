/* Target: columns of every kind, with wrong lengths and offsets, into batches. */
#include "fuzz.h"

enum { ROWS_MAX = 300, OUT_BYTES_MAX = 1 << 12, CALLS_MAX = 400 };

/* A column of `count` rows over separate memory of exactly the claimed size. */
typedef struct {
    kl_bytes_column column;
    uint8_t *data;
    uint8_t *index;
    uint8_t *validity;
} own_column;

static own_column take_column(kl_span *input, int64_t count) {
    own_column own = {.column.kind = (kl_bytes_kind)fuzz_below(input, KL_BYTES_FIXED + 1)};
    kl_bytes_column *column = &own.column;
    size_t width = column->kind == KL_BYTES_OFFSETS64 ? 8 : 4;
    uint8_t flags = fuzz_u8(input);
    kl_span data = fuzz_take(input, fuzz_u8(input));
    column->data = own.data = fuzz_copy(data);
    column->data_bytes = data.bytes;
    column->fixed_bytes = flags & 1 ? fuzz_i64(input) : (int64_t)(fuzz_u8(input) % 8);
    size_t wanted = (size_t)count + (column->kind == KL_BYTES_LENGTHS32 ? 0 : 1);
    if (flags & 2) wanted = fuzz_u8(input);
    own.index = calloc(wanted + 1, width);
    column->index = own.index;
    column->index_count = wanted;
    for (size_t i = 0; i < wanted; i++) { /* small, growing numbers are valid */
        uint8_t step = fuzz_u8(input);
        int64_t value =
            column->kind == KL_BYTES_LENGTHS32 ? step % 16 - 1 : (int64_t)(i * 2);
        if (step == 255) value = fuzz_i64(input);
        int32_t narrow = (int32_t)value;
        memcpy(own.index + i * width, width == 8 ? (void *)&value : (void *)&narrow, width);
    }
    if (flags & 4) {
        column->validity_shift = flags >> 5;
        size_t bytes = ((size_t)column->validity_shift + (size_t)count + 7) / 8;
        own.validity = calloc(bytes + 1, 1);
        kl_span bits = fuzz_take(input, bytes);
        if (bits.bytes) memcpy(own.validity, bits.data, bits.bytes);
        column->validity = own.validity;
    }
    return own;
}

static void free_column(own_column *own) {
    free(own->data);
    free(own->index);
    free(own->validity);
}

/* Encode all of it, batch by batch, and check each. */
static void encode(const kl_columns *columns, size_t out_bytes, int32_t max_records) {
    uint8_t *out = malloc(out_bytes + POS_RECORDS);
    kl_cursor cursor = {0};
    for (int call = 0; call < CALLS_MAX && cursor.row < columns->count; call++) {
        kl_encoded encoded;
        kl_batch batch;
        kl_cursor before = cursor;
        kl_stamp stamp = {.producer_id = 5, .base_sequence = (int32_t)cursor.row};
        kl_status status = kl_encode_records(columns, &cursor, out + POS_RECORDS, out_bytes,
                                             max_records, &encoded);
        WANT(cursor.row - before.row == encoded.record_count);
        WANT(encoded.records_bytes <= out_bytes && encoded.record_count <= max_records);
        if (status != KL_OK) {
            WANT(encoded.record_count == 0);
            break;
        }
        WANT(encoded.record_count > 0);
        size_t size = POS_RECORDS + encoded.records_bytes;
        WANT(kl_batch_seal(out, size, &encoded, &stamp) == KL_OK);
        WANT(kl_batch_check(out, size, &batch) == KL_OK);
        WANT((size_t)batch.batch_bytes == size &&
             batch.record_count == encoded.record_count);
        WANT(kl_records_check(&batch, out + POS_RECORDS, encoded.records_bytes, 1, NULL,
                              NULL) == KL_OK);
        fuzz_records(&batch, out + POS_RECORDS, encoded.records_bytes);
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_span input = {data, bytes};
    uint8_t flags = fuzz_u8(&input);
    kl_columns columns = {.count = fuzz_below(&input, ROWS_MAX)};
    size_t out_bytes = fuzz_below(&input, OUT_BYTES_MAX);
    int32_t max_records = 1 + (int32_t)fuzz_below(&input, 200);
    int64_t *times = NULL;
    int32_t *counts = NULL;
    own_column own[4] = {take_column(&input, columns.count),
                         take_column(&input, columns.count)};
    columns.key = own[0].column;
    columns.value = own[1].column;
    columns.default_timestamp_ms = flags & 1 ? fuzz_i64(&input) : 1700000000000;
    if (flags & 2) {
        times = calloc((size_t)columns.count + 1, sizeof *times);
        for (int64_t i = 0; i < columns.count; i++) times[i] = fuzz_i64(&input);
        columns.timestamp_ms = times;
    }
    if (flags & 4) {
        counts = calloc((size_t)columns.count + 1, sizeof *counts);
        for (int64_t i = 0; i < columns.count; i++) {
            counts[i] = (int8_t)fuzz_u8(&input) % 4;
            columns.header_total += counts[i];
        }
        columns.header_total = KL_MAX(columns.header_total, (int64_t)0);
        columns.header_count = counts;
        own[2] = take_column(&input, columns.header_total);
        own[3] = take_column(&input, columns.header_total);
        columns.header_name = own[2].column;
        columns.header_value = own[3].column;
    }
    encode(&columns, out_bytes, max_records);
    for (int i = 0; i < 4; i++) free_column(&own[i]);
    free(times);
    free(counts);
    return 0;
}
