/* times.h: how long requests spend in each phase: KL_PHASE_*. */
#ifndef KL_TIMES_H
#define KL_TIMES_H

#include "base/histogram.h"

/* One request's; only the thread that works on it uses them. */
typedef struct {
    int64_t began_ns; /* its frame was complete */
    int64_t since_ns; /* the present phase began */
    int64_t spent_ns[KL_PHASE_TOTAL];
    int32_t phase;
} kl_times;

static inline void kl_times_begin(kl_times *times, int64_t now_ns) {
    *times = (kl_times){.began_ns = now_ns, .since_ns = now_ns, .phase = KL_PHASE_QUEUE};
}
/* Another phase begins.  Threads may pass a time that they read a moment ago. */
static inline void kl_times_turn(kl_times *times, int32_t phase, int64_t now_ns) {
    KL_TEST_ASSERT(phase >= 0 && phase < KL_PHASE_TOTAL);
    if (now_ns > times->since_ns) {
        times->spent_ns[times->phase] += now_ns - times->since_ns;
        times->since_ns = now_ns;
    }
    times->phase = phase;
}
/* Its answer was sent: count it in the KL_PHASES histograms of its API. */
void kl_times_count(kl_histogram *of_api, const kl_times *times);

#endif
