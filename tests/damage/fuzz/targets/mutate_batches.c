/* mutate_batches.c: the mutator of targets whose input is a row of batches: libFuzzer's output,
 * repaired most of the time. */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes,
                               unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes,
                               unsigned seed) {
    bytes = LLVMFuzzerMutate(data, bytes, max_bytes);
    uint32_t draw = seed * 2654435761u;
    if (bytes > FUZZ_PREFIX_BYTES && draw >> 29)
        fuzz_fix_batches(data + FUZZ_PREFIX_BYTES, bytes - FUZZ_PREFIX_BYTES, draw);
    return bytes;
}
