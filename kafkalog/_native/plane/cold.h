/* cold.h: data that is only on disk: pieces of files to be sent, indexes to be loaded. */
#ifndef KL_COLD_H
#define KL_COLD_H

#include "log/append.h"
#include "net/request.h"
#include "replica/replica.h"

enum {
    KL_COLD_THREADS = 4,
    KL_COLD_APPENDS_MAX = KL_COLD_THREADS - 1 /* at once: one thread remains for reads */
};

KL_STATIC_ASSERT(KL_COLD_APPENDS_MAX >= 1, "and a log can be made ready for an append");

/* A position in a log to read from, or an append to prepare. */
typedef struct {
    kl_replica *replica; /* retained */
    int64_t offset;
    size_t bytes;
    int32_t to;         /* KL_COMMITTED, KL_UNCOMMITTED, KL_LOG_END */
    kl_upcoming append; /* of 0 bytes: none */
} kl_load_item;

/* Positions whose indexes are not in memory, or logs to append to, for one request.  It has its own
 * memory: the request may end first. */
typedef struct kl_load kl_load;
struct kl_load {
    /* Guarded by kl_cold's lock. */
    kl_load *next, *before;
    kl_request *request; /* NULL: it has ended */
    size_t at;           /* the current or next item */
    bool running;        /* by a thread */
    bool done;

    size_t count;
    kl_load_item items[];
};

typedef struct {
    kl_load *first, *last;
} kl_loads;

/* Threads that may wait for the disk, unlike a network thread.  Started on first use. */
typedef struct {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t some;
    kl_warming *first, *last;
    kl_loads waiting_loads; /* oldest first */
    kl_loads running_loads;
    pthread_t threads[KL_COLD_THREADS];
    int32_t count;   /* threads */
    int32_t waiting; /* idle threads */
    bool stop;
} kl_cold;

void kl_cold_init(kl_cold *cold);
/* kl_ops.warm: true if these bytes are in memory. */
bool kl_cold_warm(kl_cold *cold, kl_warming *warming);
/* A load with space for `items_max` items; NULL: no memory. */
kl_load *kl_load_new(size_t items_max);
/* Load the items and wake the request.  One item per log at a time, so that a log on a hung disk
 * occupies one thread, however many requests wait for it.  False: no thread could be started; the
 * load is freed. */
bool kl_cold_load(kl_cold *cold, kl_load *load, kl_request *request);
/* True if all is loaded; otherwise the request will be woken. */
bool kl_cold_loaded(kl_cold *cold, const kl_load *load);
/* The request continues or ends, gives up the load, and is not woken by it any more.  True if all
 * is loaded. */
bool kl_cold_leave(kl_cold *cold, kl_load *load);
/* On return all pushed work is reported, and the threads have ended. */
void kl_cold_stop(kl_cold *cold);
void kl_cold_free(kl_cold *cold);

#endif
