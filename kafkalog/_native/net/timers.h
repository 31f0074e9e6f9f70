/* timers.h: deadlines, earliest first.  For one thread. */
#ifndef KL_TIMERS_H
#define KL_TIMERS_H

#include "base/base.h"

/* Embedded in its subject. */
typedef struct {
    size_t place; /* index in the heap, from 1; 0: not in it */
    int64_t due_ms;
} kl_timer;

typedef struct {
    kl_timer **heap;
    size_t count;
    size_t capacity;
} kl_timers;

kl_status kl_timers_add(kl_timers *timers, kl_timer *timer, int64_t due_ms);
/* Nothing if it is not in the heap. */
void kl_timers_remove(kl_timers *timers, kl_timer *timer);
/* NULL: none. */
kl_timer *kl_timers_first(const kl_timers *timers);
void kl_timers_free(kl_timers *timers);

#endif
