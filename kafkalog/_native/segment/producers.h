/* producers.h: a log's producer state: sequences, epochs, open transactions.  Pure: bytes in,
 * decisions out; the log's lock guards it.  Kafka's semantics: docs/format.md, "Producer
 * snapshot". */
#ifndef KL_PRODUCERS_H
#define KL_PRODUCERS_H

#include "base/buffer.h"
#include "base/table.h"
#include "batch/batch.h"

enum {
    KL_PRODUCER_BATCHES = 5, /* batches remembered per producer, as in Kafka */
    /* Producers that a log remembers, about 25 MB.  One more evicts the longest idle one, never one
     * in a transaction; if all are in one, a new producer is refused.  Only records already in the
     * log can exceed this limit, and markers by at most one. */
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
    kl_producer_entry *newer; /* of a spare entry: the next */
    int64_t heard_ms;         /* by our clock; after a load: not later than this */
    int64_t producer_id;
    int64_t txn_start_offset;                       /* -1: none */
    int64_t last_timestamp_ms;                      /* the producer's time */
    kl_producer_batch batches[KL_PRODUCER_BATCHES]; /* oldest first */
    int32_t batch_count;
    int32_t coordinator_epoch; /* -1: none */
    int16_t producer_epoch;
};

/* A finished transaction whose marker may be above the high watermark. */
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
    kl_table table;           /* by producer id, chosen by clients */
    kl_producer_list idle;    /* ordered by last activity */
    kl_producer_list open;    /* in a transaction, ordered by its first offset */
    kl_producer_entry *spare; /* free entries; few, except a reserve */
    size_t spare_count;
    size_t count;
    size_t open_txns;          /* length of `open` */
    kl_finished_txn *finished; /* ascending last_offset */
    size_t finished_count;
    size_t finished_capacity;
} kl_producers;

void kl_producers_init(kl_producers *producers);
void kl_producers_clear(kl_producers *producers);
void kl_producers_free(kl_producers *producers);
/* Valid until the next apply, expire or load; NULL: unknown. */
kl_producer_entry *kl_producers_find(const kl_producers *producers, int64_t producer_id);

/* Check a client's data batch before it gets an offset. *duplicate: the remembered batch that it
 * repeats, or NULL. KL_E_INVALID_PRODUCER_EPOCH, KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER,
 * KL_E_INVALID_TXN_STATE; KL_E_INVALID_RECORD: a negative sequence or producer epoch;
 * KL_E_NO_MEMORY: KL_PRODUCERS_MAX is reached. `check_sequence` false: the coordinator's own
 * appends.  Not for markers. */
kl_status kl_producers_check(kl_producers *producers, const kl_batch *batch,
                             bool check_sequence, const kl_producer_batch **duplicate);
/* The same for one of several batches in a request: `after` (NULL: a single batch) is the state of
 * their producers after the previous batches, and is updated; *duplicate then points into it. */
kl_status kl_producers_try(kl_producers *producers, kl_producers *after,
                           const kl_batch *batch, bool check_sequence,
                           const kl_producer_batch **duplicate);
/* True if the batch's producer, with the same epoch, has an open transaction in this log. */
bool kl_producers_is_open(const kl_producers *producers, const kl_batch *batch);
/* Reserve memory for `more` unknown producers and one marker, so that their applies cannot fail. */
kl_status kl_producers_reserve(kl_producers *producers, size_t more);
/* Free unused reserved memory, except a little. */
void kl_producers_trim(kl_producers *producers);
/* Record an appended data batch with a producer id; batch->base_offset is final.  `heard_ms`: our
 * clock; for a replayed batch kl_producers_heard, the earlier of the clock and its timestamp.
 * Checks nothing: a real log has gaps by retention, rising epochs, empty batches. */
kl_status kl_producers_apply(kl_producers *producers, const kl_batch *batch,
                             int64_t heard_ms);
static inline int64_t kl_producers_heard(int64_t timestamp_ms, int64_t now_ms) {
    return KL_MIN(timestamp_ms, now_ms);
}
/* Check a marker before it is appended: KL_E_TRANSACTION_COORDINATOR_FENCED,
 * KL_E_INVALID_PRODUCER_EPOCH.  `raised`: the marker's epoch is one above that of its transaction,
 * so if the open transaction has the marker's own epoch, the marker is late (KIP-1228). */
kl_status kl_producers_check_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    bool raised);
/* Record a marker at `offset`.  *first_offset: the first offset of its transaction in this log, or
 * -1 if none was open (nothing to abort). */
kl_status kl_producers_apply_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    int64_t offset, int64_t timestamp_ms, int64_t heard_ms,
                                    int64_t *first_offset);
/* The first offset of the earliest transaction that is open, or whose marker is at or above
 * `high_watermark`; INT64_MAX: none.  Forgets finished ones below it. */
int64_t kl_producers_first_unstable(kl_producers *producers, int64_t high_watermark);
/* The first offset of the earliest open transaction; INT64_MAX: none.  The last stable offset in
 * .txnindex, just after a marker, is this or the offset after the marker. */
int64_t kl_producers_first_open(const kl_producers *producers);
/* The same without the transaction of `left_out`. */
int64_t kl_producers_first_open_besides(const kl_producers *producers,
                                        const kl_producer_entry *left_out);
/* True if any remembered producer has ended a transaction. */
bool kl_producers_ended_txn(const kl_producers *producers);
/* Forget producers without an open transaction and last active before `before_ms`; returns how
 * many. */
size_t kl_producers_expire(kl_producers *producers, int64_t before_ms);
/* Copy all, unordered; returns how many there are, and copies none if they exceed max_entries. */
size_t kl_producers_list(const kl_producers *producers, kl_producer *out,
                         size_t max_entries);
/* Sort by producer id.  Do not call under a lock: there may be a hundred thousand. */
void kl_producers_sort(kl_producer *list, size_t count);

/* Encode a .snapshot (ascending producer id). */
kl_status kl_snapshot_encode(const kl_producers *producers, kl_buffer *out);
/* Replace the state with a snapshot's; cleared on failure.  KL_E_CORRUPT. */
kl_status kl_producers_load(kl_producers *producers, const uint8_t *data, size_t bytes,
                            int64_t now_ms);
/* True if any producer's last batch is at or above `offset`. */
bool kl_producers_reach(const kl_producers *producers, int64_t offset);
/* Add to a snapshot's producers the batches before their last one, which `found` has. */
void kl_producers_recall(kl_producers *producers, const kl_producers *found);

#endif
