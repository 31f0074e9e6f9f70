/* up.c: the queue of requests to Python, and their answers. */
#include "up.h"

#include "conn.h"
#include "lane.h"
#include "net.h"
#include "response.h"

enum { SLOTS_MIN = 64, POS_BODY_V0 = KL_RESPONSE_HEADER_BYTES };

static kl_status no_request(uint64_t id) {
    return kl_fail(KL_E_NOT_FOUND, "request %llx has ended, or there was none",
                   (unsigned long long)id);
}

void kl_up_init(kl_up *up) {
    pthread_mutex_init(&up->lock, NULL);
    kl_cond_init(&up->some);
    kl_ring_init(&up->control);
    kl_ring_init(&up->data);
}

kl_exchange *kl_up_left(kl_up *up) {
    kl_link *link = kl_ring_first(&up->control);
    if (link == NULL) link = kl_ring_first(&up->data);
    if (link) {
        kl_link_remove(link);
        return KL_HOLDER(link, kl_exchange, queue);
    }
    for (uint32_t i = 0; i < up->slot_count; i++)
        if (up->slots[i].exchange) {
            kl_exchange *exchange = up->slots[i].exchange;
            up->slots[i].exchange = NULL;
            return exchange;
        }
    return NULL;
}

void kl_up_free(kl_up *up) {
    kl_release(up->slots);
    pthread_cond_destroy(&up->some);
    pthread_mutex_destroy(&up->lock);
}

static bool is_control(const kl_up *up, const kl_exchange *exchange) {
    return exchange->request.listener == up->control_listener;
}

bool kl_up_push(kl_up *up, kl_exchange *exchange, bool again) {
    bool control = is_control(up, exchange);
    kl_lock(&up->lock);
    int32_t *count = control ? &up->control_count : &up->data_count;
    /* While threads wait for space, it is theirs: clients that resend immediately would otherwise
     * starve them. */
    bool room = *count < up->count_max && (again || control || !up->wanted);
    if (room) {
        *count += 1;
        exchange->slot = 0;
        kl_link_last(control ? &up->control : &up->data, &exchange->queue);
        pthread_cond_signal(&up->some);
    } else {
        up->wanted = true;
    }
    kl_unlock(&up->lock);
    return room;
}

static void unqueue(kl_up *up, kl_exchange *exchange) {
    int32_t *count = is_control(up, exchange) ? &up->control_count : &up->data_count;
    KL_ASSERT_HELD(&up->lock);
    KL_ASSERT(*count > 0);
    kl_link_remove(&exchange->queue);
    *count -= 1;
}

/* True if the threads should be notified of space: not for each place, as every notification costs
 * a wake-up. */
static bool has_room_again(kl_up *up) {
    if (!up->wanted || KL_MAX(up->control_count, up->data_count) > up->count_max / 2)
        return false;
    up->wanted = false;
    return true;
}

static void tell_room(kl_up *up) {
    for (int32_t i = 0; i < atomic_load(up->thread_count); i++) {
        atomic_store(&up->threads[i].room, true);
        kl_post_ring(&up->threads[i].post);
    }
}

bool kl_up_cancel(kl_up *up, kl_exchange *exchange) {
    kl_lock(&up->lock);
    bool queued = kl_link_in(&exchange->queue);
    if (queued) unqueue(up, exchange);
    bool room = queued && has_room_again(up);
    kl_unlock(&up->lock);
    if (room) tell_room(up);
    return queued;
}

void kl_up_close(kl_up *up) {
    kl_lock(&up->lock);
    up->closed = true;
    pthread_cond_broadcast(&up->some);
    kl_unlock(&up->lock);
}

/* ---- slots: requests taken by Python ------------------------------------------------------ */

