/* Target: Produce and Fetch requests on the fast path, some of them parked, while the log
 * changes: every request ends with an answer that can be read back, none is lost or run
 * twice.
 *
 * This file simulates the server's side of net/request.h: one network thread, a response in
 * memory, a clock that stands still. */
#include "../../../../kafkalog/_native/plane/fetch.h"
#include "../../../../kafkalog/_native/plane/plane.h"
#include "../../../../kafkalog/_native/plane/produce.h"
#include "log.h"

enum { PARKED_MAX = 4, STEPS_MAX = 12, SLICES_MAX = 64, RESPONSE_BYTES_MAX = 1 << 16 };

/* A request and its response. */
typedef struct {
    kl_request request;
    kl_buffer response;
    struct {
        size_t pos; /* in the memory */
        size_t bytes;
        kl_slice slice;
    } slices[SLICES_MAX];
    size_t slice_count;
    bool parked;
    bool woken;
} exchange;

static exchange *parked[PARKED_MAX];
static const uint8_t TOPIC_ID[KL_TOPIC_ID_BYTES] = {1, 2, 3};

static exchange *of(kl_request *request) { return (exchange *)request; }

uint8_t *kl_response_reserve(kl_request *request, size_t bytes) {
    kl_buffer *response = &of(request)->response;
    WANT(response->bytes + bytes < RESPONSE_BYTES_MAX * 16);
    if (kl_buffer_reserve(response, bytes)) return NULL;
    response->bytes += bytes;
    return response->data + response->bytes - bytes;
}
size_t kl_response_pos(const kl_request *request) {
    return ((const exchange *)request)->response.bytes;
}
void kl_response_rewind(kl_request *request, size_t pos) {
    WANT(pos <= of(request)->response.bytes);
    of(request)->response.bytes = pos;
}
kl_status kl_response_slice(kl_request *request, kl_slice *slice) {
    exchange *exchange = of(request);
    WANT(slice->pos >= 0 && slice->bytes > 0);
    if (exchange->slice_count == SLICES_MAX) {
        kl_slice_drop(slice);
        return kl_fail(KL_E_NO_MEMORY, "too many slices");
    }
    size_t i = exchange->slice_count++;
    exchange->slices[i].pos = exchange->response.bytes;
    exchange->slices[i].bytes = slice->bytes;
    exchange->slices[i].slice = *slice;
    *slice = (kl_slice){.fd = -1}; /* taken */
    return KL_OK;
}
void kl_request_release_frame(kl_request *request) { (void)request; }
void kl_warmed(kl_warming *warming) { (void)warming; }
void kl_request_wake(kl_request *request) { of(request)->woken = true; }

/* ---- checks of answers ----------------------------------------------------------------------- */

static void check_produce(const exchange *exchange) {
    int16_t version = exchange->request.api_version;
    kl_in in = {exchange->response.data, exchange->response.data + exchange->response.bytes,
                version >= 9, false};
    for (uint32_t topics = kl_in_array(&in, 1); topics > 0; topics--) {
        WANT(kl_in_string(&in).data != NULL);
        for (uint32_t count = kl_in_array(&in, 1); count > 0; count--) {
            kl_in_i32(&in);
            int16_t code = kl_in_i16(&in);
            int64_t base_offset = kl_in_i64(&in);
            WANT(base_offset >= 0 || code != 0);
            if (version >= 2) kl_in_i64(&in);
            if (version >= 5) kl_in_i64(&in);
            for (uint32_t faults = version >= 8 ? kl_in_array(&in, 4) : 0; faults > 0;
                 faults--) {
                kl_in_i32(&in);
                kl_in_string(&in);
                kl_in_skip_tags(&in);
            }
            if (version >= 8) kl_in_string(&in);
            kl_in_skip_tags(&in);
        }
        kl_in_skip_tags(&in);
    }
    if (version >= 1) kl_in_i32(&in);
    kl_in_skip_tags(&in);
    WANT(!in.bad && in.at == in.end);
}

