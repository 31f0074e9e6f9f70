/* crew.h: starts, adds, removes and frees network threads. */
#ifndef KL_CREW_H
#define KL_CREW_H

#include "net.h"

/* Set up `count` threads and the control listener's, if any; none runs yet.  net->threads has
 * zeroed places for the maximum. */
kl_status kl_crew_init(kl_net *net, int32_t count);
kl_status kl_crew_start(kl_net *net);
/* Let `count` threads accept connections; `run`: the server runs.  One caller at a time.
 * KL_E_NO_MEMORY, KL_E_IO: there are fewer than wanted. */
kl_status kl_crew_resize(kl_net *net, int32_t count, bool run);
void kl_crew_free(kl_net *net); /* the threads have ended, or never ran */

#endif
