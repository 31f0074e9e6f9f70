/* admit.c: see admit.h. */
#include "admit.h"

enum { RIGHTS_ALL = KL_MAY_READ | KL_MAY_WRITE | KL_MAY_REPLICATE };

typedef struct {
    _Atomic int32_t rights; /* KL_MAY_* */
    _Atomic int32_t throttle_ms;
    _Atomic int64_t produce_requests, produce_bytes;
    _Atomic int64_t fetch_requests, fetch_bytes;
    _Atomic int64_t denied;
} entry;

struct kl_admission {
    /* Set once, under the lock.  Entries live as long as the table, so readers need none. */
    _Atomic(entry *) entries[KL_PRINCIPALS_MAX];
    pthread_mutex_t setting;
};

kl_status kl_admission_new(kl_admission **out) {
    kl_admission *admission = *out = kl_alloc(sizeof *admission);
    if (admission == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a table of principals");
    pthread_mutex_init(&admission->setting, NULL);
    return KL_OK;
}

void kl_admission_free(kl_admission *admission) {
    if (admission == NULL) return;
    for (int32_t i = 0; i < KL_PRINCIPALS_MAX; i++)
        kl_release(atomic_load(&admission->entries[i]));
    pthread_mutex_destroy(&admission->setting);
    kl_release(admission);
}

static entry *find(const kl_admission *admission, int32_t principal) {
    if (principal < 0 || principal >= KL_PRINCIPALS_MAX) return NULL;
    return atomic_load_explicit(&admission->entries[principal], memory_order_acquire);
}

/* Locked.  NULL: no memory. */
static entry *obtain(kl_admission *admission, int32_t principal) {
    KL_ASSERT_HELD(&admission->setting);
    entry *one = find(admission, principal);
    if (one == NULL) {
        one = kl_alloc(sizeof *one);
        atomic_store_explicit(&admission->entries[principal], one, memory_order_release);
    }
    return one;
}

kl_status kl_admission_set(kl_admission *admission, int32_t principal,
                           const kl_permit *permit, bool *changed) {
    *changed = false;
    if (principal < 0 || principal >= KL_PRINCIPALS_MAX)
        return kl_fail(KL_E_ARGUMENT, "principal %d is out of range: 0 to %d are accepted",
                       principal, KL_PRINCIPALS_MAX - 1);
    if (permit->rights & ~RIGHTS_ALL || permit->throttle_ms < 0)
        return kl_fail(KL_E_ARGUMENT, "rights %#x or a throttle time of %d ms is invalid",
                       (unsigned)permit->rights, permit->throttle_ms);
    kl_lock(&admission->setting);
    entry *one = obtain(admission, principal);
    if (one) {
        *changed = atomic_exchange(&one->rights, permit->rights) != permit->rights;
        atomic_store(&one->throttle_ms, permit->throttle_ms);
    }
    kl_unlock(&admission->setting);
    return one ? KL_OK : kl_fail(KL_E_NO_MEMORY, "no memory for a principal");
}

kl_status kl_admission_usage(const kl_admission *admission, int32_t principal,
                             kl_usage *out) {
    entry *one = find(admission, principal);
    if (one == NULL) return kl_fail(KL_E_NOT_FOUND, "there is no principal %d", principal);
    *out = (kl_usage){
        .produce_requests = atomic_load(&one->produce_requests),
        .produce_bytes = atomic_load(&one->produce_bytes),
        .fetch_requests = atomic_load(&one->fetch_requests),
        .fetch_bytes = atomic_load(&one->fetch_bytes),
        .denied = atomic_load(&one->denied),
    };
    return KL_OK;
}

bool kl_admits(const kl_admission *admission, int32_t principal, int32_t right,
               const kl_topic_key *topic) {
    entry *one = find(admission, principal);
    (void)topic; /* rights apply to all topics so far */
    return one &&
           (atomic_load_explicit(&one->rights, memory_order_relaxed) & right) == right;
}

static void add(_Atomic int64_t *to, int64_t more) {
    atomic_fetch_add_explicit(to, more, memory_order_relaxed);
}

int32_t kl_admission_count(kl_admission *admission, int32_t principal, int32_t right,
                           int64_t bytes, int64_t denied) {
    entry *one = find(admission, principal);
    if (one == NULL) return 0;
    bool writes = right == KL_MAY_WRITE;
    add(writes ? &one->produce_requests : &one->fetch_requests, 1);
    add(writes ? &one->produce_bytes : &one->fetch_bytes, bytes);
    if (KL_UNLIKELY(denied > 0)) add(&one->denied, denied);
    return atomic_load_explicit(&one->throttle_ms, memory_order_relaxed);
}
