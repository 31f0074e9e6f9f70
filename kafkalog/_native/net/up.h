/* up.h: requests passed to Python, and back. */
#ifndef KL_UP_H
#define KL_UP_H

#include "exchange.h"

typedef struct {
    kl_exchange *exchange; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* counted from 1 */
} kl_slot;

typedef struct {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t some;
    kl_link control; /* served first */
    kl_link data;
    int32_t control_count;
    int32_t data_count;
    int32_t count_max; /* of each */
    bool wanted;       /* a thread has requests that found no room */
    bool closed;
    kl_thread *threads; /* notified of room; never changed, as are */
    const _Atomic int32_t *thread_count;
    int32_t control_listener;
    kl_slot *slots; /* of what was taken */
    uint32_t slot_count;
    uint32_t free_slot; /* counted from 1; 0: none */
} kl_up;

/* Whose lock and lists are there; threads and numbers are set by the caller. */
void kl_up_init(kl_up *up);
/* One that is still queued or taken, out of all lists; NULL: none is left. */
kl_exchange *kl_up_left(kl_up *up);
void kl_up_free(kl_up *up);
/* False: it is full, or earlier ones that found no room come first; the threads are notified when
 * there is room.  `again`: this call follows that notification. */
bool kl_up_push(kl_up *up, kl_exchange *exchange, bool again);
/* Take it back; false: Python has it. */
bool kl_up_cancel(kl_up *up, kl_exchange *exchange);
void kl_up_close(kl_up *up);
int64_t kl_up_count(kl_up *up);

/* The calls of server.h of like names. */
kl_status kl_up_take(kl_up *up, int32_t timeout_ms, kl_request_info *out);
kl_status kl_up_answer(kl_up *up, uint64_t id, const uint8_t *body, size_t bytes,
                       int32_t header_version);
kl_status kl_up_again(kl_up *up, uint64_t id, bool heard);
/* Python still has it, and no longer needs its bytes. */
kl_status kl_up_read(kl_up *up, uint64_t id);
kl_status kl_up_drop(kl_up *up, uint64_t id);

#endif
