/* block.c: the memory of blocks: growth, recycling, shared constants, references. */
#include "block.h"

/* Memory limit of a pool's idle blocks. */
#define IDLE_BYTES_MAX ((int64_t)256 << 20)

enum {
    ROWS_MIN = 1024,
    DATA_BYTES_MIN = 1 << 16, /* growth doubles from here */
};

/* ---- pool ---------------------------------------------------------------------------- */

kl_status kl_block_pool_new(int32_t columns, int32_t idle_max, kl_block_pool **out) {
    *out = NULL;
    if (idle_max < 0)
        return kl_fail(KL_E_ARGUMENT, "idle_max %d: wanted 0 or above", idle_max);
    kl_block_pool *pool = kl_alloc(sizeof *pool);
    if (pool == NULL) return kl_fail(KL_E_NO_MEMORY, "a scan's pool of blocks");
    atomic_init(&pool->refs, 1);
    pool->columns = columns;
    pool->idle_max = idle_max;
    KL_ASSERT(pthread_mutex_init(&pool->lock, NULL) == 0);
    *out = pool;
    return KL_OK;
}

kl_block_pool *kl_block_pool_retain(kl_block_pool *pool) {
    int32_t before = atomic_fetch_add(&pool->refs, 1);
    KL_ASSERT(before > 0);
    return pool;
}

void kl_block_pool_drop(kl_block_pool *pool) {
    if (pool == NULL || atomic_fetch_sub(&pool->refs, 1) != 1) return;
    KL_ASSERT(pool->idle == NULL);
    pthread_mutex_destroy(&pool->lock);
    kl_release(pool);
}

static void strings_free(kl_strings *strings) {
    kl_release(strings->offsets);
    kl_release(strings->views);
    kl_release(strings->data);
    kl_release(strings->validity);
}

static void block_destroy(kl_block *block) {
    kl_release(block->offset);
    kl_release(block->timestamp);
    kl_release(block->timestamp_type);
    kl_release(block->leader_epoch);
    strings_free(&block->key);
    strings_free(&block->value);
    strings_free(&block->bytes);
    kl_release(block->list_offsets);
    kl_release(block->list_validity);
    strings_free(&block->name);
    strings_free(&block->header_value);
    kl_release(block);
}

static void blocks_destroy(kl_block *block) {
    while (block != NULL) {
        kl_block *next = block->next;
        block_destroy(block);
        block = next;
    }
}

void kl_block_pool_free(kl_block_pool *pool) {
    if (pool == NULL) return;
    kl_lock(&pool->lock);
    kl_block *idle = pool->idle;
    pool->idle = NULL;
    pool->idle_count = 0;
    pool->idle_bytes = 0;
    pool->closed = true;
    kl_unlock(&pool->lock);
    blocks_destroy(idle);
    kl_block_pool_drop(pool);
}

/* The size that a block with new memory will probably need. */
static void pool_advise(kl_block_pool *pool, kl_block *block) {
    kl_lock(&pool->lock);
    block->key.data_usual = pool->key_usual;
    block->value.data_usual = pool->value_usual;
    block->bytes.data_usual = pool->bytes_usual;
    kl_unlock(&pool->lock);
}

static void pool_learn(kl_block_pool *pool, const kl_block *block) {
    kl_lock(&pool->lock);
    pool->key_usual = KL_MAX(pool->key_usual, block->key.data_bytes);
    pool->value_usual = KL_MAX(pool->value_usual, block->value.data_bytes);
    pool->bytes_usual = KL_MAX(pool->bytes_usual, block->bytes.data_bytes);
    kl_unlock(&pool->lock);
}

int64_t kl_block_memory(const kl_block *block) {
    return (int64_t)(block->key.data_capacity + block->value.data_capacity +
                     block->bytes.data_capacity + block->name.data_capacity +
                     block->header_value.data_capacity);
}

