/* fetch.h: a Fetch request under way. */
#ifndef KL_FETCH_H
#define KL_FETCH_H

#include "data.h"

enum {
    KL_FETCH_MIN = 4,
    KL_FETCH_MAX = 18,
    KL_FETCH_SESSIONS = 7, /* versions from which on a field is there */
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
    kl_fetch *next; /* a free one's */
    kl_data *data;
    kl_fetch_set asked; /* by this request */
    kl_fetch_set *set;  /* what is read: `asked`, or its session's */
    kl_session *session;
    kl_buffer copied;    /* records that are not sent from their file, of all partitions */
    int32_t slices;      /* that are */
    size_t cold_count;   /* items that are not looked for yet, as their index is on disk */
    kl_load *load;       /* of these; NULL: none is under way */
    bool loaded;         /* they were: what is missing still is read all the same, once */
    int64_t until_ms;    /* when max_wait_ms is over */
    kl_aborted *aborted; /* transactions, of all partitions one after another */
    size_t aborted_count;
    size_t aborted_capacity;
    kl_in forgotten; /* where those that the session is to forget are named */
    uint32_t forgotten_topics;
    size_t frame_bytes;  /* and its items', that count against the lane's bound */
    int64_t bytes;       /* of records that are answered */
    int64_t denied;      /* partitions among those that were looked up */
    int32_t throttle_ms; /* for its client */
    int32_t session_id;  /* as asked */
    int32_t session_epoch;
    int32_t max_wait_ms;
    int32_t min_bytes;
    int32_t max_bytes;
    int32_t replica_id;              /* -1: a consumer */
    int64_t broker_epoch;            /* of a follower; -1: not reported */
    int32_t near[KL_FETCH_NEAR_MAX]; /* nodes that stand where a consumer does */
    int32_t near_count;
    int32_t to;       /* KL_LOG_END: a follower; KL_COMMITTED, KL_UNCOMMITTED: a consumer */
    int16_t code;     /* of the whole request: with it no partition is answered */
    bool incremental; /* only what changed is answered */
    bool throttled;   /* some of a follower's counts against the quota */
};

/* As kl_kind. */
kl_verdict kl_fetch_run(kl_request *request);
void kl_fetch_cancel(kl_request *request);
void kl_fetches_free(kl_fetch *list);

/* fetch_parse.c.  False: the frame is not of its version, or asks for too much. */
bool kl_fetch_parse(kl_request *request, kl_fetch *fetch);
/* Let the session's set forget what the request wants forgotten. */
void kl_fetch_forget(kl_fetch *fetch);

/* fetch_read.c.  Read everything that is due; *bytes of records.  True: more is available than was
 * taken, or something else must be answered immediately. */
bool kl_fetch_read(kl_request *request, kl_fetch *fetch, int64_t *bytes);
void kl_fetch_drop_slices(kl_fetch *fetch);
/* Count what is about to be answered against the quotas that it counts for. */
void kl_fetch_count(const kl_request *request, kl_fetch *fetch);

/* fetch_answer.c.  Put the response; takes the slices.  False: no memory. */
bool kl_fetch_answer(kl_request *request, kl_fetch *fetch);

#endif
