/* pool.h: memory for frames, kept for reuse.  For one thread. */
#ifndef KL_POOL_H
#define KL_POOL_H

#include "base/base.h"

/* Memory for a frame with its size field.  Sizes are powers of two. */
typedef struct kl_chunk kl_chunk;
struct kl_chunk {
    kl_chunk *next;
    size_t held; /* received bytes of a large frame */
    uint32_t size_class;
    uint8_t data[];
};

enum { KL_CHUNK_CLASSES = 21, KL_CHUNK_SMALL = 4096 }; /* 4 KiB to 4 GiB */
/* Capacity of the smallest class: most requests fit. */
#define KL_CHUNK_SMALL_BYTES (KL_CHUNK_SMALL - sizeof(kl_chunk))

typedef struct {
    kl_chunk *free[KL_CHUNK_CLASSES];
    uint32_t free_count[KL_CHUNK_CLASSES];
    uint32_t free_least[KL_CHUNK_CLASSES]; /* minimum since the last kl_pool_trim */
    size_t free_bytes;
    size_t held_bytes;           /* received bytes of all large frames */
    _Atomic int64_t bytes;       /* in use and free */
    _Atomic int64_t allocations; /* since the start */
} kl_pool;

/* A chunk of at least `bytes`; NULL: no memory.  Not zeroed. */
kl_chunk *kl_pool_take(kl_pool *pool, size_t bytes);
void kl_pool_give(kl_pool *pool, kl_chunk *chunk); /* NULL is fine */
/* Count received bytes of a large frame until the chunk is given back. */
void kl_pool_hold(kl_pool *pool, kl_chunk *chunk, size_t bytes);
/* Stop counting them.  NULL is fine. */
void kl_pool_let_go(kl_pool *pool, kl_chunk *chunk);
size_t kl_chunk_capacity(const kl_chunk *chunk);
/* Move a chunk in use to another thread's pool: stop counting it here, */
void kl_pool_part(kl_pool *pool, const kl_chunk *chunk);
/* and count it there, called by that thread. */
void kl_pool_adopt(kl_pool *pool, const kl_chunk *chunk);
/* Free chunks unused since the last call; true if any are still kept. */
bool kl_pool_trim(kl_pool *pool);
void kl_pool_free(kl_pool *pool);

#endif
