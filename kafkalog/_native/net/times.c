/* times.c: see times.h. */
#include "times.h"

/* Upper bounds of the buckets; the last one has none. */
static const int64_t bounds_us[KL_TIME_BUCKETS - 1] = {
    100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000, 30000000};

int64_t kl_server_time_bound_us(int32_t bucket) {
    return bucket >= 0 && bucket < KL_TIME_BUCKETS - 1 ? bounds_us[bucket] : -1;
}

static void count(kl_histogram *histogram, int64_t ns) {
    enum { NS_PER_US = 1000 };
    int32_t bucket = 0;
    while (bucket < KL_TIME_BUCKETS - 1 && ns > bounds_us[bucket] * NS_PER_US) bucket++;
    kl_count_add(&histogram->buckets[bucket], 1);
    kl_count_add(&histogram->sum_ns, ns);
}

void kl_times_count(kl_histogram *of_api, const kl_times *times) {
    for (int32_t phase = 0; phase < KL_PHASE_TOTAL; phase++)
        count(&of_api[phase], times->spent_ns[phase]);
    count(&of_api[KL_PHASE_TOTAL], times->since_ns - times->began_ns);
}
