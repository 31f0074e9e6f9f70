/* conn.c: a connection: frames in, responses out. */
#include "conn.h"

#include <errno.h>

#include "authentication.h"
#include "net.h"
#include "response.h"

enum {
    REQUESTS_PER_TURN = 32, /* requests and reads, before other connections get a turn */
    SLICE_BYTES_PER_TURN = 4 << 20,
    SENDFILE_BYTES = 1 << 20, /* per call: a fast reader would occupy the thread */
    GATHER_MAX = 16,
    PARTIAL_RENEW_BYTES = 64 << 10
};

static void mute(kl_conn *conn, int64_t until_ms) {
    kl_timers *muted = &conn->thread->muted;
    if (conn->mute.place && conn->mute.due_ms >= until_ms) return;
    kl_timers_remove(muted, &conn->mute);
    (void)kl_timers_add(muted, &conn->mute, until_ms); /* without memory it is not muted */
}

/* Before its answer is sent: the client may count from then on. */
static void mute_after(kl_conn *conn, kl_request *request) {
    kl_count_add(&conn->thread->throttled, 1);
    kl_count_add(&conn->thread->throttled_ms, request->throttle_ms);
    mute(conn, kl_clock_now(&conn->net->clock) + request->throttle_ms);
    request->throttle_ms = 0;
}

/* ---- frames in ----------------------------------------------------------------------- */

static void close_garbage(kl_conn *conn) {
    kl_count_add(&conn->thread->closed_garbage, 1);
    kl_conn_close(conn);
}

static void hold(kl_conn *conn, size_t bytes) {
    kl_pool_hold(&conn->thread->pool, conn->in, bytes);
    conn->thread->half_bytes += bytes;
}

bool kl_conn_starves(const kl_conn *conn) {
    const kl_thread *thread = conn->thread;
    return conn->frame_bytes > KL_CHUNK_SMALL_BYTES &&
           thread->pool.held_bytes >= thread->held_max &&
           thread->pool.held_bytes > conn->in->held;
}

/* The size field is complete: make space for the frame.  False: the connection was closed. */
static bool begin_frame(kl_conn *conn) {
    kl_pool *pool = &conn->thread->pool;
    uint32_t bytes = kl_get32(conn->in->data);
    if (bytes > kl_authentication_frame_max(conn)) {
        close_garbage(conn);
        return false;
    }
    conn->frame_bytes = KL_SIZE_BYTES + (size_t)bytes;
    if (conn->frame_bytes <= kl_chunk_capacity(conn->in)) return true;
    kl_chunk *large = kl_pool_take(pool, conn->frame_bytes);
    if (large == NULL) {
        kl_conn_close(conn);
        return false;
    }
    memcpy(large->data, conn->in->data, conn->in_bytes);
    kl_pool_give(pool, conn->in);
    conn->in = large;
    hold(conn, conn->in_bytes);
    return true;
}

/* Move bytes read beyond the frame to another chunk; false: no memory. */
static bool take_rest(kl_conn *conn, kl_chunk **rest, size_t *rest_bytes) {
    KL_ASSERT(conn->in_bytes >= conn->frame_bytes);
    *rest_bytes = conn->in_bytes - conn->frame_bytes;
    *rest = NULL;
    if (conn->ahead != NULL) {
        *rest = conn->ahead;
        *rest_bytes = conn->ahead_bytes;
        conn->ahead = NULL;
    } else if (*rest_bytes > 0) {
        *rest = kl_pool_take(&conn->thread->pool, *rest_bytes);
        if (*rest == NULL) return false;
        memcpy((*rest)->data, conn->in->data + conn->frame_bytes, *rest_bytes);
    }
    return true;
}

/* Complete conn->whole from the bytes read.  False: no frame is complete, or the connection was
 * closed. */
static bool split(kl_conn *conn) {
    if (conn->in_bytes < KL_SIZE_BYTES) return false;
    if (conn->frame_bytes == 0 && !begin_frame(conn)) return false;
    if (conn->in_bytes < conn->frame_bytes) return false;
    kl_header header;
    kl_chunk *rest;
    size_t rest_bytes;
    kl_span frame = {conn->in->data + KL_SIZE_BYTES, conn->frame_bytes - KL_SIZE_BYTES};
    if (conn->raw) header = kl_header_of_token();
    else if (!kl_header_parse(frame, &header)) {
        close_garbage(conn);
        return false;
    }
    if (KL_UNLIKELY(kl_authentication_expired(conn, header.api_key))) {
        kl_count_add(&conn->thread->closed_unidentified, 1);
        kl_conn_close(conn);
        return false;
    }
    if (!take_rest(conn, &rest, &rest_bytes)) {
        kl_conn_close(conn);
        return false;
    }
    KL_ASSERT(conn->whole == NULL && conn->thread->half_bytes >= conn->in->held);
    conn->thread->half_bytes -= conn->in->held;
    conn->whole = kl_exchange_new(conn, conn->in, &header);
    conn->in = rest;
    conn->in_bytes = rest_bytes;
    conn->frame_bytes = 0;
    if (conn->whole == NULL) kl_conn_close(conn);
    return conn->whole != NULL;
}

