/* scan.c: a scan's range, its reads, and the steps that its caller takes. */
#include "scan.h"
#include "batch/record.h"
#include "log/read.h"

enum {
    ROWS_DEFAULT = 32768,
    BYTES_DEFAULT = 8 << 20,
    ROWS_MAX = 1 << 24,
    CHUNK_BYTES_FIRST = 16 << 10, /* often a single record is wanted */
    CHUNK_BYTES = 256 << 10,      /* stays in the second-level cache from read to decode */
    CHUNK_BYTES_LARGE = 1 << 20,  /* for batches that fill a chunk badly */
    CHUNK_BYTES_MAX = 8 << 20,
    IDLE_BLOCKS = 4,        /* a consumer rarely holds more blocks than that at once */
    CHUNK_BATCHES = 8,      /* compressed batches wanted per read */
    PAUSE_BYTES = 32 << 20, /* some 20 ms of reading */
    HEADERS_ROOM = 512,
    HEADER_READ_BYTES = 4096 /* one header costs as much as this many bytes in bulk */
};

/* ---- open ---------------------------------------------------------------------------- */

static int compare_aborted(const void *left, const void *right) {
    const kl_aborted *a = left, *b = right;
    if (a->producer_id != b->producer_id) return a->producer_id < b->producer_id ? -1 : 1;
    return (a->first_offset > b->first_offset) - (a->first_offset < b->first_offset);
}

void kl_scan_sort_aborted(kl_scan *scan) {
    if (scan->aborted_count > 1)
        qsort(scan->aborted, scan->aborted_count, sizeof *scan->aborted, compare_aborted);
}

/* The aborted transactions of the whole range. */
static kl_status load_aborted(kl_scan *scan) {
    size_t count = 0, room = 0;
    kl_status status = kl_log_aborted(scan->log, scan->position, scan->options.stop_offset,
                                      NULL, 0, &count);
    while (!status && count > room) { /* more may have been added since */
        kl_aborted *more = kl_resize(scan->aborted, count * sizeof *more);
        if (more == NULL)
            return kl_fail(KL_E_NO_MEMORY, "a list of %zu aborted transactions", count);
        scan->aborted = more;
        room = count;
        status = kl_log_aborted(scan->log, scan->position, scan->options.stop_offset, more,
                                room, &count);
    }
    if (status) return status;
    scan->aborted_count = count;
    kl_scan_sort_aborted(scan);
    return KL_OK;
}

/* Skip to the first record of the time window: earlier batches are never read. */
static kl_status skip_to_time(kl_scan *scan) {
    kl_found found;
    memset(&found, 0, sizeof found);
    kl_status status = kl_log_find_time(scan->log, scan->options.start_time_ms, &found);
    if (status) return status;
    int64_t first = found.offset;
    if (found.inflate) { /* in that batch, or after it */
        size_t bytes = 0;
        kl_batch batch;
        KL_ASSERT(found.batch_bytes > 0);
        status = kl_buffer_reserve(&scan->memory, (size_t)found.batch_bytes);
        if (!status)
            status = kl_log_read_at(scan->log, found.segment_base_offset, found.pos,
                                    scan->memory.data, scan->memory.capacity, &bytes);
        if (!status) status = kl_batch_parse(scan->memory.data, bytes, &batch);
        if (status) return status;
        first = batch.base_offset;
    } else if (first < 0) {
        first = scan->options.stop_offset;
    }
    scan->position = KL_MIN(KL_MAX(scan->position, first), scan->options.stop_offset);
    return KL_OK;
}

