/* clean_txns.c: see clean_txns.h. */
#include "clean_txns.h"

enum { SLOTS_FIRST = 64 };

void kl_clean_txns_free(kl_clean_txns *txns) {
    kl_release(txns->slots);
    kl_release(txns->aborted);
    *txns = (kl_clean_txns){0};
}

static kl_clean_producer *slot_of(const kl_clean_txns *txns, int64_t producer_id) {
    uint64_t hash = (uint64_t)producer_id * 0x9e3779b97f4a7c15ULL;
    size_t i = (size_t)(hash >> 32) & (txns->slot_count - 1);
    while (txns->slots[i].used && txns->slots[i].producer_id != producer_id)
        i = (i + 1) & (txns->slot_count - 1);
    return &txns->slots[i];
}

static kl_status grow(kl_clean_txns *txns) {
    kl_clean_txns old = *txns;
    size_t slot_count = old.slot_count ? 2 * old.slot_count : SLOTS_FIRST;
    kl_clean_producer *slots = kl_alloc(slot_count * sizeof *slots);
    if (slots == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu producers", slot_count / 2);
    txns->slots = slots;
    txns->slot_count = slot_count;
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].used) *slot_of(txns, old.slots[i].producer_id) = old.slots[i];
    kl_release(old.slots);
    return KL_OK;
}

/* The entry of a producer, made when it is new. */
static kl_status obtain(kl_clean_txns *txns, int64_t producer_id, kl_clean_producer **out) {
    if (2 * (txns->count + 1) > txns->slot_count) {
        kl_status status = grow(txns);
        if (status) return status;
    }
    kl_clean_producer *slot = slot_of(txns, producer_id);
    if (!slot->used) {
        *slot = (kl_clean_producer){
            .producer_id = producer_id, .last_offset = -1, .used = true};
        txns->count++;
    }
    *out = slot;
    return KL_OK;
}

kl_status kl_clean_txns_add_producer(kl_clean_txns *txns, const kl_producer *producer) {
    kl_clean_producer *slot;
    kl_status status = obtain(txns, producer->producer_id, &slot);
    if (status) return status;
    slot->remembered = true;
    slot->last_offset = producer->last_offset;
    slot->producer_epoch = producer->producer_epoch;
    return KL_OK;
}

kl_status kl_clean_txns_add_aborted(kl_clean_txns *txns, const kl_aborts *aborts) {
    size_t wanted = txns->aborted_count + aborts->count;
    if (wanted > txns->aborted_capacity) {
        size_t capacity = KL_MAX(wanted, 2 * txns->aborted_capacity);
        kl_aborted *grown = kl_resize(txns->aborted, capacity * sizeof *grown);
        if (grown == NULL)
            return kl_fail(KL_E_NO_MEMORY, "no memory for %zu aborted transactions",
                           capacity);
        txns->aborted = grown;
        txns->aborted_capacity = capacity;
    }
    if (aborts->count)
        memcpy(txns->aborted + txns->aborted_count, aborts->entries,
               aborts->count * sizeof *aborts->entries);
    txns->aborted_count = wanted;
    return KL_OK;
}

static int by_first_offset(const void *a, const void *b) {
    int64_t left = ((const kl_aborted *)a)->first_offset;
    int64_t right = ((const kl_aborted *)b)->first_offset;
    return (left > right) - (left < right);
}

void kl_clean_txns_rewind(kl_clean_txns *txns) {
    if (txns->aborted_count > 1)
        qsort(txns->aborted, txns->aborted_count, sizeof *txns->aborted, by_first_offset);
    txns->aborted_next = 0;
    for (size_t i = 0; i < txns->slot_count; i++) {
        txns->slots[i].aborted = NULL;
        txns->slots[i].data_seen = false;
    }
}

/* Aborted transactions that begin at or below `offset` are under way now. */
static kl_status come_to(kl_clean_txns *txns, int64_t offset) {
    while (txns->aborted_next < txns->aborted_count &&
           txns->aborted[txns->aborted_next].first_offset <= offset) {
        const kl_aborted *entry = &txns->aborted[txns->aborted_next++];
        kl_clean_producer *slot;
        kl_status status = obtain(txns, entry->producer_id, &slot);
        if (status) return status;
        slot->aborted = entry;
        slot->data_seen = false;
    }
    return KL_OK;
}

kl_status kl_clean_txns_data(kl_clean_txns *txns, const kl_batch *batch, bool *aborted) {
    *aborted = false;
    kl_status status = come_to(txns, batch->last_offset);
    if (status || !kl_batch_is_transactional(batch)) return status;
    kl_clean_producer *slot;
    status = obtain(txns, batch->producer_id, &slot);
    if (status) return status;
    /* Behind its marker, which may be gone already, a transaction is over. */
    if (slot->aborted && slot->aborted->last_offset < batch->base_offset) {
        slot->aborted = NULL;
        slot->data_seen = false;
    }
    *aborted = slot->aborted != NULL;
    slot->data_seen = true;
    return KL_OK;
}

kl_status kl_clean_txns_control(kl_clean_txns *txns, const kl_batch *batch, int32_t type,
                                bool *spent, const kl_aborted **entry) {
    *spent = type == -1; /* an empty one was cleaned before */
    *entry = NULL;
    kl_status status = come_to(txns, batch->last_offset);
    if (status || (type != KL_CONTROL_ABORT && type != KL_CONTROL_COMMIT)) return status;
    kl_clean_producer *slot;
    status = obtain(txns, batch->producer_id, &slot);
    if (status) return status;
    *spent = !slot->data_seen;
    if (type == KL_CONTROL_ABORT && slot->data_seen && slot->aborted &&
        slot->aborted->last_offset == batch->last_offset)
        *entry = slot->aborted;
    slot->aborted = NULL;
    slot->data_seen = false;
    return KL_OK;
}

bool kl_clean_txns_is_last(const kl_clean_txns *txns, const kl_batch *batch) {
    if (batch->producer_id < 0 || txns->slot_count == 0) return false;
    const kl_clean_producer *slot = slot_of(txns, batch->producer_id);
    if (!slot->used || !slot->remembered) return false;
    if (slot->last_offset >= 0) return batch->last_offset == slot->last_offset;
    return kl_batch_is_control(batch) && batch->producer_epoch == slot->producer_epoch;
}
