/* shake.c: see shake.h. */
#include "shake.h"

#include <stdio.h>

#include "conn.h"
#include "lane.h"
#include "net.h"

enum {
    HANDSHAKE_MS_MAX = 10000, /* of silence, */
    WHOLE = 3,                /* and of all of it, so many times that */
    HALF_OPEN_MAX = 1000      /* per thread, waiting for their clients */
};

/* Keep the failure that this thread has just recorded, for the log. */
static void keep(const kl_conn *conn) {
    kl_handshake_failure one = {.listener = conn->listener};
    memcpy(one.peer, conn->peer, sizeof one.peer);
    snprintf(one.reason, sizeof one.reason, "%s", kl_error_message());
    (void)kl_notices_put(&conn->net->failures, &one);
}

/* End a connection whose failure this thread has just recorded.  A client that sent nothing, as a
 * load balancer that tries the port, is not worth a line in the log. */
static void fail(kl_conn *conn) {
    KL_ASSERT(conn->shakes && kl_stream_is_open(&conn->stream));
    kl_count_add(&conn->thread->handshakes_failed, 1);
    if (conn->stream.heard) keep(conn);
    kl_link_last(&conn->thread->shakes_failed, &conn->shake);
}

static int64_t limit_ms(const kl_thread *thread) {
    int64_t frame_ms_max = thread->net->config->half_frame_ms_max;
    return frame_ms_max < 0 ? HANDSHAKE_MS_MAX
                            : KL_MIN(frame_ms_max, (int64_t)HANDSHAKE_MS_MAX);
}

static void too_late(kl_conn *conn) {
    kl_fail(KL_E_TIMEOUT, "the handshake was not complete after %lld ms",
            (long long)(conn->thread->now_ms - conn->began_ms));
    fail(conn);
}

/* ---- the rings of a thread ----------------------------------------------------------------- */

kl_conn *kl_shake_failed(kl_thread *thread) {
    kl_link *link = kl_ring_first(&thread->shakes_failed);
    return link ? KL_HOLDER(link, kl_conn, shake) : NULL;
}

void kl_shake_leave(kl_conn *conn) {
    kl_link_remove(&conn->shake);
    if (!conn->half_open) return;
    KL_ASSERT(conn->shakes && conn->thread->half_open > 0);
    conn->thread->half_open--;
    conn->half_open = false;
}

/* It waits for its client; if too many do, the one that has waited longest is closed. */
static void wait_for_client(kl_conn *conn) {
    kl_thread *thread = conn->thread;
    KL_ASSERT(!conn->half_open);
    conn->shake_ms = thread->now_ms;
    conn->half_open = true;
    kl_link_last(&thread->half_opens, &conn->shake);
    if (++thread->half_open <= HALF_OPEN_MAX) return;
    kl_conn *oldest = KL_HOLDER(kl_ring_first(&thread->half_opens), kl_conn, shake);
    kl_shake_leave(oldest);
    kl_fail(KL_E_TIMEOUT, "%d others began a handshake after it, and it is not complete",
            HALF_OPEN_MAX);
    fail(oldest);
}

kl_status kl_shake_begin(kl_conn *conn, const kl_tls *tls) {
    conn->shakes = true;
    conn->shake_ms = conn->began_ms =
        -1; /* the thread's time begins with its first event */
    return kl_stream_encrypt(&conn->stream, tls);
}

void kl_shake_events(kl_conn *conn) {
    kl_thread *thread = conn->thread;
    KL_ASSERT(conn->shakes && conn->stream.ssl != NULL);
    if (conn->began_ms < 0) conn->began_ms = thread->now_ms;
    kl_shake_leave(conn);
    if (thread->now_ms - conn->began_ms > WHOLE * limit_ms(thread)) too_late(conn);
    else if (conn->readable || conn->writes_shake)
        kl_link_last(&thread->shaking, &conn->shake);
    else wait_for_client(conn);
}

/* The connection is encrypted: from now on it is like others. */
static bool done(kl_conn *conn) {
    if (kl_stream_subject(&conn->stream, &conn->subject, &conn->subject_bytes)) {
        fail(conn);
        return false;
    }
    conn->shakes = false;
    kl_count_add(&conn->thread->handshakes, 1);
    return true;
}

kl_conn *kl_shake_run(kl_thread *thread) {
    kl_link *link = kl_ring_first(&thread->shaking);
    if (link == NULL) return NULL;
    kl_conn *conn = KL_HOLDER(link, kl_conn, shake);
    KL_ASSERT(conn->shakes && !conn->half_open && conn->thread == thread);
    kl_link_remove(link);
    kl_shake outcome = kl_stream_shake(&conn->stream);
    conn->writes_shake = outcome == KL_SHAKE_WRITES;
    switch (outcome) {
    case KL_SHAKE_DONE: return done(conn) ? conn : NULL;
    case KL_SHAKE_FAILED: fail(conn); break;
    default:
        conn->readable = false; /* all was read: more will be an edge */
        wait_for_client(conn);
    }
    return NULL;
}

/* ---- time ---------------------------------------------------------------------------------- */

void kl_shake_expire(kl_thread *thread) {
    int64_t ms_max = limit_ms(thread);
    for (kl_link *link; (link = kl_ring_first(&thread->half_opens)) != NULL;) {
        kl_conn *conn = KL_HOLDER(link, kl_conn, shake);
        KL_ASSERT(conn->half_open && conn->thread == thread);
        if (thread->now_ms - conn->shake_ms < ms_max) return;
        kl_shake_leave(conn);
        too_late(conn);
    }
}

int64_t kl_shake_next(const kl_thread *thread) {
    const kl_link *link = kl_ring_first(&thread->half_opens);
    if (link == NULL) return INT64_MAX;
    return KL_HOLDER(link, const kl_conn, shake)->shake_ms + limit_ms(thread);
}