/* Fix the range: from here on appends do not change what the scan sees. */
static kl_status resolve_range(kl_scan *scan) {
    kl_scan_options *options = &scan->options;
    KL_ASSERT(scan->log != NULL && scan->topic != NULL);
    kl_log_state state;
    kl_status status = kl_log_get(scan->log, &state);
    if (status) return status;
    if (options->start_offset == -1) options->start_offset = state.log_start_offset;
    if (options->start_offset < state.log_start_offset ||
        options->start_offset > state.log_end_offset)
        return kl_fail(KL_E_OFFSET_OUT_OF_RANGE,
                       "%s-%d: offset %lld is not in the log, which is [%lld, %lld)",
                       scan->topic, options->partition, (long long)options->start_offset,
                       (long long)state.log_start_offset, (long long)state.log_end_offset);
    int64_t end = state.high_watermark;
    if (options->bound == KL_COMMITTED) end = state.last_stable_offset;
    if (options->bound == KL_LOG_END) end = state.log_end_offset;
    if (options->stop_offset == -1 || options->stop_offset > end)
        options->stop_offset = end;
    scan->position = options->start_offset;
    if (scan->position >= options->stop_offset) return KL_OK;
    if (options->start_time_ms > 0) status = skip_to_time(scan);
    scan->generation = state.generation;
    if (!status && options->bound == KL_COMMITTED) status = load_aborted(scan);
    return status;
}

/* If a truncation may have replaced the known aborted transactions, load them again: *changed. */
static kl_status follow_truncation(kl_scan *scan, bool *changed) {
    kl_log_state state;
    *changed = false;
    if (scan->options.bound != KL_COMMITTED) return KL_OK;
    kl_status status = kl_log_get(scan->log, &state);
    if (status || state.generation == scan->generation) return status;
    *changed = true;
    scan->generation = state.generation;
    return load_aborted(scan);
}

static kl_status check_options(const kl_scan_options *options) {
    if (options->start_offset < -1)
        return kl_fail(KL_E_ARGUMENT, "start offset %lld: wanted -1 or above",
                       (long long)options->start_offset);
    if (options->stop_offset < -1)
        return kl_fail(KL_E_ARGUMENT, "stop offset %lld: wanted -1 or above",
                       (long long)options->stop_offset);
    int32_t known = KL_COL_ALL | KL_COL_LEADER_EPOCH | KL_COL_TIMESTAMP_MS | KL_COL_VIEWS;
    if (options->columns & ~known ||
        (options->columns & KL_COL_TIMESTAMP && options->columns & KL_COL_TIMESTAMP_MS))
        return kl_fail(KL_E_ARGUMENT, "columns %d: wanted a sum of KL_COL_ bits",
                       options->columns);
    if (options->bound < KL_UNCOMMITTED || options->bound > KL_LOG_END)
        return kl_fail(KL_E_ARGUMENT, "bound %d: wanted 0, 1 or 2", options->bound);
    if (options->max_rows < 0 || options->max_rows > ROWS_MAX)
        return kl_fail(KL_E_ARGUMENT, "max_rows %d: wanted 0 to %d", options->max_rows,
                       ROWS_MAX);
    if (options->max_bytes < 0 || options->max_bytes > INT32_MAX)
        return kl_fail(KL_E_ARGUMENT, "max_bytes %lld: wanted 0 to %d",
                       (long long)options->max_bytes, INT32_MAX);
    if (options->pool != NULL && options->pool->columns != options->columns)
        return kl_fail(KL_E_ARGUMENT, "columns %d: those of the pool are %d",
                       options->columns, options->pool->columns);
    if (options->key_match < KL_KEY_ANY || options->key_match > KL_KEY_PREFIX ||
        options->key_bytes < 0)
        return kl_fail(KL_E_ARGUMENT, "key_match %d of %d bytes: wanted 0 to 2 and above 0",
                       options->key_match, options->key_bytes);
    if (options->topic == NULL) return kl_fail(KL_E_ARGUMENT, "topic is NULL");
    return KL_OK;
}

kl_status kl_scan_make(const kl_scan_options *options, kl_scan **out) {
    kl_scan *scan = kl_alloc(sizeof *scan);
    *out = scan;
    if (scan == NULL) return kl_fail(KL_E_NO_MEMORY, "a scan");
    scan->options = *options;
    if (options->max_rows == 0) scan->options.max_rows = ROWS_DEFAULT;
    if (options->max_bytes == 0) scan->options.max_bytes = BYTES_DEFAULT;
    scan->options.topic = NULL;
    if (options->key_match != KL_KEY_ANY) {
        scan->key = kl_alloc((size_t)options->key_bytes);
        if (scan->key == NULL) return kl_fail(KL_E_NO_MEMORY, "a scan's key");
        if (options->key_bytes > 0)
            memcpy(scan->key, options->key, (size_t)options->key_bytes);
    }
    scan->options.key = scan->key;
    if (options->pool == NULL)
        return kl_block_pool_new(options->columns, IDLE_BLOCKS, &scan->own_pool);
    scan->shared_pool = kl_block_pool_retain(options->pool);
    return KL_OK;
}

