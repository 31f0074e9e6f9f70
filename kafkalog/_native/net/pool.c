/* pool.c: free lists by size. */
#include "pool.h"

#include <stdatomic.h>

#include "base/buffer.h"

/* Limit of free memory: what a thread may need at once for large frames. */
static const size_t KEPT_BYTES_MAX = (size_t)32 << 20;
/* From this size on chunks are whole pages, returned to the system after a burst. */
static const size_t PAGES_FROM = (size_t)128 << 10;

static size_t class_bytes(uint32_t size_class) {
    return (size_t)KL_CHUNK_SMALL << size_class;
}

size_t kl_chunk_capacity(const kl_chunk *chunk) {
    return class_bytes(chunk->size_class) - sizeof(kl_chunk);
}

/* Only the pool's thread writes the counters; others read them. */
static void count(_Atomic int64_t *counter, int64_t more) {
    atomic_store_explicit(counter,
                          atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

kl_chunk *kl_pool_take(kl_pool *pool, size_t bytes) {
    uint32_t k = 0;
    while (class_bytes(k) - sizeof(kl_chunk) < bytes) k++;
    KL_ASSERT(k < KL_CHUNK_CLASSES);
    kl_chunk *chunk = pool->free[k];
    if (KL_LIKELY(chunk != NULL)) {
        pool->free[k] = chunk->next;
        pool->free_count[k]--;
        pool->free_least[k] = KL_MIN(pool->free_least[k], pool->free_count[k]);
        pool->free_bytes -= class_bytes(k);
        return chunk;
    }
    size_t size = class_bytes(k);
    chunk = size >= PAGES_FROM ? kl_pages_new(size) : kl_resize(NULL, size);
    if (chunk == NULL) return NULL;
    chunk->size_class = k;
    chunk->held = 0;
    count(&pool->bytes, (int64_t)size);
    count(&pool->allocations, 1);
    return chunk;
}

static void free_chunk(kl_pool *pool, kl_chunk *chunk) {
    size_t size = class_bytes(chunk->size_class);
    count(&pool->bytes, -(int64_t)size);
    if (size >= PAGES_FROM) kl_pages_free(chunk, size);
    else kl_release(chunk);
}

void kl_pool_hold(kl_pool *pool, kl_chunk *chunk, size_t bytes) {
    KL_ASSERT(chunk->held + bytes <= class_bytes(chunk->size_class));
    chunk->held += bytes;
    pool->held_bytes += bytes;
}

void kl_pool_let_go(kl_pool *pool, kl_chunk *chunk) {
    if (chunk == NULL) return;
    KL_ASSERT(pool->held_bytes >= chunk->held);
    pool->held_bytes -= chunk->held;
    chunk->held = 0;
}

void kl_pool_part(kl_pool *pool, const kl_chunk *chunk) {
    KL_ASSERT(pool->held_bytes >= chunk->held);
    pool->held_bytes -= chunk->held;
    count(&pool->bytes, -(int64_t)class_bytes(chunk->size_class));
}

void kl_pool_adopt(kl_pool *pool, const kl_chunk *chunk) {
    pool->held_bytes += chunk->held;
    count(&pool->bytes, (int64_t)class_bytes(chunk->size_class));
}

void kl_pool_give(kl_pool *pool, kl_chunk *chunk) {
    if (chunk == NULL) return;
    kl_pool_let_go(pool, chunk);
    uint32_t k = chunk->size_class;
    if (pool->free_bytes + class_bytes(k) > KEPT_BYTES_MAX) {
        free_chunk(pool, chunk);
        return;
    }
    chunk->next = pool->free[k];
    pool->free[k] = chunk;
    pool->free_count[k]++;
    pool->free_bytes += class_bytes(k);
}

static void free_some(kl_pool *pool, uint32_t k, uint32_t chunks) {
    for (; chunks > 0; chunks--) {
        kl_chunk *chunk = pool->free[k];
        KL_ASSERT(chunk != NULL && chunk->size_class == k);
        pool->free[k] = chunk->next;
        pool->free_count[k]--;
        pool->free_bytes -= class_bytes(k);
        free_chunk(pool, chunk);
    }
}

bool kl_pool_trim(kl_pool *pool) {
    for (uint32_t k = 0; k < KL_CHUNK_CLASSES; k++) {
        free_some(pool, k, pool->free_least[k]);
        pool->free_least[k] = pool->free_count[k];
    }
    return pool->free_bytes > 0;
}

void kl_pool_free(kl_pool *pool) {
    for (uint32_t k = 0; k < KL_CHUNK_CLASSES; k++) free_some(pool, k, pool->free_count[k]);
    KL_ASSERT(pool->free_bytes == 0);
}