/* One read: for a large frame up to its end plus a little, which saves a read that finds nothing;
 * otherwise a small chunk.  So no byte of a large frame is copied, except those of the first
 * read. */
static void read_some(kl_conn *conn) {
    kl_pool *pool = &conn->thread->pool;
    bool large = conn->frame_bytes > KL_CHUNK_SMALL_BYTES;
    if (conn->in == NULL) conn->in = kl_pool_take(pool, KL_CHUNK_SMALL_BYTES);
    kl_chunk *ahead = large ? kl_pool_take(pool, KL_CHUNK_SMALL_BYTES) : NULL;
    if (conn->in == NULL || (large && ahead == NULL)) {
        kl_conn_close(conn);
        return;
    }
    size_t room = (large ? conn->frame_bytes : KL_CHUNK_SMALL_BYTES) - conn->in_bytes;
    struct iovec to[2] = {{conn->in->data + conn->in_bytes, room}, {NULL, 0}};
    if (large) to[1] = (struct iovec){ahead->data, KL_CHUNK_SMALL_BYTES};
    bool drained;
    ssize_t got = kl_stream_receive(&conn->stream, to, large ? 2 : 1, &drained);
    int error = got < 0 ? errno : 0;
    size_t bytes = got > 0 ? (size_t)got : 0;
    conn->in_bytes += KL_MIN(bytes, room);
    if (large) hold(conn, KL_MIN(bytes, room));
    if (bytes > room) {
        conn->ahead = ahead;
        conn->ahead_bytes = bytes - room;
    } else {
        kl_pool_give(pool, ahead);
    }
    /* More data will be an edge.  An end already reported will not. */
    if (drained && (error || !conn->peer_done)) conn->readable = false;
    if (bytes > 0) {
        conn->moved = true;
        kl_count_add(&conn->thread->bytes_in, got);
    }
    if (error == EAGAIN && !drained) {
        conn->writable = false;
        conn->reads_when_writable = true;
    }
    if (got == 0) conn->at_end = true;
    else if (error && error != EAGAIN && error != EINTR) kl_conn_close(conn);
}

/* ---- requests ------------------------------------------------------------------------ */

static int16_t counted_key(const kl_request *request) {
    int16_t key = request->api_key;
    return key < 0 || key >= KL_API_KEYS ? KL_API_KEYS - 1 : key;
}

static bool waits_for_data(const kl_exchange *exchange) {
    return exchange->state == KL_WAITS;
}

static void start(kl_conn *conn) {
    kl_exchange *exchange = conn->whole;
    conn->whole = NULL;
    if (conn->last) conn->last->next = exchange;
    else conn->first = exchange;
    conn->last = exchange;
    conn->count++;
    kl_count_add(&conn->thread->requests[counted_key(&exchange->request)], 1);
    bool fine = kl_exchange_run(exchange);
    /* The peer will send nothing more. */
    if (fine && conn->peer_done && waits_for_data(exchange))
        fine = kl_exchange_expire(exchange);
    if (!fine) kl_conn_close(conn);
}

/* True if its next request must wait; see kl_conn.mute. */
static bool is_muted(const kl_conn *conn) {
    if (KL_LIKELY(conn->mute.place == 0)) return false;
    return conn->whole ? conn->whole->frame->held == 0
                       : conn->frame_bytes <= KL_CHUNK_SMALL_BYTES;
}

/* True if another request may run: none is in progress, or only ones that wait for the disk, and
 * then only one that may overtake them. */
static bool may_go_on(const kl_conn *conn) {
    if (atomic_load(&conn->thread->stop) || conn->ends) return false;
    if (atomic_load(&conn->thread->leaving) && conn->whole == NULL) return false;
    if (is_muted(conn)) return false;
    if (conn->first == NULL) return true;
    if (conn->first->state == KL_ANSWERED) return false; /* it reads no answers */
    if (conn->last->state != KL_WAITS_ON && conn->last->state != KL_ANSWERED) return false;
    return conn->count < conn->net->config->produce_waiting_max &&
           (conn->whole == NULL || (conn->whole->kind && conn->whole->kind->overtakes));
}

