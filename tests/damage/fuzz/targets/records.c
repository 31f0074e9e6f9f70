/* Target: the records of a batch with any header, as after a codec. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_span input = {data, bytes};
    uint8_t flags = fuzz_u8(&input);
    kl_batch batch = {
        .base_offset = flags & 1 ? fuzz_i64(&input) & INT64_MAX >> 1 : 0,
        .base_timestamp = flags & 2 ? fuzz_i64(&input) : 1700000000000,
        .max_timestamp = flags & 4 ? fuzz_i64(&input) : 1700000000000,
        .attributes = flags & 8 ? KL_ATTR_LOG_APPEND_TIME : 0,
        .producer_id = -1,
        .record_count = (int32_t)fuzz_u8(&input),
        .magic = 2,
    };
    batch.last_offset_delta = flags & 16 ? (int32_t)(fuzz_u32(&input) & INT32_MAX)
                                         : KL_MAX(batch.record_count - 1, 0);
    batch.last_offset = batch.base_offset + batch.last_offset_delta;
    uint8_t *copy = fuzz_copy(input);
    fuzz_records(&batch, copy, input.bytes);
    free(copy);
    return 0;
}
