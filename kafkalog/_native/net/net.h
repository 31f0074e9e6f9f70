/* net.h: the network side of a server: connections and requests; it does not know logs. */
#ifndef KL_NET_H
#define KL_NET_H

#include "clock.h"
#include "conn.h"
#include "lane.h"
#include "listen.h"
#include "up.h"

struct kl_net {
    const kl_server_config
        *config; /* set by the caller, never changed, as is what follows */
    const kl_ops *ops;
    _Atomic(const kl_kind *)
        kinds[KL_API_KEYS]; /* of ops; NULL: Python's, for now at least */
    void *context;          /* of the operations */
    kl_clock clock;
    kl_thread *threads;           /* see threads.h, also for what follows */
    _Atomic int32_t thread_count; /* that there are, or were: only grows */
    int32_t serving;              /* guarded by the acceptor's lock */

    kl_up up;
    kl_peers peers;
    kl_acceptor acceptor;

    _Atomic(bool) paused; /* its threads stand still, or are to; changed under the lock */
    pthread_mutex_t pause_lock; /* guards what follows */
    pthread_cond_t pause_turn;
    int32_t standing; /* of them */
};

/* Its table of kinds and what it is paused with; the rest is set by the caller. */
void kl_net_init(kl_net *net, const kl_ops *ops);
void kl_net_free(kl_net *net);
/* Pause its running threads, on return; or let them continue. */
void kl_net_pause(kl_net *net, bool on);
/* One of its threads waits here as long as it is paused. */
void kl_net_stand(kl_net *net);
/* The loop of a thread is over; and a wait for that until `until_ms` of the monotonic clock: false
 * if it is not. */
void kl_net_tell_over(kl_thread *thread);
bool kl_net_wait_over(kl_thread *thread, int64_t until_ms);

#endif
