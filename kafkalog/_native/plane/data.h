/* data.h: what the fast path knows: the partitions of this server and the fetch sessions,
 * and the memory that each network thread keeps for its requests. */
#ifndef KL_DATA_H
#define KL_DATA_H

#include "net/codec.h"
#include "codes.h"
#include "net/request.h"
#include "session.h"
#include "topics.h"

/* More in one request closes the connection: what a partition takes here is many times what
 * it takes in the frame. */
enum { KL_REQUEST_PARTITIONS_MAX = 100000 };

typedef struct kl_produce kl_produce;
typedef struct kl_fetch kl_fetch;

/* A network thread's own. */
typedef struct {
    kl_produce *produces; /* free ones */
    kl_fetch *fetches;
    int32_t produce_count;
    int32_t fetch_count;
    size_t parked_bytes; /* of large frames that wait: fetch.c */
} kl_lane;

typedef struct kl_endpoint kl_endpoint;
struct kl_endpoint {
    kl_endpoint *next;
    int32_t listener;
    int32_t port;
    char host[256];
    char rack[256];
    bool has_rack;
};

struct kl_data {
    kl_server *server;
    kl_topics *topics;
    kl_sessions *sessions;
    kl_lane *lanes; /* by kl_request.thread */
    int32_t lane_count;
    pthread_mutex_t lock; /* guards the list; an endpoint is never freed before the end */
    kl_endpoint *endpoints;
};

static inline kl_lane *kl_lane_of(const kl_request *request) {
    return &kl_server_data(request->server)->lanes[request->thread];
}
/* That of a listener; false when it was not told.  Takes data->lock. */
bool kl_data_endpoint(kl_data *data, int32_t listener, kl_endpoint *out);

/* A reader over the request's body. */
static inline kl_in kl_request_body(const kl_request *request, bool flexible) {
    return (kl_in){request->data + request->body_pos, request->data + request->bytes,
                   flexible, false};
}

void kl_produces_free(kl_produce *list);
void kl_fetches_free(kl_fetch *list);

#endif
