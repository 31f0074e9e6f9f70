/* authentication.c: see authentication.h. */
#include "authentication.h"

#include "net.h"

/* Cannot overflow. */
static int64_t after(int64_t from_ms, int64_t more_ms) {
    return more_ms > INT64_MAX - from_ms ? INT64_MAX : from_ms + more_ms;
}

void kl_authentication_set(kl_conn *conn, const kl_authentication *identity) {
    KL_ASSERT(identity->known && identity->principal < KL_PRINCIPALS_MAX);
    conn->raw = identity->principal == KL_UNIDENTIFIED_RAW;
    kl_net_hold(conn->net, conn->principal, -1);
    bool first = conn->principal == KL_UNIDENTIFIED;
    conn->principal = identity->principal >= 0 ? identity->principal
                      : first                  ? KL_UNIDENTIFIED
                                               : KL_REAUTHENTICATES;
    conn->tenure =
        conn->principal < 0 ? 0 : atomic_load(&conn->net->tenures[conn->principal]);
    int64_t now_ms = kl_clock_now(&conn->net->clock);
    conn->expires_ms =
        identity->expires_ms < 0 ? 0 : KL_MAX(after(now_ms, identity->expires_ms), 1);
}

bool kl_authentication_expired(const kl_conn *conn, int16_t api_key) {
    if (KL_LIKELY(conn->expires_ms == 0) || kl_is_unidentified(conn)) return false;
    if (api_key == KL_API_SASL_HANDSHAKE) return false;
    return kl_clock_now(&conn->net->clock) >= conn->expires_ms;
}

uint32_t kl_authentication_frame_max(const kl_conn *conn) {
    const kl_server_config *config = conn->net->config;
    int32_t max = config->request_bytes_max;
    if (kl_is_unidentified(conn)) max = KL_MIN(max, config->unidentified_bytes_max);
    return (uint32_t)max;
}

void kl_authentication_unlink(kl_conn *conn) {
    if (!kl_link_in(&conn->unidentified)) return;
    kl_link_remove(&conn->unidentified);
    int64_t before = atomic_fetch_sub(&conn->net->unidentified, 1);
    KL_ASSERT(before > 0);
}

void kl_authentication_watch(kl_conn *conn) {
    kl_thread *thread = conn->thread;
    KL_ASSERT(kl_stream_is_open(&conn->stream));
    if (!kl_is_unidentified(conn)) {
        kl_authentication_unlink(conn);
        conn->unidentified_ms = -1;
        return;
    }
    if (kl_link_in(&conn->unidentified)) return;
    /* Moved from another thread, it keeps its time. */
    if (conn->unidentified_ms < 0) conn->unidentified_ms = thread->now_ms;
    kl_link_last(&thread->unidentified, &conn->unidentified);
    atomic_fetch_add(&conn->net->unidentified, 1);
}

static bool too_many(const kl_thread *thread) {
    return atomic_load(&thread->net->unidentified) > thread->net->config->unidentified_max;
}

static int64_t end_of(const kl_thread *thread, const kl_link *link) {
    return after(KL_HOLDER(link, const kl_conn, unidentified)->unidentified_ms,
                 thread->net->config->unidentified_ms_max);
}

kl_conn *kl_authentication_late(kl_thread *thread) {
    const kl_link *link = kl_ring_first(&thread->unidentified);
    if (link == NULL) return NULL;
    if (end_of(thread, link) > thread->now_ms && !too_many(thread)) return NULL;
    kl_conn *conn = KL_HOLDER(link, kl_conn, unidentified);
    KL_ASSERT(kl_is_unidentified(conn) && conn->thread == thread);
    return conn;
}

int64_t kl_authentication_next(const kl_thread *thread) {
    const kl_link *link = kl_ring_first(&thread->unidentified);
    if (link == NULL) return INT64_MAX;
    return too_many(thread) ? thread->now_ms : end_of(thread, link);
}
