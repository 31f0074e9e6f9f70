/* peers.h: counts connections, in total and per address. */
#ifndef KL_PEERS_H
#define KL_PEERS_H

#include "base/system.h"
#include "base/table.h"

enum { KL_ADDRESS_BYTES = 16, KL_LISTENERS_MAX = 64 };

/* An address with connections. */
typedef struct {
    uint8_t address[KL_ADDRESS_BYTES]; /* IPv4 mapped to IPv6 */
    int32_t count;
} kl_peer;

typedef struct {
    kl_wake wake;          /* ends the acceptor's sleep */
    _Atomic(bool) full;    /* the acceptor waits for a connection to end */
    _Atomic int64_t count; /* connections */
    _Atomic int32_t count_max;
    _Atomic int32_t per_ip_max;
    _Atomic int32_t of_listener[KL_LISTENERS_MAX]; /* connections */
    pthread_mutex_t lock;                          /* guards the members below */
    kl_table by_address;
} kl_peers;

kl_status kl_peers_init(kl_peers *peers);
void kl_peers_free(kl_peers *peers);
/* Wake the acceptor. */
void kl_peers_wake(kl_peers *peers);
/* True if the limit is reached; then the end of a connection wakes the acceptor. */
bool kl_peers_full(kl_peers *peers);
/* Count a connection from an address; NULL: not counted.  `per_ip_max` -1: as for others.  False:
 * the address has too many, or there is no memory. */
bool kl_peers_enter(kl_peers *peers, const uint8_t *address, int32_t per_ip_max,
                    kl_peer **out);
/* The connection has ended; from any thread. */
void kl_peers_leave(kl_peers *peers, kl_peer *peer);
/* Count the connections of a listener, before the one that has ended is left. */
void kl_peers_enter_listener(kl_peers *peers, int32_t listener);
void kl_peers_leave_listener(kl_peers *peers, int32_t listener);
/* As kl_peers_full, of a listener with at most `count_max`. */
bool kl_peers_full_at(kl_peers *peers, int32_t listener, int32_t count_max);

#endif
