/* net.h: the network side of a server: connections and requests; it knows nothing of logs. */
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
    void *context; /* of those who answer */
    kl_clock clock;
    kl_thread *threads;           /* see threads.h, also for what follows */
    _Atomic int32_t thread_count; /* that there are, or were: only grows */
    int32_t serving;              /* guarded by the acceptor's lock */

    kl_up up;
    kl_peers peers;
    kl_acceptor acceptor;
};

#endif
