/* clean_txns.h: what a pass of compaction knows of producers: whose batches
 * were aborted, of which transactions no data is left, and which batch is a
 * producer's last. */
#ifndef KL_CLEAN_TXNS_H
#define KL_CLEAN_TXNS_H

#include "base/table.h"
#include "batch/batch.h"
#include "segment/aborts.h"

typedef struct {
    int64_t producer_id;
    int64_t last_offset;       /* of its last batch; -1: only markers so far */
    const kl_aborted *aborted; /* the aborted transaction that the pass is in, or NULL */
    int16_t producer_epoch;
    bool remembered; /* the log remembers it: last_offset and producer_epoch hold */
    bool data_seen;  /* a batch of its present transaction was passed */
} kl_clean_producer;

typedef struct {
    kl_table producers;  /* kl_clean_producer, by id */
    kl_aborted *aborted; /* of the whole range, by first offset */
    size_t aborted_count;
    size_t aborted_capacity;
    size_t aborted_next; /* the first that the pass has not come to */
} kl_clean_txns;

void kl_clean_txns_free(kl_clean_txns *txns);
/* What the log says at the start of a round. */
kl_status kl_clean_txns_add_producer(kl_clean_txns *txns, const kl_producer *known);
kl_status kl_clean_txns_add_aborted(kl_clean_txns *txns, const kl_aborts *aborts);
/* Begin a pass. */
void kl_clean_txns_rewind(kl_clean_txns *txns);

/* A data batch of the pass: whether its records were aborted. */
kl_status kl_clean_txns_data(kl_clean_txns *txns, const kl_batch *batch, bool *aborted);
/* A control batch of the pass, of kl_batch_control's type.  *spent: nothing of
 * its transaction is left, so it may go in its time.  *entry: the aborted
 * transaction that it ends and of which data was passed, else NULL. */
kl_status kl_clean_txns_control(kl_clean_txns *txns, const kl_batch *batch, int32_t type,
                                bool *spent, const kl_aborted **entry);
/* Whether the batch holds the last sequence, or the last epoch, of a remembered
 * producer. */
bool kl_clean_txns_is_last(const kl_clean_txns *txns, const kl_batch *batch);

#endif
