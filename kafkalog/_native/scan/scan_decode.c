/* scan_decode.c: selects the batches of a scan, and decodes their records into blocks.
 *
 * A scan spends its time in the loop over records, so space for the whole batch is made before
 * it. */
#include "batch/record_next.h"
#include "scan.h"

enum {
    RECORD_BYTES_MIN = 7,     /* one byte per field of a record */
    HEADER_ROWS_MAX = 1 << 20 /* rows trusted from a compressed batch's header */
};

/* ---- which batches ------------------------------------------------------------------- */

kl_aborted *kl_scan_aborted_at(const kl_scan *scan, int64_t producer_id, int64_t offset) {
    size_t low = 0, high = scan->aborted_count; /* `low`: first entry after it */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const kl_aborted *entry = &scan->aborted[middle];
        bool after = entry->producer_id != producer_id ? entry->producer_id > producer_id
                                                       : entry->first_offset > offset;
        if (after) high = middle;
        else low = middle + 1;
    }
    KL_ASSERT(low <= scan->aborted_count);
    if (low == 0) return NULL;
    /* Transactions of one producer do not overlap. */
    kl_aborted *entry = &scan->aborted[low - 1];
    bool within = entry->producer_id == producer_id && offset <= entry->last_offset;
    return within ? entry : NULL;
}

/* True if the batch's transaction was aborted. */
static bool is_aborted(const kl_scan *scan, const kl_batch *batch) {
    return kl_batch_is_transactional(batch) &&
           kl_scan_aborted_at(scan, batch->producer_id, batch->base_offset) != NULL;
}

static bool is_dense(const kl_batch *batch) {
    return (int64_t)batch->record_count == (int64_t)batch->last_offset_delta + 1;
}

static bool is_append_time(const kl_batch *batch) {
    return batch->attributes & KL_ATTR_LOG_APPEND_TIME;
}

/* True if the rows need only the header. */
static bool header_does(const kl_scan *scan, const kl_batch *batch) {
    const kl_scan_options *options = &scan->options;
    int32_t columns = options->columns;
    if (columns & (KL_COL_KEY | KL_COL_VALUE | KL_COL_HEADERS)) return false;
    if (options->key_match != KL_KEY_ANY) return false;
    bool timed = columns & (KL_COL_TIMESTAMP | KL_COL_TIMESTAMP_MS) ||
                 options->start_time_ms != INT64_MIN || options->stop_time_ms != INT64_MAX;
    if (timed && !is_append_time(batch)) return false;
    bool whole = batch->base_offset >= options->start_offset &&
                 batch->last_offset < options->stop_offset;
    if ((columns & KL_COL_OFFSET || !whole) && !is_dense(batch)) return false;
    if (columns == 0) return true;
    return kl_batch_codec(batch)
               ? batch->record_count <= HEADER_ROWS_MAX
               : batch->record_count <= batch->batch_bytes / RECORD_BYTES_MIN;
}

kl_batch_use kl_scan_judge(const kl_scan *scan, const kl_batch *batch) {
    const kl_scan_options *options = &scan->options;
    if (batch->record_count <= 0) return KL_USE_NOTHING; /* emptied by compaction */
    if (batch->last_offset < options->start_offset) return KL_USE_NOTHING;
    if (batch->base_offset >= options->stop_offset) return KL_USE_NOTHING;
    if (kl_batch_is_control(batch) && !options->control) return KL_USE_NOTHING;
    if (batch->max_timestamp < options->start_time_ms) return KL_USE_NOTHING;
    if (is_append_time(batch) && batch->max_timestamp >= options->stop_time_ms)
        return KL_USE_NOTHING;
    if (is_aborted(scan, batch)) return KL_USE_NOTHING;
    return header_does(scan, batch) ? KL_USE_HEADER : KL_USE_RECORDS;
}

/* ---- rows ---------------------------------------------------------------------------- */

static int64_t microseconds(int64_t ms) {
    int64_t us;
    /* Clamp timestamps beyond the year 292,000. */
    if (__builtin_mul_overflow(ms, (int64_t)1000, &us))
        return ms < 0 ? INT64_MIN : INT64_MAX;
    return us;
}

static void fill32(int32_t *array, int64_t from, int64_t to, int32_t value) {
    for (int64_t i = from; i < to; i++) array[i] = value;
}

