/* columns.h: the part of kafkalog.h that reads records as columns: from a log, or from batches in
 * memory.  Included by kafkalog.h, also read by cffi. */
#ifndef KL_COLUMNS_H
#define KL_COLUMNS_H

#include "kafkalog.h"

/* cffi: begin */

/* ---- a scan: columns ------------------------------------------------------------------ */

enum {
    KL_COL_KEY = 1,
    KL_COL_VALUE = 2,
    KL_COL_TOPIC = 4,
    KL_COL_PARTITION = 8,
    KL_COL_OFFSET = 16,
    KL_COL_TIMESTAMP = 32,
    KL_COL_TIMESTAMP_TYPE = 64,
    KL_COL_HEADERS = 128,
    KL_COL_LEADER_EPOCH = 256,
    KL_COL_ALL = 255,
    KL_COL_TIMESTAMP_MS = 512, /* instead of KL_COL_TIMESTAMP, as stored: not for Arrow */
    KL_COL_VIEWS = 1024        /* key and value as Arrow's binary views: only for Arrow */
};

typedef struct kl_scan kl_scan;
typedef struct kl_block kl_block;
typedef struct kl_block_pool kl_block_pool;

/* Filter by key; except with KL_KEY_ANY, null keys never match. */
enum { KL_KEY_ANY = 0, KL_KEY_EQUAL = 1, KL_KEY_PREFIX = 2 };

typedef struct {
    int64_t start_offset;  /* -1: the log start */
    int64_t stop_offset;   /* -1: the bound */
    int64_t start_time_ms; /* records with start <= timestamp < stop */
    int64_t stop_time_ms;  /* INT64_MIN, INT64_MAX: no limit */
    int64_t max_bytes;     /* target of one block's keys and values */
    int32_t max_rows;      /* target: a record batch is never split over blocks */
    int32_t columns;       /* KL_COL_*; 0: count only */
    int32_t bound;         /* KL_UNCOMMITTED, KL_COMMITTED, KL_LOG_END */
    int32_t check_crc;
    int32_t partition;   /* the constant columns */
    const char *topic;   /* copied */
    int32_t control;     /* 1: include control records (dump) */
    kl_block_pool *pool; /* memory of blocks; NULL: the scan's own pool */
    int32_t key_match;   /* KL_KEY_* */
    int32_t key_bytes;
    const uint8_t *key; /* copied */
} kl_scan_options;

enum { KL_SCAN_ROWS = 0, KL_SCAN_INFLATE = 1, KL_SCAN_END = 2, KL_SCAN_PAUSE = 3 };

/* Memory of freed blocks, kept for later blocks: at most `idle_max` of them and 256 MiB.  The scans
 * of one pass share it, from any thread; all of them must have the same `columns`.  Scans and
 * blocks that use it may outlive it: when it is freed, its idle memory is released, and no more is
 * kept. */
kl_status kl_block_pool_new(int32_t columns, int32_t idle_max, kl_block_pool **out);
void kl_block_pool_free(kl_block_pool *pool); /* NULL is fine */

/* One thread at a time per scan.  The scan uses the log's handle: free the scan first. */
kl_status kl_scan_open(kl_log *log, const kl_scan_options *options, kl_scan **out);
/* Continue.  KL_SCAN_ROWS: take a block.  KL_SCAN_INFLATE: `compressed` has *count batches; pass
 * each, in order, to kl_scan_inflated, then step again.  KL_SCAN_END: nothing is left.
 * KL_SCAN_PAUSE: many bytes were skipped; step again (after checking for signals).  A failure is
 * returned after the rows before it were taken, and again at each step. */
kl_status kl_scan_step(kl_scan *scan, kl_compressed *compressed, int32_t max_compressed,
                       int32_t *count, int32_t *state);
kl_status kl_scan_inflated(kl_scan *scan, int32_t index, const uint8_t *records,
                           size_t bytes);

