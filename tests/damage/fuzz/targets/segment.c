/* Target: a folder with one segment of any bytes, opened as after a crash or a clean close: its
 * records are read in several ways; it is added to, closed and found again. */
#include "fuzz.h"
#include "log.h"

enum { SEEN_MAX = 200 };

/* The offset of each record, by reads of whole batches; damage ends them. */
static size_t read_offsets(kl_log *log, int64_t *out, kl_status *ended) {
    uint8_t *buffer = malloc(FUZZ_READ_BYTES);
    kl_log_state state;
    size_t count = 0;
    WANT(kl_log_get(log, &state) == KL_OK);
    int64_t offset = state.log_start_offset;
    *ended = KL_OK;
    while (offset < state.log_end_offset && count < SEEN_MAX) {
        kl_read read;
        *ended =
            kl_log_read(log, offset, -1, KL_LOG_END, 1, buffer, FUZZ_READ_BYTES, &read);
        if (*ended || read.bytes == 0) break;
        WANT(read.next_offset > offset && read.next_offset <= state.log_end_offset);
        offset = read.next_offset;
        for (size_t pos = 0; pos < read.bytes;) {
            kl_batch batch;
            WANT(kl_batch_check(buffer + pos, read.bytes - pos, &batch) == KL_OK);
            if (count < SEEN_MAX) out[count++] = batch.last_offset;
            pos += (size_t)batch.batch_bytes;
        }
    }
    free(buffer);
    return count;
}

/* A reader that finds the folder as it is, and the writer that opens it next. */
static void open_and_look(const kl_open *how, const kl_log_config *config, kl_span *input) {
    int64_t by_reader[SEEN_MAX], by_writer[SEEN_MAX], again[SEEN_MAX];
    kl_status reader_ended, writer_ended;
    size_t reader_count = 0, writer_count;
    kl_recovery recovery;
    kl_log *log;
    kl_open reading = *how;
    bool checked = !how->clean && how->recovery_point < 0;
    reading.mode = KL_READ;
    kl_status read_opened =
        kl_log_open(fuzz_dir()->path, config, &reading, NULL, &log, &recovery);
    if (read_opened == KL_OK) {
        reader_count = read_offsets(log, by_reader, &reader_ended);
        fuzz_look(log, input, checked);
        WANT(kl_log_close(log) == KL_OK);
        kl_log_free(log);
    }
    kl_status opened = kl_log_open(fuzz_dir()->path, config, how, NULL, &log, &recovery);
    WANT(opened == read_opened || !checked);
    if (opened) return;
    writer_count = read_offsets(log, by_writer, &writer_ended);
    if (checked) { /* everything was checked, so everything can be read, and both agree */
        WANT(writer_ended == KL_OK && reader_ended == KL_OK);
        WANT(writer_count == reader_count);
        WANT(memcmp(by_reader, by_writer, writer_count * sizeof *by_writer) == 0);
    }
    fuzz_look(log, input, checked);
    fuzz_close(log);

    kl_open clean = *how;
    clean.clean = 1;
    opened = kl_log_open(fuzz_dir()->path, config, &clean, NULL, &log, &recovery);
    WANT(opened == KL_OK);
    if (checked) {
        WANT(recovery.truncated_bytes == 0 && recovery.segments_recovered == 0);
        WANT(read_offsets(log, again, &writer_ended) == writer_count);
        WANT(memcmp(by_writer, again, writer_count * sizeof *again) == 0);
    }
    fuzz_change(log, input);
    fuzz_look(log, input, checked);
    fuzz_close(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < FUZZ_PREFIX_BYTES) return 0;
    kl_span prefix = {data, FUZZ_PREFIX_BYTES};
    kl_span files = {data + FUZZ_PREFIX_BYTES, bytes - FUZZ_PREFIX_BYTES};
    uint8_t flags = fuzz_u8(&prefix);
    kl_open how = fuzz_open_for_writing();
    kl_log_config config = fuzz_config(&prefix);
    how.clean = flags & 1;
    how.recovery_point = flags & 2 ? (int64_t)fuzz_u8(&prefix) : -1;
    how.log_start_offset = flags & 4 ? (int64_t)fuzz_u8(&prefix) : -1;
    how.leader_epoch = flags & 8 ? fuzz_u8(&prefix) : -1;
    fuzz_empty_dir();
    /* Indexes come from the end of the input, where the batches' mutator does no harm. */
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"00000000000000000000.index",
                                            "00000000000000000000.timeindex",
                                            "00000000000000000000.txnindex"};
        size_t size = flags >> (4 + i) & 1 ? fuzz_u8(&prefix) : 0;
        size = KL_MIN(size, files.bytes);
        files.bytes -= size;
        if (size) fuzz_write(names[i], (kl_span){files.data + files.bytes, size});
    }
    fuzz_write("00000000000000000000.log", files);
    open_and_look(&how, &config, &prefix);
    return 0;
}
