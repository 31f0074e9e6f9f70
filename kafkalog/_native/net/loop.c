/* loop.c: a network thread. */
#include "loop.h"

#include "base/thread.h"
#include "authentication.h"
#include "net.h"
#include "threads.h"

enum { TRIM_MS = 5000 };

/* ---- life ------------------------------------------------------------------------------ */

kl_status kl_thread_init(kl_thread *thread, kl_net *net, int32_t index) {
    thread->net = net;
    thread->index = index;
    pthread_mutex_init(&thread->lock, NULL);
    kl_link *const rings[] = {
        &thread->conns, &thread->idle,    &thread->partial,    &thread->ready,
        &thread->dirty, &thread->stalled, &thread->starved,    &thread->unidentified,
        &thread->dead,  &thread->shaking, &thread->half_opens, &thread->shakes_failed};
    for (size_t i = 0; i < sizeof rings / sizeof rings[0]; i++) kl_ring_init(rings[i]);
    thread->poller = KL_POLLER_NONE;
    kl_status status = kl_post_init(&thread->post);
    return status ? status : kl_poller_init(&thread->poller, &thread->post.wake);
}

static void free_dead(kl_thread *thread) {
    for (kl_link *link; (link = kl_ring_first(&thread->dead)) != NULL;) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, dirty);
        kl_link_remove(link);
        kl_release(conn);
    }
}

static void free_exchanges(kl_thread *thread, size_t count) {
    for (; count > 0; count--) {
        kl_exchange *exchange = thread->free;
        KL_ASSERT(exchange != NULL);
        thread->free = exchange->next;
        thread->free_count--;
        kl_exchange_free(exchange);
    }
}

static kl_exchange *holder_of(kl_letter *letter, kl_post_box box) {
    switch (box) {
    case KL_POST_ANSWER: return KL_HOLDER(letter, kl_exchange, answer);
    case KL_POST_WAKE: return KL_HOLDER(letter, kl_exchange, wake);
    default: return KL_HOLDER(letter, kl_exchange, warm);
    }
}

/* Handle all letters in a box. */
static void each_letter(kl_thread *thread, kl_post_box box, void (*act)(kl_exchange *)) {
    kl_letter *next;
    for (kl_letter *letter = kl_post_take(&thread->post, box); letter; letter = next) {
        next = letter->next;
        act(holder_of(letter, box));
    }
}

static void end_warm(kl_exchange *exchange) {
    exchange->cold = false;
    kl_exchange_end(exchange);
}

static void end_woken(kl_exchange *exchange) {
    atomic_store(&exchange->wake_posted, false);
    if (exchange->ended) kl_exchange_end(exchange);
}

void kl_thread_drain(kl_thread *thread) {
    each_letter(thread, KL_POST_ANSWER, kl_exchange_end);
    each_letter(thread, KL_POST_WARM, end_warm);
    each_letter(thread, KL_POST_WAKE, end_woken);
}

void kl_thread_free(kl_thread *thread) {
    if (thread->net == NULL) return;
    kl_thread_drain(thread);
    free_dead(thread);
    free_exchanges(thread, thread->free_count);
    kl_pool_free(&thread->pool);
    kl_timers_free(&thread->timers);
    kl_timers_free(&thread->muted);
    kl_poller_free(&thread->poller);
    kl_post_free(&thread->post);
    pthread_mutex_destroy(&thread->lock);
}

/* ---- letters ----------------------------------------------------------------------------- */

/* Continue its connection after all letters are handled, so that answers to several requests of a
 * connection are one write. */
static void went_on(kl_exchange *exchange, bool fine) {
    kl_conn *conn = exchange->request.conn;
    if (!fine) kl_conn_close(conn);
    else kl_link_last(&conn->thread->dirty, &conn->dirty);
}

static void answered(kl_exchange *exchange) {
    if (exchange->request.conn == NULL) kl_exchange_end(exchange);
    else went_on(exchange, kl_exchange_answered(exchange));
}

