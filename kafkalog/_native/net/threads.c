/* threads.c: see threads.h. */
#include "threads.h"

kl_thread *kl_threads_nth(kl_net *net, int32_t n) {
    return &net->threads[n + (net->config->control_listener >= 0 ? 1 : 0)];
}

kl_thread *kl_threads_next(kl_net *net, int32_t listener) {
    if (listener == net->config->control_listener) return &net->threads[0];
    return kl_threads_nth(net,
                          (int32_t)(net->acceptor.next_thread++ % (uint32_t)net->serving));
}

kl_status kl_threads_put(kl_thread *thread, kl_conn *conn) {
    KL_ASSERT(conn->thread == thread && !kl_link_in(&conn->all));
    kl_lock(&thread->lock);
    kl_link_last(&thread->conns, &conn->all);
    kl_status status = kl_poller_add(&thread->poller, conn->stream.fd, conn);
    if (status) kl_link_remove(&conn->all);
    kl_unlock(&thread->lock);
    return status;
}

bool kl_threads_pass(kl_net *net, kl_conn *conn) {
    kl_thread *from = conn->thread;
    KL_ASSERT(conn->passed && conn->first == NULL);
    kl_lock(&net->acceptor.lock);
    bool leaves = atomic_load(&from->leaving); /* otherwise it is needed again */
    kl_thread *to = leaves ? kl_threads_next(net, conn->listener) : from;
    kl_poller_remove(&from->poller, conn->stream.fd);
    kl_lock(&from->lock);
    kl_link_remove(&conn->all);
    kl_unlock(&from->lock);
    conn->thread = to;
    bool taken = kl_threads_put(to, conn) == KL_OK; /* now owned by the other thread */
    if (!taken) conn->thread = from;
    kl_unlock(&net->acceptor.lock);
    return taken;
}

bool kl_threads_left(kl_thread *thread) {
    kl_net *net = thread->net;
    kl_lock(&net->acceptor.lock);
    thread->ended = atomic_load(&thread->leaving) && kl_ring_first(&thread->conns) == NULL;
    bool ended = thread->ended;
    kl_unlock(&net->acceptor.lock);
    return ended;
}

/* The place of a number among ascending ones, or `count`. */
static size_t place_of(uint64_t number, const uint64_t *numbers, size_t count) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (numbers[middle] < number) low = middle + 1;
        else high = middle;
    }
    return low < count && numbers[low] == number ? low : count;
}

void kl_threads_connected(kl_net *net, const uint64_t *connections, size_t count,
                          uint8_t *out) {
    memset(out, 0, count);
    kl_lock(&net->acceptor.lock); /* so that none is being passed */
    for (int32_t i = 0; i < net->thread_count; i++) {
        kl_thread *thread = &net->threads[i];
        kl_lock(&thread->lock);
        for (kl_link *link = thread->conns.next; link != &thread->conns;
             link = link->next) {
            kl_conn *conn = KL_HOLDER(link, kl_conn, all);
            size_t place = place_of(conn->id, connections, count);
            if (place < count) out[place] = atomic_load(&conn->peer_done) ? 2 : 1;
        }
        kl_unlock(&thread->lock);
    }
    kl_unlock(&net->acceptor.lock);
}

int32_t kl_threads_running(kl_net *net) {
    int32_t count = 0;
    kl_lock(&net->acceptor.lock);
    for (int32_t i = 0; i < net->thread_count; i++)
        count += net->threads[i].runs && !net->threads[i].ended;
    kl_unlock(&net->acceptor.lock);
    return count;
}
