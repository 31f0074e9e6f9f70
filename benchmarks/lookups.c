/* lookups.c: the loops around a lookup, in C, so that the time includes no Python.
 *
 * Compiled by lookups.py when a benchmark needs it.  The functions of the log come as
 * pointers out of the built extension, which exports no names of its own. */
#include <time.h>
#include <unistd.h>

#include "kafkalog.h"

typedef kl_status find_time(kl_log *log, int64_t timestamp_ms, kl_found *found);
typedef kl_status slice_of(kl_log *log, int64_t offset, int32_t bound, size_t max_bytes,
                           int at_least_one, kl_slice *out, kl_read *where);
typedef void slice_drop(kl_slice *slice);

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Seconds for `count` lookups of record times `wanted`, where a record's time in ms is its
 * offset; -1 when one fails or finds another record. */
double lookups_by_time(void *function, void *log, const int64_t *wanted, size_t count) {
    find_time *find = (find_time *)function;
    double start = now_s();
    for (size_t i = 0; i < count; i++) {
        kl_found found = {0};
        if (find(log, wanted[i], &found) || found.offset != wanted[i]) return -1;
    }
    return now_s() - start;
}

/* Seconds to find file, place and length of the batch of each offset; -1 when one fails or
 * is not `batch_bytes` long. */
double lookups_by_offset(void *function, void *drop_function, void *log,
                         const int64_t *wanted, size_t count, size_t batch_bytes) {
    slice_of *slice = (slice_of *)function;
    slice_drop *drop = (slice_drop *)drop_function;
    double start = now_s();
    for (size_t i = 0; i < count; i++) {
        kl_slice found;
        kl_read where;
        if (slice(log, wanted[i], KL_LOG_END, 1, 1, &found, &where)) return -1;
        drop(&found);
        if (where.bytes != batch_bytes) return -1;
    }
    return now_s() - start;
}

/* Seconds to read `bytes` at each place with nothing around it; -1 when one fails. */
double lookups_pread(const int *fds, const int64_t *positions, size_t count, size_t bytes) {
    static uint8_t buffer[1 << 16];
    if (bytes > sizeof buffer) return -1;
    double start = now_s();
    for (size_t i = 0; i < count; i++)
        if (pread(fds[i], buffer, bytes, positions[i]) != (ssize_t)bytes) return -1;
    return now_s() - start;
}