kl_status kl_scan_name(kl_scan *scan, const char *topic, int32_t partition) {
    if (scan->topic != NULL && scan->options.partition == partition &&
        strcmp(scan->topic, topic) == 0)
        return KL_OK;
    size_t topic_bytes = strlen(topic);
    char *copy = kl_alloc(topic_bytes + 1);
    if (copy == NULL) return kl_fail(KL_E_NO_MEMORY, "a scan");
    memcpy(copy, topic, topic_bytes);
    kl_constants *constants = NULL;
    kl_status status =
        kl_constants_new((const uint8_t *)copy, topic_bytes, partition, 1, &constants);
    if (status) {
        kl_release(copy);
        return status;
    }
    kl_constants_drop(scan->constants);
    kl_release(scan->topic);
    scan->constants = constants;
    scan->topic = copy;
    scan->options.topic = copy;
    scan->options.partition = partition;
    return KL_OK;
}

kl_status kl_scan_open(kl_log *log, const kl_scan_options *options, kl_scan **out) {
    *out = NULL;
    kl_scan *scan = NULL;
    kl_status status = check_options(options);
    if (!status) status = kl_scan_make(options, &scan);
    if (!status) status = kl_scan_name(scan, options->topic, options->partition);
    if (!status) {
        scan->log = log;
        scan->chunk_wanted = CHUNK_BYTES_FIRST;
        status = resolve_range(scan);
    }
    if (status) {
        kl_scan_free(scan);
        return status;
    }
    *out = scan;
    return KL_OK;
}

void kl_scan_drop_rows(kl_scan *scan) {
    kl_block_free(scan->filling);
    scan->filling = NULL;
    for (kl_block *block; (block = scan->full_first) != NULL;) {
        scan->full_first = block->next;
        kl_block_free(block);
    }
}

void kl_scan_free(kl_scan *scan) {
    if (scan == NULL) return;
    kl_scan_drop_rows(scan);
    kl_block_pool_free(scan->own_pool);
    kl_block_pool_drop(scan->shared_pool);
    kl_constants_drop(scan->constants);
    kl_block_free(scan->in_block);
    kl_buffer_free(&scan->memory);
    kl_buffer_free(&scan->joined);
    kl_release(scan->headers);
    kl_release(scan->pending);
    kl_release(scan->aborted);
    kl_release(scan->topic);
    kl_release(scan->key);
    kl_release(scan);
}

int64_t kl_scan_position(const kl_scan *scan) { return scan->position; }
int64_t kl_scan_count(const kl_scan *scan) { return scan->counted; }
int64_t kl_scan_end_offset(const kl_scan *scan) { return scan->options.stop_offset; }

/* ---- blocks -------------------------------------------------------------------------- */

static kl_status seal_when_full(kl_scan *scan) {
    const kl_block *block = scan->filling;
    if (block == NULL) return KL_OK;
    size_t bytes = kl_block_bytes(block);
    KL_ASSERT(scan->chunk_pos <= scan->chunk.bytes);
    if (block == scan->in_block) {
        KL_ASSERT(bytes >= scan->chunk.bytes - scan->chunk_pos);
        bytes -= scan->chunk.bytes - scan->chunk_pos;
    }
    bool full =
        block->rows >= scan->options.max_rows || bytes >= (size_t)scan->options.max_bytes;
    return full ? kl_scan_seal(scan) : KL_OK;
}

kl_status kl_scan_take(kl_scan *scan, kl_block **out) {
    *out = NULL;
    kl_status status = scan->full_first ? KL_OK : kl_scan_seal(scan);
    kl_block *block = scan->full_first;
    if (status || block == NULL) return status;
    scan->full_first = block->next;
    block->next = NULL;
    *out = block;
    return KL_OK;
}

/* ---- steps --------------------------------------------------------------------------- */

