/* clean_txns.h: producer state of a compaction pass: aborted transactions, transactions without
 * remaining data, each producer's last batch. */
#ifndef KL_CLEAN_TXNS_H
#define KL_CLEAN_TXNS_H

#include "base/table.h"
#include "batch/batch.h"
#include "segment/aborts.h"

typedef struct {
    int64_t producer_id;
    int64_t last_offset;       /* of its last batch; -1: only markers so far */
    const kl_aborted *aborted; /* the current aborted transaction, or NULL */
    int16_t producer_epoch;
    bool remembered; /* the log remembers it: last_offset, producer_epoch are set */
    bool data_seen;  /* its current transaction has a data batch */
} kl_clean_producer;

typedef struct {
    kl_table producers;  /* kl_clean_producer, by id */
    kl_aborted *aborted; /* of the whole range, ordered by first offset */
    size_t aborted_count;
    size_t aborted_capacity;
    size_t aborted_next; /* the first that the pass has not reached */
} kl_clean_txns;

void kl_clean_txns_free(kl_clean_txns *txns);
/* Add the log's state at the start of a round. */
kl_status kl_clean_txns_add_producer(kl_clean_txns *txns, const kl_producer *known);
kl_status kl_clean_txns_add_aborted(kl_clean_txns *txns, const kl_aborts *aborts);
/* Begin a pass. */
void kl_clean_txns_rewind(kl_clean_txns *txns);

/* A data batch of the pass; *aborted: its transaction was aborted. */
kl_status kl_clean_txns_data(kl_clean_txns *txns, const kl_batch *batch, bool *aborted);
/* A control batch of the pass, with kl_batch_control's type.  *spent: its transaction has no data
 * left, so the marker may go at its horizon.  *entry: the aborted transaction that it ends, if the
 * pass met data of it, otherwise NULL. */
kl_status kl_clean_txns_control(kl_clean_txns *txns, const kl_batch *batch, int32_t type,
                                bool *spent, const kl_aborted **entry);
/* True if the batch has the last sequence, or the last epoch, of a remembered producer. */
bool kl_clean_txns_is_last(const kl_clean_txns *txns, const kl_batch *batch);

#endif