/* The columns with one value for all rows [from, to) of a batch. */
static void fill_batch_columns(kl_block *block, const kl_batch *batch, int64_t from,
                               int64_t to) {
    if (block->columns & KL_COL_TIMESTAMP_TYPE)
        fill32(block->timestamp_type, from, to, is_append_time(batch) ? 1 : 0);
    if (block->columns & KL_COL_LEADER_EPOCH)
        fill32(block->leader_epoch, from, to, batch->leader_epoch);
}

kl_status kl_scan_seal(kl_scan *scan) {
    kl_block *block = scan->filling;
    if (block == NULL || block->rows == 0) return KL_OK;
    kl_status status = kl_block_seal(block, &scan->constants);
    if (status) return status;
    KL_ASSERT(block->next == NULL);
    scan->filling = NULL;
    if (scan->full_first == NULL) scan->full_first = block;
    else scan->full_last->next = block;
    scan->full_last = block;
    return KL_OK;
}

kl_status kl_scan_begin(kl_scan *scan) {
    if (scan->filling != NULL) return KL_OK;
    return kl_block_new(scan->own_pool ? scan->own_pool : scan->shared_pool,
                        &scan->filling);
}

/* Have a block with space for `rows` more rows and `bytes` more in each byte column. */
static kl_status make_room(kl_scan *scan, int64_t rows, size_t bytes) {
    kl_block *block = scan->filling;
    if (block != NULL && bytes > KL_BLOCK_BYTES_MAX - kl_block_bytes(block)) {
        kl_status status = kl_scan_seal(scan);
        if (status) return status;
    }
    kl_status status = kl_scan_begin(scan);
    if (status) return status;
    return kl_block_reserve(scan->filling, rows, bytes);
}

kl_status kl_scan_from_header(kl_scan *scan, const kl_batch *batch) {
    int64_t first = KL_MAX(batch->base_offset, scan->options.start_offset);
    int64_t last = KL_MIN(batch->last_offset, scan->options.stop_offset - 1);
    int64_t rows = is_dense(batch) ? last - first + 1 : batch->record_count;
    KL_ASSERT(rows > 0); /* judged so */
    if (scan->options.columns == 0) {
        scan->counted += rows;
        return KL_OK;
    }
    kl_status status = make_room(scan, rows, 0);
    if (status) return status;
    kl_block *block = scan->filling;
    int64_t from = block->rows, to = from + rows;
    KL_ASSERT(to <= block->row_capacity);
    if (block->columns & KL_COL_OFFSET)
        for (int64_t i = 0; i < rows; i++) block->offset[from + i] = first + i;
    bool micro = block->columns & KL_COL_TIMESTAMP;
    if (block->columns & (KL_COL_TIMESTAMP | KL_COL_TIMESTAMP_MS)) {
        int64_t stamp = micro ? microseconds(batch->max_timestamp) : batch->max_timestamp;
        for (int64_t i = from; i < to; i++) block->timestamp[i] = stamp;
    }
    fill_batch_columns(block, batch, from, to);
    block->rows = to;
    return KL_OK;
}

/* A header's name: Arrow's strings are UTF-8, so ill-formed bytes are replaced, as in Java. */
static kl_status put_name(kl_strings *names, int64_t row, const kl_header_view *header) {
    const uint8_t *p = header->name, *end = p + header->name_bytes;
    kl_status status = kl_strings_reserve(names, 3 * (size_t)header->name_bytes);
    if (status) return status;
    if (KL_LIKELY(kl_utf8_valid(p, (size_t)header->name_bytes))) {
        kl_strings_put(names, row, p, header->name_bytes);
    } else {
        while (p < end) {
            bool valid;
            size_t bytes = kl_utf8_next(p, end, &valid);
            memcpy(names->data + names->data_bytes,
                   valid ? p : (const uint8_t *)"\xef\xbf\xbd", valid ? bytes : 3);
            names->data_bytes += valid ? bytes : 3;
            p += bytes;
        }
        names->offsets[row + 1] = (int32_t)names->data_bytes;
    }
    return KL_OK;
}