/* Its part is in memory; its connection may be gone. */
static void warmed(kl_exchange *exchange) {
    exchange->cold = false;
    if (exchange->request.conn == NULL) kl_exchange_end(exchange);
    else went_on(exchange, true);
}

static void woken(kl_exchange *exchange) {
    atomic_store(&exchange->wake_posted, false);
    if (exchange->ended) kl_exchange_end(exchange);
    else if (exchange->state == KL_WAITS || exchange->state == KL_WAITS_ON)
        went_on(exchange, kl_exchange_run(exchange));
    else kl_exchange_was_read(exchange);
}

static void run_posts(kl_thread *thread) {
    each_letter(thread, KL_POST_ANSWER, answered);
    each_letter(thread, KL_POST_WARM, warmed);
    each_letter(thread, KL_POST_WAKE, woken);
}

static void run_stalled(kl_thread *thread) {
    if (!atomic_exchange(&thread->room, false)) return;
    for (kl_link *link; (link = kl_ring_first(&thread->stalled)) != NULL;) {
        kl_exchange *exchange = KL_HOLDER(link, kl_exchange, queue);
        kl_link_remove(link);
        exchange->state = KL_IN_PYTHON;
        if (kl_up_push(&thread->net->up, exchange, true)) continue;
        exchange->state = KL_STALLED; /* first again */
        kl_link_first(&thread->stalled, link);
        return;
    }
}

static void pump_ring(kl_thread *thread, kl_link *ring, bool is_dirty) {
    /* Connections added later wait for the next pass. */
    kl_link_last(ring, &thread->pass_end);
    for (kl_link *link; (link = kl_ring_first(ring)) != &thread->pass_end;) {
        kl_link_remove(link);
        kl_conn_pump(is_dirty ? KL_HOLDER(link, kl_conn, dirty)
                              : KL_HOLDER(link, kl_conn, ready));
    }
    kl_link_remove(&thread->pass_end);
}

/* The incomplete large frame with the longest silence, or NULL. */
static kl_conn *stalest_half_frame(kl_thread *thread) {
    for (kl_link *link = thread->partial.next; link != &thread->partial;
         link = link->next) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, partial);
        if (conn->in && conn->in->held > 0) return conn;
    }
    return NULL;
}

/* Continue connections that wait for memory, if there is some.  If incomplete frames hold all of
 * it, close the one with the longest silence, unless it is the only one. */
static void feed_starved(kl_thread *thread) {
    for (kl_link *link; (link = kl_ring_first(&thread->starved)) != NULL;) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, starved);
        if (!kl_conn_starves(conn)) {
            kl_link_remove(link);
            kl_link_last(&thread->ready, &conn->ready);
            continue;
        }
        if (thread->half_bytes < thread->held_max) return; /* complete ones will end */
        kl_conn *stalest = stalest_half_frame(thread);
        if (stalest == NULL || stalest->in->held == thread->half_bytes) return;
        kl_count_add(&thread->closed_half_frame, 1);
        kl_conn_close(stalest);
    }
}

/* ---- time ---------------------------------------------------------------------------- */

/* Cannot overflow: -1 and distant times mean never. */
static int64_t after(int64_t from_ms, int64_t more_ms) {
    return more_ms < 0 || more_ms > INT64_MAX - from_ms ? INT64_MAX : from_ms + more_ms;
}

static void run_parked(kl_thread *thread) {
    kl_timer *first;
    while ((first = kl_timers_first(&thread->timers)) && first->due_ms <= thread->now_ms) {
        kl_exchange *exchange = KL_HOLDER(first, kl_exchange, timer);
        went_on(exchange, kl_exchange_expire(exchange));
    }
}

static void unmute(kl_thread *thread) {
    kl_timer *first;
    while ((first = kl_timers_first(&thread->muted)) && first->due_ms <= thread->now_ms) {
        kl_conn *conn = KL_HOLDER(first, kl_conn, mute);
        kl_timers_remove(&thread->muted, first);
        kl_link_last(&thread->dirty, &conn->dirty);
    }
}

