/* logs.c: whole logs in the fuzz targets: every query, every change. */
#include "log.h"

enum { LIST_MAX = 16, STEPS_MAX = 200, CHANGES_MAX = 24 };

kl_open fuzz_open_for_writing(void) {
    return (kl_open){.mode = KL_WRITE,
                     .recovery_point = -1,
                     .derived_sum = -1,
                     .log_start_offset = -1,
                     .high_watermark = -1,
                     .end_is_high_watermark = 1,
                     .leader_epoch = -1};
}

kl_log_config fuzz_config(kl_span *input) {
    uint8_t flags = fuzz_u8(input);
    return (kl_log_config){
        .segment_bytes = flags & 1 ? 300 : 1 << 20,
        .segment_ms = flags & 2 ? 5 : INT64_MAX,
        .timestamp_before_max_ms = flags & 4 ? 1000 : INT64_MAX,
        .timestamp_after_max_ms = flags & 4 ? 1000 : INT64_MAX,
        .flush_messages = INT64_MAX,
        .segment_index_bytes = flags & 8 ? 24 : 1 << 16,
        .index_interval_bytes = flags & 16 ? 0 : 200,
        .max_message_bytes = flags & 1 ? 300 : 1 << 16,
        .log_append_time = flags >> 5 & 1,
        .preallocate = flags >> 6 & 1,
        .compacted = flags >> 7 & 1,
    };
}

/* ---- queries --------------------------------------------------------------------------- */

static kl_log_state check_state(kl_log *log) {
    kl_log_state state;
    WANT(kl_log_get(log, &state) == KL_OK);
    WANT(state.log_start_offset >= 0);
    WANT(state.log_start_offset <= state.last_stable_offset);
    WANT(state.last_stable_offset <= state.high_watermark);
    WANT(state.high_watermark <= state.log_end_offset);
    WANT(state.flushed_offset <= state.log_end_offset && state.segment_count > 0);
    WANT((state.generation & 1) == 0 || state.generation == -1);
    return state;
}

static void look_at_segments(kl_log *log, const kl_log_state *state) {
    kl_segment_info list[LIST_MAX];
    size_t count;
    kl_status status = kl_log_segments(log, 0, 1, list, LIST_MAX, &count);
    if (status) return;
    WANT(count == (size_t)state->segment_count);
    for (size_t i = 0; i < KL_MIN(count, (size_t)LIST_MAX); i++) {
        bool last = i + 1 == count;
        WANT(list[i].active == last && list[i].size_bytes >= 0);
        WANT(list[i].next_offset >= list[i].base_offset);
        if (last) WANT(list[i].next_offset == state->log_end_offset);
        else if (i + 1 < LIST_MAX) WANT(list[i].next_offset == list[i + 1].base_offset);
        for (int file = KL_FILE_LOG; file <= KL_FILE_TIME_INDEX; file++) {
            kl_view *view;
            if (kl_log_view(log, list[i].base_offset, file, &view)) continue;
            uint8_t sum = 0; /* each byte can be read */
            for (size_t at = 0; at < kl_view_bytes(view); at++)
                sum ^= kl_view_data(view)[at];
            WANT(kl_view_bytes(view) > 0 || sum == 0);
            kl_view_free(view);
        }
    }
}

/* Look up by time; compressed batches are skipped, as if they had no such record.  Returns the
 * timestamp that was found. */
static int64_t look_up(kl_log *log, int64_t timestamp_ms, const kl_log_state *state,
                       bool checked) {
    kl_found found;
    memset(&found, 0, sizeof found);
    kl_status status = KL_OK;
    for (int i = 0; i < STEPS_MAX; i++) {
        status = timestamp_ms == INT64_MIN ? kl_log_find_largest_time(log, &found)
                                           : kl_log_find_time(log, timestamp_ms, &found);
        if (status || !found.inflate) break;
        uint8_t *buffer = malloc((size_t)found.batch_bytes);
        size_t bytes;
        status = kl_log_read_at(log, found.segment_base_offset, found.pos, buffer,
                                (size_t)found.batch_bytes, &bytes);
        WANT(status != KL_OK || bytes == (size_t)found.batch_bytes);
        free(buffer);
        if (status) break;
    }
    if (checked && !status && !found.inflate) WANT(found.offset < state->log_end_offset);
    return found.timestamp_ms;
}

