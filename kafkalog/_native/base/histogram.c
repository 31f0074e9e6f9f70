/* histogram.c: see histogram.h. */
#include "histogram.h"

/* Upper bounds of the buckets; the last one has none. */
static const int64_t bounds_us[KL_TIME_BUCKETS - 1] = {
    100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000, 30000000};

int64_t kl_server_time_bound_us(int32_t bucket) {
    return bucket >= 0 && bucket < KL_TIME_BUCKETS - 1 ? bounds_us[bucket] : -1;
}

static int32_t bucket_of(int64_t ns) {
    enum { NS_PER_US = 1000 };
    int32_t bucket = 0;
    while (bucket < KL_TIME_BUCKETS - 1 && ns > bounds_us[bucket] * NS_PER_US) bucket++;
    return bucket;
}

void kl_histogram_add(kl_histogram *histogram, int64_t ns) {
    kl_count_add(&histogram->buckets[bucket_of(ns)], 1);
    kl_count_add(&histogram->sum_ns, ns);
}

void kl_histogram_share(kl_histogram *histogram, int64_t ns) {
    kl_count_share(&histogram->buckets[bucket_of(ns)], 1);
    kl_count_share(&histogram->sum_ns, ns);
}

void kl_histogram_get(const kl_histogram *histogram, kl_phase_times *out) {
    for (int32_t i = 0; i < KL_TIME_BUCKETS; i++)
        out->buckets[i] += kl_count_get(&histogram->buckets[i]);
    out->sum_ns += kl_count_get(&histogram->sum_ns);
}
