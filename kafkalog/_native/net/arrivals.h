/* arrivals.h: limits of new connections: their rate in total, per listener and per address, and
 * how many an address or a listener may have.  Under the acceptor's lock. */
#ifndef KL_ARRIVALS_H
#define KL_ARRIVALS_H

#include "base/rate.h"
#include "peers.h"

typedef struct kl_arrivals kl_arrivals;

/* As in kl_server_config. */
kl_status kl_arrivals_new(int32_t windows, int64_t window_ms, kl_arrivals **out);
void kl_arrivals_free(kl_arrivals *arrivals); /* closes held sockets; NULL is fine */

/* As kl_server_set_arrivals, _set_listener_limits. */
kl_status kl_arrivals_set(kl_arrivals *arrivals, const kl_arrival_limits *limits,
                          const kl_ip_limit *of_ips, int32_t count);
kl_status kl_arrivals_set_listener(kl_arrivals *arrivals, int32_t listener,
                                   int32_t connections_max, int32_t rate);
/* How many connections a listener, or an address, may have; the latter -1: as others. */
int32_t kl_arrivals_listener_max(const kl_arrivals *arrivals, int32_t listener);
int32_t kl_arrivals_ip_max(const kl_arrivals *arrivals, const uint8_t *address);
/* Count a new connection; `address` NULL: not TCP.  Then its listener accepts the next one when
 * kl_arrivals_ready is true again.  False: the address exceeds its rate, nothing was counted, and
 * the socket should be held. */
bool kl_arrivals_enter(kl_arrivals *arrivals, int32_t listener, const uint8_t *address,
                       int64_t now_ms);
bool kl_arrivals_ready(const kl_arrivals *arrivals, int32_t listener, int64_t now_ms);
/* Keep a socket open, unserved, for as long as its address exceeds the rate, and take it: as Kafka,
 * so that its client does not come again at once. */
void kl_arrivals_hold(kl_arrivals *arrivals, int fd, int64_t now_ms);
/* Close held sockets that are due; returns when the next one, or a listener, is; INT64_MAX:
 * never. */
int64_t kl_arrivals_next(kl_arrivals *arrivals, int64_t now_ms);

#endif
