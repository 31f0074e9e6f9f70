/* listen.h: listening sockets and the acceptor thread. */
#ifndef KL_LISTEN_H
#define KL_LISTEN_H

#include "arrivals.h"
#include "tls.h"

typedef struct kl_net kl_net;

typedef struct kl_listening kl_listening;
struct kl_listening {
    kl_listening *next;
    int fd;
    int32_t number; /* the caller's */
    kl_tls *tls;    /* held; NULL: not encrypted */
    bool is_unix;
    char *path; /* of a unix socket that we created */
    uint64_t path_inode;
};

typedef struct {
    pthread_t thread;
    bool runs;
    _Atomic(bool) stop;
    pthread_mutex_t lock; /* guards listening; held while a connection is accepted */
    kl_listening *listening;
    uint32_t next_thread;
    uint64_t last_id; /* of a connection */
    _Atomic int64_t accepted;
    kl_arrivals *arrivals; /* also under the lock */
    _Atomic int64_t refused_per_ip;
    _Atomic int64_t held_per_ip;
    _Atomic int64_t pauses;
} kl_acceptor;

void kl_acceptor_init(kl_acceptor *acceptor);
kl_status kl_acceptor_start(kl_net *net);
/* kl_server_listen, unless the server was stopped. */
kl_status kl_acceptor_listen(kl_net *net, const char *host_or_path, int32_t port,
                             int32_t listener, kl_tls *tls, int32_t *bound_port);
/* kl_server_set_tls. */
kl_status kl_acceptor_set_tls(kl_net *net, int32_t listener, kl_tls *tls);
/* kl_server_adopt, if the server runs. */
kl_status kl_acceptor_adopt(kl_net *net, int fd, int32_t listener);
/* kl_server_authenticate. */
kl_status kl_acceptor_authenticate(kl_net *net, int32_t listener);
/* On return no connection is accepted, and the sockets are closed. */
void kl_acceptor_stop(kl_net *net);
/* Limit connections from now on; existing ones above the limit stay. */
void kl_acceptor_limit(kl_net *net, int32_t connections_max, int32_t per_ip_max);

#endif
