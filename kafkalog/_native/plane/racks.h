/* racks.h: which nodes are in a consumer's rack, for a leader that sends it to the replica
 * there.  KIP-392. */
#ifndef KL_RACKS_H
#define KL_RACKS_H

#include <pthread.h>

#include "base/bytes.h"
#include "kafkalog.h"

typedef struct {
    pthread_mutex_t lock; /* guards the list */
    kl_rack *list;
    _Atomic int32_t count; /* 0: no consumer is sent elsewhere */
} kl_racks;

void kl_racks_init(kl_racks *racks); /* zeroed before */
void kl_racks_free(kl_racks *racks);
/* Replace them.  KL_E_ARGUMENT, KL_E_NO_MEMORY: nothing is changed. */
kl_status kl_racks_set(kl_racks *racks, const kl_rack *places, int32_t count);
/* The nodes of a rack, at most `room`; none where `self` is one of them, or no rack is named. */
int32_t kl_racks_find(kl_racks *racks, kl_span rack, int32_t self, int32_t *out,
                      int32_t room);

#endif
