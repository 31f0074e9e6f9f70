/* crew.h: starts, adds, removes and frees network threads. */
#ifndef KL_CREW_H
#define KL_CREW_H

#include "net.h"

/* Set up `count` threads and the control listener's, if any; none of them runs yet.
 * net->threads has places, zeroed, for as many as there may ever be. */
kl_status kl_crew_init(kl_net *net, int32_t count);
kl_status kl_crew_start(kl_net *net);
/* From now on, `count` threads accept connections; `run`: the server runs.  One caller at a time.
 * KL_E_NO_MEMORY, KL_E_IO: there are fewer than wanted. */
kl_status kl_crew_resize(kl_net *net, int32_t count, bool run);
void kl_crew_free(kl_net *net); /* they have ended, or never ran */

#endif