/* ---- responses out ------------------------------------------------------------------- */

static bool has_slice(const kl_exchange *exchange) {
    return exchange->part_index < exchange->part_count;
}

/* The end of the memory to send before the next slice, or of all. */
static size_t memory_due(const kl_exchange *exchange) {
    return has_slice(exchange) ? exchange->parts[exchange->part_index].memory_end
                               : exchange->memory.bytes;
}

static void drop_sent(kl_conn *conn) {
    int64_t now_ns = 0;
    for (kl_exchange *x; (x = conn->first) != NULL;) {
        if (x->state != KL_ANSWERED || x->sent < x->memory.bytes || has_slice(x)) return;
        if (now_ns == 0) now_ns = kl_thread_clock(conn->thread);
        kl_times_turn(&x->times, KL_PHASE_SEND, now_ns);
        kl_times_count(conn->thread->times[counted_key(&x->request)], &x->times);
        kl_finished_end(x);
        conn->first = x->next;
        if (conn->first == NULL) conn->last = NULL;
        conn->count--;
        KL_ASSERT((conn->count == 0) == (conn->first == NULL));
        x->next = NULL;
        kl_exchange_end(x);
    }
}

/* Handle the result of a send: false, it must wait, or the connection was closed. */
static bool sent(kl_conn *conn, ssize_t bytes) {
    if (bytes > 0) {
        conn->moved = true;
        kl_count_add(&conn->thread->bytes_out, bytes);
        return true;
    }
    if (bytes < 0 && errno == EINTR) return true;
    if (bytes < 0 && errno == EAGAIN) conn->writable = false;
    else kl_conn_close(conn);
    return false;
}

/* Send the memory of the first responses, up to the first slice. */
static bool send_memory(kl_conn *conn) {
    struct iovec from[GATHER_MAX];
    int count = 0;
    bool more = false;
    for (kl_exchange *x = conn->first; x && x->state == KL_ANSWERED && !more; x = x->next) {
        size_t due = memory_due(x);
        if (count == GATHER_MAX) break;
        if (KL_UNLIKELY(x->request.throttle_ms > 0)) {
            x->throttled_ms = x->request.throttle_ms;
            mute_after(conn, &x->request);
        }
        if (x->times.phase == KL_PHASE_RESPONSE)
            kl_times_turn(&x->times, KL_PHASE_SEND, conn->thread->clock_ns);
        if (due > x->sent)
            from[count++] = (struct iovec){x->memory.data + x->sent, due - x->sent};
        more = has_slice(x);
    }
    if (count == 0) return true;
    ssize_t bytes = kl_stream_send(&conn->stream, from, count, more);
    if (!sent(conn, bytes)) return false;
    kl_exchange *x = conn->first;
    for (size_t left = bytes > 0 ? (size_t)bytes : 0; left > 0; x = x->next) {
        KL_ASSERT(x != NULL && x->sent <= memory_due(x));
        size_t of_it = KL_MIN(left, memory_due(x) - x->sent);
        x->sent += of_it;
        left -= of_it;
    }
    return true;
}

/* Send a slice of a file from the page cache. */
static bool send_slice(kl_conn *conn, size_t *budget) {
    kl_exchange *exchange = conn->first;
    kl_part *part = &exchange->parts[exchange->part_index];
    while (exchange->part_sent < part->slice.bytes) {
        if (*budget == 0) {
            kl_link_last(&conn->thread->ready, &conn->ready);
            return false;
        }
        int64_t pos = part->slice.pos + (int64_t)exchange->part_sent;
        size_t bytes =
            KL_MIN(part->slice.bytes - exchange->part_sent, (size_t)SENDFILE_BYTES);
        if (!kl_exchange_warm(exchange, bytes)) return false;
        ssize_t done = kl_stream_send_file(&conn->stream, part->slice.fd, pos, bytes);
        /* 0: the file was truncated, and a begun response can only be ended by closing. */
        if (!sent(conn, done)) return false;
        if (done < 0) continue;
        exchange->part_sent += (size_t)done;
        KL_ASSERT(exchange->part_sent <= part->slice.bytes);
        *budget -= KL_MIN(*budget, (size_t)done);
    }
    kl_response_part_sent(exchange);
    return true;
}

/* Send completed responses in order.  False: something is left, or the connection was closed. */
static bool flush(kl_conn *conn, size_t *budget) {
    while (conn->first && conn->first->state == KL_ANSWERED) {
        kl_exchange *first = conn->first;
        if (!conn->writable || first->cold) return false;
        if (!send_memory(conn)) return false;
        if (first->sent == memory_due(first) && has_slice(first) &&
            !send_slice(conn, budget))
            return false;
        drop_sent(conn);
    }
    return true;
}

