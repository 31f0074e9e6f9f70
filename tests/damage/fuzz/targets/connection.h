/* connection.h: a connection: frames cut from any bytes into any pieces; requests are parked,
 * handed up, answered and dropped in any order.  The requests that run are those that a simple
 * parser finds in the same bytes, in order; answers come in order and none is missing.
 *
 * Threads, listening sockets and the fast path are simulated here.  FUZZ_LOGIN, set by the target:
 * the client must authenticate first. */
#include <sys/socket.h>
#include <unistd.h>

#include "../../../../kafkalog/_native/net/net.h"
#include "../../../../kafkalog/_native/net/response.h"
#include "fuzz.h"

enum { PRINCIPALS = 3 }; /* from KL_PROCESS + 1 on */

enum { REQUESTS_MAX = 256, STEPS_MAX = 200, REQUEST_BYTES_MAX = 5000, QUEUED_MAX = 2 };
enum { UNIDENTIFIED_BYTES_MAX = 1000 };

/* ---- the simulated parts ------------------------------------------------------------- */

static kl_server_config config;
static kl_net net;
static kl_thread thread;
static kl_span script; /* the fast path's answers: from the end of the input */

/* The requests that ran, in order, and those that wait. */
static struct {
    const kl_request *request; /* the last one with this address is live */
    int32_t correlation_id;
    bool silent;
} ran[REQUESTS_MAX];
static size_t ran_count;
static kl_request *parked[REQUESTS_MAX];
static size_t parked_count;
static uint64_t taken[REQUESTS_MAX];
static size_t taken_count;
static kl_conn *the_conn;

static void forget(kl_request *request) {
    for (size_t i = 0; i < parked_count; i++)
        if (parked[i] == request) parked[i--] = parked[--parked_count];
    request->parked = NULL;
}

static void note(kl_request *request) {
    if (request->parked || request->no_up || ran_count == REQUESTS_MAX) return;
    ran[ran_count].request = request;
    ran[ran_count++].correlation_id = request->correlation_id;
}

static kl_verdict answer(kl_request *request, bool silent) {
    forget(request);
    size_t place = ran_count;
    while (place > 0 && ran[place - 1].request != request) place--;
    if (place > 0) ran[place - 1].silent = silent;
    if (silent) return KL_SILENT;
    uint8_t *memory = kl_response_reserve(request, fuzz_below(&script, 300));
    return memory ? KL_DONE : KL_DROP;
}

static kl_verdict run(kl_request *request) {
    WANT(request->principal >= 0);
    note(request);
    uint8_t choice = request->expired ? 0 : fuzz_u8(&script) % 8;
    if (choice < 2 || parked_count == REQUESTS_MAX) return answer(request, false);
    if (choice == 2) return answer(request, request->api_key == KL_API_PRODUCE);
    if (choice == 3 && !request->no_up) {
        forget(request);
        return KL_UP;
    }
    if (choice == 4 && fuzz_u8(&script) % 4 == 0) {
        forget(request);
        return KL_DROP;
    }
    if (!request->parked) parked[parked_count++] = request;
    request->parked = request;
    request->deadline_ms = choice == 5 ? fuzz_u8(&script) : INT64_MAX;
    return choice == 6 && request->api_key == KL_API_PRODUCE ? KL_PARKED_READ_ON
                                                             : KL_PARKED;
}

/* Every file is in memory here: there are none. */
static bool warm(void *context, kl_warming *warming) {
    (void)context;
    (void)warming;
    return true;
}
static void drop(void *context, kl_slice *slice) {
    (void)context;
    (void)slice;
}

static const kl_kind produces = {run, forget, true};
static const kl_kind fetches = {run, forget, false};
static const kl_ops ops = {
    .kinds = {[KL_API_PRODUCE] = &produces, [KL_API_FETCH] = &fetches},
    .warm = warm,
    .drop = drop,
};

/* ---- a plain parser ------------------------------------------------------------------ */

