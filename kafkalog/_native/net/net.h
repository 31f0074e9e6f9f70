/* net.h: the network side of a server: connections and requests; independent of logs. */
#ifndef KL_NET_H
#define KL_NET_H

#include "base/notices.h"
#include "clock.h"
#include "conn.h"
#include "finished.h"
#include "lane.h"
#include "listen.h"
#include "shake.h"
#include "up.h"

struct kl_net {
    const kl_server_config *config; /* set by the caller, immutable, as is ops */
    const kl_ops *ops;
    _Atomic(const kl_kind *)
        kinds[KL_API_KEYS]; /* from ops; NULL: Python handles them, at least for now */
    void *context;          /* for the operations */
    /* Bit N: connections of listener N must authenticate. */
    _Atomic uint64_t authenticating;
    _Atomic int64_t unidentified; /* connections that have not; see authentication.h */
    kl_clock clock;
    kl_thread *threads;           /* see threads.h, also for the next two */
    _Atomic int32_t thread_count; /* initialised places: only grows */
    int32_t serving;              /* guarded by the acceptor's lock */

    /* Connections of each principal, and those that will have it; see kl_server_unheld. */
    _Atomic int32_t holds[KL_PRINCIPALS_MAX];
    _Atomic int32_t tenures[KL_PRINCIPALS_MAX]; /* see kl_server_next_tenure */

    _Atomic int64_t departures; /* see kl_server_departures */
    _Atomic uint64_t repeat_mark;

    kl_up up;
    kl_peers peers;
    kl_acceptor acceptor;
    kl_notices failures; /* the latest failed handshakes: kl_handshake_failure */
    kl_handshake_failure failures_kept[KL_FAILURES_KEPT];
    kl_finished_log finished;

    _Atomic(bool) paused; /* its threads are paused, or will be; changed under the lock */
    pthread_mutex_t pause_lock; /* guards the members below */
    pthread_cond_t pause_turn;
    int32_t standing; /* paused threads */
};

/* Initialise the table of kinds and the pause; the caller sets the rest. */
void kl_net_init(kl_net *net, const kl_ops *ops);
void kl_net_free(kl_net *net);
/* Hold a principal, or let it go (-1); those up to KL_PROCESS are not counted. */
void kl_net_hold(kl_net *net, int32_t principal, int32_t change);
/* On return all running threads are paused; or let them continue. */
void kl_net_pause(kl_net *net, bool on);
/* One of its threads waits while the network is paused. */
void kl_net_stand(kl_net *net);
/* The loop of a thread has ended; and a wait for that until `until_ms` (monotonic): false if it has
 * not. */
void kl_net_tell_over(kl_thread *thread);
bool kl_net_wait_over(kl_thread *thread, int64_t until_ms);

#endif
