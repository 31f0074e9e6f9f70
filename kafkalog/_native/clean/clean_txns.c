/* clean_txns.c: see clean_txns.h. */
#include "clean_txns.h"

#include "base/hash.h"

void kl_clean_txns_free(kl_clean_txns *txns) {
    void *producer;
    for (size_t at = 0; (producer = kl_table_next(&txns->producers, &at));)
        kl_release(producer);
    kl_table_free(&txns->producers);
    kl_release(txns->aborted);
    *txns = (kl_clean_txns){0};
}

static bool same_id(const void *entry, const void *key) {
    return ((const kl_clean_producer *)entry)->producer_id == *(const int64_t *)key;
}

static kl_clean_producer *find(const kl_clean_txns *txns, int64_t producer_id) {
    return kl_table_find(&txns->producers, kl_hash_number((uint64_t)producer_id),
                         &producer_id, same_id);
}

/* Find the producer's entry, or create it. */
static kl_status obtain(kl_clean_txns *txns, int64_t producer_id, kl_clean_producer **out) {
    *out = find(txns, producer_id);
    if (*out) return KL_OK;
    kl_clean_producer *producer = kl_alloc(sizeof *producer);
    if (producer == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for producer %zu of a compaction",
                       txns->producers.count + 1);
    *producer = (kl_clean_producer){.producer_id = producer_id, .last_offset = -1};
    kl_status status =
        kl_table_add(&txns->producers, kl_hash_number((uint64_t)producer_id), producer);
    if (status) kl_release(producer);
    else *out = producer;
    return status;
}

kl_status kl_clean_txns_add_producer(kl_clean_txns *txns, const kl_producer *known) {
    kl_clean_producer *producer;
    kl_status status = obtain(txns, known->producer_id, &producer);
    if (status) return status;
    producer->remembered = true;
    producer->last_offset = known->last_offset;
    producer->producer_epoch = known->producer_epoch;
    return KL_OK;
}

kl_status kl_clean_txns_add_aborted(kl_clean_txns *txns, const kl_aborts *aborts) {
    if (aborts->count == 0) return KL_OK;
    size_t wanted = txns->aborted_count + aborts->count;
    kl_aborted *grown =
        kl_room_for(txns->aborted, &txns->aborted_capacity, wanted, sizeof *grown);
    if (grown == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu aborted transactions", wanted);
    txns->aborted = grown;
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
    kl_clean_producer *producer;
    for (size_t at = 0; (producer = kl_table_next(&txns->producers, &at));) {
        producer->aborted = NULL;
        producer->data_seen = false;
    }
}

/* Begin the aborted transactions that start at or below `offset`. */
static kl_status come_to(kl_clean_txns *txns, int64_t offset) {
    KL_ASSERT(txns->aborted_next <= txns->aborted_count);
    while (txns->aborted_next < txns->aborted_count &&
           txns->aborted[txns->aborted_next].first_offset <= offset) {
        const kl_aborted *entry = &txns->aborted[txns->aborted_next++];
        kl_clean_producer *producer;
        kl_status status = obtain(txns, entry->producer_id, &producer);
        if (status) return status;
        producer->aborted = entry;
        producer->data_seen = false;
    }
    return KL_OK;
}

kl_status kl_clean_txns_data(kl_clean_txns *txns, const kl_batch *batch, bool *aborted) {
    *aborted = false;
    kl_status status = come_to(txns, batch->last_offset);
    if (status || !kl_batch_is_transactional(batch)) return status;
    kl_clean_producer *producer;
    status = obtain(txns, batch->producer_id, &producer);
    if (status) return status;
    /* The transaction ended at its marker, which may be removed already. */
    if (producer->aborted && producer->aborted->last_offset < batch->base_offset) {
        producer->aborted = NULL;
        producer->data_seen = false;
    }
    *aborted = producer->aborted != NULL;
    producer->data_seen = true;
    return KL_OK;
}

kl_status kl_clean_txns_control(kl_clean_txns *txns, const kl_batch *batch, int32_t type,
                                bool *spent, const kl_aborted **entry) {
    *spent = type == -1; /* an earlier round emptied the marker */
    *entry = NULL;
    kl_status status = come_to(txns, batch->last_offset);
    if (status || (type != KL_CONTROL_ABORT && type != KL_CONTROL_COMMIT)) return status;
    kl_clean_producer *producer;
    status = obtain(txns, batch->producer_id, &producer);
    if (status) return status;
    *spent = !producer->data_seen;
    if (type == KL_CONTROL_ABORT && producer->data_seen && producer->aborted &&
        producer->aborted->last_offset == batch->last_offset)
        *entry = producer->aborted;
    producer->aborted = NULL;
    producer->data_seen = false;
    return KL_OK;
}

bool kl_clean_txns_is_last(const kl_clean_txns *txns, const kl_batch *batch) {
    const kl_clean_producer *producer =
        batch->producer_id < 0 ? NULL : find(txns, batch->producer_id);
    if (producer == NULL || !producer->remembered) return false;
    if (producer->last_offset >= 0) return batch->last_offset == producer->last_offset;
    return kl_batch_is_control(batch) && batch->producer_epoch == producer->producer_epoch;
}
