/* timers.c: a binary heap; each timer stores its index. */
#include "timers.h"

static void put(kl_timers *timers, size_t place, kl_timer *timer) {
    timers->heap[place - 1] = timer;
    timer->place = place;
}

static int64_t due(const kl_timers *timers, size_t place) {
    return timers->heap[place - 1]->due_ms;
}

/* Sift `timer` from `place` up, then down. */
static void settle(kl_timers *timers, size_t place, kl_timer *timer) {
    for (; place > 1 && due(timers, place / 2) > timer->due_ms; place /= 2)
        put(timers, place, timers->heap[place / 2 - 1]);
    for (;;) {
        size_t child = place * 2;
        if (child > timers->count) break;
        if (child < timers->count && due(timers, child + 1) < due(timers, child)) child++;
        if (due(timers, child) >= timer->due_ms) break;
        put(timers, place, timers->heap[child - 1]);
        place = child;
    }
    put(timers, place, timer);
}

kl_status kl_timers_add(kl_timers *timers, kl_timer *timer, int64_t due_ms) {
    KL_ASSERT(timer->place == 0);
    kl_timer **heap =
        kl_room_for(timers->heap, &timers->capacity, timers->count + 1, sizeof(kl_timer *));
    if (heap == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu timers", timers->count + 1);
    timers->heap = heap;
    timer->due_ms = due_ms;
    timers->count++;
    settle(timers, timers->count, timer);
    return KL_OK;
}

void kl_timers_remove(kl_timers *timers, kl_timer *timer) {
    size_t place = timer->place;
    if (place == 0) return;
    KL_ASSERT(place <= timers->count && timers->heap[place - 1] == timer);
    timer->place = 0;
    kl_timer *last = timers->heap[--timers->count];
    if (last != timer) settle(timers, place, last);
}

kl_timer *kl_timers_first(const kl_timers *timers) {
    return timers->count ? timers->heap[0] : NULL;
}

void kl_timers_free(kl_timers *timers) {
    kl_release(timers->heap);
    *timers = (kl_timers){0};
}
