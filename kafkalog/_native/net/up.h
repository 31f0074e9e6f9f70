/* up.h: requests passed to Python, and their answers. */
#ifndef KL_UP_H
#define KL_UP_H

#include "exchange.h"

typedef struct {
    kl_exchange *exchange; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* counted from 1 */
} kl_slot;

typedef struct {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t some;
    kl_link control; /* served first */
    kl_link data;
    int32_t control_count;
    int32_t data_count;
    int32_t count_max; /* of each */
    bool wanted;       /* a thread has stalled requests */
    int64_t idle_ns;   /* of the threads that take requests: in kl_up_take, */
    int64_t ran_ns;    /* and altogether */
    bool closed;
    kl_thread *threads; /* notified of space; immutable, down to control_listener */
    const _Atomic int32_t *thread_count;
    int32_t control_listener;
    kl_slot *slots; /* taken requests */
    uint32_t slot_count;
    uint32_t free_slot; /* counted from 1; 0: none */
} kl_up;

/* Initialise lock and lists; the caller sets threads and numbers. */
void kl_up_init(kl_up *up);
/* Remove a request that is still queued or taken; NULL: none. */
kl_exchange *kl_up_left(kl_up *up);
void kl_up_free(kl_up *up);
/* False: full, or stalled requests come first; the threads are notified of space.  `again`: this
 * call follows a notification. */
bool kl_up_push(kl_up *up, kl_exchange *exchange, bool again);
/* Remove it from the queue; false: Python has it. */
bool kl_up_cancel(kl_up *up, kl_exchange *exchange);
void kl_up_close(kl_up *up);
int64_t kl_up_count(kl_up *up);
void kl_up_threads(kl_up *up, int64_t *idle_ns, int64_t *ran_ns);

/* The calls of server.h with similar names. */
kl_status kl_up_take(kl_up *up, int32_t timeout_ms, kl_request_info *out);
kl_status kl_up_answer(kl_up *up, uint64_t id, const uint8_t *body, size_t bytes,
                       int32_t header_version);
kl_status kl_up_again(kl_up *up, uint64_t id, bool heard);
/* Later answers identify its connection's client. */
kl_status kl_up_identify(kl_up *up, uint64_t id, int32_t principal, int64_t expires_ms);
/* As kl_server_answer_repeatedly. */
kl_status kl_up_answer_repeatedly(kl_up *up, uint64_t id, const kl_refusal *answer,
                                  uint64_t mark, kl_repeat **out);
kl_status kl_up_refuse(kl_up *up, uint64_t id, const kl_refusal *refusal);
kl_status kl_up_resolved(kl_up *up, uint64_t id, const kl_client *client);
kl_status kl_up_throttle(kl_up *up, uint64_t id, int32_t ms);
/* Python keeps it, but no longer needs its bytes. */
kl_status kl_up_read(kl_up *up, uint64_t id);
kl_status kl_up_drop(kl_up *up, uint64_t id);

#endif
