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

enum { KL_FAILURES_KEPT = 16 };

/* The latest failed handshakes, until the caller takes them. */
typedef struct {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t some;
    kl_handshake_failure kept[KL_FAILURES_KEPT];
    uint32_t first, count;
    int64_t lost; /* not kept */
    bool closed;
} kl_failures;

void kl_failures_init(kl_failures *failures);
void kl_failures_free(kl_failures *failures);
/* kl_server_take_failure. */
kl_status kl_failures_take(kl_failures *failures, int32_t timeout_ms,
                           kl_handshake_failure *out);
void kl_failures_close(kl_failures *failures);

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
