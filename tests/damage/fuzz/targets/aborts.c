/* Target: the index of aborted transactions from any bytes; looked up, cut, added to, saved. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/segment/aborts.h"

static const int64_t BASE = 1000;
static const char NAME[] = "00000000000000001000.txnindex";
enum { FOUND_MAX = 4 };

/* The public answer agrees with a search of all entries. */
static void check_find(const kl_aborts *aborts, int64_t start, int64_t stop) {
    kl_aborted found[FOUND_MAX], expected[FOUND_MAX];
    size_t count = 0, wanted = 0;
    bool ends = false;
    bool said = kl_aborts_find(aborts, start, stop, found, FOUND_MAX, &count);
    for (size_t i = 0; i < aborts->count && !ends; i++) {
        const kl_aborted *entry = &aborts->entries[i];
        if (entry->last_offset >= start && entry->first_offset < stop) {
            if (wanted < FOUND_MAX) expected[wanted] = *entry;
            wanted++;
        }
        ends = entry->last_stable_offset >= stop;
    }
    WANT(count == wanted && said == ends);
    WANT(memcmp(found, expected, KL_MIN(count, (size_t)FOUND_MAX) * sizeof *found) == 0);
}

static void same_again(const kl_aborts *aborts, int64_t limit) {
    kl_aborts again;
    kl_aborts_init(&again, BASE);
    WANT(kl_aborts_load(&again, fuzz_dir(), limit) == KL_OK);
    WANT(again.count == aborts->count);
    if (again.count)
        WANT(memcmp(again.entries, aborts->entries, again.count * sizeof *again.entries) ==
             0);
    kl_aborts_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_span input = {data, bytes};
    uint8_t flags = fuzz_u8(&input);
    int64_t limit = flags & 1 ? fuzz_i64(&input) : INT64_MAX;
    int64_t start = flags & 2 ? fuzz_i64(&input) >> 1 : BASE;
    int64_t stop = start + fuzz_u8(&input);
    uint8_t cut = fuzz_u8(&input);
    kl_aborts aborts;
    fuzz_empty_dir();
    fuzz_write(NAME, input);
    kl_aborts_init(&aborts, BASE);
    kl_status status = kl_aborts_load(&aborts, fuzz_dir(), limit);
    WANT(status == KL_OK || (status == KL_E_CORRUPT && aborts.count == 0));
    if (status == KL_OK) {
        WANT(aborts.count == input.bytes / ABORT_ENTRY_BYTES);
        if (stop >= start) check_find(&aborts, start, stop);
        check_find(&aborts, BASE, INT64_MAX);
        kl_aborts_truncate(&aborts, BASE + cut);
        for (size_t i = 0; i < aborts.count; i++)
            WANT(aborts.entries[i].last_offset >= BASE &&
                 aborts.entries[i].last_offset < limit);
        if (aborts.count == 0 ||
            aborts.entries[aborts.count - 1].last_offset < INT64_MAX - 2) {
            int64_t last =
                aborts.count ? aborts.entries[aborts.count - 1].last_offset : BASE;
            kl_aborted entry = {7, last, last + 1, last + 2};
            WANT(kl_aborts_add(&aborts, &entry) == KL_OK);
        }
        if (aborts.count > 0) {
            WANT(kl_aborts_save(&aborts, fuzz_dir(), flags & 4) == KL_OK);
            same_again(&aborts, INT64_MAX);
            WANT(kl_aborts_rewrite(&aborts, fuzz_dir(), false) == KL_OK);
            same_again(&aborts, INT64_MAX);
        }
    }
    kl_aborts_free(&aborts);
    return 0;
}
