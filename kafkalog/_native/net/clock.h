/* clock.h: the server's clock: the system's, possibly moved ahead, or a manual one for tests. */
#ifndef KL_CLOCK_H
#define KL_CLOCK_H

#include "base/base.h"

typedef struct {
    bool manual;             /* set before any thread reads it, immutable */
    _Atomic int64_t told_ms; /* manual: its time; otherwise how far it is ahead */
} kl_clock;

static inline int64_t kl_clock_told(kl_clock *clock) {
    return atomic_load_explicit(&clock->told_ms, memory_order_relaxed);
}

/* Milliseconds, monotonic. */
static inline int64_t kl_clock_now(kl_clock *clock) {
    return kl_clock_told(clock) + (clock->manual ? 0 : kl_monotonic_ms());
}

/* Milliseconds since 1970; with a manual clock, the system's. */
static inline int64_t kl_clock_wall(kl_clock *clock) {
    return kl_now_ms() + (clock->manual ? 0 : kl_clock_told(clock));
}

#endif
