/* conn.h: a connection: frames in, responses out.
 *
 * A connection, its requests and their memory belong to one network thread, from the moment
 * the acceptor gave it the connection; none of them is locked.  Declarations say what other
 * threads may touch. */
#ifndef KL_CONN_H
#define KL_CONN_H

#include "exchange.h"
#include "peers.h"
#include "stream.h"

typedef struct kl_net kl_net;

struct kl_conn {
    kl_thread *thread; /* changed only by itself, see kl_threads_pass */
    kl_net *net;       /* set by the acceptor, never changed, as is what follows */
    uint64_t id;
    int32_t listener;
    int32_t principal; /* KL_ANONYMOUS */
    char peer[64];
    uint8_t address[16]; /* IPv4 mapped into IPv6; zero of a unix socket */
    kl_peer *from;       /* peers.c; NULL: not counted */
    kl_link all;         /* thread->conns, under its lock */

    kl_stream stream;
    bool passed;   /* by another thread: what was read does not count here yet */
    bool readable; /* epoll reported it, and no read was short since */
    bool writable;
    bool peer_done; /* it will send no more: what is parked for more data is answered */
    bool at_end;    /* and all of it was read */
    bool broken;    /* no answer arrives there any more */

    kl_chunk *in;       /* what was read of the next frame; NULL: nothing */
    size_t in_bytes;    /* used of it */
    size_t frame_bytes; /* wanted of it, with the size field; 0: not known yet */
    kl_chunk *ahead; /* what came behind a large frame that became whole; NULL: nothing */
    size_t ahead_bytes;
    kl_exchange *whole; /* a frame that may not run yet */

    kl_exchange *first, *last; /* run and not sent, in the order of the requests */
    int32_t count;             /* of them */

    bool moved;           /* bytes did, in this turn */
    int64_t active_ms;    /* when they did last */
    int64_t partial_ms;   /* when the half frame began, or got its last 64 KiB */
    size_t partial_bytes; /* of it then */
    kl_link idle;         /* thread->idle, the longest silent first */
    kl_link partial;      /* thread->partial, with half a frame that we wait for */
    kl_link ready;        /* thread->ready: more to do, but others first */
    kl_link dirty;        /* thread->dirty: something was answered */
    kl_link starved;      /* thread->starved: there is no memory for its large frame */
};

static inline bool kl_conn_is_open(const kl_conn *conn) {
    return kl_stream_is_open(&conn->stream);
}
/* Send, run and read whatever is possible now. */
void kl_conn_pump(kl_conn *conn);
/* epoll reported `events`. */
void kl_conn_events(kl_conn *conn, uint32_t events);
/* Close it and abandon its requests; its memory lives until the end of the thread's pass. */
void kl_conn_close(kl_conn *conn);
/* Whether its large frame must wait until others are done with theirs.  A single frame is always
 * read, whatever the limit. */
bool kl_conn_starves(const kl_conn *conn);
/* Its thread leaves: answer what is parked for more data, */
void kl_conn_leave(kl_conn *conn);
/* and make it ready to go to a thread that stays: false while a request of it is in hand. */
bool kl_conn_part(kl_conn *conn);
/* Start closing: answer what is parked for more data, and read nothing more. */
void kl_conn_stop(kl_conn *conn);

#endif
