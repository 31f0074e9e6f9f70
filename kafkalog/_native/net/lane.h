/* lane.h: the state of a network thread. */
#ifndef KL_LANE_H
#define KL_LANE_H

#include "base/poller.h"
#include "exchange.h"

typedef struct kl_net kl_net;

struct kl_thread {
    kl_net *net;
    int32_t index;
    pthread_t thread;
    bool runs; /* must be joined */
    kl_poller poller;

    /* For any thread: */
    kl_post post;
    _Atomic(bool) room;     /* the queue to Python has space again */
    _Atomic(bool) stop;     /* end when nothing is in flight, */
    _Atomic(bool) stop_now; /* or at once */
    _Atomic(bool) leaving;  /* end when others have its connections; see threads.h */
    bool ended;             /* it has; guarded by the acceptor's lock */
    bool over;              /* its loop has ended; guarded by the net's pause_lock */
    pthread_mutex_t lock;   /* guards conns */
    kl_link conns;

    /* For its own thread: */
    int64_t now_ms;   /* of this pass */
    int64_t pass_ns;  /* its begin, by the monotonic clock */
    int64_t clock_ns; /* the same clock when it was last read: see kl_thread_clock */
    int64_t trim_ms;  /* time of the last trim */
    bool stopping;
    bool was_leaving; /* in the previous pass */
    bool unanswered;  /* requests were unanswered at the end; read after it */
    bool trims;       /* some memory is kept */
    kl_pool pool;
    kl_exchange *free;
    size_t free_count;
    size_t free_least; /* minimum since the last trim */
    kl_timers timers;
    kl_timers muted; /* connections */
    kl_link idle;
    kl_link partial;
    kl_link ready;
    kl_link dirty;
    kl_link stalled;
    kl_link unidentified;    /* see authentication.h; longest first */
    kl_link starved;         /* longest waiting first */
    _Atomic size_t held_max; /* limit of bytes of large frames; then reading stops */
    size_t half_bytes;       /* received bytes of incomplete large frames */
    kl_link pass_end;        /* in dirty or ready: the next pass begins after it */
    kl_link dead;            /* closed in this pass */
    kl_link shaking;         /* handshakes that can go on, in the order of their events */
    kl_link half_opens;      /* that wait for their clients, longest waiting first */
    int32_t half_open;       /* their number */
    kl_link shakes_failed;   /* to be closed */

    kl_count handshakes;
    kl_count handshakes_failed;
    kl_count closed_idle;
    kl_count closed_half_frame;
    kl_count closed_garbage;
    kl_count closed_unidentified;
    kl_count bytes_in;
    kl_count bytes_out;
    kl_count requests[KL_API_KEYS];
    kl_count fast;
    kl_count repeated;
    kl_count queue_full;
    kl_count parked;
    kl_count cold;
    kl_count allocations; /* except those of the pool */
    kl_count throttled;   /* answers after which a connection was muted */
    kl_count throttled_ms;
    kl_count idle_ns;              /* waiting for events, */
    kl_count ran_ns;               /* and in all passes */
    kl_count waiting[KL_API_KEYS]; /* parked requests */
    kl_histogram times[KL_API_KEYS][KL_PHASES];
};

/* Read the monotonic clock.  clock_ns is exact enough where a phase follows another at once. */
static inline int64_t kl_thread_clock(kl_thread *thread) {
    return thread->clock_ns = kl_monotonic_ns();
}

#endif
