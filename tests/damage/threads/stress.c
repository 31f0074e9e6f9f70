/* stress.c: many threads on a few logs, for ThreadSanitizer: stress FOLDER SECONDS [canary].
 *
 * No interpreter lock orders these calls, so ThreadSanitizer sees each pair of them that races.
 * With "canary" one counter of the harness is left without protection. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../../kafkalog/_native/base/base.h"

enum { LOGS = 3, KEEP_RECORDS = 400, BUFFER_BYTES = 1 << 16, LIST_MAX = 64 };

#define WANT(condition) ((condition) ? (void)0 : broken(#condition, __LINE__))
_Noreturn static void broken(const char *condition, int line) {
    fprintf(stderr, "stress: line %d: does not hold: %s (%s)\n", line, condition,
            kl_error_message());
    abort();
}

static kl_log *logs[LOGS];
static kl_log *readers[LOGS];
static _Atomic bool ending;
static _Atomic int64_t calls;
static int64_t unprotected; /* the canary's */
static bool canary;

/* ---- draws ----------------------------------------------------------------------------- */

typedef struct {
    uint64_t state;
    int role;
} worker;

static uint32_t draw(worker *w, uint32_t limit) {
    w->state = w->state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(w->state >> 33) % limit;
}

/* The errors of a call while others change the log: never damage, never offline. */
static void expect(kl_status status) {
    WANT(status == KL_OK || status == KL_E_OFFSET_OUT_OF_RANGE || status == KL_E_TIMEOUT ||
         status == KL_E_STALE || status == KL_E_NOT_FOUND || status == KL_E_ARGUMENT ||
         status == KL_E_CLOSED || status == KL_E_UNEXPECTED_APPEND_OFFSET ||
         status == KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER || status == KL_E_INVALID_TXN_STATE ||
         status == KL_E_BUFFER_TOO_SMALL);
}

/* ---- writers ---------------------------------------------------------------------------- */

static void append_one(kl_log *log, worker *w) {
    char value[200] = {0};
    int32_t sync_due;
    int64_t offset = kl_log_append(log, "key", draw(w, 3) ? 3 : -1, value, draw(w, 200), -1,
                                   &sync_due);
    WANT(offset >= 0);
}

static void append_rows(kl_log *log, worker *w) {
    uint8_t value[64] = {0};
    int64_t rows = 1 + draw(w, 50);
    kl_columns columns = {.count = rows, .default_timestamp_ms = 1700000000000};
    columns.value = (kl_bytes_column){.kind = KL_BYTES_FIXED,
                                      .data = value,
                                      .data_bytes = (size_t)rows,
                                      .fixed_bytes = 1};
    kl_cursor cursor = {0};
    kl_appended out;
    while (cursor.row < columns.count)
        WANT(kl_log_append_columns(log, &columns, &cursor, 200, kl_now_ms(), &out) ==
             KL_OK);
}

static void in_transaction(kl_log *log, worker *w) {
    uint8_t batch[256];
    uint8_t value[1] = {7};
    int64_t producer = 1 + draw(w, 3);
    kl_columns columns = {.count = 1, .default_timestamp_ms = 1700000000000};
    columns.value = (kl_bytes_column){
        .kind = KL_BYTES_FIXED, .data = value, .data_bytes = 1, .fixed_bytes = 1};
    kl_cursor cursor = {0};
    kl_encoded encoded;
    kl_stamp stamp = {.producer_id = producer, .base_sequence = 0, .attributes = 16};
    kl_appended out;
    kl_append_options options = {
        .origin = KL_ORIGIN_COORDINATOR, .leader_epoch = -1, .now_ms = -1};
    WANT(kl_encode_records(&columns, &cursor, batch + 61, sizeof batch - 61, 1, &encoded) ==
         KL_OK);
    WANT(kl_batch_seal(batch, sizeof batch, &encoded, &stamp) == KL_OK);
    expect(kl_log_append_batches(log, batch, 61 + encoded.records_bytes, &options, &out));
    expect(kl_log_append_marker(log, producer, 0, 0, (int32_t)draw(w, 2), -1, &out));
}

static void flush(kl_log *log) {
    int64_t target = -1;
    expect(kl_log_flush(log, &target, 50));
    expect(kl_log_flush_start(log, &target));
}

