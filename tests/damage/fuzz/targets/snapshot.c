/* Target: a producer snapshot from any bytes; the mutator gives it the right checksum. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/segment/producers.h"

enum {
    POS_SNAPSHOT_CRC = 2,
    POS_COUNT = 6,
    HEAD_BYTES = 10,
    ENTRY_BYTES = 46,
    LISTED_MAX = 64
};

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes,
                               unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes,
                               unsigned seed) {
    bytes = LLVMFuzzerMutate(data, bytes, max_bytes);
    uint32_t draw = seed * 2654435761u;
    if (bytes < HEAD_BYTES || !(draw >> 29)) return bytes;
    if (draw >> 27 & 3) { /* whole entries */
        bytes -= (bytes - HEAD_BYTES) % ENTRY_BYTES;
        kl_put32(data + POS_COUNT, (uint32_t)((bytes - HEAD_BYTES) / ENTRY_BYTES));
    }
    kl_put32(data + POS_SNAPSHOT_CRC, kl_crc32c(data + POS_COUNT, bytes - POS_COUNT));
    return bytes;
}

/* A state that is written is read back unchanged. */
static void round_trip(const kl_producers *producers) {
    kl_buffer out = {0};
    kl_producers again;
    kl_producer before[LISTED_MAX], after[LISTED_MAX];
    memset(before, 0, sizeof before);
    memset(after, 0, sizeof after);
    kl_producers_init(&again);
    WANT(kl_snapshot_encode(producers, &out) == KL_OK);
    WANT(kl_producers_load(&again, out.data, out.bytes, 100) == KL_OK);
    size_t count = kl_producers_list(producers, before, LISTED_MAX);
    WANT(kl_producers_list(&again, after, LISTED_MAX) == count);
    kl_producers_sort(before, KL_MIN(count, (size_t)LISTED_MAX)); /* they come in no order */
    kl_producers_sort(after, KL_MIN(count, (size_t)LISTED_MAX));
    for (size_t i = 0; i < KL_MIN(count, (size_t)LISTED_MAX); i++) {
        WANT(before[i].producer_id == after[i].producer_id);
        WANT(before[i].last_sequence == after[i].last_sequence);
        WANT(before[i].last_offset == after[i].last_offset);
        WANT(before[i].txn_start_offset == after[i].txn_start_offset);
        WANT(before[i].producer_epoch == after[i].producer_epoch);
        WANT(before[i].coordinator_epoch == after[i].coordinator_epoch);
    }
    WANT(kl_producers_first_open(producers) == kl_producers_first_open(&again));
    kl_producers_free(&again);
    kl_buffer_free(&out);
}

/* Any accepted state can be used. */
static void use(kl_producers *producers, kl_span *input) {
    for (int i = 0; i < 20 && input->bytes > 0; i++) {
        uint8_t what = fuzz_u8(input);
        int64_t offset = 1000 + i, first;
        const kl_producer_batch *known;
        kl_batch batch = {.base_offset = offset,
                          .last_offset = offset,
                          .producer_id = what & 15,
                          .producer_epoch = (int16_t)(what >> 4 & 1),
                          .base_sequence = (int32_t)fuzz_u32(input),
                          .attributes = what & 64 ? KL_ATTR_TRANSACTIONAL : 0,
                          .record_count = 1};
        batch.last_sequence = batch.base_sequence;
        if (what & 128)
            WANT(kl_producers_apply_marker(producers, batch.producer_id,
                                           batch.producer_epoch, i, offset, i, i,
                                           &first) == KL_OK);
        else if (kl_producers_check(producers, &batch, true, &known) == KL_OK && !known)
            WANT(kl_producers_apply(producers, &batch, offset) == KL_OK);
        WANT(kl_producers_first_unstable(producers, offset) <=
             kl_producers_first_open(producers));
    }
    size_t count = producers->count;
    size_t expired = kl_producers_expire(producers, 10);
    WANT(producers->count + expired == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_producer listed[LISTED_MAX];
    size_t count = 0;
    kl_producers producers;
    kl_producers_init(&producers);
    kl_status decoded = kl_snapshot_decode(data, bytes, listed, LISTED_MAX, &count);
    kl_status loaded = kl_producers_load(&producers, data, bytes, 100);
    WANT(decoded == KL_OK || decoded == KL_E_CORRUPT);
    WANT(decoded == KL_OK || count == 0);
    WANT(loaded == KL_OK || (loaded == KL_E_CORRUPT && producers.count == 0));
    WANT(loaded != KL_OK || (decoded == KL_OK && producers.count == count));
    for (size_t i = 0; loaded == KL_OK && i < KL_MIN(count, (size_t)LISTED_MAX); i++) {
        const kl_producer_entry *entry =
            kl_producers_find(&producers, listed[i].producer_id);
        WANT(entry != NULL && entry->producer_epoch == listed[i].producer_epoch);
    }
    if (loaded == KL_OK) round_trip(&producers);
    kl_span input = {data, bytes};
    use(&producers, &input);
    round_trip(&producers);
    kl_producers_free(&producers);
    return 0;
}