/* Add the headers of the record that ends at `end` as rows of the list's child. */
static kl_status put_headers(kl_block *block, const kl_record_view *record,
                             const uint8_t *end) {
    const uint8_t *p = record->headers;
    for (int32_t i = 0; i < record->header_count; i++) {
        kl_header_view header;
        p = kl_header_next(p, end, &header);
        if (p == NULL) return kl_fail(KL_E_CORRUPT_MESSAGE, "header %d is cut off", i);
        if (KL_BLOCK_BYTES_MAX - kl_block_bytes(block) <
            3 * (size_t)header.name_bytes + (size_t)KL_MAX(header.value_bytes, 0))
            return kl_fail(KL_E_MESSAGE_TOO_LARGE, "headers above 2 GiB in one batch");
        kl_status status = kl_block_reserve_headers(block, 1);
        if (!status) status = put_name(&block->name, block->headers, &header);
        if (!status)
            status = kl_strings_reserve(&block->header_value,
                                        (size_t)KL_MAX(header.value_bytes, 0));
        if (status) return status;
        KL_ASSERT(block->headers < block->header_capacity);
        kl_strings_put(&block->header_value, block->headers, header.value,
                       header.value_bytes);
        block->headers++;
    }
    if (p != end) return kl_fail(KL_E_CORRUPT_MESSAGE, "its headers end before it does");
    return KL_OK;
}

static kl_status put_list(kl_block *block, int64_t row, const kl_record_view *record,
                          const uint8_t *end) {
    kl_status status = KL_OK;
    if (record->header_count > 0) status = put_headers(block, record, end);
    else {
        block->list_validity[row >> 3] &= (uint8_t)~(1u << (row & 7));
        block->list_nulls++;
    }
    block->list_offsets[row + 1] = (int32_t)block->headers;
    return status;
}

/* A block's state to restore when a batch is damaged. */
typedef struct {
    kl_strings key, value, bytes, name, header_value;
    size_t view_bytes;
    int64_t headers, list_nulls;
} block_mark;

static block_mark mark(const kl_block *block) {
    if (block == NULL) return (block_mark){.headers = 0};
    return (block_mark){
        .key = block->key,
        .value = block->value,
        .bytes = block->bytes,
        .view_bytes = block->view_bytes,
        .name = block->name,
        .header_value = block->header_value,
        .headers = block->headers,
        .list_nulls = block->list_nulls,
    };
}

static void strings_back(kl_strings *strings, const kl_strings *to) {
    KL_ASSERT(strings->data_bytes >= to->data_bytes);
    strings->data_bytes = to->data_bytes;
    strings->null_count = to->null_count;
}

static void roll_back(kl_block *block, const block_mark *to) {
    strings_back(&block->key, &to->key);
    strings_back(&block->value, &to->value);
    strings_back(&block->bytes, &to->bytes);
    block->view_bytes = to->view_bytes;
    strings_back(&block->name, &to->name);
    strings_back(&block->header_value, &to->header_value);
    block->headers = to->headers;
    block->list_nulls = to->list_nulls;
}

typedef struct {
    int64_t rows;    /* rows added; set on success */
    int32_t records; /* read so far */
    bool disordered; /* offsets do not grow, leave the batch, or bytes remain */
} progress;

/* True if a record matches the range, the times and the key. */
static inline bool is_wanted(const kl_scan_options *options, int64_t offset, int64_t stamp,
                             const kl_record_view *view) {
    if (offset < options->start_offset || offset >= options->stop_offset ||
        stamp < options->start_time_ms || stamp >= options->stop_time_ms)
        return false;
    if (options->key_match == KL_KEY_ANY) return true;
    bool fits = options->key_match == KL_KEY_EQUAL ? view->key_bytes == options->key_bytes
                                                   : view->key_bytes >= options->key_bytes;
    return fits && memcmp(view->key, options->key, (size_t)options->key_bytes) == 0;
}

/* Put the key or value of row `row`. */
static inline void put_bytes(kl_block *block, kl_strings *strings, int64_t row,
                             const uint8_t *data, int32_t bytes, bool there) {
    if (block->columns & KL_COL_VIEWS)
        kl_views_put(block, strings, row, data, bytes, there);
    else kl_strings_put(strings, row, data, bytes);
}

/* Decode the records into rows block->rows and up.  Forced inline: constant `filtered` and
 * `headers` give four loops, the tightest without any test per record.  `there`: the records are in
 * the block's bytes. */
