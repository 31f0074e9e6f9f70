/* Target: a side-car from any bytes; the mutator gives it the right size and checksum. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/segment/sidecar.h"

enum { POS_SIZE = 6, POS_SUM = 10, POS_SUMMED = 14, REGION_BYTES = 12, CHECKED_MAX = 100 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes,
                               unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes,
                               unsigned seed) {
    bytes = LLVMFuzzerMutate(data, bytes, max_bytes);
    uint32_t draw = seed * 2654435761u;
    if (bytes < POS_SUMMED || !(draw >> 29)) return bytes;
    memcpy(data, "KLCK\0\1", 6);
    kl_put32(data + POS_SIZE, (uint32_t)bytes);
    kl_put32(data + POS_SUM, kl_crc32c(data + POS_SUMMED, bytes - POS_SUMMED));
    return bytes;
}

static bool lies_in(const uint8_t *p, size_t bytes, const uint8_t *data, size_t all) {
    return bytes == 0 || (p >= data && bytes <= all && (size_t)(p - data) <= all - bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_sidecar sidecar;
    bool belongs;
    if (!kl_sidecar_parse(data, bytes, &sidecar)) return 0;
    WANT(lies_in(sidecar.topic_id.data, sidecar.topic_id.bytes, data, bytes));
    WANT(lies_in(sidecar.folder.data, sidecar.folder.bytes, data, bytes));
    WANT(sidecar.region_count <= bytes / REGION_BYTES);
    WANT(lies_in(sidecar.regions, sidecar.region_count * REGION_BYTES, data, bytes));
    WANT(lies_in(sidecar.index_sums, (size_t)3 * KL_FILE_SUM_BYTES, data, bytes));
    for (size_t i = 0; i < KL_MIN(sidecar.region_count, (size_t)CHECKED_MAX); i++)
        (void)kl_sidecar_region(&sidecar, i);
    (void)kl_sidecar_belongs(&sidecar, fuzz_dir(), &belongs);
    return 0;
}
