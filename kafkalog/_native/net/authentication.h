/* authentication.h: connections whose clients must authenticate, maybe again.
 *
 * Such a connection's requests go up to Python, one at a time, and its frames are small.  It has a
 * limited time, and there is a limited number of them: above it, a thread closes the one of its own
 * that has waited longest. */
#ifndef KL_AUTHENTICATION_H
#define KL_AUTHENTICATION_H

#include "conn.h"

static inline bool kl_is_unidentified(const kl_conn *conn) { return conn->principal < 0; }
/* On its thread: Python has found out who a connection's client is. */
void kl_authentication_set(kl_conn *conn, const kl_authentication *identity);
/* True if its session has expired, and this request does not begin a new one. */
bool kl_authentication_expired(const kl_conn *conn, int16_t api_key);
/* Largest frame, without its size field. */
uint32_t kl_authentication_frame_max(const kl_conn *conn);
/* After a turn: put it among the unidentified connections of its thread, or remove it. */
void kl_authentication_watch(kl_conn *conn);
/* Remove it from its thread's unidentified ones. */
void kl_authentication_unlink(kl_conn *conn);
/* A connection of the thread to close: its time is over, or there are too many.  NULL: none. */
kl_conn *kl_authentication_late(kl_thread *thread);
/* The time when there will be one; INT64_MAX: none waits. */
int64_t kl_authentication_next(const kl_thread *thread);

#endif
