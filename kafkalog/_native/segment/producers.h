/* producers.h: a log's state of its producers: sequences, epochs, open transactions.
 * Pure: bytes in, decisions out; the log's lock guards it.  Kafka's semantics: docs/format.md,
 * "Producer snapshot". */
#ifndef KL_PRODUCERS_H
#define KL_PRODUCERS_H

#include "base/buffer.h"
#include "base/table.h"
#include "batch/batch.h"

enum {
    KL_PRODUCER_BATCHES = 5, /* remembered per producer, as Kafka does */
    /* How many producers a log remembers, about 25 MB.  One more evicts the one that was silent
     * longest, but none in a transaction; if all are in one, a new one is refused.  The limit is
     * only exceeded by what a log already holds, and by at most one through markers. */
    KL_PRODUCERS_MAX = 100000
};

typedef struct {
    int32_t first_sequence;
    int32_t last_sequence;
    int64_t last_offset;
    int32_t offset_delta;
    int64_t timestamp_ms;
} kl_producer_batch;

typedef struct kl_producer_entry kl_producer_entry;
struct kl_producer_entry {
    kl_producer_entry *older; /* in its list */
    kl_producer_entry *newer; /* of a spare one: the next */
    int64_t heard_ms;         /* by our clock; read back: not after then */
    int64_t producer_id;
    int64_t txn_start_offset;                       /* -1: none */
    int64_t last_timestamp_ms;                      /* as the producer has it */
    kl_producer_batch batches[KL_PRODUCER_BATCHES]; /* oldest first */
    int32_t batch_count;
    int32_t coordinator_epoch; /* -1: none */
    int16_t producer_epoch;
};

/* A transaction whose marker is known but may lie above the high watermark. */
typedef struct {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the marker */
} kl_finished_txn;

typedef struct {
    kl_producer_entry *oldest;
    kl_producer_entry *newest;
} kl_producer_list;

typedef struct {
    kl_table table;           /* by producer id, which clients choose */
    kl_producer_list idle;    /* by when they were heard of last */
    kl_producer_list open;    /* in a transaction, by where it begins */
    kl_producer_entry *spare; /* memory of entries to come; few but for a reserve */
    size_t spare_count;
    size_t count;
    size_t open_txns;          /* how many `open` has */
    kl_finished_txn *finished; /* ascending last_offset */
    size_t finished_count;
    size_t finished_capacity;
} kl_producers;

void kl_producers_init(kl_producers *producers);
void kl_producers_clear(kl_producers *producers);
void kl_producers_free(kl_producers *producers);
/* Valid until the next apply, expire or load; NULL when unknown. */
kl_producer_entry *kl_producers_find(const kl_producers *producers, int64_t producer_id);

/* Check a data batch that a client sent, before it gets an offset.
 * *duplicate: the remembered batch that it repeats, else NULL.
 * KL_E_INVALID_PRODUCER_EPOCH, KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER, KL_E_INVALID_TXN_STATE;
 * KL_E_INVALID_RECORD: a negative sequence or producer epoch.
 * KL_E_NO_MEMORY: one more than can be remembered (KL_PRODUCERS_MAX).
 * `check_sequence` false: the coordinator's own appends.  Not for markers. */
kl_status kl_producers_check(kl_producers *producers, const kl_batch *batch,
                             bool check_sequence, const kl_producer_batch **duplicate);
/* The same for one of several batches that come together: `after` (NULL: it comes alone) is
 * what their producers have done behind the batches before it, and moves on; *duplicate then
 * points into it. */
kl_status kl_producers_try(kl_producers *producers, kl_producers *after,
                           const kl_batch *batch, bool check_sequence,
                           const kl_producer_batch **duplicate);
/* Whether the batch's producer, of the same epoch, has a transaction open here. */
bool kl_producers_is_open(const kl_producers *producers, const kl_batch *batch);
/* Room for `more` unknown producers and one marker; then as many applies cannot fail. */
kl_status kl_producers_reserve(kl_producers *producers, size_t more);
/* Give back the room that was reserved and not used, but a little. */
void kl_producers_trim(kl_producers *producers);
/* Note an appended data batch with a producer id; batch->base_offset is final.  `heard_ms`: by
 * our clock; of a replayed one the earlier of the clock and its own time (kl_producers_heard).
 * Checks nothing: a real log has gaps by retention, epochs that rise, empty batches. */
kl_status kl_producers_apply(kl_producers *producers, const kl_batch *batch,
                             int64_t heard_ms);
static inline int64_t kl_producers_heard(int64_t timestamp_ms, int64_t now_ms) {
    return KL_MIN(timestamp_ms, now_ms);
}
/* Check a marker before it is appended: KL_E_TRANSACTION_COORDINATOR_FENCED,
 * KL_E_INVALID_PRODUCER_EPOCH.  `raised`: its epoch is one above that of the transaction, so
 * that one of the epoch of an open transaction ends the one before, late (KIP-1228). */
kl_status kl_producers_check_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    bool raised);
/* Note a marker at `offset`.  *first_offset: where its transaction began here, -1: it had
 * no open one (nothing to abort). */
kl_status kl_producers_apply_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    int64_t offset, int64_t timestamp_ms, int64_t heard_ms,
                                    int64_t *first_offset);
/* The first offset of the earliest transaction that is open, or finished with a marker at
 * or above `high_watermark`; INT64_MAX: none.  Forgets finished ones below it. */
int64_t kl_producers_first_unstable(kl_producers *producers, int64_t high_watermark);
/* The first offset of the earliest open transaction alone, INT64_MAX: none.  What .txnindex
 * stores as last stable offset right after a marker is this, or the end behind the marker. */
int64_t kl_producers_first_open(const kl_producers *producers);
/* The same when the transaction of `left_out` ends. */
int64_t kl_producers_first_open_besides(const kl_producers *producers,
                                        const kl_producer_entry *left_out);
/* Whether one of them has ended a transaction; those that were forgotten are not asked. */
bool kl_producers_ended_txn(const kl_producers *producers);
/* Forget producers without an open transaction that were heard of last before `before_ms`; how
 * many. */
size_t kl_producers_expire(kl_producers *producers, int64_t before_ms);
/* Copy out, in no order; how many there are.  None are copied when there are more than
 * max_entries. */
size_t kl_producers_list(const kl_producers *producers, kl_producer *out,
                         size_t max_entries);
/* By ascending producer id: not for under a lock, as there may be a hundred thousand. */
void kl_producers_sort(kl_producer *list, size_t count);

/* The bytes of a .snapshot (ascending producer id). */
kl_status kl_snapshot_encode(const kl_producers *producers, kl_buffer *out);
/* Replace the state by a snapshot's; cleared on failure.  KL_E_CORRUPT. */
kl_status kl_producers_load(kl_producers *producers, const uint8_t *data, size_t bytes,
                            int64_t now_ms);
/* Whether the last batch of any lies at or above `offset`. */
bool kl_producers_reach(const kl_producers *producers, int64_t offset);
/* Give those of a snapshot the batches before their last one, which `found` has applied. */
void kl_producers_recall(kl_producers *producers, const kl_producers *found);

#endif
