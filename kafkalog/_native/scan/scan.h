/* scan.h: a range of a log, filtered, into blocks.  Stands on kl_log_read and its headers alone,
 * so it works the same for the writer's log and for a reader's; or batches that were given in
 * memory. */
#ifndef KL_SCAN_H
#define KL_SCAN_H

#include "base/buffer.h"
#include "batch/batch.h"
#include "block.h"

struct kl_scan {
    kl_log *log;             /* the caller's; outlives the scan.  NULL: of memory */
    kl_scan_options options; /* resolved at open: no -1 left; topic and key point at ours */
    char *topic;
    uint8_t *key;        /* options.key */
    int64_t position;    /* the next offset to look at */
    kl_aborted *aborted; /* by producer id, then first offset */
    size_t aborted_count;
    int64_t generation; /* of the log when they were looked up */

    kl_span chunk; /* whole batches as kl_log_read gave them, or kl_scan_give's */
    size_t chunk_pos;
    size_t chunk_wanted; /* grows with large compressed batches: see scan.c */
    kl_buffer memory;    /* where the chunk lies, but for */
    kl_block *in_block;  /* retained: in its bytes, for views; else NULL */
    bool into_block;     /* the next chunk is read there: views want most of it */
    size_t chunk_used;   /* of the chunk, that views point to */
    size_t passed_bytes; /* read since the caller last had a say */

    kl_batch *headers; /* HEADERS_ROOM, of a count; NULL: none was asked for */

    kl_batch *pending; /* compressed batches that the caller decodes now */
    int32_t pending_capacity;
    int32_t pending_count;
    int32_t pending_next;
    kl_buffer joined; /* bodies of some of them: see kl_scan_join */

    kl_block_pool *own_pool; /* NULL: the shared one */
    kl_block_pool *shared_pool;
    kl_constants *constants;
    kl_block *filling;    /* NULL: none begun */
    kl_block *full_first; /* sealed, in log order, not yet taken */
    kl_block *full_last;
    int64_t counted;
};

/* scan.c */

/* A scan without a range and a name.  Also after a failure *out is for kl_scan_free. */
kl_status kl_scan_make(const kl_scan_options *options, kl_scan **out);
/* Whose rows come next: their constant columns. */
kl_status kl_scan_name(kl_scan *scan, const char *topic, int32_t partition);
/* Forget the rows that were not taken. */
void kl_scan_drop_rows(kl_scan *scan);
void kl_scan_sort_aborted(kl_scan *scan);

/* scan_decode.c */

/* The aborted transaction of a producer that an offset lies in; NULL: none. */
kl_aborted *kl_scan_aborted_at(const kl_scan *scan, int64_t producer_id, int64_t offset);
/* Seal what is being filled, if it has rows, and queue it. */
kl_status kl_scan_seal(kl_scan *scan);

/* What of a batch has to be looked at. */
typedef enum {
    KL_USE_NOTHING, /* no record of it is wanted */
    KL_USE_HEADER,  /* the header says all that is asked */
    KL_USE_RECORDS
} kl_batch_use;
kl_batch_use kl_scan_judge(const kl_scan *scan, const kl_batch *batch);
/* Rows that need no record; for KL_USE_HEADER. */
kl_status kl_scan_from_header(kl_scan *scan, const kl_batch *batch);
/* Begin a block, if none is. */
kl_status kl_scan_begin(kl_scan *scan);
/* Rows from the uncompressed records of a batch.  On failure the block is as before. */
kl_status kl_scan_from_records(kl_scan *scan, const kl_batch *batch, kl_span records);

/* utf8.c */

/* Bytes of the first sequence at `p` (p < end); *valid: whether it is well-formed UTF-8.
 * Of an ill-formed one: as many as one U+FFFD replaces. */
size_t kl_utf8_next(const uint8_t *p, const uint8_t *end, bool *valid);
bool kl_utf8_valid(const uint8_t *p, size_t bytes);

#endif