/* ---- the turn of a connection -------------------------------------------------------- */

/* Put the connection in the rings that the thread's timers check. */
static void settle(kl_conn *conn) {
    kl_thread *thread = conn->thread;
    bool reads = may_go_on(conn) && conn->whole == NULL;
    if (conn->in_bytes == 0) {
        kl_pool_give(&thread->pool, conn->in);
        conn->in = NULL;
    }
    if (conn->first == NULL && (conn->at_end || conn->ends || atomic_load(&thread->stop))) {
        kl_conn_close(conn);
        return;
    }
    if (conn->moved || !kl_link_in(&conn->idle)) {
        conn->moved = false;
        conn->active_ms = thread->now_ms;
        kl_link_last(&thread->idle, &conn->idle);
    }
    thread->trims = true;
    /* The timeout runs only while we would read. */
    if (!reads || conn->in_bytes == 0) {
        kl_link_remove(&conn->partial);
    } else if (!kl_link_in(&conn->partial) || conn->in_bytes < conn->partial_bytes ||
               conn->in_bytes - conn->partial_bytes >= PARTIAL_RENEW_BYTES) {
        conn->partial_ms = thread->now_ms;
        conn->partial_bytes = conn->in_bytes;
        kl_link_last(&thread->partial, &conn->partial);
    }
    kl_authentication_watch(conn);
}

/* After a move from another thread: count its memory here. */
static void arrive(kl_conn *conn) {
    if (!conn->passed) return;
    conn->passed = false;
    int64_t muted_ms = conn->mute.due_ms;
    if (muted_ms > kl_clock_now(&conn->net->clock)) mute(conn, muted_ms);
    if (conn->in == NULL) return;
    kl_pool_adopt(&conn->thread->pool, conn->in);
    conn->thread->half_bytes += conn->in->held;
}

/* If the client has sent more, answer a request that waits for data with what there is.  False: the
 * connection was closed. */
static bool hurry(kl_conn *conn) {
    kl_exchange *last = conn->last;
    if (last == NULL || !last->request.yields || !waits_for_data(last)) return true;
    if ((conn->in_bytes == 0 && !conn->readable) || kl_exchange_expire(last)) return true;
    kl_conn_close(conn);
    return false;
}

/* poll reports the peer's end only once all before it was read: while requests are in progress,
 * read what follows them, up to a small chunk. */
static void read_ahead(kl_conn *conn) {
    if (!KL_POLLER_ASKS || !conn->first || conn->first->state == KL_ANSWERED) return;
    if (!conn->readable || conn->peer_done || conn->ends || is_muted(conn)) return;
    if (atomic_load(&conn->thread->stop) || atomic_load(&conn->thread->leaving)) return;
    if (conn->reads_when_writable && !conn->writable) return;
    if (conn->frame_bytes > KL_CHUNK_SMALL_BYTES || conn->in_bytes >= KL_CHUNK_SMALL_BYTES)
        return;
    read_some(conn);
}

void kl_conn_pump(kl_conn *conn) {
    KL_ASSERT(!conn->passed); /* arrived */
    if (conn->shakes) return; /* shake.c calls it when the handshake is over */
    size_t slice_budget = SLICE_BYTES_PER_TURN;
    int budget = REQUESTS_PER_TURN;
    kl_link_remove(&conn->ready);
    kl_link_remove(&conn->starved);
    while (kl_conn_is_open(conn)) {
        if (!hurry(conn) || !flush(conn, &slice_budget) || !may_go_on(conn)) break;
        if (budget-- == 0) {
            kl_link_last(&conn->thread->ready, &conn->ready);
            break;
        }
        if (conn->whole || split(conn)) {
            if (may_go_on(conn)) start(conn);
            /* Earlier requests have run; the client of a waiting one is gone. */
            if (conn->broken && conn->first) kl_conn_close(conn);
        } else if (kl_conn_is_open(conn)) {
            if (!conn->readable || conn->at_end) break;
            if (conn->reads_when_writable && !conn->writable) break;
            conn->reads_when_writable = false;
            if (kl_conn_starves(conn)) {
                kl_link_last(&conn->thread->starved, &conn->starved);
                break;
            }
            read_some(conn);
        }
    }
    if (kl_conn_is_open(conn)) read_ahead(conn);
    if (kl_conn_is_open(conn)) settle(conn);
}

