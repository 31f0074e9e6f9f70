/* pause.c: pauses all network threads, or none; waits for the end of one. */
#include "threads.h"

enum { LOOK_MS = 5 }; /* a thread may end unnoticed */

void kl_net_hold(kl_net *net, int32_t principal, int32_t change) {
    KL_ASSERT(principal < KL_PRINCIPALS_MAX);
    bool counted = principal > KL_PROCESS && principal < KL_PRINCIPALS_MAX;
    if (!counted) return;
    int32_t before = atomic_fetch_add(&net->holds[principal], change);
    KL_ASSERT(before + change >= 0);
}

void kl_net_init(kl_net *net, const kl_ops *ops) {
    net->ops = ops;
    for (int32_t i = 0; i < KL_API_KEYS; i++) atomic_init(&net->kinds[i], ops->kinds[i]);
    kl_notices_init(&net->failures, net->failures_kept, sizeof(kl_handshake_failure),
                    KL_FAILURES_KEPT);
    kl_finished_init(&net->finished);
    pthread_mutex_init(&net->pause_lock, NULL);
    kl_cond_init(&net->pause_turn);
}

void kl_net_free(kl_net *net) {
    kl_notices_free(&net->failures);
    kl_finished_free(&net->finished);
    pthread_cond_destroy(&net->pause_turn);
    pthread_mutex_destroy(&net->pause_lock);
}

void kl_net_pause(kl_net *net, bool on) {
    kl_lock(&net->pause_lock);
    atomic_store(&net->paused, on);
    pthread_cond_broadcast(&net->pause_turn);
    for (int32_t i = 0; i < net->thread_count; i++) {
        atomic_store(&net->threads[i].room, true); /* it checks again before it sleeps */
        kl_post_ring(&net->threads[i].post);
    }
    while (on ? net->standing < kl_threads_running(net) : net->standing > 0)
        kl_cond_wait_ms(&net->pause_turn, &net->pause_lock, LOOK_MS);
    kl_unlock(&net->pause_lock);
}

void kl_net_stand(kl_net *net) {
    kl_lock(&net->pause_lock);
    net->standing++;
    pthread_cond_broadcast(&net->pause_turn);
    while (atomic_load(&net->paused))
        kl_cond_wait_ms(&net->pause_turn, &net->pause_lock, -1);
    KL_ASSERT(net->standing > 0);
    net->standing--;
    pthread_cond_broadcast(&net->pause_turn);
    kl_unlock(&net->pause_lock);
}

void kl_net_tell_over(kl_thread *thread) {
    kl_net *net = thread->net;
    kl_lock(&net->pause_lock);
    thread->over = true;
    pthread_cond_broadcast(&net->pause_turn);
    kl_unlock(&net->pause_lock);
}

bool kl_net_wait_over(kl_thread *thread, int64_t until_ms) {
    kl_net *net = thread->net;
    int64_t left_ms;
    kl_lock(&net->pause_lock);
    while (!thread->over && (left_ms = until_ms - kl_monotonic_ms()) > 0)
        kl_cond_wait_ms(&net->pause_turn, &net->pause_lock, left_ms);
    bool over = thread->over;
    kl_unlock(&net->pause_lock);
    return over;
}