static void shorten(kl_log *log, worker *w) {
    kl_log_state state;
    int64_t bases[LIST_MAX];
    size_t count;
    WANT(kl_log_get(log, &state) == KL_OK && !state.offline);
    if (state.log_end_offset - state.log_start_offset < KEEP_RECORDS) return;
    switch (draw(w, 4)) {
    case 0: expect(kl_log_truncate(log, state.log_end_offset - draw(w, 100))); break;
    case 1:
        expect(kl_log_set_start(log, state.log_start_offset + draw(w, 200)));
        expect(
            kl_log_delete_segments(log, state.log_start_offset, bases, LIST_MAX, &count));
        break;
    case 2:
        expect(kl_log_delete_segments(log, state.log_end_offset - 100, bases, LIST_MAX,
                                      &count));
        break;
    default: expect(kl_log_purge(log, INT64_MAX, &count));
    }
}

static void write_some(worker *w) {
    kl_log *log = logs[draw(w, LOGS)];
    size_t count;
    switch (draw(w, 12)) {
    case 0:
    case 1:
    case 2: append_one(log, w); break;
    case 3:
    case 4: append_rows(log, w); break;
    case 5: in_transaction(log, w); break;
    case 6: flush(log); break;
    case 7: expect(kl_log_roll(log)); break;
    case 8:
    case 9: shorten(log, w); break;
    case 10: expect(kl_log_expire_producers(log, 0, &count)); break;
    default: expect(kl_log_set_leader_epoch(log, 0));
    }
}

/* ---- readers ------------------------------------------------------------------------------ */

static void read_batches(kl_log *log, worker *w) {
    uint8_t *buffer = malloc(BUFFER_BYTES);
    kl_log_state state;
    kl_read read;
    expect(kl_log_get(log, &state));
    int64_t length = state.log_end_offset - state.log_start_offset;
    int64_t offset = state.log_start_offset + (length > 0 ? draw(w, (uint32_t)length) : 0);
    expect(
        kl_log_read(log, offset, -1, (int32_t)draw(w, 3), 1, buffer, BUFFER_BYTES, &read));
    free(buffer);
}

static void scan(kl_log *log, worker *w) {
    kl_scan_options options = {.start_offset = -1,
                               .stop_offset = -1,
                               .start_time_ms = INT64_MIN,
                               .stop_time_ms = INT64_MAX,
                               .max_rows = 1 + (int32_t)draw(w, 100),
                               .columns = draw(w, 2) ? KL_COL_ALL : KL_COL_OFFSET,
                               .bound = (int32_t)draw(w, 2),
                               .check_crc = 1,
                               .topic = "t"};
    kl_scan *open;
    kl_status status = kl_scan_open(log, &options, &open);
    expect(status);
    if (status) return;
    for (int step = 0; step < 20 && !status; step++) {
        kl_compressed compressed[2];
        int32_t count, state = KL_SCAN_END;
        status = kl_scan_step(open, compressed, 2, &count, &state);
        expect(status);
        for (kl_block *block; !kl_scan_take(open, &block) && block != NULL;)
            kl_block_free(block);
        if (state == KL_SCAN_END) break;
    }
    kl_scan_free(open);
}

static void send_some(kl_log *log, worker *w) {
    int pair[2];
    kl_log_state state;
    kl_slice slice;
    kl_read where;
    size_t done = 0;
    expect(kl_log_get(log, &state));
    (void)w;
    kl_status status =
        kl_log_slice(log, state.log_start_offset, KL_UNCOMMITTED, 4096, 1, &slice, &where);
    expect(status);
    if (status || where.bytes == 0) return;
    WANT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    expect(kl_slice_send(&slice, pair[0], &done, 0));
    kl_slice_drop(&slice);
    close(pair[0]);
    close(pair[1]);
}

