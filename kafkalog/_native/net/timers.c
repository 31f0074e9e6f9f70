/* timers.c: a binary heap; each exchange knows its place in it. */
#include "net.h"

enum { HEAP_MIN = 64 };

static void put(kl_timers *timers, size_t place, kl_exchange *exchange) {
    timers->heap[place - 1] = exchange;
    exchange->timer_place = place;
}

static int64_t due(const kl_timers *timers, size_t place) {
    return timers->heap[place - 1]->timer_ms;
}

/* Move `exchange` from `place` to where it belongs: up first, then down. */
static void settle(kl_timers *timers, size_t place, kl_exchange *exchange) {
    for (; place > 1 && due(timers, place / 2) > exchange->timer_ms; place /= 2)
        put(timers, place, timers->heap[place / 2 - 1]);
    for (;;) {
        size_t child = place * 2;
        if (child > timers->count) break;
        if (child < timers->count && due(timers, child + 1) < due(timers, child)) child++;
        if (due(timers, child) >= exchange->timer_ms) break;
        put(timers, place, timers->heap[child - 1]);
        place = child;
    }
    put(timers, place, exchange);
}

kl_status kl_timers_add(kl_timers *timers, kl_exchange *exchange, int64_t due_ms) {
    KL_ASSERT(exchange->timer_place == 0);
    if (timers->count == timers->capacity) {
        size_t capacity = KL_MAX(timers->capacity * 2, (size_t)HEAP_MIN);
        kl_exchange **heap = kl_resize(timers->heap, capacity * sizeof(kl_exchange *));
        if (heap == NULL)
            return kl_fail(KL_E_NO_MEMORY, "no memory for %zu timers", capacity);
        timers->heap = heap;
        timers->capacity = capacity;
    }
    exchange->timer_ms = due_ms;
    timers->count++;
    settle(timers, timers->count, exchange);
    return KL_OK;
}

void kl_timers_remove(kl_timers *timers, kl_exchange *exchange) {
    size_t place = exchange->timer_place;
    if (place == 0) return;
    exchange->timer_place = 0;
    kl_exchange *last = timers->heap[--timers->count];
    if (last != exchange) settle(timers, place, last);
}

kl_exchange *kl_timers_first(const kl_timers *timers) {
    return timers->count ? timers->heap[0] : NULL;
}
