/* exchange.h: one request, from its last byte read to its last response byte sent. */
#ifndef KL_EXCHANGE_H
#define KL_EXCHANGE_H

#include "base/list.h"
#include "frame.h"
#include "pool.h"
#include "post.h"
#include "request.h"
#include "timers.h"

typedef struct kl_thread kl_thread;
typedef struct kl_exchange kl_exchange;

typedef enum {
    KL_WHOLE,     /* read, not run yet */
    KL_WAITS,     /* parked */
    KL_WAITS_ON,  /* parked, Produce requests behind it may run */
    KL_STALLED,   /* for a place in the queue to Python */
    KL_IN_PYTHON, /* queued, or taken */
    KL_ANSWERED   /* its response goes out when its turn comes */
} kl_exchange_state;

typedef enum {
    KL_ANSWER,
    KL_AGAIN,
    KL_AGAIN_UNHEARD, /* and its connection is closed in place of the answer */
    KL_CLOSE
} kl_outcome; /* what Python said */

/* A piece of a file behind memory_end bytes of a response's memory. */
typedef struct {
    kl_slice slice;
    size_t memory_end;
} kl_part;

struct kl_exchange {
    kl_request request; /* first: a kl_request is the kl_exchange that it is part of */
    kl_thread *owner;
    const kl_kind *kind; /* NULL: Python's */
    kl_chunk *frame;
    kl_exchange_state state;
    kl_exchange *next; /* of the same connection; or free */
    kl_timer timer;
    kl_link queue;    /* up.c, under its lock; or the thread's stalled ones */
    uint32_t slot;    /* up.c: of a taken one */
    kl_letter answer; /* in flight from Python to the thread: the side that has it */
    kl_outcome outcome;
    kl_letter wake;
    _Atomic(bool) wake_posted;
    _Atomic(bool) read; /* Python no longer needs the frame, and posted a wake to say so */
    bool ended; /* only its wake is still in flight: it is freed when that arrives */

    kl_buffer memory; /* of the response, from its size field on */
    kl_part *parts;
    size_t part_count;
    size_t part_capacity;
    size_t parts_bytes; /* of all parts */
    size_t sent;        /* of the memory */
    size_t part_index;  /* of the part that goes out next */
    size_t part_sent;   /* of it */

    bool cold;       /* the part that goes out next is being brought into memory */
    size_t warm_end; /* of that part: what is in memory, as far as was looked */
    kl_warming warming;
    kl_letter warm; /* it is there, or cannot be had */
};

/* Of a whole frame, which it takes; NULL: no memory, the frame is given back. */
kl_exchange *kl_exchange_new(kl_conn *conn, kl_chunk *frame, const kl_header *header);
/* Run it, or pass it to Python; its state is the result.  False: close the connection. */
bool kl_exchange_run(kl_exchange *exchange);
/* Run it as if its deadline had passed. */
bool kl_exchange_expire(kl_exchange *exchange);
/* What Python said. */
bool kl_exchange_answered(kl_exchange *exchange);
/* It was woken while Python has it: free its frame once Python has read it. */
void kl_exchange_was_read(kl_exchange *exchange);
/* The connection is closed: no response is wanted any more. */
void kl_exchange_cancel(kl_exchange *exchange);
/* It has ended, it is in no list any more. */
void kl_exchange_end(kl_exchange *exchange);
void kl_exchange_free(kl_exchange *exchange);
/* Whether the next bytes of its part are in memory; if not, it is `cold` until kl_warmed. */
bool kl_exchange_warm(kl_exchange *exchange, size_t bytes);

#endif
