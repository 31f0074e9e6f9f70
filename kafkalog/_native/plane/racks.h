/* racks.h: the nodes of each rack, so that a leader can send a consumer to a replica in its own.
 * KIP-392. */
#ifndef KL_RACKS_H
#define KL_RACKS_H

#include <pthread.h>

#include "base/bytes.h"
#include "kafkalog.h"

typedef struct {
    pthread_mutex_t lock; /* guards the list */
    kl_rack *list;
    _Atomic int32_t count; /* 0: consumers stay at the leader */
} kl_racks;

void kl_racks_init(kl_racks *racks); /* zeroed by the caller */
void kl_racks_free(kl_racks *racks);
/* Replace the list.  KL_E_ARGUMENT, KL_E_NO_MEMORY: unchanged. */
kl_status kl_racks_set(kl_racks *racks, const kl_rack *places, int32_t count);
/* The nodes of a rack, at most `room`; none if `self` is in it, or no rack is named. */
int32_t kl_racks_find(kl_racks *racks, kl_span rack, int32_t self, int32_t *out,
                      int32_t room);

#endif