/* Consecutive compressed batches in one buffer, to be decompressed by one call of the codec. */
typedef struct {
    const uint8_t *data; /* owned by the scan; valid until the next call */
    size_t bytes;
    size_t records_bytes; /* of all, decompressed */
    int32_t count;
} kl_joined;
/* Join the first of `compressed`, the rest of a step's batches: those that are one zstd frame each
 * with its size stated, at most max_bytes in total.  KL_E_NO_MEMORY. */
kl_status kl_scan_join(kl_scan *scan, const kl_compressed *compressed, int32_t count,
                       size_t max_bytes, kl_joined *out);
/* kl_scan_inflated of each of them: `records` has out->records_bytes. */
kl_status kl_scan_inflated_joined(kl_scan *scan, const kl_joined *joined,
                                  const uint8_t *records);
/* Take the rows collected so far as a handle; NULL: none.  A failure loses none. */
kl_status kl_scan_take(kl_scan *scan, kl_block **out);
int64_t kl_scan_position(const kl_scan *scan);   /* its current offset */
int64_t kl_scan_count(const kl_scan *scan);      /* rows counted with columns = 0 */
int64_t kl_scan_end_offset(const kl_scan *scan); /* the bound, fixed at the open */
void kl_scan_free(kl_scan *scan);

/* A partition's record batches, as in a Fetch response; the last may be incomplete. */
typedef struct {
    const char *topic; /* the constant columns; copied, as is the data */
    int32_t partition;
    int32_t aborted_count;
    int64_t start_offset; /* skip records before it, */
    int64_t stop_offset;  /* and from this one on; 0: no limit */
    const uint8_t *data;
    size_t bytes;
    const int64_t
        *aborted; /* pairs: producer id, first offset of its aborted transaction */
} kl_fetched;
/* A scan of batches in memory: kl_scan_give, steps to its end, then the next.  Uses only max_bytes,
 * max_rows, columns and check_crc of `options`. */
kl_status kl_scan_open_memory(const kl_scan_options *options, kl_scan **out);
/* Set the batches of a partition, replacing earlier ones.  The step that reaches damage reports it,
 * as earlier batches are good.  KL_E_NO_MEMORY. */
kl_status kl_scan_give(kl_scan *scan, const kl_fetched *fetched);
/* The offset after the last whole batch, and that batch's leader epoch; -1: none.  If the first is
 * damaged: KL_E_CORRUPT_MESSAGE, KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT.  Does not check CRCs. */
kl_status kl_batches_next(const uint8_t *data, size_t bytes, int64_t *next_offset,
                          int32_t *leader_epoch);

int64_t kl_block_rows(const kl_block *block);
/* Memory of its byte strings. */
int64_t kl_block_memory(const kl_block *block);
/* Column `column` (one KL_COL_ bit): buffers that live as long as the block.
 * Fixed columns: data.  Byte columns: offsets (rows + 1 int32), data, validity or NULL.
 * Headers: see kl_block_headers. */
typedef struct {
    const void *data;
    const int32_t *offsets;
    const uint8_t *validity;
    int64_t data_bytes;
    int64_t null_count;
} kl_block_column;
kl_status kl_block_get(const kl_block *block, int32_t column, kl_block_column *out);
/* Headers are a list column: list offsets (rows + 1), then names and values. */
typedef struct {
    const int32_t *list_offsets;
    kl_block_column name;
    kl_block_column value;
    int64_t header_count;
} kl_block_headers;
kl_status kl_block_get_headers(const kl_block *block, kl_block_headers *out);
void kl_block_free(kl_block *block);

/* The Arrow C data interface. */
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
/* Schema of the columns, in the order of Spark's Kafka source. */
kl_status kl_columns_schema(int32_t columns, struct ArrowSchema *out);
/* Export a block; the array keeps its own reference. */
kl_status kl_block_export(kl_block *block, struct ArrowArray *out);

/* cffi: end */

#endif
