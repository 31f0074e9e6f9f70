/* net.h: the server inside.
 *
 * A connection, its requests and their memory belong to one network thread, from the moment
 * that the acceptor gave it the connection; nothing of them is locked.  What other threads
 * may touch is said where it is declared. */
#ifndef KL_NET_H
#define KL_NET_H

#include <sys/socket.h>

#include "frame.h"
#include "list.h"
#include "pool.h"
#include "request.h"

typedef struct kl_thread kl_thread;
typedef struct kl_exchange kl_exchange;

/* ---- exchange.c: a request and its response ------------------------------------------ */

typedef enum {
    KL_WHOLE,     /* read, not run yet */
    KL_WAITS,     /* parked */
    KL_WAITS_ON,  /* parked, Produce requests behind it may run */
    KL_STALLED,   /* for a place in the queue to Python */
    KL_IN_PYTHON, /* queued, or taken */
    KL_ANSWERED   /* its response goes out when its turn comes */
} kl_exchange_state;

typedef enum { KL_ANSWER, KL_AGAIN, KL_CLOSE } kl_outcome; /* what Python said */

/* A piece of a file behind memory_end bytes of a response's memory. */
typedef struct {
    kl_slice slice;
    size_t memory_end;
} kl_part;

struct kl_exchange {
    kl_request request; /* first: a kl_request is the kl_exchange that it is part of */
    kl_thread *owner;
    kl_chunk *frame;
    kl_exchange_state state;
    kl_exchange *next;        /* of the same connection; or free */
    size_t timer_place;       /* in the heap, counted from 1; 0: none */
    int64_t timer_ms;         /* when it is due */
    kl_link queue;            /* up.c, under its lock; or the thread's stalled ones */
    uint32_t slot;            /* up.c: of a taken one */
    kl_exchange *answer_next; /* on the way from Python to the thread: whoever has it */
    kl_outcome outcome;
    _Atomic(bool) wake_posted; /* it is in thread->wakes */
    kl_exchange *wake_next;
    bool ended; /* meanwhile: it is kept until it came out of thread->wakes */

    kl_buffer memory; /* of the response, from its size field on */
    kl_part *parts;
    size_t part_count;
    size_t part_capacity;
    size_t parts_bytes; /* of all parts */
    size_t sent;        /* of the memory */
    size_t part_index;  /* of the part that goes out next */
    size_t part_sent;   /* of it */

    /* cold.c. */
    bool cold;              /* the part that goes out next is being brought into memory */
    _Atomic(bool) warmed;   /* it is there, or cannot be had; then it was woken */
    size_t warm_end;        /* of that part: what is in memory, as far as was looked */
    kl_exchange *cold_next; /* under cold.c's lock */
};

/* Of a whole frame, which it takes; NULL: no memory, the frame is given back. */
kl_exchange *kl_exchange_new(kl_conn *conn, kl_chunk *frame, const kl_header *header);
/* Run it, or hand it up; its state tells what became of it.  False: close the connection. */
bool kl_exchange_run(kl_exchange *exchange);
/* Run it as if its deadline had come. */
bool kl_exchange_expire(kl_exchange *exchange);
/* What Python said. */
bool kl_exchange_answered(kl_exchange *exchange);
/* The connection is gone: no response will be wanted. */
void kl_exchange_cancel(kl_exchange *exchange);
/* It has ended, it is in no list any more. */
void kl_exchange_end(kl_exchange *exchange);
void kl_exchange_free(kl_exchange *exchange);
/* Write size and header in front of a response that is put.  False: it is too large. */
bool kl_response_finish(kl_exchange *exchange, int32_t header_version);

/* ---- timers.c: parked requests by deadline ------------------------------------------- */

typedef struct {
    kl_exchange **heap;
    size_t count;
    size_t capacity;
} kl_timers;

kl_status kl_timers_add(kl_timers *timers, kl_exchange *exchange, int64_t due_ms);
/* One that is in no heap: nothing. */
void kl_timers_remove(kl_timers *timers, kl_exchange *exchange);
/* NULL: none. */
kl_exchange *kl_timers_first(const kl_timers *timers);

