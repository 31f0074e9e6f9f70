/* request.h: one request as its handler sees it, and what the network requires of a handler.
 *
 * A request belongs to the network thread of its connection: it is run there, is completed
 * there, and its fields are that thread's alone.  Other threads may do one thing with it:
 * kl_request_wake. */
#ifndef KL_REQUEST_H
#define KL_REQUEST_H

#include "base/buffer.h"

typedef struct kl_conn kl_conn;
typedef struct kl_request kl_request;

/* The outcome of a run of a request. */
typedef enum {
    KL_DONE,           /* the response is put */
    KL_SILENT,         /* done, and no response is wanted (acks=0) */
    KL_PARKED,         /* waits: kl_request_wake, or its deadline, runs it again */
    KL_PARKED_READ_ON, /* the same, and Produce requests behind it are run */
    KL_UP,             /* Python's */
    KL_DROP            /* close the connection */
} kl_verdict;

struct kl_request {
    void *context; /* of the operations: kl_net.context */
    kl_conn *conn;
    int32_t thread;    /* index of its network thread: for memory that is kept per thread */
    int32_t listener;  /* as given to kl_server_listen */
    int32_t principal; /* of its connection */
    /* The frame behind its size field, from the first byte of the header on.  Ours and
     * writable: offsets may be stamped in place.  Valid until the request ends, or
     * its frame was released; then NULL. */
    uint8_t *data;
    size_t bytes;
    size_t body_pos; /* of the body, behind the header and its tagged fields */
    int16_t api_key;
    int16_t api_version;
    int32_t correlation_id;
    kl_span client_id; /* data NULL: null */

    bool counts;  /* its frame, among those in hand, while it is parked */
    bool no_up;   /* Python handed it back: what is unknown now gets its error */
    bool expired; /* its deadline came, or the server stops: answer with what is there */
    /* Set by a run that parks: what was put of the response stays for the next run. */
    bool keep_response;
    /* Set by a run that parks for data: what its client sends behind it ends the wait. */
    bool yields;
    int32_t
        why; /* with KL_UP: the reason for Python; KL_UP_FAST_PATH unless a run sets it */

    /* What a parked request waits with.  A run sets them before it returns KL_PARKED or
     * KL_PARKED_READ_ON; all are zero, and deadline_ms INT64_MAX, in its first run.  Before a
     * run returns anything else than the two, it must have done what `cancel` does. */
    void *parked;
    int64_t deadline_ms; /* of kl_clock_now; the request is run again with `expired`, and
                          * must not park then without a new one */
};

/* The frame is no longer needed: its memory can be reused.  `data` becomes NULL; the request cannot
 * be passed to Python afterwards. */
void kl_request_release_frame(kl_request *request);

/* ---- the response: memory and slices of files, in the order in which they are put --------
 *
 * The size field and the header (correlation id, and the empty tagged fields of flexible
 * versions) are put by the server.  A run begins with an empty response, unless
 * keep_response was set by the one before. */

/* Room for `bytes` more of the response's memory, to be written before the next call; NULL
 * when there is no memory.  Moves what was returned before. */
uint8_t *kl_response_reserve(kl_request *request, size_t bytes);
/* How much memory was put. */
size_t kl_response_pos(const kl_request *request);
/* Take back the memory from `pos` on.  No slice may follow it. */
void kl_response_rewind(kl_request *request, size_t pos);
/* A piece of a file, sent by sendfile at this point.  Takes the slice, even if it fails
 * (KL_E_NO_MEMORY). */
kl_status kl_response_slice(kl_request *request, kl_slice *slice);

/* ---- any thread ------------------------------------------------------------------------- */

/* Run a parked request again on its network thread.  Only as long as it cannot end
 * before: under the lock under which cancel and the runs take it out of the list in
 * which it was found.  Takes no lock itself and may be called many times. */
void kl_request_wake(kl_request *request);

/* ---- what hangs in the table of operations ------------------------------------------------ */

/* A piece of a file that goes out next.  It lies in the response, which waits for it. */
typedef struct kl_warming kl_warming;
struct kl_warming {
    kl_warming *next; /* of the code that warms it */
    int fd;
    int64_t pos, end;
};
/* Once for each that `warm` took, by any thread.  Then it is the network's again. */
void kl_warmed(kl_warming *warming);

/* How requests of a kind are answered on the network thread of their connection. */
typedef struct {
    /* Once when the frame is whole, and again each time that the request is woken, expires,
     * or comes back from Python. */
    kl_verdict (*run)(kl_request *request);
    /* The connection of a parked one is gone.  It must take the request out of every list
     * from which it may be woken, and free `parked`.  No run follows it. */
    void (*cancel)(kl_request *request);
    /* It may run while others of its connection wait with KL_PARKED_READ_ON. */
    bool overtakes;
} kl_kind;

typedef struct {
    const kl_kind *kinds[KL_API_KEYS]; /* NULL: they go up to Python */
    /* Whether these bytes are in memory.  False: they will be, or cannot be had; then
     * kl_warmed is called. */
    bool (*warm)(void *context, kl_warming *warming);
    /* A slice was sent, or will not be. */
    void (*drop)(void *context, kl_slice *slice);
} kl_ops;

#endif