static void look_at_lists(kl_log *log, const kl_log_state *state, int32_t epoch,
                          bool checked) {
    kl_epoch epochs[LIST_MAX];
    kl_producer producers[LIST_MAX];
    kl_aborted aborted[LIST_MAX];
    size_t count;
    int32_t found;
    int64_t end;
    WANT(kl_log_epochs(log, epochs, LIST_MAX, &count) == KL_OK);
    for (size_t i = 0; i < KL_MIN(count, (size_t)LIST_MAX); i++)
        WANT(!checked || epochs[i].start_offset <= state->log_end_offset);
    WANT(kl_log_epoch_end(log, epoch, &found, &end) == KL_OK);
    WANT(!checked || end <= state->log_end_offset);
    if (kl_log_producers(log, producers, LIST_MAX, &count) == KL_OK && count <= LIST_MAX)
        for (size_t i = 1; i < count; i++)
            WANT(producers[i].producer_id > producers[i - 1].producer_id);
    if (kl_log_aborted(log, state->log_start_offset, state->log_end_offset, aborted,
                       LIST_MAX, &count) == KL_OK)
        for (size_t i = 0; i < KL_MIN(count, (size_t)LIST_MAX); i++)
            WANT(aborted[i].last_offset >= state->log_start_offset);
}

static int64_t drain_block(kl_block *block, bool export, bool checked) {
    int64_t rows = kl_block_rows(block);
    WANT(rows > 0);
    if (export) {
        struct ArrowArray array;
        WANT(kl_block_export(block, &array) == KL_OK);
        WANT(array.length == rows);
        array.release(&array);
    }
    kl_block_column offsets;
    if (checked && kl_block_get(block, KL_COL_OFFSET, &offsets) == KL_OK && offsets.data)
        for (int64_t i = 1; i < rows; i++)
            WANT(((const int64_t *)offsets.data)[i] >
                 ((const int64_t *)offsets.data)[i - 1]);
    kl_block_free(block);
    return rows;
}

/* To the end of a scan, or its failure; `input` provides the content of compressed batches. */
static void run_scan(kl_log *log, const kl_scan_options *options, kl_span *input,
                     bool checked) {
    kl_scan *scan;
    if (kl_scan_open(log, options, &scan)) return;
    int64_t rows = 0, position = kl_scan_position(scan);
    for (int i = 0; i < STEPS_MAX; i++) {
        kl_compressed compressed[4];
        int32_t count = 0, state = KL_SCAN_END;
        kl_status status = kl_scan_step(scan, compressed, 4, &count, &state);
        for (kl_block *block; !kl_scan_take(scan, &block) && block != NULL;)
            rows += drain_block(block, options->columns & KL_COL_VALUE, checked);
        if (status || state == KL_SCAN_END) break;
        WANT(kl_scan_position(scan) >= position);
        position = kl_scan_position(scan);
        if (state != KL_SCAN_INFLATE) continue;
        for (int32_t j = 0; j < count && !status; j++) {
            kl_span body = fuzz_take(input, fuzz_u8(input));
            uint8_t *copy = fuzz_copy(body);
            status = kl_scan_inflated(scan, j, copy, body.bytes);
            free(copy);
        }
        if (status) break;
    }
    WANT(options->columns == 0 || kl_scan_count(scan) == 0 || kl_scan_count(scan) == rows);
    kl_scan_free(scan);
}

