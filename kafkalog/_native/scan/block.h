/* block.h: rows of records as columns, in Arrow's layout, while they are collected and after.
 *
 * One thread fills a block; once sealed nothing in it changes, and any thread may read it
 * and drop its reference.  A block keeps its memory for as long as one reference lives;
 * then the memory goes back to the pool of the scan that made it. */
#ifndef KL_BLOCK_H
#define KL_BLOCK_H

#include "base/base.h"

/* Byte strings of many rows, one after another. */
typedef struct {
    int32_t *offsets; /* rows + 1 */
    uint8_t *data;
    uint8_t *validity; /* a bit per row, 1: not null; bits past the last row are 1 */
    size_t data_bytes;
    size_t data_capacity;
    int64_t null_count;
} kl_strings;

/* Columns that say the same in every row: filled once, shared by the blocks of a scan. */
typedef struct {
    _Atomic int32_t refs;
    int64_t rows;
    int32_t *partition;
    int32_t *topic_offsets; /* rows + 1 */
    uint8_t *topic_data;
    size_t topic_bytes; /* of one row */
} kl_constants;

/* Memory of dropped blocks, for the next ones: a page that was touched before costs
 * nothing.  Lives until its scan and all of its blocks are gone. */
typedef struct {
    _Atomic int32_t refs; /* one for the scan, one for each block in use */
    pthread_mutex_t lock; /* guards what follows */
    kl_block *idle;
    int32_t idle_count;
    bool closed; /* the scan is gone: blocks are not kept any more */
} kl_block_pool;

struct kl_block {
    _Atomic int32_t refs;
    kl_block_pool *pool;     /* retained while the block is in use */
    kl_constants *constants; /* retained; NULL until sealed */
    kl_block *next;          /* in a pool or a scan's queue */
    int32_t columns;

    int64_t rows;
    int64_t row_capacity;
    int64_t *offset;
    int64_t *timestamp; /* microseconds, or milliseconds under KL_COL_TIMESTAMP_MS */
    int32_t *timestamp_type;
    int32_t *leader_epoch;
    kl_strings key;
    kl_strings value;

    int32_t *list_offsets; /* rows + 1: which headers are a row's */
    uint8_t *list_validity;
    int64_t list_nulls; /* rows without headers */
    int64_t headers;
    int64_t header_capacity;
    kl_strings name;
    kl_strings header_value;
};

/* What a block may hold of one column: Arrow's offsets are 32 bits. */
#define KL_BLOCK_BYTES_MAX ((size_t)INT32_MAX)

kl_status kl_block_pool_new(kl_block_pool **out);
/* The scan is gone: what is idle is freed, the rest when it comes back. */
void kl_block_pool_close(kl_block_pool *pool);

/* An empty block for these columns, with one reference. */
kl_status kl_block_new(kl_block_pool *pool, int32_t columns, kl_block **out);
kl_block *kl_block_retain(kl_block *block);
/* Make room for `rows` more rows and `bytes` more bytes in each byte column, so that a loop
 * over the records of a batch need not check.  The new rows are valid until set null. */
kl_status kl_block_reserve(kl_block *block, int64_t rows, size_t bytes);
/* The same for headers: rows of the list's child. */
kl_status kl_block_reserve_headers(kl_block *block, int64_t headers);
/* Room for `bytes` more in one column. */
kl_status kl_strings_reserve(kl_strings *strings, size_t bytes);
/* Take the constant columns; *constants is replaced by a longer one when the block has more
 * rows than it. */
kl_status kl_block_seal(kl_block *block, kl_constants **constants);

/* The constants of a topic's partition; `rows` of each. */
kl_status kl_constants_new(const uint8_t *topic, size_t topic_bytes, int32_t partition,
                           int64_t rows, kl_constants **out);
void kl_constants_drop(kl_constants *constants); /* NULL is fine */

/* Bytes of all byte columns together. */
static inline size_t kl_block_bytes(const kl_block *block) {
    return block->key.data_bytes + block->value.data_bytes + block->name.data_bytes +
           block->header_value.data_bytes;
}

/* Put byte string `row`: there is room (kl_block_reserve).  `bytes` -1: null. */
static inline void kl_strings_put(kl_strings *strings, int64_t row, const uint8_t *data,
                                  int32_t bytes) {
    if (bytes >= 0) {
        memcpy(strings->data + strings->data_bytes, data, (size_t)bytes);
        strings->data_bytes += (size_t)bytes;
    } else {
        strings->validity[row >> 3] &= (uint8_t)~(1u << (row & 7));
        strings->null_count++;
    }
    strings->offsets[row + 1] = (int32_t)strings->data_bytes;
}

#endif