/* Drop the used chunk.  If views use most of a chunk, the next one is read into a block. */
static void drop_chunk(kl_scan *scan) {
    if (scan->chunk.bytes > 0)
        scan->into_block = scan->options.columns & KL_COL_VIEWS &&
                           scan->chunk_used >= scan->chunk.bytes / 2;
    kl_block_free(scan->in_block);
    scan->in_block = NULL;
    scan->chunk = (kl_span){NULL, 0};
    scan->chunk_pos = scan->chunk_used = 0;
}

/* Space for the next chunk: in the scan's memory, or at the end of the block's bytes. */
static kl_status make_chunk_room(kl_scan *scan, uint8_t **data, size_t *size) {
    kl_status status = KL_OK;
    size_t wanted = scan->chunk_wanted;
    if (!scan->into_block || wanted > KL_BLOCK_BYTES_MAX) {
        if (scan->memory.capacity < wanted)
            status = kl_buffer_reserve(&scan->memory, wanted);
        *data = scan->memory.data;
        *size = scan->memory.capacity;
        return status;
    }
    if (scan->filling != NULL &&
        wanted > KL_BLOCK_BYTES_MAX - kl_block_bytes(scan->filling))
        status = kl_scan_seal(scan);
    if (!status) status = kl_scan_begin(scan);
    if (!status) status = kl_strings_reserve(&scan->filling->bytes, wanted);
    if (status) return status;
    *data = scan->filling->bytes.data + scan->filling->bytes.data_bytes;
    *size = wanted;
    return KL_OK;
}

/* The first `bytes` of the space hold whole batches; a partial batch after them is read again. */
static void take_chunk(kl_scan *scan, const uint8_t *data, size_t size, size_t bytes) {
    KL_ASSERT(bytes > 0 && bytes <= size);
    KL_ASSERT(scan->chunk.bytes == 0 && scan->in_block == NULL); /* dropped before */
    scan->chunk = (kl_span){data, bytes};
    if (data != scan->memory.data) {
        scan->filling->bytes.data_bytes += bytes;
        KL_ASSERT(scan->filling->bytes.data_bytes <= scan->filling->bytes.data_capacity);
        scan->in_block = kl_block_retain(scan->filling);
    }
    scan->passed_bytes += bytes;
    if (size < CHUNK_BYTES || (size < CHUNK_BYTES_LARGE && bytes < size - size / 4))
        scan->chunk_wanted = 2 * size;
}

/* True if most batches need only their headers. */
static bool counts_headers(const kl_scan *scan) {
    const kl_scan_options *options = &scan->options;
    return options->columns == 0 && options->key_match == KL_KEY_ANY &&
           options->start_time_ms == INT64_MIN && options->stop_time_ms == INT64_MAX;
}

/* Count by headers, up to a batch whose records must be read or that cannot be read: read_chunk
 * reports why. */
static kl_status pass_headers(kl_scan *scan) {
    if (scan->headers == NULL) scan->headers = kl_alloc(HEADERS_ROOM * sizeof(kl_batch));
    if (scan->headers == NULL) return kl_fail(KL_E_NO_MEMORY, "headers of batches");
    kl_headers read = {.batches = scan->headers, .room = HEADERS_ROOM};
    while (scan->position < scan->options.stop_offset && scan->passed_bytes < PAUSE_BYTES) {
        read.offset = scan->position;
        bool changed = false;
        scan->options.start_offset = scan->position; /* as in read_chunk */
        if (kl_log_read_headers(scan->log, scan->options.stop_offset, scan->options.bound,
                                &read))
            return KL_OK;
        kl_status status = follow_truncation(scan, &changed);
        if (status) return status;
        if (changed) continue;
        if (read.count == 0) return KL_OK;
        for (int32_t i = 0; i < read.count; i++) {
            const kl_batch *batch = &read.batches[i];
            kl_batch_use use = kl_scan_judge(scan, batch);
            if (use == KL_USE_RECORDS) return KL_OK;
            if (use == KL_USE_HEADER) status = kl_scan_from_header(scan, batch);
            if (status) return status;
            scan->position = KL_MAX(scan->position, batch->last_offset + 1);
            scan->passed_bytes += HEADER_READ_BYTES;
        }
    }
    return KL_OK;
}

