/* buckets.c: see buckets.h. */
#include "buckets.h"

#include "base/hash.h"

enum {
    PLACES_MAX = 16384,   /* buckets; Python evicts the least recently used */
    BYTES_MAX = 16 << 20, /* of all, if they have many windows */
    PER_CHUNK = 256,      /* allocated together, when first set */
    CHUNKS_MAX = PLACES_MAX / PER_CHUNK
};

typedef struct {
    _Atomic uint32_t generation; /* of the owner; a reference to an earlier one is void */
    _Atomic(double) limit;       /* per second */
    kl_rate rate;
} bucket;

struct kl_buckets {
    kl_rate_span span;
    size_t stride; /* bytes of a bucket */
    int32_t count_max;
    _Atomic uint32_t version; /* 0: no client has a quota */
    pthread_mutex_t setting;
    /* Set once, under the lock.  They live as long as this, so readers need none. */
    _Atomic(uint8_t *) chunks[CHUNKS_MAX];
};

kl_status kl_buckets_new(int32_t windows, int64_t window_ms, kl_buckets **out) {
    *out = NULL;
    if (windows < 1 || windows > KL_RATE_WINDOWS_MAX || window_ms < 1)
        return kl_fail(KL_E_ARGUMENT, "%d windows of %lld ms, wanted 1 to %d of 1 or more",
                       windows, (long long)window_ms, KL_RATE_WINDOWS_MAX);
    kl_buckets *buckets = kl_alloc(sizeof *buckets);
    if (buckets == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for quotas");
    buckets->span = (kl_rate_span){windows, window_ms};
    buckets->stride = offsetof(bucket, rate) + kl_rate_bytes(&buckets->span);
    buckets->count_max =
        (int32_t)KL_MIN((size_t)PLACES_MAX, (size_t)BYTES_MAX / buckets->stride);
    pthread_mutex_init(&buckets->setting, NULL);
    *out = buckets;
    return KL_OK;
}

void kl_buckets_free(kl_buckets *buckets) {
    if (buckets == NULL) return;
    for (size_t i = 0; i < CHUNKS_MAX; i++) kl_release(atomic_load(&buckets->chunks[i]));
    pthread_mutex_destroy(&buckets->setting);
    kl_release(buckets);
}

void kl_buckets_set_version(kl_buckets *buckets, uint32_t version) {
    atomic_store(&buckets->version, version);
}

/* NULL: never set. */
static bucket *at(const kl_buckets *buckets, int32_t place) {
    uint8_t *chunk =
        atomic_load_explicit(&buckets->chunks[place / PER_CHUNK], memory_order_acquire);
    if (chunk == NULL) return NULL;
    return (bucket *)(void *)(chunk + (size_t)(place % PER_CHUNK) * buckets->stride);
}

/* NULL: none, or its owner is another one now. */
static bucket *find(const kl_buckets *buckets, uint64_t reference) {
    uint32_t place = (uint32_t)reference;
    if (place == 0 || place > (uint32_t)buckets->count_max) return NULL;
    bucket *found = at(buckets, (int32_t)(place - 1));
    if (found == NULL || atomic_load_explicit(&found->generation, memory_order_relaxed) !=
                             (uint32_t)(reference >> 32))
        return NULL;
    return found;
}

/* Locked.  NULL: no memory. */
static bucket *obtain(kl_buckets *buckets, int32_t place) {
    KL_ASSERT_HELD(&buckets->setting);
    if (at(buckets, place) == NULL) {
        uint8_t *chunk = kl_alloc(PER_CHUNK * buckets->stride);
        if (chunk == NULL) return NULL;
        atomic_store_explicit(&buckets->chunks[place / PER_CHUNK], chunk,
                              memory_order_release);
    }
    return at(buckets, place);
}

kl_status kl_buckets_set(kl_buckets *buckets, int32_t place, double limit, bool renew,
                         uint64_t *reference) {
    if (place < 0 || place >= buckets->count_max)
        return kl_fail(KL_E_ARGUMENT, "bucket %d is out of range: 0 to %d are accepted",
                       place, buckets->count_max - 1);
    if (!(limit > 0))
        return kl_fail(KL_E_ARGUMENT, "the limit %g, wanted more than 0", limit);
    kl_lock(&buckets->setting);
    bucket *one = obtain(buckets, place);
    if (one) {
        uint32_t generation = atomic_load(&one->generation);
        if (renew || generation == 0) {
            generation = generation == UINT32_MAX ? 1 : generation + 1;
            atomic_store(&one->generation, generation);
            kl_rate_clear(&one->rate, &buckets->span);
        }
        atomic_store(&one->limit, limit);
        *reference = (uint64_t)generation << 32 | ((uint32_t)place + 1);
    }
    kl_unlock(&buckets->setting);
    return one ? KL_OK : kl_fail(KL_E_NO_MEMORY, "no memory for quotas");
}

static int32_t wait_ms(const kl_buckets *buckets, bucket *one, int64_t now_ms) {
    double limit = atomic_load_explicit(&one->limit, memory_order_relaxed);
    return kl_rate_wait_ms(&one->rate, &buckets->span, limit, now_ms);
}

int32_t kl_buckets_charge(kl_buckets *buckets, uint64_t reference, int64_t amount,
                          int64_t now_ms) {
    bucket *one = find(buckets, reference);
    if (one == NULL) return 0;
    kl_rate_add(&one->rate, &buckets->span, amount, now_ms);
    return wait_ms(buckets, one, now_ms);
}

int64_t kl_buckets_used_ms(const kl_buckets *buckets, uint64_t reference) {
    bucket *one = find(buckets, reference);
    return one ? atomic_load(&one->rate.used_ms) : -1;
}

int64_t kl_buckets_most(const kl_buckets *buckets, uint64_t reference) {
    bucket *one = find(buckets, reference);
    if (one == NULL) return INT64_MAX;
    double seconds = (double)((buckets->span.windows - 1) * buckets->span.window_ms) / 1000;
    double most = atomic_load_explicit(&one->limit, memory_order_relaxed) * seconds;
    return most < (double)INT32_MAX ? (int64_t)most : INT64_MAX;
}

/* ---- a request's ------------------------------------------------------------------------- */

bool kl_charge_find(const kl_buckets *buckets, kl_request *request, kl_charge *charge) {
    *charge = (kl_charge){0};
    uint32_t version = atomic_load_explicit(&buckets->version, memory_order_relaxed);
    if (KL_LIKELY(version == 0)) return true;
    kl_client *client = request->client;
    uint64_t key = kl_hash_pair((uint64_t)request->principal, request->client_id.data,
                                request->client_id.bytes);
    bool known = client->version == version && client->key == key;
    for (int i = 0; known && i < KL_QUOTAS; i++)
        known = client->buckets[i] == 0 || find(buckets, client->buckets[i]);
    if (KL_UNLIKELY(!known)) {
        client->key = key;
        request->why = KL_UP_QUOTA;
        return false;
    }
    memcpy(charge->buckets, client->buckets, sizeof charge->buckets);
    kl_charge_begin(charge);
    return true;
}

int32_t kl_charge_end(kl_buckets *buckets, kl_charge *charge, int32_t kind, int64_t bytes,
                      bool timed, bool withholds, int64_t now_ms) {
    kl_charge_pause(charge);
    int32_t of_time = 0, of_bytes = 0;
    if (timed && charge->buckets[KL_QUOTA_REQUEST]) {
        of_time = kl_buckets_charge(buckets, charge->buckets[KL_QUOTA_REQUEST],
                                    charge->spent_ns, now_ms);
        of_time = (int32_t)KL_MIN((int64_t)of_time, buckets->span.window_ms);
    }
    if (charge->buckets[kind])
        of_bytes = kl_buckets_charge(buckets, charge->buckets[kind], bytes, now_ms);
    int32_t muted_ms = KL_MAX(of_time, of_bytes);
    if (muted_ms > 0 && withholds && charge->buckets[kind])
        kl_buckets_charge(buckets, charge->buckets[kind], -bytes, now_ms);
    return muted_ms;
}