void fuzz_look(kl_log *log, kl_span *input, bool checked) {
    kl_log_state state = check_state(log);
    uint8_t flags = fuzz_u8(input);
    look_at_segments(log, &state);
    int64_t largest_ms = look_up(log, INT64_MIN, &state, checked);
    look_up(log, flags & 1 ? fuzz_i64(input) : largest_ms, &state, checked);
    look_at_lists(log, &state, flags >> 4, checked);
    kl_scan_options options = {
        .start_offset = flags & 2 ? state.log_start_offset + fuzz_u8(input) : -1,
        .stop_offset = flags & 4 ? state.log_start_offset + fuzz_u8(input) : -1,
        .start_time_ms = flags & 8 ? fuzz_i64(input) : INT64_MIN,
        .stop_time_ms = flags & 8 ? fuzz_i64(input) : INT64_MAX,
        .max_bytes = flags & 16 ? 1 : 0,
        .max_rows = flags & 16 ? 3 : 0,
        .columns = flags & 32 ? KL_COL_ALL | KL_COL_LEADER_EPOCH : KL_COL_OFFSET,
        .bound = flags >> 6 == 3 ? KL_LOG_END : flags >> 6,
        .check_crc = 1,
        .topic = "t",
    };
    run_scan(log, &options, input, checked);
    options.columns = 0;
    run_scan(log, &options, input, checked);
}

/* ---- changes --------------------------------------------------------------------------- */

static kl_status append_bytes(kl_log *log, kl_span *input, uint8_t flags) {
    kl_span body = fuzz_take(input, fuzz_u8(input) * (size_t)2);
    uint8_t *copy = fuzz_copy(body);
    kl_appended out;
    kl_append_options options = {.origin = flags & 1, .leader_epoch = -1, .now_ms = -1};
    kl_status status;
    fuzz_fix_batches(copy, body.bytes, flags & 2 ? UINT32_MAX & ~1u : 0x10101010);
    if (flags & 4) status = kl_log_append_follower(log, copy, body.bytes, &out);
    else status = kl_log_append_batches(log, copy, body.bytes, &options, &out);
    free(copy);
    return status;
}

static kl_status append_rows(kl_log *log, kl_span *input) {
    int64_t rows = 1 + fuzz_u8(input) % 20;
    kl_columns columns = {.count = rows,
                          .default_timestamp_ms = 1700000000000 + fuzz_u8(input),
                          .value.kind = KL_BYTES_FIXED};
    kl_span body = fuzz_take(input, (size_t)rows);
    columns.value.data = body.data;
    columns.value.data_bytes = body.bytes;
    columns.value.fixed_bytes = 1;
    columns.key = columns.value;
    kl_cursor cursor = {0};
    kl_appended out;
    kl_status status = KL_OK;
    while (!status && cursor.row < columns.count)
        status = kl_log_append_columns(log, &columns, &cursor, 100, kl_now_ms(), &out);
    return status;
}

static kl_status append_one(kl_log *log, kl_span *input) {
    kl_log_state before;
    WANT(kl_log_get(log, &before) == KL_OK);
    kl_span value = fuzz_take(input, fuzz_u8(input));
    int64_t timestamp = 1700000000000 + fuzz_u8(input);
    int32_t sync_due;
    int64_t offset = kl_log_append(log, "k", 1, (const char *)value.data,
                                   (int64_t)value.bytes, timestamp, &sync_due);
    if (offset < 0) return (kl_status)-offset;
    WANT(offset == before.log_end_offset);
    return KL_OK;
}

