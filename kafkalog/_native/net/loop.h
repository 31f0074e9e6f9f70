/* loop.h: the life of a network thread. */
#ifndef KL_LOOP_H
#define KL_LOOP_H

#include "lane.h"

kl_status kl_thread_init(kl_thread *thread, kl_net *net, int32_t index);
kl_status kl_thread_start(kl_thread *thread);
/* Handle letters posted to a thread that has ended, or never ran. */
void kl_thread_drain(kl_thread *thread);
void kl_thread_free(kl_thread *thread); /* it has ended, or never ran */

#endif
