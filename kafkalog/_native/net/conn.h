/* conn.h: a connection: frames in, responses out.
 *
 * A connection, its requests and their memory belong to the network thread that the acceptor gave
 * it to, and need no lock.  Declarations say what other threads may touch. */
#ifndef KL_CONN_H
#define KL_CONN_H

#include "exchange.h"
#include "peers.h"
#include "repeat.h"
#include "stream.h"

typedef struct kl_net kl_net;

struct kl_conn {
    kl_thread *thread; /* changed only by that thread, see kl_threads_pass */
    kl_net *net;       /* set by the acceptor, immutable, down to from */
    uint64_t id;
    int32_t listener;
    int32_t principal;  /* as in server.h; see authentication.h, also down to expires_ms */
    int32_t tenure;     /* of the principal */
    bool raw;           /* its next frames are tokens without a header */
    int64_t expires_ms; /* of its session; 0: never */
    int64_t unidentified_ms; /* since when; -1: not */
    kl_link unidentified;    /* thread->unidentified, longest first */
    uint8_t *subject;        /* DER of its certificate's, freed with it; NULL: none */
    size_t subject_bytes;
    bool ends; /* closed after its last answer: nothing more is read */
    char peer[64];
    uint8_t address[16]; /* IPv4 mapped to IPv6; zero for a unix socket */
    kl_peer *from;       /* peers.c; NULL: not counted */
    kl_link all;         /* thread->conns, under its lock */

    kl_stream stream;
    bool passed;   /* by another thread: its memory is not counted here yet */
    bool readable; /* reported by epoll, and no short read since */
    bool writable;
    /* It sends nothing more: requests waiting for data are answered.  Read by any thread. */
    atomic_bool peer_done;
    bool at_end; /* and everything was read */
    bool broken; /* the peer cannot receive answers */

    kl_chunk *in;       /* bytes of the next frame; NULL: none */
    size_t in_bytes;    /* used in `in` */
    size_t frame_bytes; /* wanted in `in`, with the size field; 0: unknown */
    kl_chunk *ahead;    /* bytes after a completed large frame; NULL: none */
    size_t ahead_bytes;
    kl_exchange *whole; /* a complete frame that may not run yet */

    kl_exchange *first, *last; /* started and not sent, in the order of the requests */
    int32_t count;             /* their number */

    kl_client client;
    kl_repeat *repeat; /* NULL: none */
    /* In thread->muted: a quota is exceeded, and no request is read before it is due.  A large
     * frame that has begun is read to its end, and runs: it would take the memory of others. */
    kl_timer mute;

    bool moved;           /* transferred bytes in this turn */
    int64_t active_ms;    /* time of the last transfer */
    int64_t partial_ms;   /* start of the partial frame, or its last 64 KiB */
    size_t partial_bytes; /* bytes of it then */
    kl_link idle;         /* thread->idle, longest idle first */
    kl_link partial;      /* thread->partial, with an incomplete frame */
    kl_link ready;        /* thread->ready: more to do, after others */
    kl_link dirty;        /* thread->dirty: an answer is complete */
    kl_link starved;      /* thread->starved: no memory for its large frame */

    bool shakes;       /* its TLS handshake is not over, see shake.h, down to began_ms */
    bool writes_shake; /* it waits until the socket is writable */
    bool half_open;    /* in thread->half_opens, not in thread->shaking */
    kl_link shake;
    int64_t shake_ms; /* time of the last step */
    int64_t began_ms;
    bool reads_when_writable; /* TLS has to send before it can receive */
};

static inline bool kl_conn_is_open(const kl_conn *conn) {
    return kl_stream_is_open(&conn->stream);
}
/* Send, run and read as much as possible now. */
void kl_conn_pump(kl_conn *conn);
/* epoll reported `events`. */
/* As in base/poller.h: events that its flags do not tell of yet. */
unsigned kl_conn_wants(const kl_conn *conn);
void kl_conn_events(kl_conn *conn, unsigned happened);
/* Close it and cancel its requests; its memory is freed at the end of the thread's pass. */
void kl_conn_close(kl_conn *conn);
/* True if its large frame must wait for memory of others.  A single frame is always read, whatever
 * the limit. */
bool kl_conn_starves(const kl_conn *conn);
/* Its thread leaves: answer requests waiting for data, */
void kl_conn_leave(kl_conn *conn);
/* and prepare it for another thread; false: it has a request in progress. */
bool kl_conn_part(kl_conn *conn);
/* Start closing: answer requests waiting for data, and read nothing more. */
void kl_conn_stop(kl_conn *conn);

#endif
