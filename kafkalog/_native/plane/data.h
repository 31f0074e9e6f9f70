/* data.h: the state of the fast path: a server's partitions and fetch sessions, and memory that
 * each network thread keeps for its requests. */
#ifndef KL_DATA_H
#define KL_DATA_H

#include "admit.h"
#include "base/notices.h"
#include "buckets.h"
#include "codes.h"
#include "cold.h"
#include "net/clock.h"
#include "leaders.h"
#include "net/codec.h"
#include "net/frame.h"
#include "racks.h"
#include "replica/quota.h"
#include "session.h"
#include "topics.h"

/* More in one request closes the connection: a partition takes far more memory here than in the
 * frame. */
enum { KL_REQUEST_PARTITIONS_MAX = 100000 };
/* Followers that may join an ISR, and wait for Python to take them. */
enum { KL_CAUGHT_UPS_MAX = 1024 };

typedef struct kl_produce kl_produce;
typedef struct kl_fetch kl_fetch;

/* Owned by a network thread. */
typedef struct {
    kl_produce *produces; /* free list */
    kl_fetch *fetches;
    int32_t produce_count;
    int32_t fetch_count;
    size_t parked_bytes; /* large waiting fetches: fetch.c */
    size_t cold_bytes;   /* produce requests waiting for the disk: produce.c */
    kl_count errors[KL_FAST_APIS][KL_ERROR_CODES]; /* see kl_server_get_errors */
} kl_lane;

typedef struct kl_data kl_data;
struct kl_data {
    const kl_server_config *config; /* the server's, as is the clock */
    kl_clock *clock;
    kl_cold cold;
    kl_notices caught_ups; /* kl_caught_up */
    kl_caught_up caught_ups_kept[KL_CAUGHT_UPS_MAX];
    kl_racks racks;
    kl_places places;
    kl_quota *quota; /* on bytes sent to out-of-sync followers */
    /* File slices in responses being sent: each keeps a file open. */
    _Atomic int64_t pinned;
    int64_t pinned_max;
    kl_topics *topics;
    kl_admission *admission;
    kl_buckets *buckets;
    kl_sessions *sessions;
    kl_lane *lanes; /* by kl_request.thread */
    int32_t lane_count;
};

/* For `threads` network threads; the arguments must outlive it. */
kl_status kl_data_new(const kl_server_config *config, kl_clock *clock, int32_t threads,
                      kl_data **out);
void kl_data_free(kl_data *data); /* NULL is fine */

/* A topic's partition, retained and entered; KL_E_NOT_FOUND.  `empty`: also one without a log. */
kl_status kl_data_enter(kl_data *data, const char *topic, int32_t partition, bool empty,
                        kl_replica **out);
void kl_data_leave(kl_replica *replica);
/* See kl_server_set_permit. */
kl_status kl_data_set_permit(kl_data *data, int32_t principal, const kl_permit *permit);
/* See kl_server_outdate_rules. */
kl_status kl_data_outdate_rules(kl_data *data, const kl_rules *common);
/* See kl_server_set_followers and kl_server_change_roles. */
kl_status kl_data_set_followers(kl_data *data, const char *topic, int32_t partition,
                                const kl_follower *followers, int32_t count);
kl_status kl_data_change_role(kl_data *data, const kl_role_change *change,
                              const kl_follower *followers);

/* Count one more slice until kl_data_unpin.  False: there are too many. */
bool kl_data_pin(kl_data *data);
/* Release a slice counted by kl_data_pin; nothing if it is empty. */
void kl_data_drop_slice(kl_data *data, kl_slice *slice);
void kl_data_unpin(kl_data *data);

static inline kl_data *kl_data_of(const kl_request *request) { return request->context; }
static inline int64_t kl_now_of(const kl_request *request) {
    return kl_clock_now(kl_data_of(request)->clock);
}
static inline int64_t kl_wall_of(const kl_request *request) {
    return kl_clock_wall(kl_data_of(request)->clock);
}
static inline kl_lane *kl_lane_of(const kl_request *request) {
    KL_TEST_ASSERT(request->thread >= 0 &&
                   request->thread < kl_data_of(request)->lane_count);
    return &kl_data_of(request)->lanes[request->thread];
}
/* Count a partition's result, or the whole request's. */
static inline void kl_count_error(const kl_request *request, int16_t code) {
    KL_STATIC_ASSERT(KL_API_PRODUCE == 0 && KL_API_FETCH == 1, "their keys are places");
    int32_t at = code < -1 || code >= KL_ERROR_CODES - 2 ? KL_ERROR_CODES - 1 : code + 1;
    kl_count_add(&kl_lane_of(request)->errors[request->api_key][at], 1);
}
/* A reader over the request's body. */
static inline kl_in kl_request_body(const kl_request *request, bool flexible) {
    return (kl_in){request->data + request->body_pos, request->data + request->bytes,
                   flexible, false};
}

#endif
