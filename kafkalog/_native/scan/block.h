/* block.h: records as columns in Arrow's layout.
 *
 * One thread fills a block; a sealed block is immutable, and any thread may read it and drop its
 * reference.  A block keeps its memory while one reference lives; then the memory returns to the
 * pool of its scan. */
#ifndef KL_BLOCK_H
#define KL_BLOCK_H

#include "base/base.h"

/* A byte string in Arrow's view layout.  Source:
 * https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout */
typedef union {
    struct {
        int32_t bytes;
        uint8_t data[12]; /* padded with zeros */
    } here;
    struct {
        int32_t bytes; /* above 12 */
        uint8_t prefix[4];
        int32_t buffer; /* 0: a block has only one */
        int32_t pos;
    } there;
} kl_string_view;
KL_STATIC_ASSERT(sizeof(kl_string_view) == 16, "as Arrow has it");

/* Byte strings of many rows, one after another; or views into the block's bytes. */
typedef struct {
    int32_t *offsets;      /* rows + 1 */
    kl_string_view *views; /* rows; then there are no offsets and no data */
    uint8_t *data;
    uint8_t *validity; /* one bit per row, 1: not null; bits after the last row are 1 */
    size_t data_bytes;
    size_t data_capacity;
    size_t data_usual; /* size in earlier blocks: reserve as much at once */
    int64_t null_count;
} kl_strings;

/* Columns with one value in all rows: filled once, shared by the blocks of a scan. */
typedef struct {
    _Atomic int32_t refs;
    int64_t rows;
    int32_t *partition;
    int32_t *topic_offsets; /* rows + 1 */
    uint8_t *topic_data;
    size_t topic_bytes; /* of one row */
} kl_constants;

/* Memory of dropped blocks, for reuse: pages touched before cost nothing.  Lives until its owner,
 * its scans and all of its blocks are gone. */
struct kl_block_pool {
    _Atomic int32_t refs; /* one for the owner, each scan and each block in use */
    int32_t columns;
    int32_t idle_max;
    pthread_mutex_t lock; /* guards the members below */
    size_t key_usual;     /* maximum in a block so far */
    size_t value_usual;
    size_t bytes_usual;
    kl_block *idle;
    int32_t idle_count;
    int64_t idle_bytes;
    bool closed; /* the owner is gone: blocks are no longer kept */
};

struct kl_block {
    _Atomic int32_t refs;
    kl_block_pool *pool;     /* retained while the block is in use */
    kl_constants *constants; /* retained; NULL until sealed, and if none is wanted */
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
    kl_strings bytes;  /* KL_COL_VIEWS: the bytes of views; only data is used */
    size_t view_bytes; /* bytes that views refer to */

    int32_t *list_offsets; /* rows + 1: the headers of each row */
    uint8_t *list_validity;
    int64_t list_nulls; /* rows without headers */
    int64_t headers;
    int64_t header_capacity;
    kl_strings name;
    kl_strings header_value;
};

/* Limit of a block's bytes per column: Arrow's offsets have 32 bits. */
#define KL_BLOCK_BYTES_MAX ((size_t)INT32_MAX)

kl_block_pool *kl_block_pool_retain(kl_block_pool *pool);
void kl_block_pool_drop(kl_block_pool *pool); /* NULL is fine */

/* An empty block for the pool's columns, with one reference. */
kl_status kl_block_new(kl_block_pool *pool, kl_block **out);
kl_block *kl_block_retain(kl_block *block);
/* Make space for `rows` more rows and `bytes` more bytes in each byte column (or for views), so
 * that a loop over a batch's records need not check.  New rows are valid until set null. */
kl_status kl_block_reserve(kl_block *block, int64_t rows, size_t bytes);
/* The same for headers: rows of the list's child. */
kl_status kl_block_reserve_headers(kl_block *block, int64_t headers);
/* Make space for `bytes` more in one column. */
kl_status kl_strings_reserve(kl_strings *strings, size_t bytes);
/* End a block: no more rows are added.  It takes the constant columns, if it has them; *constants
 * is replaced by a longer one if the block has more rows. */
kl_status kl_block_seal(kl_block *block, kl_constants **constants);

/* The constant columns of a partition, `rows` of each. */
kl_status kl_constants_new(const uint8_t *topic, size_t topic_bytes, int32_t partition,
                           int64_t rows, kl_constants **out);
void kl_constants_drop(kl_constants *constants); /* NULL is fine */

/* Total size of all byte columns. */
static inline size_t kl_block_bytes(const kl_block *block) {
    return block->key.data_bytes + block->value.data_bytes + block->bytes.data_bytes +
           block->name.data_bytes + block->header_value.data_bytes;
}

/* Put byte string `row` in space made by kl_block_reserve.  `bytes` -1: null. */
static inline void kl_strings_put(kl_strings *strings, int64_t row, const uint8_t *data,
                                  int32_t bytes) {
    if (bytes >= 0) {
        KL_TEST_ASSERT((size_t)bytes <= strings->data_capacity - strings->data_bytes);
        memcpy(strings->data + strings->data_bytes, data, (size_t)bytes);
        strings->data_bytes += (size_t)bytes;
    } else {
        strings->validity[row >> 3] &= (uint8_t)~(1u << (row & 7));
        strings->null_count++;
    }
    strings->offsets[row + 1] = (int32_t)strings->data_bytes;
}

/* The same as a view: of a copy or, with `there`, of `data` in the block's bytes. */
static inline void kl_views_put(kl_block *block, kl_strings *strings, int64_t row,
                                const uint8_t *data, int32_t bytes, bool there) {
    kl_string_view *view = &strings->views[row];
    if (KL_LIKELY(bytes > (int32_t)sizeof view->here.data)) {
        kl_strings *to = &block->bytes;
        view->there.bytes = bytes;
        memcpy(view->there.prefix, data, sizeof view->there.prefix);
        view->there.buffer = 0;
        view->there.pos = (int32_t)(there ? data - to->data : (ptrdiff_t)to->data_bytes);
        block->view_bytes += (size_t)bytes;
        if (there) return;
        memcpy(to->data + to->data_bytes, data, (size_t)bytes);
        to->data_bytes += (size_t)bytes;
        return;
    }
    memset(view, 0, sizeof *view);
    if (bytes < 0) {
        strings->validity[row >> 3] &= (uint8_t)~(1u << (row & 7));
        strings->null_count++;
        return;
    }
    view->here.bytes = bytes;
    memcpy(view->here.data, data, (size_t)bytes);
}

#endif
