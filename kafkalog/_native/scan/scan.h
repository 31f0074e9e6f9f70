/* scan.h: reads a range of a log, filtered, into blocks.  It uses only kl_log_read and
 * kl_log_read_headers, so it works on the writer's log and on a reader's.  It also scans batches in
 * memory. */
#ifndef KL_SCAN_H
#define KL_SCAN_H

#include "base/buffer.h"
#include "batch/batch.h"
#include "block.h"

struct kl_scan {
    kl_log *log; /* owned by the caller; outlives the scan.  NULL: a scan of memory */
    kl_scan_options options; /* resolved at open: no -1 left; topic and key are copies */
    char *topic;
    uint8_t *key;        /* options.key */
    int64_t position;    /* the next offset to read */
    kl_aborted *aborted; /* by producer id, then first offset */
    size_t aborted_count;
    int64_t generation; /* the log's generation when they were loaded */

    kl_span chunk; /* whole batches, from kl_log_read or kl_scan_give */
    size_t chunk_pos;
    size_t chunk_wanted; /* grows with large compressed batches: see scan.c */
    kl_buffer memory;    /* holds the chunk, unless in_block does */
    kl_block *in_block;  /* retained: its bytes hold the chunk, for views; or NULL */
    bool into_block;     /* read the next chunk into a block: views use most of it */
    size_t chunk_used;   /* bytes of the chunk that views refer to */
    size_t passed_bytes; /* read since the last return to the caller */

    kl_batch *headers; /* HEADERS_ROOM headers, for a count; NULL until needed */

    kl_batch *pending; /* compressed batches at the caller */
    int32_t pending_capacity;
    int32_t pending_count;
    int32_t pending_next;
    kl_buffer joined; /* bodies joined by kl_scan_join */

    kl_block_pool *own_pool; /* NULL: the shared one */
    kl_block_pool *shared_pool;
    kl_constants *constants;
    kl_block *filling;    /* NULL: none begun */
    kl_block *full_first; /* sealed, in log order, not taken yet */
    kl_block *full_last;
    int64_t counted;
};

/* scan.c */

/* A scan without a range or a name.  Free *out with kl_scan_free, even after a failure. */
kl_status kl_scan_make(const kl_scan_options *options, kl_scan **out);
/* Set the topic and partition of the rows that come next, their constant columns. */
kl_status kl_scan_name(kl_scan *scan, const char *topic, int32_t partition);
/* Discard the rows that were not taken. */
void kl_scan_drop_rows(kl_scan *scan);
void kl_scan_sort_aborted(kl_scan *scan);

/* scan_decode.c */

/* The producer's aborted transaction that contains `offset`, or NULL. */
kl_aborted *kl_scan_aborted_at(const kl_scan *scan, int64_t producer_id, int64_t offset);
/* Seal the block being filled, if it has rows, and queue it. */
kl_status kl_scan_seal(kl_scan *scan);

/* How much of a batch must be read. */
typedef enum {
    KL_USE_NOTHING, /* no record is wanted */
    KL_USE_HEADER,  /* the header suffices */
    KL_USE_RECORDS
} kl_batch_use;
kl_batch_use kl_scan_judge(const kl_scan *scan, const kl_batch *batch);
/* Rows from the header alone, for KL_USE_HEADER. */
kl_status kl_scan_from_header(kl_scan *scan, const kl_batch *batch);
/* Begin a block, unless one is being filled. */
kl_status kl_scan_begin(kl_scan *scan);
/* Rows from the uncompressed records of a batch.  On failure the block is as before. */
kl_status kl_scan_from_records(kl_scan *scan, const kl_batch *batch, kl_span records);

/* utf8.c */

/* Size of the first sequence at `p` (p < end); *valid: it is well-formed UTF-8.  Of an ill-formed
 * one: the bytes that one U+FFFD replaces. */
size_t kl_utf8_next(const uint8_t *p, const uint8_t *end, bool *valid);
bool kl_utf8_valid(const uint8_t *p, size_t bytes);

#endif
