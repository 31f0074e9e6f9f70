/* produce.h: a Produce request in progress: its partitions and their results. */
#ifndef KL_PRODUCE_H
#define KL_PRODUCE_H

#include "log/append.h"
#include "data.h"

enum {
    KL_RECORD_FAULTS_MAX = 100, /* named in an answer; the whole batch is refused */
    KL_FAULTS_MAX = 100,        /* explained partitions; others only get a code */
    KL_PRODUCE_TOPIC_IDS = 13   /* first version that names topics by id */
};

/* The message about a refused partition. */
typedef struct {
    kl_record_fault *records; /* NULL: no records named */
    int32_t record_count;
    char text[];
} kl_produce_fault;

/* One partition. */
typedef struct {
    kl_topic_key topic; /* in the frame */
    uint8_t *records;   /* in the frame; NULL: null */
    size_t records_bytes;
    kl_replica *replica;     /* retained; NULL: not in the table */
    bool offline;            /* its log could not be opened */
    bool denied;             /* the principal may not write to it */
    kl_produce_fault *fault; /* NULL: none */
    kl_appended appended;
    kl_waiter waiter;
    kl_promise promise;
    uint32_t group_count; /* first partition of a topic: its number of partitions; else 0 */
    int32_t partition;
    int32_t flags; /* KL_TOPIC_* */
    int32_t epoch; /* of the leader at the append */
    int16_t code;
    bool waiting; /* for its promise; then `waiter` may be linked */
} kl_produce_item;

struct kl_produce {
    kl_produce *next; /* in the free list */
    kl_wait wait;
    kl_load *load;     /* preparation of its logs, in progress */
    size_t cold_bytes; /* of its frame, not counted during the preparation */
    kl_produce_item *items;
    size_t count;
    size_t capacity;
    int32_t topic_count;
    int32_t fault_count;
    int32_t timeout_ms;
    int32_t throttle_ms; /* sent to the client */
    kl_charge charge;
    int16_t acks;
    kl_span transactional_id; /* in the frame; NULL: none */
    bool id_denied;           /* the principal may not use it */
};

/* As kl_kind. */
kl_verdict kl_produce_run(kl_request *request);
void kl_produce_cancel(kl_request *request);
void kl_produces_free(kl_produce *list);

/* Write the response of all partitions in the request's order; false: no memory. */
bool kl_produce_answer(kl_request *request, const kl_produce *produce);

#endif
