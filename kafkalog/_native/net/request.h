/* request.h: one request, as produce.c and fetch.c see it, and what the server wants of them.
 *
 * A request belongs to the network thread of its connection: it is run there, is completed
 * there, and its fields are that thread's alone.  Other threads may do one thing with it:
 * kl_request_wake. */
#ifndef KL_REQUEST_H
#define KL_REQUEST_H

#include "base/buffer.h"

typedef struct kl_conn kl_conn;
typedef struct kl_request kl_request;
typedef struct kl_data kl_data; /* the table of partitions, the fetch sessions: data.c */

/* What a run of a request came to. */
typedef enum {
    KL_DONE,           /* the response is put */
    KL_SILENT,         /* done, and no response is wanted (acks=0) */
    KL_PARKED,         /* waits: kl_request_wake, or its deadline, runs it again */
    KL_PARKED_READ_ON, /* the same, and Produce requests behind it are run meanwhile */
    KL_UP,             /* Python's */
    KL_DROP            /* close the connection */
} kl_verdict;

struct kl_request {
    kl_server *server;
    kl_conn *conn;
    int32_t thread;   /* index of its network thread: for memory that is kept per thread */
    int32_t listener; /* as given to kl_server_listen */
    /* The frame behind its size field, from the first byte of the header on.  Ours and
     * writable: offsets may be stamped in place.  Valid until the request ends. */
    uint8_t *data;
    size_t bytes;
    size_t body_pos; /* of the body, behind the header and its tagged fields */
    int16_t api_key;
    int16_t api_version;
    int32_t correlation_id;
    kl_span client_id; /* data NULL: null */

    bool no_up;   /* Python handed it back: what is unknown now gets its error */
    bool expired; /* its deadline came, or the server stops: answer with what is there */
    /* Set by a run that parks: what was put of the response stays for the next run. */
    bool keep_response;
    int32_t
        why; /* with KL_UP: what Python is told, KL_UP_FAST_PATH unless a run says else */

    /* What a parked request waits with.  A run sets them before it returns KL_PARKED or
     * KL_PARKED_READ_ON; all are zero, and deadline_ms INT64_MAX, in its first run.
     *
     * on_cancel: the connection is gone.  It must take the request out of every list from
     * which it may be woken, and free `parked`.  No run follows it.  Before a run returns
     * anything else than the two, it must have done the same itself. */
    void *parked;
    void (*on_cancel)(kl_request *request);
    int64_t deadline_ms; /* of kl_server_now; the request is run again with `expired`, and
                          * must not park then without a new one */
};

/* Milliseconds of the server's clock: monotonic, or what kl_server_set_time said last. */
int64_t kl_server_now(kl_server *server);
/* What kl_data_new made. */
kl_data *kl_server_data(kl_server *server);
const kl_server_config *kl_server_get_config(const kl_server *server);
/* How many values kl_request.thread can have: 0 to this less one. */
int32_t kl_server_threads(const kl_server *server);

/* The frame is not looked at any more: its memory can serve others.  `data` becomes NULL; the
 * request cannot go up afterwards. */
void kl_request_release_frame(kl_request *request);

/* ---- the response: memory and slices of files, in the order in which they are put --------
 *
 * The size field and the header (correlation id, and the empty tagged fields of flexible
 * versions) are put by the server.  A run begins with an empty response, unless
 * keep_response was set by the one before. */

/* Room for `bytes` more of the response's memory, to be written before the next call; NULL
 * when there is no memory.  Moves what was returned before. */
uint8_t *kl_response_reserve(kl_request *request, size_t bytes);
/* How much memory was put, and a place in it, to write what is known later only. */
size_t kl_response_pos(const kl_request *request);
uint8_t *kl_response_at(kl_request *request, size_t pos);
/* Take back the memory from `pos` on.  No slice may lie behind it. */
void kl_response_rewind(kl_request *request, size_t pos);
/* A piece of a file, sent by sendfile in this place; a small one is read into the memory at
 * once.  Takes the slice, also when it fails (KL_E_NO_MEMORY, KL_E_IO). */
kl_status kl_response_slice(kl_request *request, kl_slice *slice);

/* ---- any thread ------------------------------------------------------------------------- */

/* Run a parked request again on its network thread.  Only as long as it cannot end
 * meanwhile: under the lock under which on_cancel and the runs take it out of the list in
 * which it was found.  Takes no lock itself and may be called many times. */
void kl_request_wake(kl_request *request);

/* ---- produce.c, fetch.c, data.c ----------------------------------------------------------- */

/* Run on the connection's network thread, once when the frame is whole, and again each time
 * that the request is woken, expires, or comes back from Python. */
kl_verdict kl_produce_run(kl_request *request);
kl_verdict kl_fetch_run(kl_request *request);
/* Made before a thread starts, freed after the last one ended and all requests with them. */
kl_status kl_data_new(kl_server *server, const kl_server_config *config, kl_data **out);
/* The network threads have ended: no log is used when this returns, nor will one be. */
void kl_data_stop(kl_data *data);
void kl_data_free(kl_data *data); /* NULL is fine */

#endif