static inline __attribute__((always_inline)) kl_status put_records(
    kl_block *block, const kl_scan_options *options, const kl_batch *batch, kl_span records,
    bool there, const bool filtered, const bool headers, progress *done) {
    const uint8_t *p = records.data, *end = p + records.bytes;
    const int32_t columns = options->columns;
    const bool append_time = is_append_time(batch), micro = columns & KL_COL_TIMESTAMP;
    int64_t row = block != NULL ? block->rows : 0;
    const int64_t first_row = row;
    int32_t previous = -1;
    int32_t unordered = 0;
    kl_status status = KL_OK;
    for (int32_t i = 0; i < batch->record_count; i++) {
        kl_record_view view;
        p = kl_record_next_here(p, end, false, &view);
        done->records = i;
        if (KL_UNLIKELY(p == NULL))
            return kl_fail(KL_E_CORRUPT_MESSAGE,
                           "its lengths do not agree, or exceed the batch");
        unordered |= view.offset_delta <= previous;
        previous = view.offset_delta;
        int64_t offset = batch->base_offset + view.offset_delta;
        int64_t stamp = append_time ? batch->max_timestamp
                                    : kl_record_timestamp(batch, view.timestamp_delta);
        if (filtered && !is_wanted(options, offset, stamp, &view)) continue;
        if (columns & KL_COL_OFFSET) block->offset[row] = offset;
        if (columns & (KL_COL_TIMESTAMP | KL_COL_TIMESTAMP_MS))
            block->timestamp[row] = micro ? microseconds(stamp) : stamp;
        if (columns & KL_COL_KEY)
            put_bytes(block, &block->key, row, view.key, view.key_bytes, there);
        if (columns & KL_COL_VALUE)
            put_bytes(block, &block->value, row, view.value, view.value_bytes, there);
        if (headers) status = put_list(block, row, &view, p);
        if (KL_UNLIKELY(status)) return status;
        row++;
    }
    done->records = batch->record_count;
    done->rows = row - first_row;
    done->disordered = unordered || previous > batch->last_offset_delta || p != end;
    return KL_OK;
}

static kl_status put_all(kl_block *block, const kl_scan_options *options,
                         const kl_batch *batch, kl_span records, bool there,
                         progress *done) {
    bool filtered = batch->base_offset < options->start_offset ||
                    batch->last_offset >= options->stop_offset ||
                    options->start_time_ms != INT64_MIN ||
                    options->stop_time_ms != INT64_MAX || options->key_match != KL_KEY_ANY;
    bool headers = options->columns & KL_COL_HEADERS;
    if (filtered && headers)
        return put_records(block, options, batch, records, there, true, true, done);
    if (filtered)
        return put_records(block, options, batch, records, there, true, false, done);
    if (headers)
        return put_records(block, options, batch, records, there, false, true, done);
    return put_records(block, options, batch, records, there, false, false, done);
}

kl_status kl_scan_from_records(kl_scan *scan, const kl_batch *batch, kl_span records) {
    kl_block *block = NULL;
    progress done = {0, 0, false};
    bool there = false;
    kl_status status = KL_OK;
    if (records.bytes > KL_BLOCK_BYTES_MAX)
        return kl_fail(
            KL_E_MESSAGE_TOO_LARGE,
            "%s-%d: the batch at offset %lld has %zu bytes of records, above 2 GiB",
            scan->topic, scan->options.partition, (long long)batch->base_offset,
            records.bytes);
    if (scan->options.columns) {
        int64_t most = (int64_t)(records.bytes / RECORD_BYTES_MIN);
        there = scan->in_block != NULL && scan->in_block == scan->filling;
        status =
            make_room(scan, KL_MIN(batch->record_count, most), there ? 0 : records.bytes);
        if (status) return status;
        block = scan->filling;
    }
    block_mark before = mark(block);
    status = put_all(block, &scan->options, batch, records, there, &done);
    if (status == KL_E_CORRUPT_MESSAGE)
        kl_fail_prefix(status, "%s-%d: the batch at offset %lld: record %d of %d",
                       scan->topic, scan->options.partition, (long long)batch->base_offset,
                       done.records, batch->record_count);
    if (!status && done.disordered)
        status =
            kl_fail(KL_E_CORRUPT_MESSAGE,
                    "%s-%d: the batch at offset %lld: its %d records do not have growing "
                    "offsets up to %lld and fill its %zu bytes",
                    scan->topic, scan->options.partition, (long long)batch->base_offset,
                    batch->record_count, (long long)batch->last_offset, records.bytes);
    if (status && block != NULL) roll_back(block, &before);
    if (status) return status;
    if (block == NULL) {
        scan->counted += done.rows;
        return KL_OK;
    }
    KL_ASSERT(block->rows + done.rows <= block->row_capacity);
    KL_ASSERT(block->view_bytes >= before.view_bytes);
    fill_batch_columns(block, batch, block->rows, block->rows + done.rows);
    block->rows += done.rows;
    scan->chunk_used += block->view_bytes - before.view_bytes;
    return KL_OK;
}
