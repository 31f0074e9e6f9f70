/* fetch.h: a Fetch request in progress. */
#ifndef KL_FETCH_H
#define KL_FETCH_H

#include "data.h"

enum {
    KL_FETCH_MIN = 4,
    KL_FETCH_MAX = 18,
    KL_FETCH_SESSIONS = 7, /* versions that introduce a field */
    KL_FETCH_EPOCHS = 9,
    KL_FETCH_ZSTD = 10,
    KL_FETCH_RACK = 11,
    KL_FETCH_FLEXIBLE = 12,
    KL_FETCH_TOPIC_IDS = 13,
    KL_FETCH_STATE = 15,
    KL_FETCH_ENDPOINTS = 16,
    KL_FETCH_NEAR_MAX = 32
};

KL_STATIC_ASSERT(KL_FETCH_MIN < KL_FETCH_SESSIONS && KL_FETCH_ENDPOINTS <= KL_FETCH_MAX,
                 "all of them are of versions that are served");

struct kl_fetch {
    kl_fetch *next; /* in the free list */
    kl_data *data;
    kl_fetch_set asked; /* this request's partitions */
    kl_fetch_set *set;  /* partitions to read: `asked`, or the session's */
    kl_session *session;
    kl_buffer copied;    /* copied records of all partitions */
    int32_t slices;      /* number of slices */
    size_t cold_count;   /* items skipped, as their index is on disk */
    kl_load *load;       /* loading them; NULL: no load in progress */
    bool loaded;         /* the load ended: read all, even if still cold */
    int64_t until_ms;    /* end of max_wait_ms */
    kl_aborted *aborted; /* of all partitions, one after another */
    size_t aborted_count;
    size_t aborted_capacity;
    kl_in forgotten; /* position of the partitions to forget */
    uint32_t forgotten_topics;
    size_t frame_bytes;  /* of frame and items, counted against the thread's limit */
    int64_t bytes;       /* records in the answer */
    int64_t denied;      /* denied partitions */
    int32_t throttle_ms; /* sent to the client */
    kl_charge charge;
    int32_t session_id; /* as in the request */
    int32_t session_epoch;
    int32_t max_wait_ms;
    int32_t min_bytes;
    int32_t max_bytes;
    int32_t replica_id;              /* -1: a consumer */
    int64_t broker_epoch;            /* of a follower; -1: not reported */
    int32_t near[KL_FETCH_NEAR_MAX]; /* nodes in the consumer's rack */
    int32_t near_count;
    int32_t to;       /* KL_LOG_END: a follower; KL_COMMITTED, KL_UNCOMMITTED: a consumer */
    int16_t code;     /* of the whole request: no partition is answered */
    bool incremental; /* answer only changes */
    bool withheld;    /* a quota is exceeded: the answer is empty */
    bool throttled;   /* some records of a follower count against the quota */
};

/* As kl_kind. */
kl_verdict kl_fetch_run(kl_request *request);
void kl_fetch_cancel(kl_request *request);
void kl_fetches_free(kl_fetch *list);

/* fetch_parse.c.  False: the frame is invalid for its version, or asks for too much. */
bool kl_fetch_parse(kl_request *request, kl_fetch *fetch);
/* Remove the request's forgotten partitions from the session. */
void kl_fetch_forget(kl_fetch *fetch);

/* fetch_read.c.  Read all due partitions; *bytes of records.  True: more is readable than was
 * taken, or something else must be answered at once. */
bool kl_fetch_read(kl_request *request, kl_fetch *fetch, int64_t *bytes);
void kl_fetch_drop_slices(kl_fetch *fetch);
/* Count the answer against its quotas, and withhold it if a quota of clients is exceeded. */
void kl_fetch_count(kl_request *request, kl_fetch *fetch);

/* fetch_answer.c.  Write the response; takes the slices.  False: no memory. */
bool kl_fetch_answer(kl_request *request, kl_fetch *fetch);
/* True if the client keeps its session: no session begins with a withheld answer. */
bool kl_fetch_goes_on(const kl_fetch *fetch);

#endif
