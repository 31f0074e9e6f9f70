/* finished.c: see finished.h. */
#include "finished.h"

#include "codec.h"
#include "net.h"

/* APIs whose requests say that they wait, for records or for other members. */
enum { FETCH = 1, JOIN_GROUP = 11, SYNC_GROUP = 14, SHARE_FETCH = 78 };

void kl_finished_init(kl_finished_log *log) {
    atomic_init(&log->least_ns, INT64_MAX);
    kl_notices_init(&log->all, log->kept, sizeof(kl_finished), KL_FINISHED_KEPT);
}

void kl_finished_free(kl_finished_log *log) { kl_notices_free(&log->all); }

static int64_t least_ns(const kl_exchange *exchange) {
    return atomic_load_explicit(&exchange->owner->net->finished.least_ns,
                                memory_order_relaxed);
}

void kl_finished_begin(kl_exchange *exchange) {
    kl_span client = exchange->request.client_id;
    exchange->client_id_bytes = -1;
    exchange->throttled_ms = 0;
    exchange->logged = least_ns(exchange) != INT64_MAX;
    if (KL_LIKELY(!exchange->logged) || client.data == NULL) return;
    size_t bytes = KL_MIN(client.bytes, sizeof exchange->client_id);
    if (bytes > 0) memcpy(exchange->client_id, client.data, bytes);
    exchange->client_id_bytes = (int32_t)bytes;
}

/* Without the time that it asked to wait. */
static int64_t own_ns(const kl_exchange *exchange) {
    const kl_times *times = &exchange->times;
    int64_t total_ns = times->since_ns - times->began_ns;
    switch (exchange->request.api_key) {
    case FETCH:
    case JOIN_GROUP:
    case SYNC_GROUP:
    case SHARE_FETCH: return total_ns - times->spent_ns[KL_PHASE_REMOTE];
    default: return total_ns;
    }
}

void kl_finished_end(const kl_exchange *exchange) {
    if (KL_LIKELY(!exchange->logged) || own_ns(exchange) < least_ns(exchange)) return;
    const kl_request *request = &exchange->request;
    const kl_times *times = &exchange->times;
    kl_finished one = {.listener = request->listener,
                       .principal = request->principal,
                       .tenure = request->tenure,
                       .correlation_id = request->correlation_id,
                       .api_key = request->api_key,
                       .api_version = request->api_version,
                       .throttle_ms = exchange->throttled_ms,
                       .own_ns = own_ns(exchange),
                       .client_id_bytes = exchange->client_id_bytes};
    memcpy(one.spent_ns, times->spent_ns, sizeof times->spent_ns);
    one.spent_ns[KL_PHASE_TOTAL] = times->since_ns - times->began_ns;
    memcpy(one.peer, request->conn->peer, sizeof one.peer);
    if (one.client_id_bytes > 0)
        memcpy(one.client_id, exchange->client_id, (size_t)one.client_id_bytes);
    (void)kl_notices_put(&exchange->owner->net->finished.all, &one);
}
