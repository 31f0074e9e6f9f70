/* clean.h: one round of compaction.  The contract is in kafkalog.h, the rules are in
 * docs/format.md, "Compaction".
 *
 * Pass 1 (KL_PASS_MAP) collects the keys of the dirty part.  Pass 2 (KL_PASS_WRITE) rewrites groups
 * of segments into one segment each, which replaces them.  The log's lock is held at the start and
 * during each swap, not in between: sealed segments do not change, and their removal changes the
 * generation. */
#ifndef KL_CLEAN_H
#define KL_CLEAN_H

#include "clean_map.h"
#include "clean_txns.h"
#include "log/log.h"

typedef enum { KL_PASS_MAP, KL_PASS_WRITE, KL_PASS_DONE } kl_clean_pass;

/* The outcome for a batch. */
typedef enum {
    KL_FATE_KEEP, /* unchanged */
    KL_FATE_DROP,
    KL_FATE_EMPTY,  /* header without records */
    KL_FATE_REWRITE /* some records, or a new delete horizon */
} kl_clean_fate;

/* A batch being rewritten, and the results of the filter. */
typedef struct {
    kl_batch batch;
    kl_clean_fate fate;
    bool look;         /* the records must be read */
    bool retain_empty; /* if no record stays */
    bool set_horizon;  /* it gets a delete horizon */
    int32_t kept;
    int64_t base_timestamp; /* of the new batch, */
    int64_t max_timestamp;  /* and its largest */
    /* Compressed batches: positions in kl_cleaner.raw and .bodies. */
    size_t raw_pos;
    size_t body_pos;
    size_t body_bytes;
} kl_clean_item;

/* Segments to be merged. */
typedef struct {
    size_t first; /* in kl_cleaner.segments */
    size_t count;
    size_t last_full; /* the last one with a batch, or `first` */
} kl_clean_group;

struct kl_cleaner {
    kl_log *log; /* owned by the caller; outlives the cleaner */
    kl_dir *dir; /* its folder, held open so that cleanup needs no new descriptor */
    kl_clean_options options;
    uint64_t secret[2];
    int64_t generation; /* the log's, as of this round */
    int64_t index_interval_bytes;
    kl_segment **segments; /* retained: the segments of the round */
    int64_t *next_bases;   /* of each */
    size_t segment_count;
    kl_clean_group *groups;
    size_t group_count;

    kl_clean_pass pass;
    kl_clean_map map;
    kl_clean_txns txns;
    bool map_full;
    bool failed;
    int64_t end_offset;   /* end of the keys in the map */
    int64_t passed_bytes; /* since the last return to the caller */

    size_t group;   /* pass 2: the current group */
    size_t segment; /* both: the current segment */
    bool walking;
    bool walked;         /* to its end */
    int64_t next_offset; /* lower bound of the next base offset */
    kl_walk walk;
    bool have_item; /* the item below is read, not handled yet */
    kl_clean_item item;
    const uint8_t *item_data;

    kl_clean_item *pending; /* compressed batches for the caller */
    int32_t pending_capacity;
    int32_t pending_count;
    int32_t pending_next;
    int32_t given;    /* bodies returned by the caller */
    bool deflating;   /* the caller compresses; otherwise decompresses */
    kl_buffer raw;    /* their compressed bytes, header included */
    kl_buffer bodies; /* bodies to be compressed */
    kl_buffer flags;  /* one byte per record: whether it stays */

    kl_segment *out;      /* the new segment, or NULL */
    kl_buffer out_buffer; /* its unwritten tail */
    bool out_changed;     /* it differs from its only source segment */
    kl_cleaned done;
};

/* ---- clean_records.c ---------------------------------------------------------------- */
/* Add a batch's keys to the map.  *full: not all fitted. */
kl_status kl_clean_index(kl_cleaner *cleaner, const kl_batch *batch, kl_span records,
                         bool *full);
/* Filter the records of a data batch: fills cleaner->flags and the item's results. */
kl_status kl_clean_filter(kl_cleaner *cleaner, kl_clean_item *item, kl_span records);
/* Append the remaining records to `out`, encoded for the new batch. */
kl_status kl_clean_rewrite(const kl_cleaner *cleaner, const kl_clean_item *item,
                           kl_span records, kl_buffer *out);
/* The new batch's header. */
kl_batch kl_clean_header(const kl_clean_item *item);
/* The delete horizon of tombstones and markers first seen now. */
int64_t kl_clean_horizon(const kl_cleaner *cleaner);

/* ---- clean_out.c -------------------------------------------------------------------- */
/* Begin the segment that replaces group cleaner->group. */
kl_status kl_clean_out_begin(kl_cleaner *cleaner);
/* Add an unchanged batch; or one with `header` and the `records` at the end of the buffer. */
kl_status kl_clean_out_batch(kl_cleaner *cleaner, const kl_batch *batch,
                             const uint8_t *data);
kl_status kl_clean_out_built(kl_cleaner *cleaner, const kl_batch *header,
                             const uint8_t *records, size_t bytes);
/* Finish the segment and replace the group. */
kl_status kl_clean_out_end(kl_cleaner *cleaner);
/* Drop an unfinished segment; `unlink`: and its files. */
void kl_clean_out_drop(kl_cleaner *cleaner, bool unlink);

#endif
