/* quota.h: recent bytes compared with the rate that they must stay below, counted as in Kafka's
 * ReplicationQuotaManager.  The functions are declared in server.h. */
#ifndef KL_QUOTA_H
#define KL_QUOTA_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "kafkalog.h"

typedef struct {
    int64_t start_ms;
    int64_t bytes;
} kl_quota_window;

struct kl_quota {
    _Atomic int64_t rate; /* bytes a second; INT64_MAX: none */
    int32_t windows;      /* set once, as is what follows */
    int64_t window_ms;
    pthread_mutex_t lock; /* guards what follows */
    int32_t first;
    int32_t count;
    kl_quota_window ring[]; /* the oldest first; each begins with a count of bytes */
};

#endif
