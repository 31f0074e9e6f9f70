/* threads.h: how many network threads there are, and which of them serve.
 *
 * They are in an array that never moves.  The first is the control listener's, if there is one; of
 * those after it, the first few accept connections.  A surplus one leaves: it reads nothing new,
 * passes each connection without a request in progress to one that stays, and ends with the last;
 * no client is cut off.  Its place is kept for late messages, and for the next time that more
 * threads are wanted. */
#ifndef KL_THREADS_H
#define KL_THREADS_H

#include "net.h"

enum { KL_THREADS_MAX = 256 }; /* without the control listener's */

/* The n-th of those that accept connections of all listeners except the control one. */
kl_thread *kl_threads_nth(kl_net *net, int32_t n);
/* Under the acceptor's lock: the thread for a listener's next connection. */
kl_thread *kl_threads_next(kl_net *net, int32_t listener);
/* Under the acceptor's lock.  Its events are the thread's from now on. */
kl_status kl_threads_put(kl_thread *thread, kl_conn *conn);
/* Pass a connection, which is in none of its thread's rings, to a thread that stays.  False: no
 * thread takes it; it still belongs to its own. */
bool kl_threads_pass(kl_net *net, kl_conn *conn);
/* Whether a leaving thread has no connection left, and ends. */
bool kl_threads_left(kl_thread *thread);
/* How many run. */
int32_t kl_threads_running(kl_net *net);

#endif
