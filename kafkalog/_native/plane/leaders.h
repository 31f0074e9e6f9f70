/* leaders.h: the current leaders of the partitions that a response rejects, and the endpoints of
 * these nodes on the client's listener.  KIP-951. */
#ifndef KL_LEADERS_H
#define KL_LEADERS_H

#include "net/request.h"
#include "replica/replica.h"

/* Where the nodes are, by listeners. */
typedef struct kl_listener_places kl_listener_places;
typedef struct {
    pthread_mutex_t lock; /* guards the list and all in it */
    kl_listener_places *first;
} kl_places;

void kl_places_init(kl_places *places); /* zeroed before */
void kl_places_free(kl_places *places);
/* Those of a listener, in place of what it had.  KL_E_ARGUMENT, KL_E_NO_MEMORY: nothing is
 * changed. */
kl_status kl_places_set(kl_places *places, int32_t listener, const kl_endpoint *endpoints,
                        int32_t count);

enum {
    KL_LEADERS_MAX = 32, /* nodes of which one answer says where they are */
    KL_LEADER_BYTES = 11 /* of the field that names a partition's leader */
};

/* The nodes that one answer names. */
typedef struct {
    int32_t nodes[KL_LEADERS_MAX];
    int32_t count; /* 0 at first */
} kl_leaders;

typedef struct {
    int32_t node; /* -1: it is not known */
    int32_t epoch;
} kl_leader;

/* Whether an error is answered with the leader. */
bool kl_leader_is_told(int16_t code);
/* The leader of a partition, as `self` knows it. */
kl_leader kl_leader_of(const kl_replica *replica, int32_t self);
/* Put it as a tagged field. */
uint8_t *kl_leaders_put(kl_leaders *leaders, kl_leader leader, uint32_t tag, uint8_t *p);
/* Put the tagged fields of a whole answer: the endpoints of the nodes that it named, as far as
 * they are set for the listener.  False: no memory. */
bool kl_leaders_end(const kl_leaders *leaders, kl_places *places, kl_request *request);

#endif