static kl_status more_slots(kl_up *up) {
    uint32_t count = KL_MAX(up->slot_count * 2, (uint32_t)SLOTS_MIN);
    kl_slot *slots = kl_resize(up->slots, count * sizeof *slots);
    if (slots == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %u requests in Python", count);
    up->slots = slots;
    for (; up->slot_count < count; up->slot_count++) {
        slots[up->slot_count] = (kl_slot){.next_free = up->free_slot};
        up->free_slot = up->slot_count + 1;
    }
    return KL_OK;
}

/* The generation counts a slot's requests, so that no id is used twice. */
static uint64_t put_in_slot(kl_up *up, kl_exchange *exchange) {
    KL_ASSERT(up->free_slot > 0 && up->free_slot <= up->slot_count);
    kl_slot *slot = &up->slots[up->free_slot - 1];
    KL_ASSERT(slot->exchange == NULL);
    exchange->slot = up->free_slot;
    up->free_slot = slot->next_free;
    slot->exchange = exchange;
    slot->generation++;
    return (uint64_t)slot->generation << 32 | exchange->slot;
}

static bool is_taken(const kl_up *up, uint64_t id) {
    uint32_t place = (uint32_t)id;
    return place > 0 && place <= up->slot_count && up->slots[place - 1].exchange &&
           up->slots[place - 1].generation == (uint32_t)(id >> 32);
}

static kl_exchange *take_from_slot(kl_up *up, uint64_t id) {
    if (!is_taken(up, id)) return NULL;
    uint32_t place = (uint32_t)id;
    kl_slot *slot = &up->slots[place - 1];
    kl_exchange *exchange = slot->exchange;
    slot->exchange = NULL;
    slot->next_free = up->free_slot;
    up->free_slot = place;
    return exchange;
}

/* ---- the calls ----------------------------------------------------------------------- */

/* Under the lock: a queued exchange still has its connection. */
static void describe(const kl_exchange *exchange, uint64_t id, kl_request_info *out) {
    const kl_request *request = &exchange->request;
    *out = (kl_request_info){
        .id = id,
        .connection = request->conn->id,
        .listener = request->listener,
        .principal = request->principal,
        .correlation_id = request->correlation_id,
        .why = request->why,
        .api_key = request->api_key,
        .api_version = request->api_version,
        .client_id = request->client_id.data,
        .client_id_bytes = request->client_id.data ? (int32_t)request->client_id.bytes : -1,
        .body = request->data + request->body_pos,
        .body_bytes = request->bytes - request->body_pos,
    };
    memcpy(out->peer, request->conn->peer, sizeof out->peer);
    out->subject_bytes = (int32_t)request->conn->subject_bytes;
    KL_ASSERT(request->conn->subject_bytes <= sizeof out->subject);
    if (request->conn->subject)
        memcpy(out->subject, request->conn->subject, request->conn->subject_bytes);
}

/* The calling thread's last request, and the time when it was taken. */
static _Thread_local struct {
    const kl_up *up;
    uint64_t id;
    int64_t ns;
} mine;

/* Under the lock.  The calling thread has left its last request; if that is not answered, it waits
 * for others. */
static void leave_mine(kl_up *up, int64_t now_ns) {
    if (mine.up != up) {
        mine.up = up;
        mine.id = 0;
        mine.ns = now_ns;
    }
    if (is_taken(up, mine.id))
        kl_times_turn(&up->slots[(uint32_t)mine.id - 1].exchange->times, KL_PHASE_REMOTE,
                      now_ns);
}

/* Under the lock.  Wait for a request; NULL: none came. */
static kl_link *await_some(kl_up *up, int32_t timeout_ms) {
    int64_t until_ms = kl_monotonic_ms() + timeout_ms;
    for (;;) {
        if (up->closed) return NULL;
        kl_link *link = kl_ring_first(&up->control);
        if (link == NULL) link = kl_ring_first(&up->data);
        int64_t left_ms = link ? 0 : until_ms - kl_monotonic_ms();
        if (link || left_ms <= 0) return link;
        kl_cond_wait_ms(&up->some, &up->lock, left_ms);
    }
}

kl_status kl_up_take(kl_up *up, int32_t timeout_ms, kl_request_info *out) {
    kl_status status = KL_OK;
    int64_t begin_ns = kl_monotonic_ns();
    bool room = false;
    kl_lock(&up->lock);
    leave_mine(up, begin_ns);
    kl_link *link = await_some(up, timeout_ms);
    if (up->closed) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else if (link == NULL)
        status = kl_fail(KL_E_TIMEOUT, "no request came in %d ms", timeout_ms);
    if (!status && up->free_slot == 0) status = more_slots(up);
    int64_t now_ns = kl_monotonic_ns();
    if (!status) {
        kl_exchange *exchange = KL_HOLDER(link, kl_exchange, queue);
        unqueue(up, exchange);
        mine.id = put_in_slot(up, exchange);
        kl_times_turn(&exchange->times, KL_PHASE_LOCAL, now_ns);
        describe(exchange, mine.id, out);
        room = has_room_again(up);
    }
    up->idle_ns += now_ns - begin_ns;
    up->ran_ns += now_ns - mine.ns;
    mine.ns = now_ns;
    kl_unlock(&up->lock);
    if (room) tell_room(up);
    return status;
}

/* Post to its network thread, which may have ended: then kl_server_free finds it. */
static void post(kl_exchange *exchange, kl_outcome outcome) {
    exchange->outcome = outcome;
    bool answers = outcome == KL_ANSWER || outcome == KL_REFUSE;
    kl_times_turn(&exchange->times, answers ? KL_PHASE_RESPONSE : KL_PHASE_QUEUE,
                  kl_monotonic_ns());
    kl_post_put(&exchange->owner->post, KL_POST_ANSWER, &exchange->answer);
}

static kl_status take_back(kl_up *up, uint64_t id, kl_exchange **out) {
    kl_lock(&up->lock);
    *out = take_from_slot(up, id);
    kl_unlock(&up->lock);
    return *out ? KL_OK : no_request(id);
}

/* A token of SASL as a whole response. */
static kl_status put_token(kl_buffer *memory, const uint8_t *body, size_t bytes) {
    kl_status status = kl_buffer_reserve(memory, KL_SIZE_BYTES);
    if (status) return status;
    memory->bytes = KL_SIZE_BYTES;
    kl_put32(memory->data, (uint32_t)KL_MIN(bytes, (size_t)INT32_MAX));
    return kl_buffer_append(memory, body, KL_MIN(bytes, (size_t)INT32_MAX));
}

/* Store Python's answer.  Only this thread has the exchange. */
static kl_status put_answer(kl_exchange *exchange, const uint8_t *body, size_t bytes,
                            int32_t header_version) {
    kl_buffer *memory = &exchange->memory;
    memory->bytes = 0;
    if (header_version == KL_HEADER_TOKEN) return put_token(memory, body, bytes);
    if (header_version < 0) return KL_OK;
    size_t header_bytes = POS_BODY_V0 + (header_version > 0 ? 1 : 0);
    kl_status status = kl_buffer_reserve(memory, header_bytes);
    if (!status) {
        memory->bytes = header_bytes;
        status = kl_buffer_append(memory, body, bytes);
    }
    if (!status && !kl_response_finish(exchange, header_version))
        status = kl_fail(KL_E_ARGUMENT, "a response of %zu bytes, at most %d can be sent",
                         bytes, INT32_MAX);
    return status;
}

kl_status kl_up_answer(kl_up *up, uint64_t id, const uint8_t *body, size_t bytes,
                       int32_t header_version) {
    kl_exchange *exchange;
    kl_status status = take_back(up, id, &exchange);
    if (status) return status;
    status = put_answer(exchange, body, bytes, header_version);
    post(exchange, status ? KL_CLOSE : KL_ANSWER);
    return status;
}

kl_status kl_up_answer_repeatedly(kl_up *up, uint64_t id, const kl_refusal *answer,
                                  uint64_t mark, kl_repeat **out) {
    kl_exchange *exchange;
    *out = NULL;
    kl_status status = take_back(up, id, &exchange);
    if (status) return status;
    status = put_answer(exchange, answer->body, answer->bytes, answer->header_version);
    /* Only kl_up_read sets `read`, under the lock and while the exchange is in its slot.  So it
     * is final now, and if it is not set, no letter releases the frame before the answer does. */
    if (!status && !atomic_load(&exchange->read)) {
        const kl_span body = {answer->body, answer->bytes};
        *out = exchange->repeat =
            kl_repeat_new(&exchange->request, body, mark, &exchange->owner->net->clock);
    }
    post(exchange, status ? KL_CLOSE : KL_ANSWER);
    return status;
}

kl_status kl_up_refuse(kl_up *up, uint64_t id, const kl_refusal *refusal) {
    kl_exchange *exchange;
    kl_status status = take_back(up, id, &exchange);
    if (status) return status;
    status = put_answer(exchange, refusal->body, refusal->bytes, refusal->header_version);
    exchange->delay_ms = refusal->delay_ms;
    post(exchange, status ? KL_CLOSE : KL_REFUSE);
    return status;
}

kl_status kl_up_identify(kl_up *up, uint64_t id, int32_t principal, int64_t expires_ms) {
    kl_lock(&up->lock);
    bool found = is_taken(up, id);
    if (found) { /* its thread reads it after the answer */
        kl_exchange *exchange = up->slots[(uint32_t)id - 1].exchange;
        kl_net *net = exchange->owner->net;
        if (exchange->authenticated.known)
            kl_net_hold(net, exchange->authenticated.principal, -1);
        kl_net_hold(net, principal, 1);
        exchange->authenticated = (kl_authentication){true, principal, expires_ms};
    }
    kl_unlock(&up->lock);
    return found ? KL_OK : no_request(id);
}

kl_status kl_up_again(kl_up *up, uint64_t id, bool heard) {
    kl_exchange *exchange;
    kl_status status = take_back(up, id, &exchange);
    if (!status) post(exchange, heard ? KL_AGAIN : KL_AGAIN_UNHEARD);
    return status;
}

kl_status kl_up_resolved(kl_up *up, uint64_t id, const kl_client *client) {
    kl_exchange *exchange;
    kl_status status = take_back(up, id, &exchange);
    if (status) return status;
    exchange->client = *client;
    post(exchange, KL_RESOLVED);
    return KL_OK;
}

kl_status kl_up_throttle(kl_up *up, uint64_t id, int32_t ms) {
    kl_lock(&up->lock);
    bool found = is_taken(up, id);
    if (found) up->slots[(uint32_t)id - 1].exchange->request.throttle_ms = ms;
    kl_unlock(&up->lock);
    return found ? KL_OK : no_request(id);
}

kl_status kl_up_read(kl_up *up, uint64_t id) {
    uint32_t place = (uint32_t)id;
    kl_lock(&up->lock);
    bool found = is_taken(up, id);
    if (found) {
        kl_exchange *exchange = up->slots[place - 1].exchange; /* valid while in its slot */
        atomic_store(&exchange->read, true);
        if (!atomic_exchange(&exchange->wake_posted, true))
            kl_post_put(&exchange->owner->post, KL_POST_WAKE, &exchange->wake);
    }
    kl_unlock(&up->lock);
    return found ? KL_OK : no_request(id);
}

kl_status kl_up_drop(kl_up *up, uint64_t id) {
    kl_exchange *exchange;
    kl_status status = take_back(up, id, &exchange);
    if (!status) post(exchange, KL_CLOSE);
    return status;
}

int64_t kl_up_count(kl_up *up) {
    kl_lock(&up->lock);
    int64_t count = (int64_t)up->control_count + up->data_count;
    kl_unlock(&up->lock);
    return count;
}

void kl_up_threads(kl_up *up, int64_t *idle_ns, int64_t *ran_ns) {
    kl_lock(&up->lock);
    *idle_ns = up->idle_ns;
    *ran_ns = up->ran_ns;
    kl_unlock(&up->lock);
}
