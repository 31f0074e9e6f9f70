/* histogram.h: how many times were up to which bound. */
#ifndef KL_HISTOGRAM_H
#define KL_HISTOGRAM_H

#include "count.h"

typedef struct {
    kl_count buckets[KL_TIME_BUCKETS]; /* see kl_server_time_bound_us */
    kl_count sum_ns;
} kl_histogram;

/* Count a time: as the only writer, or as one of several. */
void kl_histogram_add(kl_histogram *histogram, int64_t ns);
void kl_histogram_share(kl_histogram *histogram, int64_t ns);
/* Add its counts to *out. */
void kl_histogram_get(const kl_histogram *histogram, kl_phase_times *out);

#endif