/* The correlation ids of the whole requests in `bytes`, up to the first invalid one. */
static size_t plain(kl_span bytes, int32_t *out, bool *garbage) {
    size_t count = 0, pos = 0;
    *garbage = false;
    while (count < REQUESTS_MAX && kl_span_has(bytes, pos, KL_SIZE_BYTES)) {
        uint32_t size = kl_get32(bytes.data + pos);
        kl_header header;
        *garbage = size > REQUEST_BYTES_MAX;
        if (*garbage || !kl_span_has(bytes, pos + KL_SIZE_BYTES, size)) return count;
        uint8_t *copy = fuzz_copy((kl_span){bytes.data + pos + KL_SIZE_BYTES, size});
        *garbage = !kl_header_parse((kl_span){copy, size}, &header);
        WANT(*garbage || header.body_pos <= size);
        free(copy);
        if (*garbage) return count;
        out[count++] = header.correlation_id;
        pos += KL_SIZE_BYTES + size;
    }
    return count;
}

/* The answers are those of the requests that ran, in order, without the silent ones. */
static void check_answers(kl_span bytes, bool all) {
    size_t pos = 0, at = 0;
    for (; kl_span_has(bytes, pos, KL_RESPONSE_HEADER_BYTES); at++) {
        while (at < ran_count && ran[at].silent) at++;
        size_t size = kl_get32(bytes.data + pos);
        WANT(at < ran_count);
        WANT((int32_t)kl_get32(bytes.data + pos + KL_SIZE_BYTES) == ran[at].correlation_id);
        WANT(!all || kl_span_has(bytes, pos + KL_SIZE_BYTES, size));
        pos += KL_SIZE_BYTES + size;
    }
    while (at < ran_count && ran[at].silent) at++;
    if (all) WANT(at == ran_count && pos == bytes.bytes);
}

/* ---- steps --------------------------------------------------------------------------- */

/* Do what the thread's loop does with posts. */
static void run_posts(kl_conn *conn) {
    kl_letter *next;
    for (kl_letter *l = kl_post_take(&thread.post, KL_POST_ANSWER); l; l = next) {
        kl_exchange *x = KL_HOLDER(l, kl_exchange, answer);
        next = l->next;
        if (x->request.conn == NULL) kl_exchange_end(x);
        else if (!kl_exchange_answered(x)) kl_conn_close(conn);
    }
    for (kl_letter *l = kl_post_take(&thread.post, KL_POST_WAKE); l; l = next) {
        kl_exchange *x = KL_HOLDER(l, kl_exchange, wake);
        next = l->next;
        atomic_store(&x->wake_posted, false);
        if (x->ended) kl_exchange_end(x);
        else if ((x->state == KL_WAITS || x->state == KL_WAITS_ON) && !kl_exchange_run(x))
            kl_conn_close(conn);
    }
    for (kl_link *link; (link = kl_ring_first(&thread.stalled)) != NULL;) {
        kl_exchange *x = KL_HOLDER(link, kl_exchange, queue);
        kl_link_remove(link);
        x->state = KL_IN_PYTHON;
        if (kl_up_push(&net.up, x, true)) continue;
        x->state = KL_STALLED;
        kl_link_first(&thread.stalled, link);
        break;
    }
    while (kl_conn_is_open(conn) && kl_timers_first(&thread.timers) && fuzz_u8(&script) % 2)
        if (!kl_exchange_expire(
                KL_HOLDER(kl_timers_first(&thread.timers), kl_exchange, timer)))
            kl_conn_close(conn);
    do kl_conn_pump(conn);
    while (kl_conn_is_open(conn) && kl_ring_first(&thread.ready));
}

static void take_one(void) {
    kl_request_info info;
    if (taken_count == REQUESTS_MAX || kl_up_take(&net.up, 0, &info)) return;
    WANT(info.principal >= 0 || taken_count == 0);
    if (the_conn->raw && kl_conn_is_open(the_conn)) {
        WANT(info.api_key == KL_API_SASL_AUTHENTICATE && info.api_version == -1);
        WANT(info.body_bytes <= UNIDENTIFIED_BYTES_MAX);
    }
    if (info.why == KL_UP_API && ran_count < REQUESTS_MAX)
        ran[ran_count++].correlation_id = info.correlation_id;
    uint8_t *body = fuzz_copy((kl_span){info.body, info.body_bytes});
    free(body);
    taken[taken_count++] = info.id;
}