/* ---- conn.c -------------------------------------------------------------------------- */

struct kl_conn {
    kl_server *server; /* set by the acceptor, never changed, as is what follows */
    kl_thread *thread;
    uint64_t id;
    int32_t listener;
    char peer[64];
    uint8_t address[16]; /* IPv4 mapped into IPv6; zero of a unix socket */
    kl_link same_hash;   /* listen.c: by address, under its lock */
    kl_link all;         /* thread->conns, under its lock */

    int fd;        /* -1 once closed */
    bool readable; /* as far as epoll told and no read was short since */
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

/* Do what can be done now: send, run, read. */
void kl_conn_pump(kl_conn *conn);
/* epoll told `events`. */
void kl_conn_events(kl_conn *conn, uint32_t events);
/* Close it and let its requests go; the memory lives until the end of the thread's pass. */
void kl_conn_close(kl_conn *conn);
/* Whether its large frame must wait until others are done with theirs.  One frame alone is
 * always read, whatever the limit. */
bool kl_conn_starves(const kl_conn *conn);
/* Begin to end: what is parked for more data is answered, nothing is read any more. */
void kl_conn_stop(kl_conn *conn);

/* ---- up.c: requests on their way to Python and back ---------------------------------- */

typedef struct {
    kl_exchange *exchange; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* counted from 1 */
} kl_slot;

typedef struct {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t some;
    kl_link control; /* served first */
    kl_link data;
    int32_t control_count;
    int32_t data_count;
    int32_t count_max; /* of each */
    bool wanted;       /* a thread has requests that found no room */
    bool closed;
    kl_slot *slots; /* of what was taken */
    uint32_t slot_count;
    uint32_t free_slot; /* counted from 1; 0: none */
} kl_up;

void kl_up_init(kl_up *up, int32_t count_max);
void kl_up_free(kl_up *up);
/* False: it is full, and the threads will be told when there is room again. */
bool kl_up_push(kl_up *up, kl_exchange *exchange);
/* Take it back; false: Python has it. */
bool kl_up_cancel(kl_up *up, kl_exchange *exchange);
void kl_up_close(kl_up *up);

/* ---- cold.c: pieces of files that are on disk only ------------------------------------- */

enum { KL_COLD_THREADS = 4 };

/* Threads that may wait for the disk, where a network thread must not.  They are started
 * when they are first wanted. */
typedef struct {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t some;
    kl_exchange *first, *last;
    pthread_t threads[KL_COLD_THREADS];
    int32_t count;   /* of threads */
    int32_t waiting; /* of them, for something to do */
    bool stop;
} kl_cold;

void kl_cold_init(kl_cold *cold);
/* Whether the next bytes of the exchange's part are in memory.  If not they will be, and
 * then the exchange is woken, with `warmed`. */
bool kl_cold_ready(kl_exchange *exchange, size_t bytes);
/* All that was pushed is woken, and the threads have ended. */
void kl_cold_stop(kl_cold *cold);
void kl_cold_free(kl_cold *cold);

/* ---- loop.c: a network thread -------------------------------------------------------- */

/* A number that its thread counts and others read. */
typedef _Atomic int64_t kl_count;
static inline void kl_count_add(kl_count *count, int64_t more) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more,
                          memory_order_relaxed);
}
static inline int64_t kl_count_get(kl_count *count) {
    return atomic_load_explicit(count, memory_order_relaxed);
}

struct kl_thread {
    kl_server *server;
    int32_t index;
    pthread_t thread;
    bool runs;
    int epoll_fd;
    int wake_fd;

    /* Any thread. */
    _Atomic(bool) awake; /* it will look at what follows before it sleeps */
    _Atomic(kl_exchange *) wakes;
    _Atomic(kl_exchange *) answers;
    _Atomic(bool) room;     /* the queue to Python has some again */
    _Atomic(bool) stop;     /* end when nothing is in flight, */
    _Atomic(bool) stop_now; /* and at once */
    pthread_mutex_t lock;   /* guards conns */
    kl_link conns;

