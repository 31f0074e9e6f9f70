/* cold.h: pieces of files that are on disk only. */
#ifndef KL_COLD_H
#define KL_COLD_H

#include "net/request.h"

enum { KL_COLD_THREADS = 4 };

/* Threads that may wait for the disk, where a network thread should not.  They are started
 * when they are first wanted. */
typedef struct {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t some;
    kl_warming *first, *last;
    pthread_t threads[KL_COLD_THREADS];
    int32_t count;   /* of threads */
    int32_t waiting; /* of them, for something to do */
    bool stop;
} kl_cold;

void kl_cold_init(kl_cold *cold);
/* Whether these bytes are in memory, as kl_ops.warm. */
bool kl_cold_warm(kl_cold *cold, kl_warming *warming);
/* All that was pushed was told so, and the threads have ended. */
void kl_cold_stop(kl_cold *cold);
void kl_cold_free(kl_cold *cold);

#endif
