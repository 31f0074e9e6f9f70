/* exchange.c: the life of a request: run, parked, passed to Python, answered. */
#include "exchange.h"

#include "authentication.h"
#include "net.h"
#include "response.h"

enum {
    RESPONSE_KEPT_BYTES = 64 << 10, /* memory kept by an idle exchange */
    LOOK_BYTES = 4 << 20            /* of a file, checked for being in memory */
};

/* ---- memory -------------------------------------------------------------------------- */

static kl_exchange *new_exchange(kl_thread *thread) {
    kl_exchange *exchange = thread->free;
    if (exchange != NULL) {
        KL_ASSERT(thread->free_count > 0 && exchange->memory.bytes == 0);
        thread->free = exchange->next;
        thread->free_count--;
        thread->free_least = KL_MIN(thread->free_least, thread->free_count);
        exchange->next = NULL;
        return exchange;
    }
    exchange = kl_alloc(sizeof *exchange);
    if (exchange == NULL) return NULL;
    exchange->owner = thread;
    kl_count_add(&thread->allocations, 1);
    return exchange;
}

void kl_exchange_free(kl_exchange *exchange) {
    kl_buffer_free(&exchange->memory);
    kl_release(exchange->parts);
    kl_release(exchange);
}

/* NULL: Python handles it. */
static const kl_kind *kind_of(kl_net *net, int16_t api_key) {
    if (api_key < 0 || api_key >= KL_API_KEYS) return NULL;
    return atomic_load_explicit(&net->kinds[api_key], memory_order_relaxed);
}

/* The kind that answers a request returned by Python; NULL: only Python answers. */
static const kl_kind *own_kind_of(const kl_net *net, int16_t api_key) {
    return api_key >= 0 && api_key < KL_API_KEYS ? net->ops->kinds[api_key] : NULL;
}

kl_exchange *kl_exchange_new(kl_conn *conn, kl_chunk *frame, const kl_header *header) {
    kl_exchange *exchange = new_exchange(conn->thread);
    if (exchange == NULL) {
        kl_pool_give(&conn->thread->pool, frame);
        return NULL;
    }
    exchange->frame = frame;
    exchange->state = KL_WHOLE;
    atomic_store(&exchange->read, false);
    exchange->kind = kl_is_unidentified(conn) ? NULL : kind_of(conn->net, header->api_key);
    exchange->authenticated.known = false;
    kl_times_begin(&exchange->times, conn->thread->pass_ns);
    exchange->request = (kl_request){.context = conn->net->context,
                                     .conn = conn,
                                     .client = &conn->client,
                                     .thread = conn->thread->index,
                                     .listener = conn->listener,
                                     .principal = conn->principal,
                                     .tenure = conn->tenure,
                                     .data = frame->data + KL_SIZE_BYTES,
                                     .bytes = conn->frame_bytes - KL_SIZE_BYTES,
                                     .body_pos = header->body_pos,
                                     .api_key = header->api_key,
                                     .api_version = header->api_version,
                                     .correlation_id = header->correlation_id,
                                     .client_id = header->client_id,
                                     .why = KL_UP_FAST_PATH,
                                     .deadline_ms = INT64_MAX};
    kl_finished_begin(exchange);
    return exchange;
}

void kl_exchange_end(kl_exchange *exchange) {
    kl_thread *thread = exchange->owner;
    KL_ASSERT(exchange->timer.place == 0 && !kl_link_in(&exchange->queue));
    if (exchange->cold) { /* ends when its file is no longer read */
        exchange->request.conn = NULL;
        return;
    }
    if (!exchange->ended) {
        if (exchange->authenticated.known)
            kl_net_hold(thread->net, exchange->authenticated.principal, -1);
        exchange->authenticated.known = false;
        if (exchange->holds) kl_net_hold(thread->net, exchange->request.principal, -1);
        exchange->holds = false;
        kl_response_clear(exchange);
        kl_repeat_leave(exchange->repeat); /* its connection is gone */
        exchange->repeat = NULL;
        if (exchange->memory.capacity > RESPONSE_KEPT_BYTES)
            kl_buffer_free(&exchange->memory);
        kl_pool_give(&thread->pool, exchange->frame);
        exchange->frame = NULL;
        exchange->request.conn = NULL;
        exchange->state = KL_WHOLE;
        exchange->ended = true;
    }
    if (atomic_load(&exchange->wake_posted)) return; /* freed when its wake arrives */
    exchange->ended = false;
    exchange->next = thread->free;
    thread->free = exchange;
    thread->free_count++;
    thread->trims = true;
}