static void close_idle(kl_thread *thread) {
    int64_t idle_ms_max = thread->net->config->idle_ms_max;
    for (kl_link *link; (link = kl_ring_first(&thread->idle)) != NULL;) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, idle);
        if (after(conn->active_ms, idle_ms_max) > thread->now_ms) return;
        /* A connection that waits for its answer is not idle; one that does not read it is. The
         * answer puts it back in the ring. */
        if (conn->first && conn->first->state != KL_ANSWERED) {
            kl_link_remove(link);
            continue;
        }
        kl_count_add(&thread->closed_idle, 1);
        kl_conn_close(conn);
    }
}

static void close_half_frames(kl_thread *thread) {
    int64_t half_frame_ms_max = thread->net->config->half_frame_ms_max;
    for (kl_link *link; (link = kl_ring_first(&thread->partial)) != NULL;) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, partial);
        if (after(conn->partial_ms, half_frame_ms_max) > thread->now_ms) return;
        kl_count_add(&thread->closed_half_frame, 1);
        kl_conn_close(conn);
    }
}

static void close_unidentified(kl_thread *thread) {
    for (kl_conn *conn; (conn = kl_authentication_late(thread)) != NULL;) {
        kl_count_add(&thread->closed_unidentified, 1);
        kl_conn_close(conn);
    }
}

/* Free memory that was not used for some seconds. */
static void trim(kl_thread *thread) {
    if (!thread->trims || after(thread->trim_ms, TRIM_MS) > thread->now_ms) return;
    thread->trim_ms = thread->now_ms;
    free_exchanges(thread, thread->free_least);
    thread->free_least = thread->free_count;
    thread->trims = kl_pool_trim(&thread->pool) || thread->free_count > 0;
}

static void run_timers(kl_thread *thread) {
    run_parked(thread);
    unmute(thread);
    close_idle(thread);
    close_half_frames(thread);
    close_unidentified(thread);
    kl_shake_expire(thread);
    trim(thread);
}

static int64_t next_timer(const kl_thread *thread) {
    const kl_server_config *config = thread->net->config;
    const kl_timer *parked = kl_timers_first(&thread->timers);
    int64_t next = KL_MIN(kl_shake_next(thread), kl_authentication_next(thread));
    if (parked) next = KL_MIN(next, parked->due_ms);
    const kl_timer *muted = kl_timers_first(&thread->muted);
    if (muted) next = KL_MIN(next, muted->due_ms);
    const kl_link *idle = kl_ring_first(&thread->idle);
    if (idle)
        next = KL_MIN(next, after(KL_HOLDER(idle, const kl_conn, idle)->active_ms,
                                  config->idle_ms_max));
    const kl_link *partial = kl_ring_first(&thread->partial);
    if (partial)
        next = KL_MIN(next, after(KL_HOLDER(partial, const kl_conn, partial)->partial_ms,
                                  config->half_frame_ms_max));
    return thread->trims ? KL_MIN(next, after(thread->trim_ms, TRIM_MS)) : next;
}

/* ---- the loop ------------------------------------------------------------------------ */

static bool has_work(kl_thread *thread) {
    return kl_post_any(&thread->post) || atomic_load(&thread->room) ||
           kl_ring_first(&thread->ready) || kl_ring_first(&thread->dirty) ||
           kl_ring_first(&thread->shaking) ||
           (atomic_load(&thread->stop) && !thread->stopping) ||
           (atomic_load(&thread->leaving) && !thread->was_leaving) ||
           atomic_load(&thread->stop_now);
}

static void run_shakes(kl_thread *thread) {
    kl_conn *conn = kl_shake_run(thread);
    if (conn) kl_conn_pump(conn);
    while ((conn = kl_shake_failed(thread)) != NULL) kl_conn_close(conn);
}

/* How long to wait for events; `awake` was reset before, so that no letter is missed. */
static int sleep_ms(kl_thread *thread) {
    if (has_work(thread)) return 0;
    int64_t next = next_timer(thread);
    if (thread->net->clock.manual)
        return next <= kl_clock_now(&thread->net->clock) ? 0 : -1;
    if (next == INT64_MAX) return -1;
    int64_t left_ms = next - kl_clock_now(&thread->net->clock);
    return (int)KL_MAX(KL_MIN(left_ms, (int64_t)INT32_MAX), (int64_t)0);
}

