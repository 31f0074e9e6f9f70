/* clean.h: one round of compaction.  The contract is in kafkalog.h; what is
 * kept and what goes is said in docs/format.md, "Compaction".
 *
 * Pass 1 (KL_PASS_MAP) puts the keys of the dirty part into the map.  Pass 2
 * (KL_PASS_WRITE) rewrites groups of segments, each into one segment that
 * then takes their place.  The log's lock is held when a round begins and for
 * each exchange, not between: sealed segments do not change, and the generation
 * changes when they go. */
#ifndef KL_CLEAN_H
#define KL_CLEAN_H

#include "clean_map.h"
#include "clean_txns.h"
#include "log/log.h"

typedef enum { KL_PASS_MAP, KL_PASS_WRITE, KL_PASS_DONE } kl_clean_pass;

/* What becomes of a batch. */
typedef enum {
    KL_FATE_KEEP, /* its bytes as they are */
    KL_FATE_DROP,
    KL_FATE_EMPTY,  /* its header stays, without records */
    KL_FATE_REWRITE /* with some of its records, or a delete horizon */
} kl_clean_fate;

/* A batch in the rewrite, and what was found out about its records. */
typedef struct {
    kl_batch batch;
    kl_clean_fate fate;
    bool look;         /* its records must be seen */
    bool retain_empty; /* when no record stays */
    bool set_horizon;  /* it gets a delete horizon now */
    int32_t kept;
    int64_t base_timestamp; /* of the batch that stays, */
    int64_t max_timestamp;  /* and its largest */
    /* Of a compressed batch: places in kl_cleaner.raw and .bodies. */
    size_t raw_pos;
    size_t body_pos;
    size_t body_bytes;
} kl_clean_item;

/* Segments that become one. */
typedef struct {
    size_t first; /* in kl_cleaner.segments */
    size_t count;
    size_t last_full; /* the last one that has a batch; `first` when none has */
} kl_clean_group;

struct kl_cleaner {
    kl_log *log; /* the caller's; outlives the cleaner */
    kl_dir *dir; /* its folder: what is half made goes without a descriptor more */
    kl_clean_options options;
    uint64_t secret[2];
    int64_t generation; /* of the log, as this round knows it */
    int64_t index_interval_bytes;
    kl_segment **segments; /* retained: those that the round may touch */
    int64_t *next_bases;   /* of each */
    size_t segment_count;
    kl_clean_group *groups;
    size_t group_count;

    kl_clean_pass pass;
    kl_clean_map map;
    kl_clean_txns txns;
    bool map_full;
    bool failed;
    int64_t end_offset;   /* of the keys in the map */
    int64_t passed_bytes; /* since the caller last had a say */

    size_t group;   /* pass 2: where it is */
    size_t segment; /* both: the segment that is walked */
    bool walking;
    bool walked;         /* to its end */
    int64_t next_offset; /* the next batch's is not below it */
    kl_walk walk;
    bool have_item; /* the batch below was read, not yet dealt with */
    kl_clean_item item;
    const uint8_t *item_data;

    kl_clean_item *pending; /* compressed batches that the caller works on */
    int32_t pending_capacity;
    int32_t pending_count;
    int32_t pending_next;
    int32_t given;    /* bodies that the caller gave back */
    bool deflating;   /* the caller compresses; else it decompresses */
    kl_buffer raw;    /* their compressed bytes, header included */
    kl_buffer bodies; /* what is to be compressed */
    kl_buffer flags;  /* one byte a record of a batch: whether it stays */

    kl_segment *out;      /* NULL: none is written */
    kl_buffer out_buffer; /* of it, not yet written */
    bool out_changed;     /* it is not the one segment that it was made from */
    kl_cleaned done;
};

/* ---- clean_records.c ---------------------------------------------------------------- */
/* Put the keys of a batch into the map.  *full: not all of them fitted. */
kl_status kl_clean_index(kl_cleaner *cleaner, const kl_batch *batch, kl_span records,
                         bool *full);
/* Look at each record of a data batch: fills cleaner->flags and the item's
 * findings. */
kl_status kl_clean_filter(kl_cleaner *cleaner, kl_clean_item *item, kl_span records);
/* The records that stay, as the batch will hold them, at the end of `out`. */
kl_status kl_clean_rewrite(const kl_cleaner *cleaner, const kl_clean_item *item,
                           kl_span records, kl_buffer *out);
/* The header of the batch that stays. */
kl_batch kl_clean_header(const kl_clean_item *item);
/* When tombstones and markers go that are seen for the first time now. */
int64_t kl_clean_horizon(const kl_cleaner *cleaner);

/* ---- clean_out.c -------------------------------------------------------------------- */
/* Begin the segment that takes the place of group cleaner->group. */
kl_status kl_clean_out_begin(kl_cleaner *cleaner);
/* Add a batch as it is; or one of `header` over records that follow it at the
 * end. */
kl_status kl_clean_out_batch(kl_cleaner *cleaner, const kl_batch *batch,
                             const uint8_t *data);
kl_status kl_clean_out_built(kl_cleaner *cleaner, const kl_batch *header,
                             const uint8_t *records, size_t bytes);
/* Finish it, and let it take their place. */
kl_status kl_clean_out_end(kl_cleaner *cleaner);
/* Let go of an unfinished one; `unlink`: of its files, too. */
void kl_clean_out_drop(kl_cleaner *cleaner, bool unlink);

#endif
