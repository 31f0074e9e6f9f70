/* count.h: counters that others read without a lock. */
#ifndef KL_COUNT_H
#define KL_COUNT_H

#include "base.h"

/* Written by one thread. */
typedef _Atomic int64_t kl_count;

static inline void kl_count_add(kl_count *count, int64_t more) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more,
                          memory_order_relaxed);
}
/* One that several threads write. */
static inline void kl_count_share(kl_count *count, int64_t more) {
    (void)atomic_fetch_add_explicit(count, more, memory_order_relaxed);
}
static inline int64_t kl_count_get(const kl_count *count) {
    return atomic_load_explicit(count, memory_order_relaxed);
}

#endif
