/* clock.h: the server's time: the machine's, or what a test says. */
#ifndef KL_CLOCK_H
#define KL_CLOCK_H

#include "base/base.h"

typedef struct {
    bool manual; /* set before any thread reads it, never changed */
    _Atomic int64_t manual_ms;
} kl_clock;

/* Milliseconds, monotonic. */
static inline int64_t kl_clock_now(kl_clock *clock) {
    return clock->manual ? atomic_load(&clock->manual_ms) : kl_monotonic_ms();
}

#endif