void kl_exchange_was_read(kl_exchange *exchange) {
    if (exchange->state != KL_IN_PYTHON || !atomic_load(&exchange->read)) return;
    kl_request_release_frame(&exchange->request);
}

static kl_exchange *exchange_of(kl_request *request) { return (kl_exchange *)request; }

/* ---- a run --------------------------------------------------------------------------- */

void kl_request_wake(kl_request *request) {
    kl_exchange *exchange = exchange_of(request);
    /* Read first: once the letter is posted, the request may end. */
    kl_post *post = &exchange->owner->post;
    if (atomic_exchange(&exchange->wake_posted, true)) return;
    kl_post_put(post, KL_POST_WAKE, &exchange->wake);
}

static bool park(kl_exchange *exchange, kl_exchange_state state) {
    kl_thread *thread = exchange->owner;
    kl_request *request = &exchange->request;
    KL_ASSERT(exchange->timer.place == 0 && request->parked != NULL);
    exchange->state = state;
    /* It waits as long as its client says, so it must not hold up others' large requests.  A
     * request that `counts`, such as a Produce beyond the limit for the disk, still counts. */
    if (state == KL_WAITS && !request->counts)
        kl_pool_let_go(&thread->pool, exchange->frame);
    kl_count_add(&thread->parked, 1);
    kl_count_add(&thread->waiting[request->api_key], 1);
    if (exchange->request.deadline_ms == INT64_MAX) return true;
    return kl_timers_add(&thread->timers, &exchange->timer,
                         exchange->request.deadline_ms) == KL_OK;
}

static void unpark(kl_exchange *exchange) {
    if (exchange->state != KL_WAITS && exchange->state != KL_WAITS_ON) return;
    exchange->state = KL_WHOLE;
    kl_count_add(&exchange->owner->parked, -1);
    kl_count_add(&exchange->owner->waiting[exchange->request.api_key], -1);
    kl_timers_remove(&exchange->owner->timers, &exchange->timer);
}

static bool go_up(kl_exchange *exchange) {
    kl_thread *thread = exchange->owner;
    /* The header is parsed already; a request without its frame cannot go to Python. */
    bool may = !exchange->request.no_up || exchange->request.why == KL_UP_QUOTA;
    if (!may || exchange->frame == NULL) return false;
    if (exchange->kind == NULL) exchange->request.why = KL_UP_API;
    kl_response_clear(exchange);
    exchange->state = KL_IN_PYTHON;
    /* Behind this thread's stalled requests; the queue notifies the thread when it has space. */
    bool first = kl_ring_first(&thread->stalled) == NULL;
    if (first && kl_up_push(&thread->net->up, exchange, false)) return true;
    exchange->state = KL_STALLED;
    kl_count_add(&thread->queue_full, 1);
    kl_link_last(&thread->stalled, &exchange->queue);
    return true;
}

static int32_t phase_after(kl_verdict verdict) {
    switch (verdict) {
    case KL_PARKED:
    case KL_PARKED_READ_ON: return KL_PHASE_REMOTE;
    case KL_UP: return KL_PHASE_QUEUE;
    default: return KL_PHASE_RESPONSE;
    }
}

static kl_verdict run_kind(kl_exchange *exchange) {
    kl_times_turn(&exchange->times, KL_PHASE_LOCAL, exchange->owner->clock_ns);
    kl_verdict verdict = exchange->kind->run(&exchange->request);
    kl_times_turn(&exchange->times, phase_after(verdict), kl_thread_clock(exchange->owner));
    return verdict;
}

bool kl_exchange_run(kl_exchange *exchange) {
    kl_request *request = &exchange->request;
    unpark(exchange);
    if (exchange->kind == NULL) return go_up(exchange);
    if (!request->keep_response && !kl_response_begin(exchange)) return false;
    kl_verdict verdict = run_kind(exchange);
    switch (verdict) {
    case KL_DONE:
    case KL_SILENT:
        exchange->state = KL_ANSWERED;
        if (!request->no_up) kl_count_add(&exchange->owner->fast, 1);
        else if (exchange->outcome == KL_AGAIN_UNHEARD) return false;
        if (verdict == KL_SILENT) {
            kl_response_clear(exchange);
            return true;
        }
        return kl_response_finish(
            exchange, kl_header_flexible(request->api_key, request->api_version));
    case KL_PARKED: return park(exchange, KL_WAITS);
    case KL_PARKED_READ_ON: return park(exchange, KL_WAITS_ON);
    case KL_UP: return go_up(exchange);
    case KL_DROP: break;
    }
    return false;
}