/* Read the next whole batches into the chunk; *end: there are no more. */
static kl_status read_chunk(kl_scan *scan, bool *end) {
    kl_scan_options *options = &scan->options;
    kl_read read;
    drop_chunk(scan);
    *end = scan->log == NULL; /* a scan of memory: the caller gives chunks one by one */
    if (*end) return KL_OK;
    if (counts_headers(scan)) {
        kl_status status = pass_headers(scan);
        if (status || scan->passed_bytes >= PAUSE_BYTES) return status;
    }
    while (scan->position < options->stop_offset) {
        /* After a truncation the batch that contains `position` may begin below it: do not repeat
         * rows. */
        options->start_offset = scan->position;
        uint8_t *data;
        size_t size;
        kl_status status = make_chunk_room(scan, &data, &size);
        if (status) return status;
        status = kl_log_read(scan->log, scan->position, options->stop_offset,
                             options->bound, options->check_crc, data, size, &read);
        if (status == KL_E_BUFFER_TOO_SMALL && read.wanted > size) {
            scan->chunk_wanted = read.wanted;
            continue;
        }
        bool changed = false;
        if (!status) status = follow_truncation(scan, &changed);
        if (status) return status;
        if (changed) continue;
        if (read.bytes > 0) {
            take_chunk(scan, data, size, read.bytes);
            return KL_OK;
        }
        if (read.next_offset > scan->position) {
            scan->position = read.next_offset; /* a gap left by compaction */
            continue;
        }
        if (read.end_offset < options->stop_offset)
            return kl_fail(KL_E_STALE,
                           "%s-%d: the log was truncated at %lld during a scan up to %lld",
                           scan->topic, options->partition, (long long)read.end_offset,
                           (long long)options->stop_offset);
        scan->position = options->stop_offset;
    }
    *end = true;
    return KL_OK;
}

/* The batch at chunk_pos.  A log checks its own batches. */
static kl_status peek_batch(const kl_scan *scan, kl_batch *batch) {
    const uint8_t *data = scan->chunk.data + scan->chunk_pos;
    size_t bytes = scan->chunk.bytes - scan->chunk_pos;
    bool check = scan->log == NULL && scan->options.check_crc;
    return check ? kl_batch_check(data, bytes, batch) : kl_batch_parse(data, bytes, batch);
}

static void pass_batch(kl_scan *scan, const kl_batch *batch) {
    KL_ASSERT((size_t)batch->batch_bytes <= scan->chunk.bytes - scan->chunk_pos);
    scan->chunk_pos += (size_t)batch->batch_bytes;
    scan->position = KL_MAX(scan->position, batch->last_offset + 1);
}

static kl_span body_of(const kl_scan *scan, const kl_batch *batch) {
    kl_span body = {scan->chunk.data + scan->chunk_pos + POS_RECORDS,
                    (size_t)batch->batch_bytes - POS_RECORDS};
    return body;
}

/* Add nothing more to the block that holds the chunk: its bytes must not move. */
static kl_status leave_chunk(kl_scan *scan) {
    if (scan->in_block == NULL || scan->in_block != scan->filling) return KL_OK;
    if (scan->filling->rows > 0) return kl_scan_seal(scan);
    kl_block_free(scan->filling);
    scan->filling = NULL;
    return KL_OK;
}

/* Collect compressed batches, up to one that needs no decompression. */
static kl_status gather(kl_scan *scan, kl_compressed *out, int32_t max, int32_t *count) {
    if (max > scan->pending_capacity) {
        kl_batch *more = kl_resize(scan->pending, (size_t)max * sizeof *more);
        if (more == NULL) return kl_fail(KL_E_NO_MEMORY, "%d compressed batches", max);
        scan->pending = more;
        scan->pending_capacity = max;
    }
    scan->pending_count = scan->pending_next = 0;
    while (scan->pending_count < max && scan->chunk_pos < scan->chunk.bytes) {
        kl_batch *batch = &scan->pending[scan->pending_count];
        kl_status status = peek_batch(scan, batch);
        /* Return the good batches before the error. */
        if (status) return scan->pending_count ? KL_OK : status;
        kl_batch_use use = kl_scan_judge(scan, batch);
        if (use == KL_USE_HEADER || (use == KL_USE_RECORDS && kl_batch_codec(batch) == 0))
            break;
        if (use == KL_USE_RECORDS) {
            kl_span body = body_of(scan, batch);
            kl_compressed *next = &out[scan->pending_count++];
            next->data = body.data;
            next->bytes = body.bytes;
            next->base_offset = batch->base_offset;
            next->codec = kl_batch_codec(batch);
            next->record_count = batch->record_count;
            /* One read should bring enough of them to decode several at once. */
            scan->chunk_wanted = KL_MAX(scan->chunk_wanted,
                                        KL_MIN((size_t)CHUNK_BYTES_MAX,
                                               CHUNK_BATCHES * (size_t)batch->batch_bytes));
        }
        pass_batch(scan, batch);
        *count = scan->pending_count;
    }
    return KL_OK;
}

