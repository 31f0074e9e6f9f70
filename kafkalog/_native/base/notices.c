/* notices.c: see notices.h. */
#include "notices.h"

void kl_notices_init(kl_notices *all, void *kept, size_t item_bytes, uint32_t room) {
    KL_ASSERT(room > 0 && item_bytes > 0);
    *all = (kl_notices){.kept = kept, .item_bytes = item_bytes, .room = room};
    pthread_mutex_init(&all->lock, NULL);
    kl_cond_init(&all->some);
}

void kl_notices_free(kl_notices *all) {
    pthread_cond_destroy(&all->some);
    pthread_mutex_destroy(&all->lock);
}

/* The n-th of those that wait, or the first free place. */
static uint8_t *place(const kl_notices *all, uint32_t n) {
    KL_ASSERT(all->first < all->room && n < all->room);
    return all->kept + (all->first + n) % all->room * all->item_bytes;
}

static bool waits(const kl_notices *all, const void *item) {
    KL_ASSERT_HELD(&all->lock);
    for (uint32_t n = 0; n < all->count; n++)
        if (memcmp(place(all, n), item, all->item_bytes) == 0) return true;
    return false;
}

static bool put(kl_notices *all, const void *item, bool once) {
    kl_lock(&all->lock);
    bool repeated = once && waits(all, item);
    bool kept = !repeated && all->count < all->room;
    if (kept) {
        memcpy(place(all, all->count), item, all->item_bytes);
        all->count++;
        pthread_cond_signal(&all->some);
    } else if (!repeated) {
        all->lost++;
    }
    kl_unlock(&all->lock);
    return kept;
}

bool kl_notices_put(kl_notices *all, const void *item) { return put(all, item, false); }

bool kl_notices_put_once(kl_notices *all, const void *item) { return put(all, item, true); }

kl_status kl_notices_take(kl_notices *all, int32_t timeout_ms, void *out, int64_t *lost) {
    int64_t until_ms = kl_monotonic_ms() + timeout_ms;
    int64_t left_ms;
    kl_status status = KL_OK;
    kl_lock(&all->lock);
    while (!all->closed && all->count == 0 && (left_ms = until_ms - kl_monotonic_ms()) > 0)
        kl_cond_wait_ms(&all->some, &all->lock, left_ms);
    if (all->closed) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else if (all->count == 0)
        status = kl_fail(KL_E_TIMEOUT, "nothing came in %d ms", timeout_ms);
    else {
        memcpy(out, place(all, 0), all->item_bytes);
        all->first = (all->first + 1) % all->room;
        all->count--;
        if (lost) *lost = all->lost;
        all->lost = 0;
    }
    kl_unlock(&all->lock);
    return status;
}

void kl_notices_close(kl_notices *all) {
    kl_lock(&all->lock);
    all->closed = true;
    pthread_cond_broadcast(&all->some);
    kl_unlock(&all->lock);
}