static void check_partition(const exchange *exchange, kl_in *in, size_t *slice) {
    int16_t version = exchange->request.api_version;
    kl_in_i32(in);
    int16_t code = kl_in_i16(in);
    int64_t high_watermark = kl_in_i64(in);
    int64_t last_stable = kl_in_i64(in);
    int64_t log_start = version >= 5 ? kl_in_i64(in) : 0;
    WANT(code ? high_watermark == -1
              : log_start <= last_stable && last_stable <= high_watermark);
    for (int64_t aborted = kl_in_length(in, true); aborted > 0; aborted--) {
        kl_in_take(in, 16);
        kl_in_skip_tags(in);
    }
    if (version >= 11) WANT(kl_in_i32(in) == -1);
    int64_t bytes = kl_in_length(in, true);
    WANT(bytes >= 0 && (code == 0 || bytes == 0));
    size_t pos = (size_t)(in->at - exchange->response.data);
    if (bytes && *slice < exchange->slice_count && exchange->slices[*slice].pos == pos) {
        WANT(exchange->slices[*slice].bytes == (size_t)bytes);
        *slice += 1;
    } else {
        kl_in_take(in, (size_t)bytes); /* copied: above the bound of slices */
    }
    kl_in_skip_tags(in);
}

static void check_fetch(const exchange *exchange) {
    int16_t version = exchange->request.api_version;
    size_t slice = 0;
    kl_in in = {exchange->response.data, exchange->response.data + exchange->response.bytes,
                version >= 12, false};
    WANT(kl_in_i32(&in) == 0);
    if (version >= 7) kl_in_take(&in, 6);
    for (uint32_t topics = kl_in_array(&in, 1); topics > 0; topics--) {
        if (version >= 13) kl_in_take(&in, KL_TOPIC_ID_BYTES);
        else WANT(kl_in_string(&in).data != NULL);
        uint32_t count = kl_in_array(&in, 1);
        WANT(count > 0);
        for (; count > 0; count--) check_partition(exchange, &in, &slice);
        kl_in_skip_tags(&in);
    }
    kl_in_skip_tags(&in);
    WANT(!in.bad && in.at == in.end && slice == exchange->slice_count);
}

/* ---- runs ------------------------------------------------------------ */

static void end_exchange(exchange *exchange) {
    WANT(exchange->request.parked == NULL);
    for (size_t i = 0; i < exchange->slice_count; i++)
        kl_slice_drop(&exchange->slices[i].slice);
    kl_buffer_free(&exchange->response);
    free(exchange->request.data);
    free(exchange);
}

/* True: it is parked. */
static bool run(exchange *exchange) {
    kl_request *request = &exchange->request;
    bool produce = request->api_key == 0;
    exchange->woken = false;
    kl_verdict verdict = produce ? kl_produce_run(request) : kl_fetch_run(request);
    if (verdict == KL_UP) {
        WANT(!request->no_up && exchange->response.bytes == 0);
        request->no_up = true;
        verdict = produce ? kl_produce_run(request) : kl_fetch_run(request);
    }
    WANT(verdict != KL_UP);
    exchange->parked = verdict == KL_PARKED || verdict == KL_PARKED_READ_ON;
    if (exchange->parked) {
        WANT(!request->expired && request->parked && request->deadline_ms >= 1000);
        WANT(exchange->response.bytes == 0 && exchange->slice_count == 0);
        return true;
    }
    if (verdict == KL_DONE && produce) check_produce(exchange);
    else if (verdict == KL_DONE) check_fetch(exchange);
    end_exchange(exchange);
    return false;
}

static void run_woken(bool expire) {
    for (int i = 0; i < PARKED_MAX; i++) {
        if (parked[i] == NULL || !(parked[i]->woken || expire)) continue;
        parked[i]->request.expired = expire;
        if (!run(parked[i])) parked[i] = NULL;
    }
}

static void cancel(int i) {
    if (parked[i] == NULL) return;
    kl_plane_ops.kinds[parked[i]->request.api_key]->cancel(&parked[i]->request);
    end_exchange(parked[i]);
    parked[i] = NULL;
}

