/* caught_up.c: see caught_up.h. */
#include "caught_up.h"

#include "base/base.h"

void kl_caught_ups_init(kl_caught_ups *all) {
    pthread_mutex_init(&all->lock, NULL);
    kl_cond_init(&all->some);
}

void kl_caught_ups_free(kl_caught_ups *all) {
    pthread_cond_destroy(&all->some);
    pthread_mutex_destroy(&all->lock);
}

bool kl_caught_ups_put(kl_caught_ups *all, const kl_caught_up *one) {
    kl_lock(&all->lock);
    KL_ASSERT(all->count >= 0 && all->count <= KL_CAUGHT_UP_MAX);
    bool room = all->count < KL_CAUGHT_UP_MAX;
    if (room) all->queue[(all->first + all->count++) % KL_CAUGHT_UP_MAX] = *one;
    pthread_cond_signal(&all->some);
    kl_unlock(&all->lock);
    return room;
}

kl_status kl_caught_ups_take(kl_caught_ups *all, int32_t timeout_ms, kl_caught_up *out) {
    int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    kl_status status = KL_OK;
    kl_lock(&all->lock);
    while (all->count == 0 && !status) {
        int64_t left_ms = end_ms - kl_monotonic_ms();
        if (all->stopped) status = kl_fail(KL_E_CLOSED, "the server was stopped");
        else if (left_ms <= 0) status = kl_fail(KL_E_TIMEOUT, "no follower caught up");
        else kl_cond_wait_ms(&all->some, &all->lock, left_ms);
    }
    if (!status) {
        KL_ASSERT(all->first >= 0 && all->first < KL_CAUGHT_UP_MAX);
        *out = all->queue[all->first];
        all->first = (all->first + 1) % KL_CAUGHT_UP_MAX;
        all->count--;
    }
    kl_unlock(&all->lock);
    return status;
}

void kl_caught_ups_stop(kl_caught_ups *all) {
    kl_lock(&all->lock);
    all->stopped = true;
    pthread_cond_broadcast(&all->some);
    kl_unlock(&all->lock);
}
