/* quota.h: a limit on the rate of recent bytes, as in Kafka's ReplicationQuotaManager.  The
 * functions are declared in server.h. */
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
    _Atomic int64_t rate; /* bytes per second; INT64_MAX: no limit */
    int32_t windows;      /* set once, as is window_ms */
    int64_t window_ms;
    pthread_mutex_t lock; /* guards the members below */
    int32_t first;
    int32_t count;
    kl_quota_window ring[]; /* oldest first; each begins with its first bytes */
};

#endif