static kl_block *pool_take(kl_block_pool *pool) {
    kl_lock(&pool->lock);
    kl_block *block = pool->idle;
    if (block != NULL) {
        pool->idle = block->next;
        pool->idle_count--;
        pool->idle_bytes -= kl_block_memory(block);
        KL_ASSERT(pool->idle_count >= 0 && pool->idle_bytes >= 0);
    }
    kl_unlock(&pool->lock);
    return block;
}

/* True if the pool keeps the block. */
static bool pool_give(kl_block_pool *pool, kl_block *block) {
    int64_t bytes = kl_block_memory(block);
    kl_lock(&pool->lock);
    bool kept = !pool->closed && pool->idle_count < pool->idle_max &&
                pool->idle_bytes + bytes <= IDLE_BYTES_MAX;
    if (kept) {
        block->next = pool->idle;
        pool->idle = block;
        pool->idle_count++;
        pool->idle_bytes += bytes;
    }
    kl_unlock(&pool->lock);
    return kept;
}

/* ---- references ---------------------------------------------------------------------- */

static void strings_clear(kl_strings *strings) {
    strings->data_bytes = 0;
    strings->null_count = 0;
}

kl_status kl_block_new(kl_block_pool *pool, kl_block **out) {
    kl_block *block = pool_take(pool);
    if (block == NULL) block = kl_alloc(sizeof *block);
    if (block == NULL) return kl_fail(KL_E_NO_MEMORY, "a block of rows");
    strings_clear(&block->key);
    strings_clear(&block->value);
    strings_clear(&block->bytes);
    strings_clear(&block->name);
    strings_clear(&block->header_value);
    pool_advise(pool, block);
    block->columns = pool->columns;
    block->view_bytes = 0;
    block->rows = 0;
    block->headers = 0;
    block->list_nulls = 0;
    block->next = NULL;
    block->pool = kl_block_pool_retain(pool);
    atomic_store(&block->refs, 1);
    *out = block;
    return KL_OK;
}

kl_block *kl_block_retain(kl_block *block) {
    int32_t before = atomic_fetch_add(&block->refs, 1);
    KL_ASSERT(before > 0);
    return block;
}

void kl_block_free(kl_block *block) {
    if (block == NULL || atomic_fetch_sub(&block->refs, 1) != 1) return;
    kl_block_pool *pool = block->pool;
    KL_ASSERT(pool != NULL); /* it was in use */
    kl_constants_drop(block->constants);
    block->constants = NULL;
    block->pool = NULL;
    if (!pool_give(pool, block)) block_destroy(block);
    kl_block_pool_drop(pool);
}

/* ---- growth -------------------------------------------------------------------------- */

/* Grow an array of `bytes_each` items; *array keeps its content, and is unchanged on failure. */
static kl_status grow(void *array, int64_t items, size_t bytes_each) {
    void *old;
    KL_ASSERT(items > 0 && (uint64_t)items <= SIZE_MAX / bytes_each);
    memcpy(&old, array, sizeof old); /* any kind of pointer */
    void *new = kl_resize(old, (size_t)items * bytes_each);
    if (new == NULL)
        return kl_fail(KL_E_NO_MEMORY, "a column of %lld rows", (long long)items);
    memcpy(array, &new, sizeof new);
    return KL_OK;
}

static int64_t next_capacity(int64_t capacity, int64_t wanted) {
    return KL_MAX(wanted, KL_MAX(ROWS_MIN, capacity * 2));
}

static size_t bitmap_bytes(int64_t rows) { return (size_t)(rows >> 3) + 1; }

static kl_status grow_strings(kl_strings *strings, int64_t rows) {
    bool fresh = strings->offsets == NULL;
    kl_status status = grow(&strings->offsets, rows + 1, sizeof *strings->offsets);
    if (status) return status;
    if (fresh) strings->offsets[0] = 0;
    return grow(&strings->validity, (int64_t)bitmap_bytes(rows), 1);
}

