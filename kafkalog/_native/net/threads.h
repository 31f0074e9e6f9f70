/* threads.h: the network threads, and which of them serve.
 *
 * They are in an array that never moves: first the control listener's, if any, then those that
 * accept connections.  A surplus thread leaves: it reads nothing new, passes each connection
 * without a request in progress to a serving thread, and ends after the last; no client is cut off.
 * Its place stays for late messages, and for a later increase. */
#ifndef KL_THREADS_H
#define KL_THREADS_H

#include "net.h"

enum { KL_THREADS_MAX = 256 }; /* excluding the control listener's */

/* The n-th thread that serves listeners other than the control listener. */
kl_thread *kl_threads_nth(kl_net *net, int32_t n);
/* Under the acceptor's lock: the thread for a listener's next connection. */
kl_thread *kl_threads_next(kl_net *net, int32_t listener);
/* Under the acceptor's lock.  From now on the thread handles its events. */
kl_status kl_threads_put(kl_thread *thread, kl_conn *conn);
/* Pass a connection, which is in none of its thread's rings, to a serving thread.  False: failed,
 * and its thread keeps it. */
bool kl_threads_pass(kl_net *net, kl_conn *conn);
/* True if a leaving thread has no connections left, and ends. */
bool kl_threads_left(kl_thread *thread);
/* out[i]: 0 if connections[i] is closed, 1 if it is open, 2 if it is open and its peer sends no
 * more; the numbers are in ascending order. */
void kl_threads_connected(kl_net *net, const uint64_t *connections, size_t count,
                          uint8_t *out);
/* The number of running threads. */
int32_t kl_threads_running(kl_net *net);

#endif
