/* rate.c: see rate.h. */
#include "rate.h"

enum { SUM_BITS = 40 };
static const uint64_t SUM_MAX = ((uint64_t)1 << SUM_BITS) - 1;
static const uint64_t NUMBER_MASK = ((uint64_t)1 << (64 - SUM_BITS)) - 1;

void kl_rate_clear(kl_rate *rate, const kl_rate_span *span) {
    KL_ASSERT(span->windows > 0 && span->windows <= KL_RATE_WINDOWS_MAX);
    for (int32_t i = 0; i < span->windows; i++) atomic_store(&rate->slots[i], 0);
    atomic_store(&rate->origin_ms, INT64_MIN);
    atomic_store(&rate->used_ms, 0);
}

static int64_t since(const kl_rate *rate, int64_t now_ms) {
    int64_t origin_ms = atomic_load_explicit(&rate->origin_ms, memory_order_relaxed);
    return origin_ms == INT64_MIN ? 0 : KL_MAX(now_ms - origin_ms, (int64_t)0);
}

/* The first amount, and one after all windows have passed, begins a window.  Windows keep their
 * numbers: other threads may still count in the one before. */
static void begin(kl_rate *rate, const kl_rate_span *span, int64_t now_ms) {
    int64_t origin_ms = atomic_load_explicit(&rate->origin_ms, memory_order_relaxed);
    int64_t used_ms = atomic_load_explicit(&rate->used_ms, memory_order_relaxed);
    if (KL_LIKELY(origin_ms != INT64_MIN &&
                  now_ms - used_ms < span->windows * span->window_ms))
        return;
    int64_t number =
        origin_ms == INT64_MIN ? span->windows : since(rate, now_ms) / span->window_ms + 1;
    atomic_compare_exchange_strong(&rate->origin_ms, &origin_ms,
                                   now_ms - number * span->window_ms);
}

static uint64_t added(uint64_t sum, int64_t amount) {
    if (amount < 0) return sum - KL_MIN(sum, (uint64_t)-amount);
    return KL_MIN(sum + KL_MIN((uint64_t)amount, SUM_MAX), SUM_MAX);
}

void kl_rate_add(kl_rate *rate, const kl_rate_span *span, int64_t amount, int64_t now_ms) {
    begin(rate, span, now_ms);
    atomic_store_explicit(&rate->used_ms, now_ms, memory_order_relaxed);
    uint64_t number = (uint64_t)(since(rate, now_ms) / span->window_ms);
    _Atomic uint64_t *slot = &rate->slots[number % (uint64_t)span->windows];
    number &= NUMBER_MASK;
    uint64_t old = atomic_load_explicit(slot, memory_order_relaxed), made;
    do {
        uint64_t sum = old >> SUM_BITS == number ? old & SUM_MAX : 0;
        made = number << SUM_BITS | added(sum, amount);
    } while (!atomic_compare_exchange_weak(slot, &old, made));
}

int32_t kl_rate_wait_ms(kl_rate *rate, const kl_rate_span *span, double limit,
                        int64_t now_ms) {
    int64_t since_ms = since(rate, now_ms);
    uint64_t number = (uint64_t)(since_ms / span->window_ms) & NUMBER_MASK;
    double sum = 0;
    for (int32_t i = 0; i < span->windows; i++) {
        uint64_t slot = atomic_load_explicit(&rate->slots[i], memory_order_relaxed);
        if (((number - (slot >> SUM_BITS)) & NUMBER_MASK) < (uint64_t)span->windows)
            sum += (double)(slot & SUM_MAX);
    }
    /* The windows before the current one count as whole, even if nothing was added in them. */
    int64_t elapsed_ms = (span->windows - 1) * span->window_ms + since_ms % span->window_ms;
    double window_ms = (double)KL_MAX(elapsed_ms, (int64_t)1);
    double rate_found = sum * 1000 / window_ms;
    if (rate_found <= limit) return 0;
    double wait_ms = (rate_found - limit) / limit * window_ms + 0.5;
    return wait_ms < INT32_MAX ? (int32_t)wait_ms : INT32_MAX;
}