static kl_status grow_views(kl_strings *strings, int64_t rows) {
    kl_status status = grow(&strings->views, rows, sizeof *strings->views);
    return status ? status : grow(&strings->validity, (int64_t)bitmap_bytes(rows), 1);
}

static kl_status grow_rows(kl_block *block, int64_t rows) {
    kl_status status = KL_OK;
    int32_t columns = block->columns;
    if (columns & KL_COL_OFFSET) status = grow(&block->offset, rows, sizeof(int64_t));
    if (!status && columns & (KL_COL_TIMESTAMP | KL_COL_TIMESTAMP_MS))
        status = grow(&block->timestamp, rows, sizeof(int64_t));
    if (!status && columns & KL_COL_TIMESTAMP_TYPE)
        status = grow(&block->timestamp_type, rows, sizeof(int32_t));
    if (!status && columns & KL_COL_LEADER_EPOCH)
        status = grow(&block->leader_epoch, rows, sizeof(int32_t));
    kl_status (*grow_bytes)(kl_strings *, int64_t) =
        columns & KL_COL_VIEWS ? grow_views : grow_strings;
    if (!status && columns & KL_COL_KEY) status = grow_bytes(&block->key, rows);
    if (!status && columns & KL_COL_VALUE) status = grow_bytes(&block->value, rows);
    if (!status && columns & KL_COL_HEADERS) {
        bool fresh = block->list_offsets == NULL;
        status = grow(&block->list_offsets, rows + 1, sizeof(int32_t));
        if (!status && fresh) block->list_offsets[0] = 0;
        if (!status) status = grow(&block->list_validity, (int64_t)bitmap_bytes(rows), 1);
    }
    if (!status) block->row_capacity = rows;
    return status;
}

kl_status kl_strings_reserve(kl_strings *strings, size_t bytes) {
    /* Allocate even for 0 bytes, so that an empty string has somewhere to be copied to. */
    if (KL_LIKELY(strings->data != NULL &&
                  bytes <= strings->data_capacity - strings->data_bytes))
        return KL_OK;
    KL_ASSERT(bytes <= SIZE_MAX / 4 && strings->data_bytes <= SIZE_MAX / 4);
    size_t wanted = strings->data_bytes + bytes;
    wanted = KL_MAX(wanted, KL_MAX((size_t)DATA_BYTES_MIN, strings->data_capacity * 2));
    wanted = KL_MAX(wanted, strings->data_usual);
    void *data = kl_resize(strings->data, wanted);
    if (data == NULL) return kl_fail(KL_E_NO_MEMORY, "a column of %zu bytes", wanted);
    strings->data = data;
    strings->data_capacity = wanted;
    return KL_OK;
}

/* Set the bits of [row, row + more): a failed decode may have left some of them clear. */
static void set_valid(uint8_t *bitmap, int64_t row, int64_t more) {
    KL_ASSERT(more >= 0);
    if (more == 0) return; /* there may be no byte for `row` */
    bitmap[row >> 3] |= (uint8_t)(0xffu << (row & 7));
    memset(bitmap + (row >> 3) + 1, 0xff, bitmap_bytes(row + more) - bitmap_bytes(row));
}

kl_status kl_block_reserve(kl_block *block, int64_t rows, size_t bytes) {
    kl_status status = KL_OK;
    if (rows > block->row_capacity - block->rows)
        status = grow_rows(block, next_capacity(block->row_capacity, block->rows + rows));
    if (status) return status;
    bool views = block->columns & KL_COL_VIEWS;
    if (block->columns & KL_COL_KEY) {
        set_valid(block->key.validity, block->rows, rows);
        if (!views) status = kl_strings_reserve(&block->key, bytes);
    }
    if (!status && block->columns & KL_COL_VALUE) {
        set_valid(block->value.validity, block->rows, rows);
        if (!views) status = kl_strings_reserve(&block->value, bytes);
    }
    if (!status && views) status = kl_strings_reserve(&block->bytes, bytes);
    if (!status && block->columns & KL_COL_HEADERS)
        set_valid(block->list_validity, block->rows, rows);
    return status;
}

