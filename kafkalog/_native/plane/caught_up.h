/* caught_up.h: a queue of followers that may join an ISR. */
#ifndef KL_CAUGHT_UP_H
#define KL_CAUGHT_UP_H

#include "kafkalog.h"

#include <pthread.h>
#include <stdbool.h>

enum { KL_CAUGHT_UP_MAX = 1024 };

typedef struct {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t some;
    kl_caught_up queue[KL_CAUGHT_UP_MAX]; /* a ring */
    int32_t first, count;
    bool stopped;
} kl_caught_ups;

void kl_caught_ups_init(kl_caught_ups *all); /* zeroed by the caller */
void kl_caught_ups_free(kl_caught_ups *all);
/* False: the queue is full; the next fetch repeats it. */
bool kl_caught_ups_put(kl_caught_ups *all, const kl_caught_up *one);
/* KL_E_TIMEOUT, KL_E_CLOSED. */
kl_status kl_caught_ups_take(kl_caught_ups *all, int32_t timeout_ms, kl_caught_up *out);
void kl_caught_ups_stop(kl_caught_ups *all);

#endif
