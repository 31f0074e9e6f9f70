/* Target: a walk over a file of batches, by headers and with checksums, and reads of each. */
#include "fuzz.h"

enum { SEEN_MAX = 256, BUFFER_BYTES = 8192, AT_ONCE = 3 };

static const char NAME[] = "00000000000000000000.log";

/* Batches until the walk ends; the status it ends with. */
static kl_status walk_all(kl_walk *walk, int check_crc, kl_batch *out, size_t *seen) {
    kl_status status = KL_OK;
    for (int32_t count = 1; !status && count > 0;) {
        kl_batch some[AT_ONCE];
        status = kl_walk_next(walk, some, AT_ONCE, &count, check_crc);
        for (int32_t i = 0; i < count; i++) {
            if (*seen < SEEN_MAX) out[*seen] = some[i];
            *seen += 1;
        }
    }
    return status;
}

static void read_each(kl_walk *walk, const uint8_t *file, const kl_batch *list,
                      size_t count, bool checked) {
    uint8_t *buffer = malloc(BUFFER_BYTES);
    int64_t pos = 0;
    for (size_t i = 0; i < KL_MIN(count, (size_t)SEEN_MAX); i++) {
        size_t bytes;
        kl_batch again;
        WANT(list[i].pos == pos);
        pos += list[i].batch_bytes;
        kl_status status = kl_walk_read(walk, list[i].pos, buffer, BUFFER_BYTES, &bytes);
        WANT(bytes == (size_t)list[i].batch_bytes);
        WANT(status == (bytes > BUFFER_BYTES ? KL_E_BUFFER_TOO_SMALL : KL_OK));
        if (status) continue;
        WANT(memcmp(buffer, file + list[i].pos, bytes) == 0);
        if (checked) WANT(kl_batch_check(buffer, bytes, &again) == KL_OK);
    }
    free(buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static kl_batch headers[SEEN_MAX], checked[SEEN_MAX];
    static char path[4200];
    size_t header_count = 0, checked_count = 0, got;
    kl_walk *walk;
    fuzz_write(NAME, (kl_span){data, bytes});
    snprintf(path, sizeof path, "%s/%s", fuzz_dir()->path, NAME);
    WANT(kl_walk_open(path, 0, &walk) == KL_OK);
    WANT(kl_walk_file_bytes(walk) == (int64_t)bytes);
    kl_status by_header = walk_all(walk, 0, headers, &header_count);
    int64_t end = kl_walk_pos(walk);
    WANT(by_header == KL_OK ? end == (int64_t)bytes : end < (int64_t)bytes);
    read_each(walk, data, headers, header_count, false);
    uint8_t buffer[POS_RECORDS];
    (void)kl_walk_read(walk, end, buffer, sizeof buffer, &got);
    kl_walk_free(walk);

    WANT(kl_walk_open(path, 0, &walk) == KL_OK);
    kl_status with_crc = walk_all(walk, 1, checked, &checked_count);
    WANT(checked_count <= header_count && kl_walk_pos(walk) <= end);
    WANT(with_crc != KL_OK || checked_count == header_count);
    WANT(with_crc == by_header || with_crc == KL_E_CORRUPT_MESSAGE);
    read_each(walk, data, checked, checked_count, true);
    kl_walk_free(walk);
    return 0;
}