/* As Python does after a step of SASL: the answer comes next. */
static void identify(uint64_t id) {
    static const int32_t given[] = {KL_UNIDENTIFIED, KL_UNIDENTIFIED_RAW};
    static const int64_t lasts_ms[] = {-1, 0, 1, INT64_MAX};
    uint8_t choice = fuzz_u8(&script);
    int32_t principal =
        choice % 4 < 2 ? given[choice % 2] : KL_PROCESS + 1 + choice % PRINCIPALS;
    /* SASL's requests run alone. */
    bool may = principal >= 0 || the_conn->whole == NULL;
    if (may && choice < 200)
        WANT(kl_up_identify(&net.up, id, principal, lasts_ms[choice / 4 % 4]) == KL_OK);
}

static void end_one(bool politely) {
    if (taken_count == 0) return;
    uint64_t id = taken[--taken_count];
    uint8_t choice = politely ? 0 : fuzz_u8(&script);
    uint8_t body[64] = {0};
    if (FUZZ_LOGIN && !politely) identify(id);
    if (FUZZ_LOGIN && choice % 8 == 5) {
        kl_refusal refusal = {body, choice % 64, choice / 64 - 2, choice % 3};
        WANT(kl_up_refuse(&net.up, id, &refusal) == KL_OK);
    } else if (choice % 8 == 7) WANT(kl_up_drop(&net.up, id) == KL_OK);
    else if (choice % 8 == 6) WANT(kl_up_again(&net.up, id, choice / 8 % 4 > 0) == KL_OK);
    else if (FUZZ_LOGIN && choice % 8 == 4)
        WANT(kl_up_answer(&net.up, id, body, choice % 64, KL_HEADER_TOKEN) == KL_OK);
    else WANT(kl_up_answer(&net.up, id, body, choice % 64, choice / 64 % 2) == KL_OK);
    WANT(kl_up_answer(&net.up, id, body, 0, 0) == KL_E_NOT_FOUND);
}

static void step(kl_conn *conn, int peer, kl_span *stream) {
    uint8_t choice = fuzz_u8(&script);
    kl_span piece = fuzz_take(stream, choice % 4 ? choice : choice * 16u);
    if (piece.bytes && kl_conn_is_open(the_conn)) {
        ssize_t sent = send(peer, piece.data, piece.bytes, MSG_NOSIGNAL);
        WANT(sent == (ssize_t)piece.bytes || !kl_conn_is_open(the_conn));
    }
    kl_conn_events(conn, KL_POLL_IN);
    if (choice & 16) take_one();
    if (choice & 32) end_one(false);
    if (choice & 64 && parked_count) kl_request_wake(parked[choice % parked_count]);
    run_posts(conn);
}

/* Let all waiting requests finish, so that every request is answered. */
static void finish(kl_conn *conn) {
    for (int i = 0; i < 3 * REQUESTS_MAX && kl_conn_is_open(conn) && conn->first; i++) {
        take_one();
        end_one(true);
        if (parked_count) {
            parked[0]->expired = true;
            kl_request_wake(parked[0]);
        }
        run_posts(conn);
    }
}

/* The requests that ran are the first of those that were `wanted`, and have their answers; `sent`:
 * all bytes were. */
static void check(const kl_conn *conn, size_t count, const int32_t *wanted, bool sent,
                  bool garbage, int peer) {
    static uint8_t answers[1 << 20];
    WANT(ran_count <= count);
    for (size_t i = 0; i < ran_count; i++) WANT(ran[i].correlation_id == wanted[i]);
    bool all = kl_conn_is_open(conn) && sent;
    if (all) WANT(ran_count == count && !garbage && conn->first == NULL);
    ssize_t got = recv(peer, answers, sizeof answers, 0);
    check_answers((kl_span){answers, got > 0 ? (size_t)got : 0}, all);
}

/* ---- the target ---------------------------------------------------------------------- */

