/* Target: the text of leader epochs, and queries of them. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/segment/epochs.h"

static void check_order(const kl_epochs *epochs) {
    for (size_t i = 0; i < epochs->count; i++) {
        const kl_epoch *entry = &epochs->entries[i];
        WANT(entry->epoch >= 0 && entry->start_offset >= 0);
        if (i == 0) continue;
        WANT(entry->epoch > entry[-1].epoch &&
             entry->start_offset > entry[-1].start_offset);
    }
}

static void same_again(kl_epochs *epochs) {
    kl_epochs again = {0};
    WANT(kl_epochs_save(epochs, fuzz_dir(), false) == KL_OK);
    WANT(kl_epochs_load(&again, fuzz_dir()) == KL_OK);
    WANT(again.count == epochs->count);
    for (size_t i = 0; i < again.count; i++)
        WANT(again.entries[i].epoch == epochs->entries[i].epoch &&
             again.entries[i].start_offset == epochs->entries[i].start_offset);
    kl_epochs_free(&again);
}

static void ask(const kl_epochs *epochs, int32_t requested) {
    int32_t found;
    int64_t end;
    kl_epochs_end(epochs, requested, INT64_MAX, &found, &end);
    WANT(found <= requested || requested < 0);
    WANT((found == -1) == (end == -1));
    if (found == -1) WANT(requested < 0 || requested > kl_epochs_latest(epochs));
}

static void change(kl_epochs *epochs, uint8_t what, int64_t number) {
    if (what & 1)
        WANT(kl_epochs_assign(epochs,
                              kl_epochs_latest(epochs) < INT32_MAX - 9
                                  ? kl_epochs_latest(epochs) + (what >> 5)
                                  : 3,
                              number) == KL_OK);
    else if (what & 2) kl_epochs_truncate_end(epochs, number);
    else kl_epochs_truncate_start(epochs, number);
    check_order(epochs);
    if (what & 4) same_again(epochs);
}

/* An offset near one that may be the highest possible. */
static int64_t beside(int64_t offset, int distance) {
    return distance > 0 && offset > INT64_MAX - distance ? offset : offset + distance;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_epochs epochs = {0};
    /* Three bytes of choices at the end, so that the text still begins the input. */
    uint8_t what = bytes > 0 ? data[bytes - 1] : 0;
    uint8_t number = bytes > 1 ? data[bytes - 2] : 0;
    fuzz_write(KL_EPOCHS_NAME, (kl_span){data, bytes});
    kl_status status = kl_epochs_load(&epochs, fuzz_dir());
    WANT(status == KL_OK || (status == KL_E_CORRUPT && epochs.count == 0));
    check_order(&epochs);
    if (status == KL_OK && bytes > 0) same_again(&epochs);
    ask(&epochs, number - 1);
    ask(&epochs, kl_epochs_latest(&epochs));
    ask(&epochs, kl_epochs_latest(&epochs) - 1);
    for (size_t i = 0; i < 3 && i < epochs.count; i++) {
        ask(&epochs, epochs.entries[i].epoch);
        change(&epochs, what, beside(epochs.entries[i].start_offset, number - 1));
    }
    change(&epochs, what ^ 5, number);
    kl_epochs_free(&epochs);
    return 0;
}
