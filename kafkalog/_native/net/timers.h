/* timers.h: deadlines, the earliest first.  For one thread. */
#ifndef KL_TIMERS_H
#define KL_TIMERS_H

#include "base/base.h"

/* It is embedded in its subject. */
typedef struct {
    size_t place; /* in the heap, counted from 1; 0: in none */
    int64_t due_ms;
} kl_timer;

typedef struct {
    kl_timer **heap;
    size_t count;
    size_t capacity;
} kl_timers;

kl_status kl_timers_add(kl_timers *timers, kl_timer *timer, int64_t due_ms);
/* One that is in no heap: nothing. */
void kl_timers_remove(kl_timers *timers, kl_timer *timer);
/* NULL: none. */
kl_timer *kl_timers_first(const kl_timers *timers);
void kl_timers_free(kl_timers *timers);

#endif