/* A round of compaction; `input` provides the content of compressed bodies. */
static kl_status compact(kl_log *log, const kl_log_state *state, kl_span *input) {
    uint8_t flags = fuzz_u8(input);
    kl_clean_options options = {
        .first_dirty_offset = state->log_start_offset + (flags & 7),
        .end_offset = state->last_stable_offset,
        .now_ms = 1700000000000 + (int64_t)fuzz_u8(input) * 1000,
        .delete_retention_ms = flags & 8 ? 0 : 100000,
        .map_bytes = flags & 16 ? 24 * 4 : 1 << 12,
        .map_load = 0.9,
        .pause_bytes = flags & 32 ? 100 : 1 << 20,
    };
    kl_cleaner *cleaner;
    kl_cleaned cleaned;
    kl_status status = kl_clean_open(log, &options, &cleaner);
    if (status) return status;
    for (int step = 0; !status && step < STEPS_MAX; step++) {
        kl_compressed bodies[2];
        int32_t count = 0, doing = KL_CLEAN_END;
        status = kl_clean_step(cleaner, bodies, 2, &count, &doing);
        if (status || doing == KL_CLEAN_END || (flags & 64 && step > 3)) break;
        for (int32_t i = 0; !status && doing != KL_CLEAN_PAUSE && i < count; i++) {
            kl_span body = {bodies[i].data, bodies[i].bytes};
            if (doing == KL_CLEAN_INFLATE) body = fuzz_take(input, fuzz_u8(input));
            uint8_t *copy = fuzz_copy(body);
            status = kl_clean_give(cleaner, i, copy, body.bytes);
            free(copy);
        }
    }
    kl_clean_get(cleaner, &cleaned);
    WANT(status || cleaned.records_after <= cleaned.records_before);
    kl_clean_free(cleaner);
    return status;
}

static kl_status change_ends(kl_log *log, uint8_t what, const kl_log_state *state,
                             kl_span *input) {
    int64_t bases[2];
    size_t count, left;
    uint8_t distance = fuzz_u8(input);
    int64_t offset = state->log_start_offset + distance % 32;
    if (distance & 128) return compact(log, state, input);
    switch (what) {
    case 0: return kl_log_truncate(log, offset);
    case 1: return kl_log_truncate_fully(log, offset);
    case 2: return kl_log_set_start(log, KL_MIN(offset, state->high_watermark));
    case 3: return kl_log_delete_segments(log, offset, bases, 2, &count);
    case 4: return kl_log_purge(log, INT64_MAX, &count, &left);
    case 5:
        return kl_log_set_leader_epoch(log, state->leader_epoch + (int32_t)(offset & 3));
    case 6: return kl_log_roll(log);
    default: return kl_log_expire_producers(log, offset, &count);
    }
}

static kl_status flush(kl_log *log) {
    int64_t target = -1;
    kl_status status;
    do status = kl_log_flush(log, &target, 1000);
    while (status == KL_E_TIMEOUT);
    return status;
}

kl_status fuzz_change_once(kl_log *log, kl_span *input) {
    kl_appended out;
    kl_log_state state = check_state(log);
    uint8_t what = fuzz_u8(input);
    switch (what % 8) {
    case 0:
    case 1: return append_one(log, input);
    case 2: return append_rows(log, input);
    case 3:
    case 4: return append_bytes(log, input, what >> 3);
    case 5:
        return kl_log_append_marker(log, what >> 3 & 3, (int16_t)(what >> 5 & 1), 0,
                                    what >> 6 & 1, 1700000000000, &out);
    case 6: return flush(log);
    default: return change_ends(log, what >> 3 & 7, &state, input);
    }
}

/* Statuses that a change may end with when no call fails: the caller's arguments were wrong. */
static bool is_refusal(kl_status status) {
    return status == KL_OK || status == KL_E_ARGUMENT || status == KL_E_STALE ||
           status >= KL_E_OFFSET_OUT_OF_RANGE;
}

void fuzz_change(kl_log *log, kl_span *input) {
    for (int i = 0; i < CHANGES_MAX && input->bytes > 0; i++) {
        WANT(is_refusal(fuzz_change_once(log, input)));
        check_state(log);
    }
}

void fuzz_close(kl_log *log) {
    WANT(kl_log_close(log) == KL_OK);
    kl_log_free(log);
}