/* Remove it from its thread's rings and timers. */
static void unlink_conn(kl_conn *conn) {
    kl_link *const links[] = {&conn->idle, &conn->partial, &conn->ready, &conn->dirty,
                              &conn->starved};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) kl_link_remove(links[i]);
    kl_authentication_unlink(conn);
    kl_timers_remove(&conn->thread->muted, &conn->mute);
    kl_shake_leave(conn);
}

/* Answer requests that wait for data with what there is. */
static void expire_waits(kl_conn *conn) {
    for (kl_exchange *x = conn->first; x != NULL; x = x->next)
        if (waits_for_data(x) && !kl_exchange_expire(x)) {
            kl_conn_close(conn);
            return;
        }
}

unsigned kl_conn_wants(const kl_conn *conn) {
    return (conn->readable ? 0 : KL_POLL_IN) |
           (conn->writable && !conn->writes_shake ? 0 : KL_POLL_OUT);
}

void kl_conn_events(kl_conn *conn, unsigned happened) {
    if (!kl_conn_is_open(conn)) return; /* closed in this pass */
    arrive(conn);
    if (happened & (KL_POLL_IN | KL_POLL_END)) {
        conn->readable = true;
        conn->stream.dry = false; /* whatever the last read found */
    }
    if (happened & KL_POLL_OUT) conn->writable = true;
    /* The peer cannot receive answers.  (A peer that left without an error may have sent something
     * before, as a producer with acks=0: read that to its end.) */
    if (happened & KL_POLL_FAILED) conn->broken = true;
    if (conn->broken && (conn->first || conn->mute.place)) {
        kl_conn_close(conn);
        return;
    }
    if (conn->shakes) {
        kl_shake_events(conn);
        return;
    }
    if (happened & KL_POLL_END && !conn->peer_done) {
        conn->peer_done = true;
        atomic_fetch_add(&conn->net->departures, 1);
        expire_waits(conn);
    }
    kl_conn_pump(conn);
}

void kl_conn_leave(kl_conn *conn) {
    if (!kl_conn_is_open(conn)) return;
    arrive(conn);
    expire_waits(conn);
    kl_conn_pump(conn);
}

bool kl_conn_part(kl_conn *conn) {
    kl_thread *from = conn->thread;
    if (!kl_conn_is_open(conn) || conn->first || conn->whole || conn->ahead) return false;
    arrive(conn);
    if (conn->in) {
        from->half_bytes -= conn->in->held;
        kl_pool_part(&from->pool, conn->in);
    }
    conn->passed = true;
    /* The other thread's poller reports it, except what is in memory. */
    conn->writable = false;
    conn->readable = !conn->shakes && kl_stream_holds(&conn->stream);
    unlink_conn(conn);
    return true;
}

void kl_conn_stop(kl_conn *conn) {
    if (!kl_conn_is_open(conn)) return;
    if (conn->shakes) {
        kl_conn_close(conn);
        return;
    }
    arrive(conn);
    conn->peer_done = true;
    if (conn->whole) kl_exchange_end(conn->whole);
    conn->whole = NULL;
    if (conn->last && conn->last->state == KL_DELAYED)
        (void)kl_exchange_expire(conn->last); /* its client may have the answer now */
    expire_waits(conn);
    kl_conn_pump(conn);
}

void kl_conn_close(kl_conn *conn) {
    kl_thread *thread = conn->thread;
    if (!kl_conn_is_open(conn)) return;
    arrive(conn);
    /* Explicitly: if a forked child has the socket, too, closing would not remove it. */
    kl_poller_remove(&thread->poller, conn->stream.fd);
    kl_lock(&thread->lock);
    kl_link_remove(&conn->all);
    kl_stream_close(&conn->stream);
    kl_unlock(&thread->lock);
    atomic_fetch_add(&conn->net->departures, 1); /* now that it is in no list */
    unlink_conn(conn);
    if (conn->whole) kl_exchange_end(conn->whole);
    conn->whole = NULL;
    for (kl_exchange *x = conn->first, *next; x != NULL; x = next) {
        next = x->next;
        x->next = NULL;
        kl_exchange_cancel(x);
    }
    conn->first = conn->last = NULL;
    if (conn->in) {
        KL_ASSERT(thread->half_bytes >= conn->in->held);
        thread->half_bytes -= conn->in->held;
    }
    kl_pool_give(&thread->pool, conn->in);
    kl_pool_give(&thread->pool, conn->ahead);
    conn->in = conn->ahead = NULL;
    kl_repeat_leave(conn->repeat);
    conn->repeat = NULL;
    kl_peers_leave_listener(&conn->net->peers, conn->listener);
    kl_peers_leave(&conn->net->peers, conn->from);
    kl_net_hold(conn->net, conn->principal, -1);
    kl_link_last(&thread->dead, &conn->dirty);
}
