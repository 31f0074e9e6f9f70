/* exchange.h: one request, from its last byte received to its last response byte sent. */
#ifndef KL_EXCHANGE_H
#define KL_EXCHANGE_H

#include "base/list.h"
#include "frame.h"
#include "pool.h"
#include "post.h"
#include "request.h"
#include "timers.h"
#include "times.h"

typedef struct kl_thread kl_thread;
typedef struct kl_exchange kl_exchange;

typedef enum {
    KL_WHOLE,     /* complete, not started */
    KL_WAITS,     /* parked */
    KL_WAITS_ON,  /* parked; Produce requests after it may run */
    KL_STALLED,   /* waiting for space in the queue to Python */
    KL_IN_PYTHON, /* queued, or taken */
    KL_DELAYED,   /* its response is complete, and waits for its timer */
    KL_ANSWERED   /* its response is sent in its turn */
} kl_exchange_state;

typedef enum {
    KL_ANSWER,
    KL_AGAIN,
    KL_AGAIN_UNHEARD, /* and close its connection instead of answering */
    KL_REFUSE,        /* answer later, and then close its connection */
    KL_RESOLVED,      /* its client is known now: run it as if it had just arrived */
    KL_CLOSE
} kl_outcome; /* Python's answer */

/* A slice of a file after memory_end bytes of a response's memory. */
typedef struct {
    kl_slice slice;
    size_t memory_end;
} kl_part;

/* A connection's client, as Python found out. */
typedef struct {
    bool known;         /* otherwise it is as before */
    int32_t principal;  /* as in kl_server_set_principal */
    int64_t expires_ms; /* after the answer; -1: never */
} kl_authentication;

struct kl_exchange {
    kl_request request; /* first: kl_request pointers are cast to kl_exchange */
    kl_thread *owner;
    const kl_kind *kind; /* NULL: Python handles it */
    kl_times times;
    kl_chunk *frame;
    kl_exchange_state state;
    kl_exchange *next; /* of the same connection, or in the free list */
    kl_timer timer;
    kl_link queue;    /* up.c, under its lock; or the thread's stalled requests */
    uint32_t slot;    /* up.c: if taken */
    kl_letter answer; /* in flight from Python to the thread */
    kl_outcome outcome;
    kl_authentication authenticated; /* set by Python before the answer */
    bool holds;                      /* its principal, as its connection is gone */
    int64_t delay_ms;                /* of KL_REFUSE */
    int32_t throttled_ms;            /* as its request, once the answer is being sent */
    bool logged;                     /* if it takes long enough; set when it begins */
    int32_t client_id_bytes;         /* for the log of requests; -1: none */
    uint8_t client_id[128];
    kl_client client;  /* with KL_RESOLVED */
    kl_repeat *repeat; /* with KL_ANSWER: for its connection; NULL: none */
    kl_letter wake;
    _Atomic(bool) wake_posted;
    _Atomic(bool) read; /* Python no longer needs the frame, and has posted a wake */
    bool ended;         /* only its wake is in flight: freed when that arrives */

    kl_buffer memory; /* of the response, including its size field */
    kl_part *parts;
    size_t part_count;
    size_t part_capacity;
    size_t parts_bytes; /* of all parts */
    size_t sent;        /* bytes of the memory */
    size_t part_index;  /* the part to send next */
    size_t part_sent;   /* bytes of that part */

    bool cold;       /* the next part is being read into memory */
    size_t warm_end; /* end of its bytes known to be in memory */
    kl_warming warming;
    kl_letter warm; /* the part is in memory, or unavailable */
};

/* For a complete frame, which it takes; NULL: no memory, the frame is freed. */
kl_exchange *kl_exchange_new(kl_conn *conn, kl_chunk *frame, const kl_header *header);
/* Run it, or pass it to Python; see its state.  False: close the connection. */
bool kl_exchange_run(kl_exchange *exchange);
/* Run it as if its deadline had expired. */
bool kl_exchange_expire(kl_exchange *exchange);
/* Handle Python's answer. */
bool kl_exchange_answered(kl_exchange *exchange);
/* Handle a wake while Python has it: free the frame once Python has read it. */
void kl_exchange_was_read(kl_exchange *exchange);
/* The connection is closed: no response is needed. */
void kl_exchange_cancel(kl_exchange *exchange);
/* Free it; it is in no list. */
void kl_exchange_end(kl_exchange *exchange);
void kl_exchange_free(kl_exchange *exchange);
/* True if the next bytes of its part are in memory; otherwise it is `cold` until kl_warmed. */
bool kl_exchange_warm(kl_exchange *exchange, size_t bytes);

#endif
