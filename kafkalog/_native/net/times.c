/* times.c: see times.h. */
#include "times.h"

void kl_times_count(kl_histogram *of_api, const kl_times *times) {
    for (int32_t phase = 0; phase < KL_PHASE_TOTAL; phase++)
        kl_histogram_add(&of_api[phase], times->spent_ns[phase]);
    kl_histogram_add(&of_api[KL_PHASE_TOTAL], times->since_ns - times->began_ns);
}
