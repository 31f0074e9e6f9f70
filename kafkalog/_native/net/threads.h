/* threads.h: how many network threads there are, and which of them serve.
 *
 * They stand in an array that never moves.  The first is the control listener's, when there is
 * one; of those behind it the first few take connections.  One that is not wanted any more
 * leaves: it reads nothing new, gives each connection that has no request in hand to one that
 * stays, and ends with the last; no client is cut off.  Its place is kept, for what may be posted
 * to it still, and for the next time that more are wanted. */
#ifndef KL_THREADS_H
#define KL_THREADS_H

#include "net.h"

enum { KL_THREADS_MAX = 256 }; /* without the control listener's */

/* The n-th of those that take connections of all listeners but the control one. */
kl_thread *kl_threads_nth(kl_net *net, int32_t n);
/* Under the acceptor's lock: the thread that takes a listener's next connection. */
kl_thread *kl_threads_next(kl_net *net, int32_t listener);
/* Under the acceptor's lock.  Its events are the thread's from now on. */
kl_status kl_threads_put(kl_thread *thread, kl_conn *conn);
/* Give a connection, which is in none of its thread's rings, to a thread that stays.  False: no
 * thread has it; it is its own's still. */
bool kl_threads_pass(kl_net *net, kl_conn *conn);
/* Whether a thread that leaves has no connection any more, and ends. */
bool kl_threads_left(kl_thread *thread);
/* How many run. */
int32_t kl_threads_running(kl_net *net);

#endif