static void ask(kl_log *log, worker *w) {
    kl_found found = {0};
    kl_segment_info list[LIST_MAX];
    kl_producer producers[LIST_MAX];
    kl_aborted aborted[LIST_MAX];
    kl_epoch epochs[LIST_MAX];
    size_t count;
    kl_view *view;
    switch (draw(w, 7)) {
    case 0: expect(kl_log_find_time(log, 1700000000000 + draw(w, 1000), &found)); break;
    case 1: expect(kl_log_find_largest_time(log, &found)); break;
    case 2: {
        kl_status status = kl_log_segments(log, 0, 1, list, LIST_MAX, &count);
        expect(status);
        if (status || count == 0) break;
        status = kl_log_view(log, list[0].base_offset, (int32_t)draw(w, 3), &view);
        expect(status);
        if (!status) kl_view_free(view);
        break;
    }
    case 3: expect(kl_log_producers(log, producers, LIST_MAX, &count)); break;
    case 4: expect(kl_log_aborted(log, 0, INT64_MAX, aborted, LIST_MAX, &count)); break;
    case 5: expect(kl_log_epochs(log, epochs, LIST_MAX, &count)); break;
    default: {
        kl_log_state state;
        expect(kl_log_get(log, &state));
        expect(kl_log_wait(log, state.log_end_offset, KL_LOG_END, 2));
    }
    }
}

static void read_some(worker *w) {
    kl_log *log = draw(w, 2) ? logs[draw(w, LOGS)] : readers[draw(w, LOGS)];
    switch (draw(w, 4)) {
    case 0: read_batches(log, w); break;
    case 1: scan(log, w); break;
    case 2: send_some(log, w); break;
    default: ask(log, w);
    }
}

static void *work(void *given) {
    worker *w = given;
    while (!atomic_load(&ending)) {
        if (w->role == 0) write_some(w);
        else read_some(w);
        if (w->role == 2 && draw(w, 50) == 0) kl_set_max_open_files(4 + draw(w, 20));
        if (canary) unprotected++;
        atomic_fetch_add(&calls, 1);
    }
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------ */

static const kl_log_config config = {.segment_bytes = 4000,
                                     .segment_ms = INT64_MAX,
                                     .timestamp_before_max_ms = INT64_MAX,
                                     .timestamp_after_max_ms = INT64_MAX,
                                     .flush_messages = INT64_MAX,
                                     .segment_index_bytes = 1 << 16,
                                     .index_interval_bytes = 300,
                                     .max_message_bytes = 4000};

static kl_log *open_one(const char *folder, int number, int32_t mode) {
    char path[4096];
    kl_log *log;
    kl_recovery recovery;
    kl_open how = {.mode = mode,
                   .recovery_point = -1,
                   .log_start_offset = -1,
                   .high_watermark = -1,
                   .end_is_high_watermark = 1,
                   .leader_epoch = mode == KL_WRITE ? 0 : -1};
    snprintf(path, sizeof path, "%s/log-%d", folder, number);
    WANT(kl_log_open(path, &config, &how, NULL, &log, &recovery) == KL_OK);
    WANT(recovery.truncated_bytes == 0 && recovery.segments_dropped == 0);
    return log;
}

/* Close and read back, batch by batch: the same end. */
static void open_again(const char *folder, int number) {
    kl_log_state before, after;
    WANT(kl_log_get(logs[number], &before) == KL_OK && !before.offline);
    WANT(kl_log_close(logs[number]) == KL_OK);
    kl_log_free(logs[number]);
    logs[number] = open_one(folder, number, KL_WRITE);
    WANT(kl_log_get(logs[number], &after) == KL_OK);
    WANT(after.log_end_offset == before.log_end_offset);
    WANT(kl_log_close(logs[number]) == KL_OK);
    kl_log_free(logs[number]);
}

int main(int argc, char **argv) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    worker workers[THREADS];
    WANT(argc >= 3);
    canary = argc > 3;
    for (int i = 0; i < LOGS; i++) {
        logs[i] = open_one(argv[1], i, KL_WRITE);
        readers[i] = open_one(argv[1], i, KL_READ);
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){(uint64_t)i * 77 + 1, i % 3};
        WANT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    struct timespec pause = {(time_t)atol(argv[2]), 0};
    nanosleep(&pause, NULL);
    /* Some logs are closed during calls, which then return KL_E_CLOSED. */
    WANT(kl_log_close(readers[0]) == KL_OK);
    atomic_store(&ending, true);
    for (int i = 0; i < THREADS; i++) WANT(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < LOGS; i++) {
        WANT(kl_log_close(readers[i]) == KL_OK);
        kl_log_free(readers[i]);
        open_again(argv[1], i);
    }
    printf("%lld calls\n", (long long)atomic_load(&calls));
    return unprotected < 0;
}