static void begin(void) {
    memset(&net, 0, sizeof net);
    memset(&thread, 0, sizeof thread);
    ran_count = parked_count = taken_count = 0;
    memset(ran, 0, sizeof ran);
    config = (kl_server_config){.request_bytes_max = REQUEST_BYTES_MAX,
                                .unidentified_bytes_max = UNIDENTIFIED_BYTES_MAX,
                                .unidentified_max = 1,
                                .unidentified_ms_max = INT64_MAX,
                                .queued_bytes_max = -1,
                                .queued_requests_max = QUEUED_MAX,
                                .produce_waiting_max = 4,
                                .control_listener = -1};
    net.config = &config;
    kl_net_init(&net, &ops);
    net.threads = net.up.threads = &thread;
    net.thread_count = net.serving = 1;
    net.up.thread_count = &net.thread_count;
    net.up.count_max = QUEUED_MAX;
    net.up.control_listener = -1;
    WANT(kl_peers_init(&net.peers) == KL_OK && kl_post_init(&thread.post) == KL_OK);
    thread.net = &net;
    thread.poller = KL_POLLER_NONE;
    thread.held_max = SIZE_MAX;
    kl_link *const rings[] = {&thread.conns,   &thread.idle,         &thread.partial,
                              &thread.ready,   &thread.dirty,        &thread.stalled,
                              &thread.starved, &thread.unidentified, &thread.dead,
                              &thread.shaking, &thread.half_opens,   &thread.shakes_failed};
    for (size_t i = 0; i < sizeof rings / sizeof rings[0]; i++) kl_ring_init(rings[i]);
    pthread_mutex_init(&thread.lock, NULL);
    kl_up_init(&net.up);
}

static void end(kl_conn *conn) {
    kl_conn_close(conn);
    while (taken_count) end_one(true);
    kl_letter *following;
    for (kl_letter *l = kl_post_take(&thread.post, KL_POST_ANSWER); l; l = following) {
        kl_exchange *x = KL_HOLDER(l, kl_exchange, answer);
        following = l->next;
        WANT(x->request.conn == NULL);
        kl_exchange_end(x);
    }
    for (kl_letter *l = kl_post_take(&thread.post, KL_POST_WAKE); l; l = following) {
        kl_exchange *x = KL_HOLDER(l, kl_exchange, wake);
        following = l->next;
        atomic_store(&x->wake_posted, false);
        WANT(x->ended);
        kl_exchange_end(x);
    }
    WANT(parked_count == 0 && kl_timers_first(&thread.timers) == NULL);
    WANT(kl_up_left(&net.up) == NULL);
    kl_up_free(&net.up);
    for (int32_t i = 0; i < PRINCIPALS; i++)
        WANT(atomic_load(&net.holds[KL_PROCESS + 1 + i]) == 0);
    WANT(atomic_load(&net.unidentified) == 0);
    kl_peers_free(&net.peers);
    kl_net_free(&net);
    kl_post_free(&thread.post);
    for (kl_exchange *x = thread.free, *next; x; x = next) {
        next = x->next;
        kl_exchange_free(x);
    }
    kl_pool_free(&thread.pool);
    WANT(atomic_load(&thread.pool.bytes) == 0);
    kl_timers_free(&thread.timers);
    kl_release(conn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    int pair[2];
    int32_t wanted[REQUESTS_MAX];
    bool garbage;
    begin();
    WANT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    kl_conn *conn = kl_alloc(sizeof *conn);
    the_conn = conn;
    conn->net = &net;
    WANT(kl_peers_enter(&net.peers, NULL, -1, &conn->from));
    kl_peers_enter_listener(&net.peers, conn->listener);
    conn->thread = &thread;
    conn->stream = kl_stream_of(pair[0], true, -1);
    conn->writable = true;
    if (FUZZ_LOGIN) {
        conn->principal = KL_UNIDENTIFIED;
        conn->unidentified_ms = -1;
    }
    kl_link_last(&thread.conns, &conn->all);
    size_t script_bytes = bytes / 4;
    kl_span stream = {data, bytes - script_bytes};
    script = (kl_span){data + stream.bytes, script_bytes};
    size_t count = plain(stream, wanted, &garbage);
    for (int i = 0;
         i < STEPS_MAX && (stream.bytes || script.bytes) && kl_conn_is_open(the_conn); i++)
        step(conn, pair[1], &stream);
    bool all_sent = stream.bytes == 0;
    for (int i = 0; i < 4 && kl_conn_is_open(the_conn); i++) {
        kl_conn_events(conn, KL_POLL_IN);
        finish(conn);
    }
    if (!FUZZ_LOGIN) check(conn, count, wanted, all_sent, garbage, pair[1]);
    end(conn);
    close(pair[1]);
    return 0;
}
