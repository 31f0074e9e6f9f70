/* thread.h: the library's own threads. */
#ifndef KL_THREAD_H
#define KL_THREAD_H

#include "base.h"

/* Start a thread that handles no signals, with this name in the system's lists. */
kl_status kl_thread_spawn(pthread_t *thread, void *(*run)(void *), void *argument,
                          const char *name);

#endif
