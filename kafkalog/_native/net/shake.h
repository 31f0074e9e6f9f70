/* shake.h: TLS handshakes: few at a time, none for long.
 *
 * A step costs a key exchange: a thread makes one in each pass, so that its other connections wait
 * for one at most.  Clients that leave theirs half done are limited in number and time. */
#ifndef KL_SHAKE_H
#define KL_SHAKE_H

#include "tls.h"

typedef struct kl_conn kl_conn;
typedef struct kl_net kl_net;
typedef struct kl_thread kl_thread;

enum { KL_FAILURES_KEPT = 16 }; /* of handshakes, until Python takes them */

/* A new connection of a TLS listener: its handshake begins when the client sends something.
 * KL_E_NO_MEMORY. */
kl_status kl_shake_begin(kl_conn *conn, const kl_tls *tls);
/* epoll reported something for a connection in its handshake. */
void kl_shake_events(kl_conn *conn);
/* One step of one handshake, if any waits for its turn.  A connection that it completes, or NULL:
 * what came with the handshake is no event. */
kl_conn *kl_shake_run(kl_thread *thread);
/* A connection whose handshake has failed, to be closed, or NULL. */
kl_conn *kl_shake_failed(kl_thread *thread);
/* Let those fail that are too old; the time when the next one will be, or INT64_MAX. */
void kl_shake_expire(kl_thread *thread);
int64_t kl_shake_next(const kl_thread *thread);
/* It leaves its thread, or is closed. */
void kl_shake_leave(kl_conn *conn);

#endif
