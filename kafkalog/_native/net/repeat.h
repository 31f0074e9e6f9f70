/* repeat.h: an answer that a connection's next request gets without Python, if it is the same
 * request: most heartbeats say what the one before them said. */
#ifndef KL_REPEAT_H
#define KL_REPEAT_H

#include "clock.h"
#include "request.h"

/* Of two holders, the connection and Python, which may have it long after the connection.
 * Immutable, except the first three, and `data`, which is the connection's alone. */
struct kl_repeat {
    _Atomic int32_t holders;
    atomic_bool ended;
    _Atomic int64_t heard_ms; /* when the same request last came, by the clock; -1: never */
    kl_clock *clock;
    uint64_t mark; /* see kl_server_repeat_mark */
    int32_t principal;
    size_t request_bytes;
    size_t answer_bytes;
    uint8_t *data; /* the request without its correlation id, and the body of the answer */
};

/* For a request that Python has, by the thread that answers it, and the body of its answer; with
 * two holders.  The frame must be unread (see kl_up_read): of one that was read, the network thread
 * may release the memory at any time.  NULL: no memory, or they are too large to be kept. */
kl_repeat *kl_repeat_new(const kl_request *request, kl_span answer, uint64_t mark,
                         kl_clock *clock);
/* Python, or the connection, holds it no longer.  NULL is fine. */
void kl_repeat_drop(kl_repeat *repeat);
void kl_repeat_leave(kl_repeat *repeat);
/* Answers the connection's request if it is the same, or passes it to Python. */
extern const kl_kind kl_repeats;

#endif