/* ---- bodies ------------------------------------------------------------ */

/* A Produce of one batch, or of bytes from `input` instead. */
static void make_produce(kl_buffer *body, int16_t version, kl_span *input) {
    bool flexible = version >= 9;
    uint8_t flags = fuzz_u8(input);
    kl_span records = fuzz_take(input, fuzz_u8(input) * (size_t)2);
    WANT(kl_buffer_reserve(body, records.bytes + 64) == KL_OK);
    uint8_t *p = body->data;
    if (version >= 3) p = kl_out_string(p, flexible, (kl_span){NULL, 0});
    p = kl_out_i16(p, (int16_t)(flags % 4 - 1));
    p = kl_out_i32(p, 100);
    p = kl_out_length(p, flexible, 1);
    p = kl_out_string(p, flexible, (kl_span){(const uint8_t *)"t", 1});
    p = kl_out_length(p, flexible, 1);
    p = kl_out_i32(p, flags >> 2 & 1);
    p = kl_out_length(p, flexible, (int64_t)records.bytes);
    fuzz_fix_batches(kl_out_bytes(p, records.data, records.bytes) - records.bytes,
                     records.bytes, flags & 8 ? UINT32_MAX & ~1u : 0);
    if (records.bytes >= 8 && flags & 16) memset(p, 0, 8); /* as clients send it */
    p += records.bytes;
    p = kl_out_no_tags(p, flexible);
    p = kl_out_no_tags(p, flexible);
    p = kl_out_no_tags(p, flexible);
    body->bytes = (size_t)(p - body->data);
}

static uint8_t *put_topic(uint8_t *p, int16_t version, bool known) {
    static const uint8_t other[KL_TOPIC_ID_BYTES] = {9};
    if (version >= 13) return kl_out_bytes(p, known ? TOPIC_ID : other, KL_TOPIC_ID_BYTES);
    return kl_out_string(p, version >= 12,
                         (kl_span){(const uint8_t *)(known ? "t" : "u"), 1});
}

static void make_fetch(kl_buffer *body, int16_t version, kl_span *input) {
    bool flexible = version >= 12;
    uint8_t flags = fuzz_u8(input);
    WANT(kl_buffer_reserve(body, 512) == KL_OK);
    uint8_t *p = body->data;
    if (version < 15) p = kl_out_i32(p, flags & 1 ? 3 : -1);
    p = kl_out_i32(p, flags & 2 ? 0 : 100);
    p = kl_out_i32(p, fuzz_u8(input));
    p = kl_out_i32(p, flags & 4 ? 1 << 20 : 10);
    p = kl_out_i8(p, flags >> 3 & 1);
    if (version >= 7) p = kl_out_i32(kl_out_i32(p, 0), fuzz_u8(input) % 4 - 1);
    uint32_t topics = fuzz_below(input, 3);
    p = kl_out_length(p, flexible, topics);
    for (; topics > 0; topics--) {
        p = put_topic(p, version, !(flags & 16 && topics == 1));
        p = kl_out_length(p, flexible, 1);
        p = kl_out_i32(p, flags >> 5 & 1);
        if (version >= 9) p = kl_out_i32(p, fuzz_u8(input) % 4 - 1);
        p = kl_out_i64(p, fuzz_u8(input) % 40 - 1);
        if (version >= 12) p = kl_out_i32(p, fuzz_u8(input) % 4 - 1);
        if (version >= 5) p = kl_out_i64(p, -1);
        p = kl_out_i32(p, flags & 64 ? 0 : 1 << 20);
        p = kl_out_no_tags(p, flexible);
        p = kl_out_no_tags(p, flexible);
    }
    if (version >= 7) p = kl_out_length(p, flexible, 0);
    if (version >= 11) p = kl_out_string(p, flexible, (kl_span){(const uint8_t *)"", 0});
    p = kl_out_no_tags(p, flexible);
    body->bytes = (size_t)(p - body->data);
}

