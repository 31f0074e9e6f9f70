/* thread.h: threads of the library's own. */
#ifndef KL_THREAD_H
#define KL_THREAD_H

#include "base.h"

/* Start a thread that sees no signals, and is named so in the system's lists. */
kl_status kl_thread_spawn(pthread_t *thread, void *(*run)(void *), void *argument,
                          const char *name);

#endif
