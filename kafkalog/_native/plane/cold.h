/* cold.h: data that is only on disk: pieces of files to be sent, indexes to be loaded. */
#ifndef KL_COLD_H
#define KL_COLD_H

#include "log/append.h"
#include "net/request.h"
#include "replica/replica.h"

enum {
    KL_COLD_THREADS = 4,
    KL_COLD_APPENDS_MAX = KL_COLD_THREADS - 1 /* at once: they leave one to reads */
};

KL_STATIC_ASSERT(KL_COLD_APPENDS_MAX >= 1, "and a log can be made ready for an append");

/* A place in a log that is to be read from, or an append that is to find it ready. */
typedef struct {
    kl_replica *replica; /* retained */
    int64_t offset;
    size_t bytes;
    int32_t to;         /* KL_COMMITTED, KL_UNCOMMITTED, KL_LOG_END */
    kl_upcoming append; /* of 0 bytes: none */
} kl_load_item;

/* Places that a request wants to read from, and whose indexes are not in memory, or logs that it
 * wants to append to.  It has memory of its own: the request may end before it. */
typedef struct kl_load kl_load;
struct kl_load {
    /* Guarded by the lock of kl_cold. */
    kl_load *next;
    kl_request *request; /* NULL: it has ended */
    size_t at;           /* the item that is loaded now, or next */
    bool running;        /* by one of the threads */
    bool done;

    size_t count;
    kl_load_item items[];
};

/* Threads that may wait for the disk, which a network thread should not.  They start when they are
 * first needed. */
typedef struct {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t some;
    kl_warming *first, *last;
    kl_load *waiting_loads; /* the oldest first */
    kl_load *running_loads;
    pthread_t threads[KL_COLD_THREADS];
    int32_t count;   /* of threads */
    int32_t waiting; /* of them, for something to do */
    bool stop;
} kl_cold;

void kl_cold_init(kl_cold *cold);
/* Whether these bytes are in memory, as kl_ops.warm. */
bool kl_cold_warm(kl_cold *cold, kl_warming *warming);
/* Room for places to load; NULL: no memory. */
kl_load *kl_load_new(size_t items_max);
/* Load them and wake the request.  One item of a log is loaded at a time, so that a log whose disk
 * hangs occupies one thread, however many requests wait for it.  False: no thread could be started;
 * it is freed. */
bool kl_cold_load(kl_cold *cold, kl_load *load, kl_request *request);
/* Whether all was loaded: else the request will be woken. */
bool kl_cold_loaded(kl_cold *cold, const kl_load *load);
/* The request goes on, or ends: it is not woken by this load any more, which is not its own any
 * more either.  Whether all was loaded. */
bool kl_cold_leave(kl_cold *cold, kl_load *load);
/* On return everything pushed has been reported, and the threads have ended. */
void kl_cold_stop(kl_cold *cold);
void kl_cold_free(kl_cold *cold);

#endif