/* Rows of the batches in the chunk, up to a full block, a compressed batch or its end. */
static kl_status use_chunk(kl_scan *scan, bool *compressed) {
    *compressed = false;
    while (scan->chunk_pos < scan->chunk.bytes && scan->full_first == NULL) {
        kl_batch batch;
        kl_status status = peek_batch(scan, &batch);
        if (status) return status;
        kl_batch_use use = kl_scan_judge(scan, &batch);
        if (use == KL_USE_RECORDS && kl_batch_codec(&batch) != 0) {
            *compressed = true;
            return KL_OK;
        }
        if (use == KL_USE_HEADER) status = kl_scan_from_header(scan, &batch);
        if (use == KL_USE_RECORDS)
            status = kl_scan_from_records(scan, &batch, body_of(scan, &batch));
        if (status) return status;
        pass_batch(scan, &batch);
        status = seal_when_full(scan);
        if (status) return status;
    }
    return KL_OK;
}

/* Return the rows before an error first, and the error at the next step. */
static kl_status fail_after_rows(kl_scan *scan, kl_status status, int32_t *state) {
    if (scan->filling == NULL || scan->filling->rows == 0) return status;
    *state = KL_SCAN_ROWS;
    return kl_scan_seal(scan);
}

kl_status kl_scan_step(kl_scan *scan, kl_compressed *compressed, int32_t max_compressed,
                       int32_t *count, int32_t *state) {
    *count = 0;
    *state = KL_SCAN_ROWS;
    if (max_compressed < 1)
        return kl_fail(KL_E_ARGUMENT, "max_compressed %d: wanted 1 or above",
                       max_compressed);
    if (scan->pending_next < scan->pending_count)
        return kl_fail(KL_E_ARGUMENT, "%d compressed batches were not given to the scan",
                       scan->pending_count - scan->pending_next);
    scan->passed_bytes = 0;
    while (scan->full_first == NULL) {
        kl_status status = KL_OK;
        bool end = false, inflate = false;
        if (scan->chunk_pos < scan->chunk.bytes) {
            status = use_chunk(scan, &inflate);
        } else if (scan->passed_bytes >= PAUSE_BYTES) {
            *state = KL_SCAN_PAUSE;
            return KL_OK;
        } else {
            status = read_chunk(scan, &end);
        }
        if (!status && inflate) {
            status = leave_chunk(scan);
            if (!status) status = gather(scan, compressed, max_compressed, count);
            *state = KL_SCAN_INFLATE;
            if (!status) return KL_OK;
        }
        if (status) return fail_after_rows(scan, status, state);
        if (!end) continue;
        status = kl_scan_seal(scan);
        if (status) return status;
        if (scan->full_first == NULL) *state = KL_SCAN_END;
        return KL_OK;
    }
    return KL_OK;
}

kl_status kl_scan_inflated(kl_scan *scan, int32_t index, const uint8_t *records,
                           size_t bytes) {
    if (index != scan->pending_next || index >= scan->pending_count)
        return kl_fail(KL_E_ARGUMENT, "compressed batch %d: wanted %d of %d", index,
                       scan->pending_next, scan->pending_count);
    kl_span body = {records, bytes};
    size_t used = scan->chunk_used; /* these bytes are not the chunk's */
    kl_status status = kl_scan_from_records(scan, &scan->pending[index], body);
    scan->chunk_used = used;
    if (status) return status;
    scan->pending_next++;
    return seal_when_full(scan);
}
