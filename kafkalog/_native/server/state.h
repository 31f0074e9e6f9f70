/* state.h: a server: its network side, its data plane, and its life cycle. */
#ifndef KL_STATE_H
#define KL_STATE_H

#include "net/net.h"
#include "plane/plane.h"

struct kl_server {
    kl_server_config config; /* set at the start and immutable, down to data */
    int generation;          /* of the creating process: KL_E_FORKED in a child */
    kl_net net;
    kl_data *data;

    kl_link registered;   /* under the registry's lock */
    pthread_mutex_t life; /* held across start and stop; guards the members below */
    bool started;
    bool stopped;
};

/* KL_E_FORKED in a child. */
kl_status kl_server_check(const kl_server *server);

#endif
