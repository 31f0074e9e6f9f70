/* pool.h: memory for frames, kept for reuse.  For one thread. */
#ifndef KL_POOL_H
#define KL_POOL_H

#include "base/base.h"

/* Memory for a frame with its size field.  Sizes are powers of two. */
typedef struct kl_chunk kl_chunk;
struct kl_chunk {
    kl_chunk *next;
    size_t held; /* of a large frame: bytes that were received into it */
    uint32_t size_class;
    uint8_t data[];
};

enum { KL_CHUNK_CLASSES = 21, KL_CHUNK_SMALL = 4096 }; /* 4 KiB to 4 GiB */
/* What a chunk of the smallest class holds: most requests fit. */
#define KL_CHUNK_SMALL_BYTES (KL_CHUNK_SMALL - sizeof(kl_chunk))

typedef struct {
    kl_chunk *free[KL_CHUNK_CLASSES];
    uint32_t free_count[KL_CHUNK_CLASSES];
    uint32_t free_least[KL_CHUNK_CLASSES]; /* since the last kl_pool_trim */
    size_t free_bytes;
    size_t held_bytes;           /* received, of all large frames in hand */
    _Atomic int64_t bytes;       /* in use and kept */
    _Atomic int64_t allocations; /* since the start */
} kl_pool;

/* A chunk with room for `bytes`; NULL if there is no memory.  Not zeroed. */
kl_chunk *kl_pool_take(kl_pool *pool, size_t bytes);
void kl_pool_give(kl_pool *pool, kl_chunk *chunk); /* NULL is fine */
/* More bytes of a large frame were received: they count until the chunk is given back. */
void kl_pool_hold(kl_pool *pool, kl_chunk *chunk, size_t bytes);
/* They no longer count.  NULL is fine. */
void kl_pool_let_go(kl_pool *pool, kl_chunk *chunk);
size_t kl_chunk_capacity(const kl_chunk *chunk);
/* A chunk in use goes to another thread's pool: it no longer counts here, */
void kl_pool_part(kl_pool *pool, const kl_chunk *chunk);
/* and there, when that thread says so. */
void kl_pool_adopt(kl_pool *pool, const kl_chunk *chunk);
/* Free what was not used since the last call; returns whether anything is still kept. */
bool kl_pool_trim(kl_pool *pool);
void kl_pool_free(kl_pool *pool);

#endif
