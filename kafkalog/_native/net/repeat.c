/* repeat.c: see repeat.h. */
#include "repeat.h"

#include "net.h"

enum {
    /* Of a request and its answer: at most SMALL_BYTES of kafkalog/server/request.py, as larger
     * bodies are read before they are answered. */
    BYTES_MAX = 2000,
    /* In a frame without its size field, after key and version; and what follows it. */
    POS_CORRELATION_ID = 4,
    POS_REST = 8
};

static kl_span rest_of(const kl_request *request) {
    return (kl_span){request->data + POS_REST, request->bytes - POS_REST};
}

kl_repeat *kl_repeat_new(const kl_request *request, kl_span answer, uint64_t mark,
                         kl_clock *clock) {
    KL_ASSERT(request->data != NULL);
    if (request->bytes < POS_REST || request->bytes + answer.bytes > BYTES_MAX) return NULL;
    size_t bytes = request->bytes - (POS_REST - POS_CORRELATION_ID);
    kl_repeat *repeat = kl_alloc(sizeof *repeat);
    if (repeat == NULL) return NULL;
    repeat->data = kl_alloc(bytes + answer.bytes);
    if (repeat->data == NULL) {
        kl_release(repeat);
        return NULL;
    }
    kl_span rest = rest_of(request);
    atomic_init(&repeat->holders, 2);
    atomic_init(&repeat->heard_ms, -1);
    repeat->clock = clock;
    repeat->mark = mark;
    repeat->principal = request->principal;
    repeat->request_bytes = bytes;
    repeat->answer_bytes = answer.bytes;
    memcpy(repeat->data, request->data, POS_CORRELATION_ID);
    if (rest.bytes) memcpy(repeat->data + POS_CORRELATION_ID, rest.data, rest.bytes);
    if (answer.bytes) memcpy(repeat->data + bytes, answer.data, answer.bytes);
    return repeat;
}

void kl_repeat_drop(kl_repeat *repeat) {
    if (repeat && atomic_fetch_sub(&repeat->holders, 1) == 1) kl_release(repeat);
}

void kl_repeat_leave(kl_repeat *repeat) {
    if (repeat == NULL) return;
    kl_release(repeat->data);
    repeat->data = NULL;
    kl_repeat_drop(repeat);
}

static bool is_same(const kl_repeat *repeat, const kl_request *request) {
    kl_span rest = rest_of(request);
    return request->principal == repeat->principal &&
           repeat->request_bytes == rest.bytes + POS_CORRELATION_ID &&
           memcmp(repeat->data, request->data, POS_CORRELATION_ID) == 0 &&
           memcmp(repeat->data + POS_CORRELATION_ID, rest.data, rest.bytes) == 0;
}

static kl_verdict run(kl_request *request) {
    kl_conn *conn = request->conn;
    kl_repeat *repeat = conn->repeat;
    if (repeat == NULL || request->bytes < POS_REST || !is_same(repeat, request))
        return KL_UP;
    if (repeat->mark != atomic_load(&conn->net->repeat_mark)) return KL_UP;
    /* First: Python ends it, and then asks when it was heard.  So either this request comes to
     * Python, or it is not missed. */
    atomic_store(&repeat->heard_ms, kl_clock_now(repeat->clock));
    if (atomic_load(&repeat->ended)) return KL_UP;
    uint8_t *body = kl_response_reserve(request, repeat->answer_bytes);
    if (body == NULL) return KL_DROP;
    memcpy(body, repeat->data + repeat->request_bytes, repeat->answer_bytes);
    kl_count_add(&conn->thread->repeated, 1);
    return KL_DONE;
}

/* It never waits. */
static void cancel(kl_request *request) { KL_ASSERT(request->parked == NULL); }

const kl_kind kl_repeats = {run, cancel, false};
