/* notices.h: a bounded queue of small structs, for a thread of Python that waits for the next. */
#ifndef KL_NOTICES_H
#define KL_NOTICES_H

#include "base.h"

/* Safe to use from many threads. */
typedef struct {
    uint8_t *kept; /* a ring, the owner's; set once, down to room */
    size_t item_bytes;
    uint32_t room;        /* items */
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t some;
    uint32_t first, count;
    int64_t lost; /* not kept, since the last one was taken */
    bool closed;
} kl_notices;

/* `kept` has room for so many items, and outlives the queue. */
void kl_notices_init(kl_notices *all, void *kept, size_t item_bytes, uint32_t room);
void kl_notices_free(kl_notices *all);
/* Add a copy.  False: the queue is full, and the item counts as lost. */
bool kl_notices_put(kl_notices *all, const void *item);
/* The same, unless one with the same bytes waits: then nothing happens. */
bool kl_notices_put_once(kl_notices *all, const void *item);
/* Take the oldest; *lost, unless it is NULL: how many were lost since the previous call.
 * KL_E_TIMEOUT: none came in time; KL_E_CLOSED. */
kl_status kl_notices_take(kl_notices *all, int32_t timeout_ms, void *out, int64_t *lost);
/* From now on nothing is taken, and no thread waits. */
void kl_notices_close(kl_notices *all);

#endif
