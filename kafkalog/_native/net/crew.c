/* crew.c: see crew.h. */
#include "crew.h"

#include "loop.h"
#include "threads.h"

/* Divide the limit on bytes of large frames among the threads. */
static void share_out(kl_net *net, int32_t count) {
    int64_t held_max = net->config->queued_bytes_max;
    KL_ASSERT(count > 0);
    for (int32_t i = 0; i < net->thread_count; i++)
        atomic_store(&net->threads[i].held_max,
                     held_max < 0 ? SIZE_MAX : (size_t)(held_max / count));
}

/* Initialise one more place. */
static kl_status add(kl_net *net) {
    int32_t index = net->thread_count;
    KL_ASSERT(index <= KL_THREADS_MAX); /* one more for the control listener */
    kl_status status = kl_thread_init(&net->threads[index], net, index);
    if (status) {
        kl_thread_free(&net->threads[index]);
        net->threads[index] = (kl_thread){0};
        return status;
    }
    net->thread_count = index + 1;
    return KL_OK;
}

kl_status kl_crew_init(kl_net *net, int32_t count) {
    kl_status status = KL_OK;
    int32_t wanted = count + (net->config->control_listener >= 0 ? 1 : 0);
    while (!status && net->thread_count < wanted) status = add(net);
    net->serving = count;
    share_out(net, count);
    return status;
}

kl_status kl_crew_start(kl_net *net) {
    kl_status status = KL_OK;
    for (int32_t i = 0; !status && i < net->thread_count; i++)
        status = kl_thread_start(&net->threads[i]);
    return status;
}

void kl_crew_free(kl_net *net) {
    for (int32_t i = 0; i < net->thread_count; i++) kl_thread_free(&net->threads[i]);
}

/* Under the acceptor's lock.  Let the next place serve, new or used. */
static kl_status serve_one_more(kl_net *net, bool run) {
    kl_thread *thread = kl_threads_nth(net, net->serving);
    kl_status status = KL_OK;
    if (thread->net == NULL) status = add(net);
    if (status) return status;
    atomic_store(&thread->leaving, false); /* a thread that has not ended yet stays */
    if (thread->ended) {
        KL_ASSERT(pthread_join(thread->thread, NULL) == 0);
        thread->ended = thread->runs = false;
    }
    if (run && !thread->runs) status = kl_thread_start(thread);
    if (!status) net->serving++;
    return status;
}

kl_status kl_crew_resize(kl_net *net, int32_t count, bool run) {
    kl_status status = KL_OK;
    kl_lock(&net->acceptor.lock);
    while (!status && net->serving < count) status = serve_one_more(net, run);
    while (net->serving > count) {
        kl_thread *thread = kl_threads_nth(net, --net->serving);
        atomic_store(&thread->leaving, true);
        kl_post_ring(&thread->post);
    }
    share_out(net, net->serving);
    kl_unlock(&net->acceptor.lock);
    return status;
}
