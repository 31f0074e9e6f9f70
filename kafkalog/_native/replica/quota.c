/* quota.c: see quota.h. */
#include "quota.h"

enum { WINDOWS_MAX = 100000 };

kl_status kl_quota_new(int32_t windows, int64_t window_ms, kl_quota **out) {
    *out = NULL;
    if (windows < 1 || windows > WINDOWS_MAX || window_ms < 1 ||
        window_ms > INT32_MAX * 1000LL)
        return kl_fail(KL_E_ARGUMENT,
                       "a quota of %d windows of %lld ms, wanted 1 to %d of 1 or more",
                       windows, (long long)window_ms, WINDOWS_MAX);
    kl_quota *quota = kl_alloc(sizeof *quota + (size_t)windows * sizeof *quota->ring);
    if (quota == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a quota");
    atomic_store(&quota->rate, INT64_MAX);
    quota->windows = windows;
    quota->window_ms = window_ms;
    pthread_mutex_init(&quota->lock, NULL);
    *out = quota;
    return KL_OK;
}

void kl_quota_free(kl_quota *quota) {
    if (quota == NULL) return;
    pthread_mutex_destroy(&quota->lock);
    kl_release(quota);
}

void kl_quota_set_rate(kl_quota *quota, int64_t rate) { atomic_store(&quota->rate, rate); }

static kl_quota_window *window(kl_quota *quota, int32_t behind_first) {
    return &quota->ring[(quota->first + behind_first) % quota->windows];
}

/* Locked.  Drop windows that are too old to count. */
static void forget(kl_quota *quota, int64_t now_ms) {
    KL_ASSERT_HELD(&quota->lock);
    int64_t kept_ms = quota->windows * quota->window_ms;
    while (quota->count > 0 && now_ms - window(quota, 0)->start_ms >= kept_ms) {
        quota->first = (quota->first + 1) % quota->windows;
        quota->count--;
    }
}

void kl_quota_count(kl_quota *quota, int64_t bytes, int64_t now_ms) {
    kl_lock(&quota->lock);
    forget(quota, now_ms);
    kl_quota_window *last = quota->count ? window(quota, quota->count - 1) : NULL;
    /* There is space: windows are at least window_ms apart, and old ones were dropped. */
    if (last == NULL || now_ms - last->start_ms >= quota->window_ms) {
        KL_ASSERT(quota->count < quota->windows);
        last = window(quota, quota->count++);
        *last = (kl_quota_window){now_ms, 0};
    }
    last->bytes += bytes;
    kl_unlock(&quota->lock);
}

int kl_quota_exceeded(kl_quota *quota, int64_t now_ms) {
    int64_t rate = atomic_load(&quota->rate), bytes = 0, since_ms = 0;
    if (rate == INT64_MAX) return 0;
    kl_lock(&quota->lock);
    forget(quota, now_ms);
    if (quota->count) since_ms = now_ms - window(quota, 0)->start_ms;
    for (int32_t i = 0; i < quota->count; i++) bytes += window(quota, i)->bytes;
    kl_unlock(&quota->lock);
    return (double)bytes * 1000 > (double)rate * (double)KL_MAX(since_ms, quota->window_ms);
}
