/* leaders.h: the current leaders of the partitions that a response rejects, and the endpoints of
 * these nodes on the client's listener.  KIP-951. */
#ifndef KL_LEADERS_H
#define KL_LEADERS_H

#include "net/request.h"
#include "replica/replica.h"

/* Endpoints of the nodes, by listener. */
typedef struct kl_listener_places kl_listener_places;
typedef struct {
    pthread_mutex_t lock; /* guards the list and its contents */
    kl_listener_places *first;
} kl_places;

void kl_places_init(kl_places *places); /* zeroed by the caller */
void kl_places_free(kl_places *places);
/* Replace a listener's endpoints.  KL_E_ARGUMENT, KL_E_NO_MEMORY: unchanged. */
kl_status kl_places_set(kl_places *places, int32_t listener, const kl_endpoint *endpoints,
                        int32_t count);

enum {
    KL_LEADERS_MAX = 32, /* endpoints per answer */
    KL_LEADER_BYTES = 11 /* size of the field that names a partition's leader */
};

/* The nodes named in an answer. */
typedef struct {
    int32_t nodes[KL_LEADERS_MAX];
    int32_t count; /* initially 0 */
} kl_leaders;

typedef struct {
    int32_t node; /* -1: unknown */
    int32_t epoch;
} kl_leader;

/* True if this error includes the current leader. */
bool kl_leader_is_told(int16_t code);
/* The partition's leader, as node `self` knows it. */
kl_leader kl_leader_of(const kl_replica *replica, int32_t self);
/* Write it as a tagged field. */
uint8_t *kl_leaders_put(kl_leaders *leaders, kl_leader leader, uint32_t tag, uint8_t *p);
/* Write the answer's tagged fields: the endpoints of the named nodes, if set for the listener.
 * False: no memory. */
bool kl_leaders_end(const kl_leaders *leaders, kl_places *places, kl_request *request);

#endif