static exchange *make(kl_data *data, kl_span *input) {
    exchange *exchange = calloc(1, sizeof *exchange);
    WANT(exchange != NULL);
    uint8_t what = fuzz_u8(input);
    kl_buffer body = {0};
    kl_request *request = &exchange->request;
    *request = (kl_request){.context = data, .deadline_ms = INT64_MAX};
    request->api_key = what & 1;
    request->api_version = (int16_t)(what & 1 ? 4 + (what >> 2) % 14 : (what >> 2) % 12);
    if (what & 2) {
        kl_span raw = fuzz_take(input, fuzz_u8(input));
        WANT(kl_buffer_append(&body, raw.data, raw.bytes) == KL_OK);
    } else if (what & 1) make_fetch(&body, request->api_version, input);
    else make_produce(&body, request->api_version, input);
    /* A copy of exactly this size, so that a read beyond it is detected. */
    request->data = fuzz_copy((kl_span){body.data, body.bytes});
    request->bytes = body.bytes;
    kl_buffer_free(&body);
    return exchange;
}

static void park(exchange *exchange) {
    for (int i = 0; i < PARKED_MAX; i++)
        if (parked[i] == NULL) {
            parked[i] = exchange;
            return;
        }
    cancel(0);
    parked[0] = exchange;
}

/* ---- the target ----------------------------------------------------------- */

/* With the epoch of its log, which the input may have raised. */
static void put_partition(kl_data *data, kl_log *log) {
    kl_log_state state;
    WANT(kl_log_get(log, &state) == KL_OK);
    const kl_role role = {.leader_epoch = state.leader_epoch};
    WANT(kl_topics_put_topic(data->topics, "t", TOPIC_ID, 0) == KL_OK);
    WANT(kl_topics_put_partition(data->topics, "t", 0, log, &role) == KL_OK);
}

static void step(kl_data *data, kl_log *log, kl_span *input) {
    uint8_t what = fuzz_u8(input);
    if (what < 180) {
        exchange *exchange = make(data, input);
        if (run(exchange)) park(exchange);
    } else if (what < 230) {
        fuzz_change_once(log, input);
    } else if (what < 240) {
        WANT(kl_topics_remove(data->topics, "t", -1) == KL_OK);
        put_partition(data, log);
    } else {
        cancel(what % PARKED_MAX);
    }
    run_woken(false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_span input = {data, bytes};
    kl_log *log;
    kl_recovery recovery;
    const kl_server_config settings = {.fetch_bytes_max = 1 << 20,
                                       .fetch_sessions_max = 2,
                                       .quota_windows = 2,
                                       .quota_window_ms = 1000,
                                       .client_quota_windows = 2,
                                       .client_quota_window_ms = 1000};
    kl_clock clock = {true, 1000};
    kl_data *plane;
    const kl_open how = fuzz_open_for_writing();
    kl_log_config config = fuzz_config(&input);
    fuzz_empty_dir();
    WANT(kl_log_open(fuzz_dir()->path, &config, &how, NULL, &log, &recovery) == KL_OK);
    WANT(kl_log_set_leader_epoch(log, 1) == KL_OK);
    WANT(kl_data_new(&settings, &clock, 1, &plane) == KL_OK);
    const kl_permit all = {KL_MAY_WRITE | KL_MAY_READ | KL_MAY_REPLICATE, 0};
    WANT(kl_data_set_permit(plane, KL_ANONYMOUS, &all) == KL_OK);
    put_partition(plane, log);
    for (int i = 0; i < STEPS_MAX && input.bytes > 0; i++) step(plane, log, &input);
    if (fuzz_u8(&input) & 1) run_woken(true);
    for (int i = 0; i < PARKED_MAX; i++) cancel(i);
    WANT(kl_topics_remove(plane->topics, "t", -1) == KL_OK);
    kl_plane_stop_cold(plane); /* its threads are idle, and know the plane */
    kl_plane_free(plane);
    fuzz_close(log);
    return 0;
}