    /* Its own. */
    int64_t now_ms;  /* of this pass */
    int64_t trim_ms; /* when memory was trimmed last */
    bool stopping;
    bool unanswered; /* requests were, when it was ended; read when it has */
    bool trims;      /* some memory is kept for use */
    kl_pool pool;
    kl_exchange *free;
    size_t free_count;
    size_t free_least; /* since the last trim */
    kl_timers timers;
    kl_link idle;
    kl_link partial;
    kl_link ready;
    kl_link dirty;
    kl_link stalled;
    kl_link starved;   /* the one that waits longest first */
    size_t held_max;   /* received bytes of large frames, from which on reading stops */
    size_t half_bytes; /* received, of large frames that are not whole */
    kl_link pass_end;  /* in dirty or ready: what is behind it is the next pass's */
    kl_link dead;      /* closed in this pass */

    kl_count closed_idle;
    kl_count closed_half_frame;
    kl_count closed_garbage;
    kl_count bytes_in;
    kl_count bytes_out;
    kl_count requests[KL_API_KEYS];
    kl_count fast;
    kl_count queue_full;
    kl_count parked;
    kl_count cold;
    kl_count allocations; /* but those of the pool */
};

kl_status kl_thread_init(kl_thread *thread, kl_server *server, int32_t index);
kl_status kl_thread_start(kl_thread *thread);
/* Any thread: see that it looks at its posts, flags and time. */
void kl_thread_wake(kl_thread *thread);
/* What was posted to a thread that has ended, or never ran. */
void kl_thread_drain(kl_thread *thread);
void kl_thread_free(kl_thread *thread); /* it has ended, or never ran */
/* Start a thread that sees no signals. */
kl_status kl_thread_spawn(pthread_t *thread, void *(*run)(void *), void *argument,
                          const char *name);

/* ---- listen.c: listening sockets and the thread that accepts ------------------------- */

typedef struct kl_listening kl_listening;
struct kl_listening {
    kl_listening *next;
    int fd;
    int32_t number; /* the caller's */
    bool is_unix;
    char *path; /* of a unix socket that we made */
    uint64_t path_inode;
};

enum { KL_ADDRESS_BUCKETS = 1024 };

typedef struct {
    pthread_t thread;
    bool runs;
    int wake_fd;
    _Atomic(bool) stop;
    _Atomic(bool) full;   /* it waits for a connection to end */
    pthread_mutex_t lock; /* guards listening and what is accepted by address */
    kl_listening *listening;
    kl_link *buckets; /* by address */
    _Atomic int32_t connections_max;
    _Atomic int32_t per_ip_max;
    uint32_t next_thread;
    _Atomic int64_t connections;
    _Atomic uint64_t next_id;
    kl_count accepted;
    kl_count refused_per_ip;
    kl_count pauses;
} kl_acceptor;

kl_status kl_acceptor_init(kl_server *server);
kl_status kl_acceptor_start(kl_server *server);
/* No connection is accepted when it returns, and the sockets are closed. */
void kl_acceptor_stop(kl_server *server);
void kl_acceptor_free(kl_server *server);
/* At most so many connections from now on; more that are there stay. */
void kl_acceptor_limit(kl_acceptor *acceptor, int32_t connections_max, int32_t per_ip_max);
/* A connection that was accepted has ended; of any network thread. */
void kl_acceptor_left(kl_conn *conn);

/* ---- server.c ------------------------------------------------------------------------ */

struct kl_server {
    kl_server_config config; /* set at the start, never changed, as is what follows */
    int generation;          /* of the process that made it: a forked child is refused */
    kl_data *data;
    kl_thread *threads; /* the last is that of the control listener, when there is one */
    int32_t thread_count;

    kl_link registered; /* under the registry's lock */
    kl_up up;
    kl_cold cold;
    kl_acceptor acceptor;
    _Atomic int64_t manual_ms;
    pthread_mutex_t life; /* held across start and stop; guards what follows */
    bool started;
    bool stopped;
};

/* KL_E_FORKED in a child. */
kl_status kl_server_check(const kl_server *server);

#endif