/* Visit all connections of the thread, including those without an event yet. */
static void each_conn(kl_thread *thread, void (*act)(kl_conn *)) {
    kl_lock(&thread->lock);
    kl_link *link = thread->conns.next;
    while (link != &thread->conns) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, all);
        link = link->next; /* only this thread removes connections */
        kl_unlock(&thread->lock);
        act(conn);
        kl_lock(&thread->lock);
    }
    kl_unlock(&thread->lock);
}

static void close_now(kl_conn *conn) {
    if (conn->first) conn->thread->unanswered = true;
    kl_conn_close(conn);
}

static void pass_on(kl_conn *conn) {
    if (kl_conn_part(conn) && !kl_threads_pass(conn->net, conn)) kl_conn_close(conn);
}

/* True if the thread continues. */
static bool look_at_leaving(kl_thread *thread) {
    bool leaving = atomic_load(&thread->leaving);
    if (leaving && !thread->was_leaving) each_conn(thread, kl_conn_leave);
    if (leaving) each_conn(thread, pass_on);
    thread->was_leaving = leaving;
    return !leaving || !kl_threads_left(thread);
}

/* The same. */
static bool look_at_stop(kl_thread *thread) {
    if (atomic_load(&thread->stop) && !thread->stopping) {
        thread->stopping = true;
        each_conn(thread, kl_conn_stop);
    }
    if (atomic_load(&thread->stop_now)) each_conn(thread, close_now);
    return !thread->stopping || kl_ring_first(&thread->conns) != NULL;
}

/* The wait is over. */
static void begin_pass(kl_thread *thread) {
    int64_t before_ns = thread->pass_ns, slept_from_ns = thread->clock_ns;
    thread->pass_ns = kl_thread_clock(thread);
    kl_count_add(&thread->idle_ns, thread->pass_ns - slept_from_ns);
    kl_count_add(&thread->ran_ns, thread->pass_ns - before_ns);
}

static void ask(kl_thread *thread) {
    kl_poller_begin(&thread->poller);
    kl_lock(&thread->lock);
    for (kl_link *link = thread->conns.next; link != &thread->conns; link = link->next) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, all);
        kl_poller_ask(&thread->poller, conn->stream.fd, conn, kl_conn_wants(conn));
    }
    kl_unlock(&thread->lock);
}

static void *serve(void *argument) {
    kl_thread *thread = argument;
    kl_poll_event events[KL_POLL_EVENTS_MAX];
    thread->now_ms = thread->trim_ms = kl_clock_now(&thread->net->clock);
    thread->was_leaving = false;
    thread->pass_ns = kl_thread_clock(thread);
    do {
        atomic_store(&thread->post.awake, false);
        if (KL_POLLER_ASKS) ask(thread);
        int count = kl_poller_wait(&thread->poller, events, sleep_ms(thread));
        atomic_store(&thread->post.awake, true);
        if (KL_UNLIKELY(atomic_load(&thread->net->paused))) kl_net_stand(thread->net);
        thread->now_ms = kl_clock_now(&thread->net->clock);
        begin_pass(thread);
        for (int i = 0; i < count; i++)
            if (events[i].data) kl_conn_events(events[i].data, events[i].happened);
        run_stalled(thread);
        run_posts(thread);
        run_timers(thread);
        pump_ring(thread, &thread->dirty, true);
        pump_ring(thread, &thread->ready, false);
        feed_starved(thread);
        run_shakes(thread);
        free_dead(thread);
    } while (look_at_stop(thread) && look_at_leaving(thread));
    free_dead(thread);
    kl_net_tell_over(thread);
    return NULL;
}

kl_status kl_thread_start(kl_thread *thread) {
    thread->over = false;
    kl_status status = kl_thread_spawn(&thread->thread, serve, thread, "kafkalog-net");
    thread->runs = !status;
    return status;
}
