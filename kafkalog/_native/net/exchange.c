/* exchange.c: one request from its last byte read to its last response byte sent. */
#include "net.h"

#include <errno.h>

#include "base/io.h"

enum {
    POS_CORRELATION_ID = KL_SIZE_BYTES,
    RESPONSE_KEPT_BYTES = 64 << 10, /* of memory that an idle exchange keeps */
    PARTS_MIN = 4,
    COPIED_BYTES_MAX = 4096 /* a slice of no more is not worth two calls and a packet */
};

/* ---- memory -------------------------------------------------------------------------- */

static kl_exchange *new_exchange(kl_thread *thread) {
    kl_exchange *exchange = thread->free;
    if (exchange != NULL) {
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

kl_exchange *kl_exchange_new(kl_conn *conn, kl_chunk *frame, const kl_header *header) {
    kl_exchange *exchange = new_exchange(conn->thread);
    if (exchange == NULL) {
        kl_pool_give(&conn->thread->pool, frame);
        return NULL;
    }
    exchange->frame = frame;
    exchange->state = KL_WHOLE;
    exchange->request = (kl_request){.server = conn->server,
                                     .conn = conn,
                                     .thread = conn->thread->index,
                                     .listener = conn->listener,
                                     .data = frame->data + KL_SIZE_BYTES,
                                     .bytes = conn->frame_bytes - KL_SIZE_BYTES,
                                     .body_pos = header->body_pos,
                                     .api_key = header->api_key,
                                     .api_version = header->api_version,
                                     .correlation_id = header->correlation_id,
                                     .client_id = header->client_id,
                                     .why = KL_UP_FAST_PATH,
                                     .deadline_ms = INT64_MAX};
    return exchange;
}

static void free_slices(kl_exchange *exchange) {
    for (size_t i = exchange->part_index; i < exchange->part_count; i++)
        kl_slice_drop(&exchange->parts[i].slice);
    exchange->part_index = exchange->part_count = 0;
    exchange->parts_bytes = exchange->part_sent = exchange->warm_end = 0;
}

void kl_exchange_end(kl_exchange *exchange) {
    kl_thread *thread = exchange->owner;
    KL_ASSERT(exchange->timer_place == 0 && !kl_link_in(&exchange->queue));
    if (exchange->cold) { /* ends when its file is not read any more */
        exchange->request.conn = NULL;
        return;
    }
    if (!exchange->ended) {
        free_slices(exchange);
        exchange->memory.bytes = exchange->sent = 0;
        if (exchange->memory.capacity > RESPONSE_KEPT_BYTES)
            kl_buffer_free(&exchange->memory);
        kl_pool_give(&thread->pool, exchange->frame);
        exchange->frame = NULL;
        exchange->request.conn = NULL;
        exchange->state = KL_WHOLE;
        exchange->ended = true;
    }
    if (atomic_load(&exchange->wake_posted)) return; /* when it comes out of the list */
    exchange->ended = false;
    exchange->next = thread->free;
    thread->free = exchange;
    thread->free_count++;
    thread->trims = true;
}

/* ---- the response -------------------------------------------------------------------- */

static kl_exchange *exchange_of(kl_request *request) { return (kl_exchange *)request; }

/* Whether the responses of Produce and Fetch have tagged fields in their header. */
static size_t fast_header_bytes(const kl_request *request) {
    return KL_RESPONSE_HEADER_BYTES +
           (kl_header_flexible(request->api_key, request->api_version) ? 1 : 0);
}

static uint8_t *reserve(kl_exchange *exchange, size_t bytes) {
    kl_buffer *memory = &exchange->memory;
    size_t capacity = memory->capacity;
    if (KL_UNLIKELY(bytes > capacity - memory->bytes)) {
        if (kl_buffer_reserve(memory, bytes)) return NULL;
        kl_count_add(&exchange->owner->allocations, 1);
    }
    uint8_t *place = memory->data + memory->bytes;
    memory->bytes += bytes;
    return place;
}

static bool begin_response(kl_exchange *exchange) {
    free_slices(exchange);
    exchange->memory.bytes = exchange->sent = 0;
    return reserve(exchange, fast_header_bytes(&exchange->request)) != NULL;
}

bool kl_response_finish(kl_exchange *exchange, int32_t header_version) {
    size_t bytes = exchange->memory.bytes + exchange->parts_bytes - KL_SIZE_BYTES;
    if (bytes > INT32_MAX) return false;
    kl_put32(exchange->memory.data, (uint32_t)bytes);
    kl_put32(exchange->memory.data + POS_CORRELATION_ID,
             (uint32_t)exchange->request.correlation_id);
    if (header_version > 0) exchange->memory.data[KL_RESPONSE_HEADER_BYTES] = 0;
    return true;
}

uint8_t *kl_response_reserve(kl_request *request, size_t bytes) {
    return reserve(exchange_of(request), bytes);
}

size_t kl_response_pos(const kl_request *request) {
    return ((const kl_exchange *)request)->memory.bytes;
}

uint8_t *kl_response_at(kl_request *request, size_t pos) {
    KL_ASSERT(pos <= exchange_of(request)->memory.bytes);
    return exchange_of(request)->memory.data + pos;
}

void kl_response_rewind(kl_request *request, size_t pos) {
    kl_exchange *exchange = exchange_of(request);
    KL_ASSERT(pos >= fast_header_bytes(request) && pos <= exchange->memory.bytes);
    KL_ASSERT(exchange->part_count == 0 ||
              exchange->parts[exchange->part_count - 1].memory_end <= pos);
    exchange->memory.bytes = pos;
}

static kl_status copy_slice(kl_request *request, const kl_slice *slice) {
    int64_t pos = slice->pos;
    size_t bytes = slice->bytes;
    uint8_t *to = kl_response_reserve(request, bytes);
    if (to == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for %zu bytes", bytes);
    while (bytes > 0) {
        ssize_t got = kl_io->pread(slice->fd, to, bytes, (off_t)pos);
        if (got == 0) return kl_fail(KL_E_STALE, "a log was cut while it was read");
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return kl_fail_errno(errno, "a read for a response");
        to += got;
        pos += got;
        bytes -= (size_t)got;
    }
    return KL_OK;
}

kl_status kl_response_slice(kl_request *request, kl_slice *slice) {
    kl_exchange *exchange = exchange_of(request);
    if (slice->bytes <= COPIED_BYTES_MAX) {
        kl_status status = copy_slice(request, slice);
        kl_slice_drop(slice);
        return status;
    }
    if (exchange->part_count == exchange->part_capacity) {
        size_t capacity = KL_MAX(exchange->part_capacity * 2, (size_t)PARTS_MIN);
        kl_part *parts = kl_resize(exchange->parts, capacity * sizeof *parts);
        if (parts == NULL) {
            kl_slice_drop(slice);
            return kl_fail(KL_E_NO_MEMORY, "no memory for %zu parts of a response",
                           capacity);
        }
        exchange->parts = parts;
        exchange->part_capacity = capacity;
        kl_count_add(&exchange->owner->allocations, 1);
    }
    exchange->parts[exchange->part_count++] = (kl_part){*slice, exchange->memory.bytes};
    exchange->parts_bytes += slice->bytes;
    *slice = (kl_slice){.fd = -1}; /* the response's now */
    return KL_OK;
}

void kl_request_release_frame(kl_request *request) {
    kl_exchange *exchange = exchange_of(request);
    kl_pool_give(&exchange->owner->pool, exchange->frame);
    exchange->frame = NULL;
    request->data = NULL;
    request->bytes = request->body_pos = 0;
    request->client_id = (kl_span){0};
}

/* ---- a run --------------------------------------------------------------------------- */

void kl_request_wake(kl_request *request) {
    kl_exchange *exchange = exchange_of(request);
    kl_thread *thread = exchange->owner;
    if (atomic_exchange(&exchange->wake_posted, true)) return;
    exchange->wake_next = atomic_load_explicit(&thread->wakes, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&thread->wakes, &exchange->wake_next, exchange))
        continue;
    kl_thread_wake(thread);
}

static bool is_fast(const kl_request *request) {
    return request->api_key == KL_API_PRODUCE || request->api_key == KL_API_FETCH;
}

static bool park(kl_exchange *exchange, kl_exchange_state state) {
    kl_thread *thread = exchange->owner;
    exchange->state = state;
    /* As long as its client says: it must not hold up others' large requests. */
    if (state == KL_WAITS) kl_pool_let_go(&thread->pool, exchange->frame);
    kl_count_add(&thread->parked, 1);
    if (exchange->request.deadline_ms == INT64_MAX) return true;
    return kl_timers_add(&thread->timers, exchange, exchange->request.deadline_ms) == KL_OK;
}

static void unpark(kl_exchange *exchange) {
    if (exchange->state != KL_WAITS && exchange->state != KL_WAITS_ON) return;
    exchange->state = KL_WHOLE;
    kl_count_add(&exchange->owner->parked, -1);
    kl_timers_remove(&exchange->owner->timers, exchange);
}

/* Those that Python may answer minutes later, when other members did what they should. */
static bool waits_for_members(const kl_request *request) {
    return request->api_key == KL_API_JOIN_GROUP || request->api_key == KL_API_SYNC_GROUP;
}

static bool go_up(kl_exchange *exchange) {
    kl_thread *thread = exchange->owner;
    kl_server *server = thread->server;
    /* The header was taken apart on the way in; a frame that is gone cannot go up. */
    if (exchange->request.no_up || exchange->frame == NULL) return false;
    if (!is_fast(&exchange->request)) exchange->request.why = KL_UP_API;
    free_slices(exchange);
    exchange->memory.bytes = 0;
    exchange->state = KL_IN_PYTHON;
    if (waits_for_members(&exchange->request))
        kl_pool_let_go(&thread->pool, exchange->frame);
    if (kl_up_push(&server->up, exchange)) return true;
    exchange->state = KL_STALLED;
    kl_count_add(&thread->queue_full, 1);
    kl_link_last(&thread->stalled, &exchange->queue);
    return true;
}

bool kl_exchange_run(kl_exchange *exchange) {
    kl_request *request = &exchange->request;
    unpark(exchange);
    if (!is_fast(request)) return go_up(exchange);
    if (!request->keep_response && !begin_response(exchange)) return false;
    kl_verdict verdict = request->api_key == KL_API_PRODUCE ? kl_produce_run(request)
                                                            : kl_fetch_run(request);
    switch (verdict) {
    case KL_DONE:
    case KL_SILENT:
        exchange->state = KL_ANSWERED;
        if (!request->no_up) kl_count_add(&exchange->owner->fast, 1);
        if (verdict == KL_SILENT) {
            free_slices(exchange);
            exchange->memory.bytes = 0;
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
    exchange->request.expired = true;
    exchange->request.deadline_ms = INT64_MAX;
    return kl_exchange_run(exchange);
}

bool kl_exchange_answered(kl_exchange *exchange) {
    exchange->state = KL_WHOLE; /* Python has it no more */
    switch (exchange->outcome) {
    case KL_ANSWER: exchange->state = KL_ANSWERED; return true;
    case KL_AGAIN:
        if (!is_fast(&exchange->request)) break;
        exchange->request.no_up = true;
        return kl_exchange_run(exchange);
    case KL_CLOSE: break;
    }
    return false;
}

void kl_exchange_cancel(kl_exchange *exchange) {
    kl_server *server = exchange->owner->server;
    switch (exchange->state) {
    case KL_WAITS:
    case KL_WAITS_ON:
        unpark(exchange);
        if (exchange->request.on_cancel) exchange->request.on_cancel(&exchange->request);
        break;
    case KL_STALLED: kl_link_remove(&exchange->queue); break;
    case KL_IN_PYTHON:
        if (kl_up_cancel(&server->up, exchange)) break;
        exchange->request.conn = NULL; /* ends when it is answered */
        return;
    case KL_WHOLE:
    case KL_ANSWERED: break;
    }
    kl_exchange_end(exchange);
}