kl_status kl_block_reserve_headers(kl_block *block, int64_t headers) {
    if (headers > block->header_capacity - block->headers) {
        int64_t wanted = next_capacity(block->header_capacity, block->headers + headers);
        kl_status status = grow_strings(&block->name, wanted);
        if (!status) status = grow_strings(&block->header_value, wanted);
        if (status) return status;
        block->header_capacity = wanted;
    }
    set_valid(block->name.validity, block->headers, headers);
    set_valid(block->header_value.validity, block->headers, headers);
    return KL_OK;
}

/* ---- constants ----------------------------------------------------------------------- */

void kl_constants_drop(kl_constants *constants) {
    if (constants == NULL || atomic_fetch_sub(&constants->refs, 1) != 1) return;
    kl_release(constants->partition);
    kl_release(constants->topic_offsets);
    kl_release(constants->topic_data);
    kl_release(constants);
}

kl_status kl_constants_new(const uint8_t *topic, size_t topic_bytes, int32_t partition,
                           int64_t rows, kl_constants **out) {
    kl_constants *made = kl_alloc(sizeof *made);
    if (made == NULL) return kl_fail(KL_E_NO_MEMORY, "the constant columns of a scan");
    atomic_init(&made->refs, 1);
    made->rows = rows;
    made->topic_bytes = topic_bytes;
    kl_status status = grow(&made->partition, rows, sizeof(int32_t));
    if (!status) status = grow(&made->topic_offsets, rows + 1, sizeof(int32_t));
    /* One more byte: an empty topic still needs memory to point at. */
    if (!status) status = grow(&made->topic_data, rows * (int64_t)topic_bytes + 1, 1);
    if (status) {
        kl_constants_drop(made);
        return status;
    }
    for (int64_t row = 0; row < rows; row++) {
        made->partition[row] = partition;
        made->topic_offsets[row] = (int32_t)((size_t)row * topic_bytes);
        memcpy(made->topic_data + (size_t)row * topic_bytes, topic, topic_bytes);
    }
    made->topic_offsets[rows] = (int32_t)((size_t)rows * topic_bytes);
    *out = made;
    return KL_OK;
}

/* Set the bits past the last row: a failed batch may have left some of them clear. */
static void end_bitmap(uint8_t *bitmap, int64_t rows) {
    if (bitmap != NULL) bitmap[rows >> 3] |= (uint8_t)(0xffu << (rows & 7));
}

kl_status kl_block_seal(kl_block *block, kl_constants **constants) {
    kl_constants *have = *constants;
    KL_ASSERT(block->constants == NULL && block->rows <= block->row_capacity);
    if (block->columns & KL_COL_KEY) end_bitmap(block->key.validity, block->rows);
    if (block->columns & KL_COL_VALUE) end_bitmap(block->value.validity, block->rows);
    if (block->columns & KL_COL_HEADERS) {
        end_bitmap(block->list_validity, block->rows);
        end_bitmap(block->name.validity, block->headers);
        end_bitmap(block->header_value.validity, block->headers);
    }
    pool_learn(block->pool, block);
    if (!(block->columns & (KL_COL_TOPIC | KL_COL_PARTITION))) return KL_OK;
    if (block->rows > have->rows) {
        int64_t most = INT32_MAX / KL_MAX((int64_t)have->topic_bytes, 1);
        if (block->rows > most)
            return kl_fail(KL_E_MESSAGE_TOO_LARGE,
                           "a batch of %lld records makes a topic column above 2 GiB",
                           (long long)block->rows);
        kl_constants *more;
        kl_status status =
            kl_constants_new(have->topic_data, have->topic_bytes, have->partition[0],
                             KL_MIN(most, KL_MAX(block->rows, 2 * have->rows)), &more);
        if (status) return status;
        kl_constants_drop(have);
        *constants = have = more;
    }
    atomic_fetch_add(&have->refs, 1);
    block->constants = have;
    return KL_OK;
}
