/* thread.c: see thread.h. */
#include "thread.h"

#include <signal.h>

#include "system.h"

kl_status kl_thread_spawn(pthread_t *thread, void *(*run)(void *), void *argument,
                          const char *name) {
    /* Signals are for the application's threads; a new thread inherits the mask.  So SIGPIPE, which
     * sendfile raises whatever the flags, stays blocked in ours. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        kl_fail_errno(failed, "cannot start a thread of the server");
        return KL_E_NO_MEMORY;
    }
    kl_system_name_thread(*thread, name);
    return KL_OK;
}
