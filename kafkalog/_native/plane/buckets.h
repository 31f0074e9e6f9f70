/* buckets.h: quotas of clients.
 *
 * A bucket counts what the clients that share a quota use: bytes of Produce requests, bytes of
 * fetched records, or nanoseconds of threads.  Python decides which buckets a client has, when its
 * connection first needs them and again after every change (`version`).  Counting takes no lock. */
#ifndef KL_BUCKETS_H
#define KL_BUCKETS_H

#include "base/rate.h"
#include "net/request.h"

typedef struct kl_buckets kl_buckets;

/* As in kl_server_config. */
kl_status kl_buckets_new(int32_t windows, int64_t window_ms, kl_buckets **out);
void kl_buckets_free(kl_buckets *buckets); /* NULL is fine */
/* As kl_server_set_quota_version, _set_bucket, _charge. */
void kl_buckets_set_version(kl_buckets *buckets, uint32_t version);
kl_status kl_buckets_set(kl_buckets *buckets, int32_t place, double limit, bool renew,
                         uint64_t *bucket);
int32_t kl_buckets_charge(kl_buckets *buckets, uint64_t bucket, int64_t amount,
                          int64_t now_ms);
int64_t kl_buckets_used_ms(const kl_buckets *buckets, uint64_t bucket);
/* The most that can be used without waiting: INT64_MAX, no limit. */
int64_t kl_buckets_most(const kl_buckets *buckets, uint64_t bucket);

/* ---- a request's ------------------------------------------------------------------------- */

/* What a request is charged to, and how long threads have worked on it. */
typedef struct {
    uint64_t buckets[KL_QUOTAS]; /* 0: none */
    int64_t begin_ns;            /* of this run; 0: not measured */
    int64_t spent_ns;            /* in earlier runs */
} kl_charge;

/* Look up the buckets of the request's client.  False: Python must tell them first. */
bool kl_charge_find(const kl_buckets *buckets, kl_request *request, kl_charge *charge);
/* A later run begins, or one ends. */
static inline void kl_charge_begin(kl_charge *charge) {
    if (KL_UNLIKELY(charge->buckets[KL_QUOTA_REQUEST]))
        charge->begin_ns = kl_monotonic_ns();
}
static inline void kl_charge_pause(kl_charge *charge) {
    if (KL_UNLIKELY(charge->begin_ns))
        charge->spent_ns += kl_monotonic_ns() - charge->begin_ns;
    charge->begin_ns = 0;
}
static inline bool kl_charge_any(const kl_charge *charge) {
    return charge->buckets[KL_QUOTA_PRODUCE] || charge->buckets[KL_QUOTA_FETCH] ||
           charge->buckets[KL_QUOTA_REQUEST];
}
/* Charge a complete request: `bytes` to the bucket `kind`, and its time if `timed`.  Returns how
 * long its connection is muted.  `withholds`: above a limit the
 * bytes are not sent, and not charged. */
int32_t kl_charge_end(kl_buckets *buckets, kl_charge *charge, int32_t kind, int64_t bytes,
                      bool timed, bool withholds, int64_t now_ms);

#endif
