/* peers.h: how many connections there are, and from where. */
#ifndef KL_PEERS_H
#define KL_PEERS_H

#include "base/table.h"

enum { KL_ADDRESS_BYTES = 16 };

/* An address that has connections here. */
typedef struct {
    uint8_t address[KL_ADDRESS_BYTES]; /* IPv4 mapped into IPv6 */
    int32_t count;
} kl_peer;

typedef struct {
    int wake_fd;           /* the acceptor sleeps on it */
    _Atomic(bool) full;    /* the acceptor waits for a connection to end */
    _Atomic int64_t count; /* connections */
    _Atomic int32_t count_max;
    _Atomic int32_t per_ip_max;
    pthread_mutex_t lock; /* guards what follows */
    kl_table by_address;
} kl_peers;

kl_status kl_peers_init(kl_peers *peers);
void kl_peers_free(kl_peers *peers);
/* Wake the acceptor. */
void kl_peers_wake(kl_peers *peers);
/* Whether there may be no more; then the acceptor is woken when one has ended. */
bool kl_peers_full(kl_peers *peers);
/* One more, of an address; NULL: of none that is counted.  False: there are too many of it, or
 * there is no memory. */
bool kl_peers_enter(kl_peers *peers, const uint8_t *address, kl_peer **out);
/* It has ended; any thread. */
void kl_peers_leave(kl_peers *peers, kl_peer *peer);

#endif
