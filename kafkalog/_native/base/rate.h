/* rate.h: the rate of recent amounts over sample windows, as Kafka's Rate.  Any thread, without a
 * lock. */
#ifndef KL_RATE_H
#define KL_RATE_H

#include "base.h"

/* The windows of a rate: their number, the current one included, and the length of each. */
typedef struct {
    int32_t windows;
    int64_t window_ms;
} kl_rate_span;

enum { KL_RATE_WINDOWS_MAX = 1000 };

typedef struct {
    _Atomic int64_t
        origin_ms; /* windows are counted from here; INT64_MIN: nothing was added */
    _Atomic int64_t used_ms;  /* time of the last amount */
    _Atomic uint64_t slots[]; /* number of a window (24 bits) and its sum (40 bits) */
} kl_rate;

static inline size_t kl_rate_bytes(const kl_rate_span *span) {
    return sizeof(kl_rate) + (size_t)span->windows * sizeof(uint64_t);
}
/* Forget all amounts. */
void kl_rate_clear(kl_rate *rate, const kl_rate_span *span);
/* Add an amount; a negative one takes back what was added at the same time. */
void kl_rate_add(kl_rate *rate, const kl_rate_span *span, int64_t amount, int64_t now_ms);
/* How long nothing may be added until the rate is at most `limit` per second: at most INT32_MAX ms;
 * 0: it is.  Kafka's (observed - limit) / limit * window. */
int32_t kl_rate_wait_ms(kl_rate *rate, const kl_rate_span *span, double limit,
                        int64_t now_ms);

#endif