bool kl_exchange_expire(kl_exchange *exchange) {
    if (exchange->state == KL_DELAYED) {
        kl_timers_remove(&exchange->owner->timers, &exchange->timer);
        exchange->state = KL_ANSWERED;
        return true;
    }
    exchange->request.expired = true;
    exchange->request.deadline_ms = INT64_MAX;
    return kl_exchange_run(exchange);
}

/* Its connection reads nothing more, and is closed after this response. */
static bool delay(kl_exchange *exchange) {
    kl_thread *thread = exchange->owner;
    exchange->request.conn->ends = true;
    exchange->state = exchange->delay_ms > 0 ? KL_DELAYED : KL_ANSWERED;
    if (exchange->delay_ms <= 0) return true;
    KL_ASSERT(exchange->timer.place == 0);
    int64_t due_ms = kl_clock_now(&thread->net->clock) + exchange->delay_ms;
    return kl_timers_add(&thread->timers, &exchange->timer, due_ms) == KL_OK;
}

bool kl_exchange_answered(kl_exchange *exchange) {
    exchange->state = KL_WHOLE; /* Python no longer has it */
    if (KL_UNLIKELY(exchange->authenticated.known)) {
        kl_authentication_set(exchange->request.conn, &exchange->authenticated);
        exchange->authenticated.known = false; /* its connection holds the principal now */
        exchange->request.principal = exchange->request.conn->principal;
        exchange->request.tenure = exchange->request.conn->tenure;
    }
    switch (exchange->outcome) {
    case KL_ANSWER:
        if (exchange->repeat) {
            kl_repeat_leave(exchange->request.conn->repeat);
            exchange->request.conn->repeat = exchange->repeat;
            exchange->repeat = NULL;
        }
        exchange->state = KL_ANSWERED;
        return true;
    case KL_REFUSE: return delay(exchange);
    case KL_RESOLVED:
        if (exchange->request.principal < 0) break; /* C answers identified clients only */
        exchange->client.key = exchange->request.client->key; /* set by the run */
        *exchange->request.client = exchange->client;
        exchange->request.why = KL_UP_FAST_PATH;
        return exchange->frame != NULL && kl_exchange_run(exchange);
    case KL_AGAIN:
    case KL_AGAIN_UNHEARD:
        if (exchange->request.principal < 0) break; /* C answers identified clients only */
        exchange->kind = own_kind_of(exchange->owner->net, exchange->request.api_key);
        if (exchange->kind == NULL) break;
        if (exchange->frame == NULL) break; /* Python has read and released it */
        exchange->request.no_up = true;
        return kl_exchange_run(exchange);
    case KL_CLOSE: break;
    }
    return false;
}

void kl_exchange_cancel(kl_exchange *exchange) {
    switch (exchange->state) {
    case KL_WAITS:
    case KL_WAITS_ON:
        unpark(exchange);
        exchange->kind->cancel(&exchange->request);
        break;
    case KL_STALLED: kl_link_remove(&exchange->queue); break;
    case KL_DELAYED: kl_timers_remove(&exchange->owner->timers, &exchange->timer); break;
    case KL_IN_PYTHON:
        if (kl_up_cancel(&exchange->owner->net->up, exchange)) break;
        /* It ends when it is answered.  Until then Python decides for its principal. */
        kl_net_hold(exchange->owner->net, exchange->request.principal, 1);
        exchange->holds = true;
        exchange->request.conn = NULL;
        return;
    case KL_WHOLE:
    case KL_ANSWERED: break;
    }
    kl_exchange_end(exchange);
}

/* ---- pieces of files ----------------------------------------------------------------- */

void kl_warmed(kl_warming *warming) {
    kl_exchange *exchange = KL_HOLDER(warming, kl_exchange, warming);
    kl_post_put(&exchange->owner->post, KL_POST_WARM, &exchange->warm);
}

bool kl_exchange_warm(kl_exchange *exchange, size_t bytes) {
    const kl_net *net = exchange->owner->net;
    KL_ASSERT(exchange->part_index < exchange->part_count && !exchange->cold);
    const kl_slice *slice = &exchange->parts[exchange->part_index].slice;
    if (exchange->part_sent + bytes <= exchange->warm_end) return true;
    size_t look = KL_MIN(slice->bytes - exchange->part_sent, (size_t)LOOK_BYTES);
    int64_t pos = slice->pos + (int64_t)exchange->part_sent;
    exchange->warm_end = exchange->part_sent + look;
    exchange->warming = (kl_warming){NULL, slice->fd, pos, pos + (int64_t)look};
    exchange->cold = !net->ops->warm(net->context, &exchange->warming);
    if (exchange->cold) kl_count_add(&exchange->owner->cold, 1);
    return !exchange->cold;
}
