/* request.h: a request, and the interface of a handler.
 *
 * A request belongs to the network thread of its connection, which runs and completes it; only that
 * thread may use its fields.  Other threads may only call kl_request_wake. */
#ifndef KL_REQUEST_H
#define KL_REQUEST_H

#include "base/buffer.h"

typedef struct kl_conn kl_conn;
typedef struct kl_request kl_request;

/* The outcome of a run of a request. */
typedef enum {
    KL_DONE,           /* the response is complete */
    KL_SILENT,         /* done, without a response (acks=0) */
    KL_PARKED,         /* waits: kl_request_wake, or its deadline, runs it again */
    KL_PARKED_READ_ON, /* the same, and later Produce requests may run */
    KL_UP,             /* pass it to Python */
    KL_DROP            /* close the connection */
} kl_verdict;

/* What the operations know about a connection's client between its requests; zeroed at first. */
typedef struct {
    uint64_t key; /* of principal and client id */
    uint32_t version;
    uint64_t buckets[KL_QUOTAS];
} kl_client;

struct kl_request {
    void *context; /* of the operations: kl_net.context */
    kl_conn *conn;
    kl_client *client; /* of its connection */
    int32_t thread;    /* index of its network thread, for memory kept per thread */
    int32_t listener;  /* as given to kl_server_listen */
    int32_t principal; /* of its connection */
    int32_t tenure;    /* of the principal */
    /* The frame after its size field, beginning with the header.  Writable: offsets may be stamped
     * in place.  Valid until the request ends or its frame is released; then NULL. */
    uint8_t *data;
    size_t bytes;
    size_t body_pos; /* after the header and its tagged fields */
    int16_t api_key;
    int16_t api_version;
    int32_t correlation_id;
    kl_span client_id; /* data NULL: null */

    bool counts;  /* its frame counts as in progress while parked */
    bool no_up;   /* returned by Python: answer unknown partitions with an error */
    bool expired; /* its deadline expired, or the server stops: answer with what there is */
    /* Set by a run that parks: keep the response so far for the next run. */
    bool keep_response;
    /* Set by a run that parks for data: a later request of the client ends the wait. */
    bool yields;
    int32_t why; /* with KL_UP: the reason; KL_UP_FAST_PATH by default */
    /* Set by a run that ends, or by Python: how long its connection is muted when the answer is
     * sent. */
    int32_t throttle_ms;

    /* State of a parked request, set by a run before it returns KL_PARKED or KL_PARKED_READ_ON.  In
     * the first run all are zero, and deadline_ms INT64_MAX.  A run with another result must first
     * do the work of `cancel`. */
    void *parked;
    /* By kl_clock_now; then it runs again with `expired`, and must not park without a new one. */
    int64_t deadline_ms;
};

/* Release the frame's memory.  `data` becomes NULL; the request cannot be passed to Python any
 * more. */
void kl_request_release_frame(kl_request *request);

/* ---- the response: memory and slices of files, in this order ------------------------------
 *
 * The server writes the size field and the header (correlation id, and empty tagged fields of
 * flexible versions).  A run begins with an empty response, unless the previous run set
 * keep_response. */

/* Space for `bytes` more of the response's memory, to be written before the next call; NULL: no
 * memory.  Invalidates earlier pointers. */
uint8_t *kl_response_reserve(kl_request *request, size_t bytes);
/* Size of the memory so far. */
size_t kl_response_pos(const kl_request *request);
/* Discard the memory from `pos` on.  No slice may follow it. */
void kl_response_rewind(kl_request *request, size_t pos);
/* Add a slice of a file at this point, sent by sendfile.  Takes the slice, even on failure
 * (KL_E_NO_MEMORY). */
kl_status kl_response_slice(kl_request *request, kl_slice *slice);

/* ---- any thread ------------------------------------------------------------------------- */

/* Run a parked request again on its network thread.  Call it only while the request cannot end:
 * under the lock under which cancel and runs remove it from the list where it was found.  Takes no
 * lock itself, and may be called repeatedly. */
void kl_request_wake(kl_request *request);

/* ---- the table of operations --------------------------------------------------------------- */

/* A piece of a file to be sent next; embedded in the response that waits for it. */
typedef struct kl_warming kl_warming;
struct kl_warming {
    kl_warming *next; /* for the code that warms it */
    int fd;
    int64_t pos, end;
};
/* Called once per piece accepted by `warm`, from any thread; returns it to the network. */
void kl_warmed(kl_warming *warming);

/* The handlers of a kind of request, on the network thread of its connection. */
typedef struct {
    /* Called when the frame is complete, and whenever the request is woken, expires, or returns
     * from Python. */
    kl_verdict (*run)(kl_request *request);
    /* The connection of a parked request is gone: remove it from every list that could wake it, and
     * free `parked`.  No run follows. */
    void (*cancel)(kl_request *request);
    /* may run while others of its connection wait with KL_PARKED_READ_ON */
    bool overtakes;
} kl_kind;

typedef struct {
    const kl_kind *kinds[KL_API_KEYS]; /* NULL: passed to Python */
    /* True if these bytes are in memory.  False: kl_warmed is called when they are, or cannot
     * be. */
    bool (*warm)(void *context, kl_warming *warming);
    /* A slice was sent, or never will be. */
    void (*drop)(void *context, kl_slice *slice);
} kl_ops;

#endif
