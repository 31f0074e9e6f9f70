/* produce.c: a Produce request: parse, look up, append in place, wait for acks=all, answer.
 * Kafka's ReplicaManager.appendRecords. */
#include "produce.h"

#include <stdio.h>

enum {
    VERSION_MIN = 3, /* earlier versions have old message formats */
    VERSION_MAX = KL_PRODUCE_TOPIC_IDS,
    VERSION_FLEXIBLE = 9,
    VERSION_ZSTD = 7,
    FREE_MAX = 64, /* free objects per network thread */
    /* A network thread's limit for requests waiting for the disk: beyond it they count as in
     * progress, and may delay other connections' large ones. */
    COLD_BYTES_MAX = 64 << 20,
    KEEP_ITEMS = 1024 /* limit of a kept object */
};
KL_STATIC_ASSERT((int)VERSION_ZSTD < (int)VERSION_FLEXIBLE &&
                     (int)VERSION_FLEXIBLE < (int)VERSION_MAX,
                 "all of them are of versions that are served");

/* ---- memory: one kl_produce per request, kept by its network thread ----------------------- */

static kl_produce *take(kl_request *request) {
    kl_lane *lane = kl_lane_of(request);
    kl_produce *produce = lane->produces;
    KL_ASSERT((produce != NULL) == (lane->produce_count > 0));
    if (produce) {
        lane->produces = produce->next;
        lane->produce_count--;
    } else {
        produce = kl_alloc(sizeof *produce);
        if (produce == NULL) return NULL;
    }
    produce->next = NULL;
    produce->load = NULL;
    produce->count = 0;
    produce->topic_count = 0;
    produce->fault_count = 0;
    produce->transactional_id = (kl_span){NULL, 0};
    produce->id_denied = false;
    produce->charge = (kl_charge){0};
    return produce;
}

static void free_one(kl_produce *produce) {
    kl_release(produce->items);
    kl_release(produce);
}

static void leave_load(kl_request *request, kl_produce *produce) {
    if (produce->load == NULL) return;
    kl_cold_leave(&kl_data_of(request)->cold, produce->load);
    produce->load = NULL;
    KL_ASSERT(kl_lane_of(request)->cold_bytes >= produce->cold_bytes);
    kl_lane_of(request)->cold_bytes -= produce->cold_bytes;
}

/* Remove it from all lists and keep its memory. */
static void put_back(kl_request *request, kl_produce *produce) {
    leave_load(request, produce);
    for (size_t i = 0; i < produce->count; i++) {
        kl_produce_item *item = &produce->items[i];
        if (item->waiting) kl_wait_remove(&item->waiter);
        KL_ASSERT(!item->waiter.linked); /* its memory is released */
        kl_replica_drop(item->replica);
        if (item->fault) kl_release(item->fault->records);
        kl_release(item->fault);
    }
    request->parked = NULL;
    kl_lane *lane = kl_lane_of(request);
    if (lane->produce_count >= FREE_MAX || produce->capacity > KEEP_ITEMS) {
        free_one(produce);
        return;
    }
    produce->next = lane->produces;
    lane->produces = produce;
    lane->produce_count++;
}

void kl_produces_free(kl_produce *list) {
    for (kl_produce *next; list; list = next) {
        next = list->next;
        free_one(list);
    }
}

static kl_produce_item *add_item(kl_produce *produce) {
    if (KL_UNLIKELY(produce->count == produce->capacity)) {
        kl_produce_item *grown = kl_room_for(produce->items, &produce->capacity,
                                             produce->count + 1, sizeof *grown);
        if (grown == NULL) return NULL;
        produce->items = grown;
    }
    kl_produce_item *item = &produce->items[produce->count++];
    *item = (kl_produce_item){.appended = {-1, -1, -1, -1, 0, 0, 0, 0}};
    return item;
}

/* ---- parsing ---------------------------------------------------------------------------- */

/* False: the frame is invalid for its version, or asks for too much. */
static bool parse_topic(kl_produce *produce, kl_in *in, bool by_id) {
    enum { PARTITION_BYTES_MIN = 5 };
    kl_topic_key topic = {{NULL, 0}, NULL};
    if (by_id) topic.id = kl_in_take(in, KL_TOPIC_ID_BYTES);
    else topic.name = kl_in_string(in);
    uint32_t partitions = kl_in_array(in, PARTITION_BYTES_MIN);
    if (in->bad || (topic.name.data == NULL && !by_id)) return false;
    if (produce->count + partitions > KL_REQUEST_PARTITIONS_MAX) return false;
    for (uint32_t i = 0; i < partitions; i++) {
        kl_produce_item *item = add_item(produce);
        if (item == NULL) return false;
        item->topic = topic;
        item->group_count = i == 0 ? partitions : 0;
        item->partition = kl_in_i32(in);
        kl_span records = kl_in_span(in, true);
        kl_in_skip_tags(in);
        if (in->bad) return false;
        /* The request owns the frame: batches are stamped in place. */
        item->records = (uint8_t *)(uintptr_t)records.data;
        item->records_bytes = records.bytes;
    }
    produce->topic_count += partitions > 0;
    return true;
}

static bool parse(kl_request *request, kl_produce *produce) {
    enum { TOPIC_BYTES_MIN = 2 };
    kl_in in = kl_request_body(request, request->api_version >= VERSION_FLEXIBLE);
    if (request->api_version >= VERSION_MIN) produce->transactional_id = kl_in_string(&in);
    produce->acks = kl_in_i16(&in);
    produce->timeout_ms = kl_in_i32(&in);
    for (uint32_t topics = kl_in_array(&in, TOPIC_BYTES_MIN); topics > 0; topics--) {
        bool by_id = request->api_version >= KL_PRODUCE_TOPIC_IDS;
        if (!parse_topic(produce, &in, by_id)) return false;
        kl_in_skip_tags(&in);
    }
    kl_in_skip_tags(&in);
    return !in.bad && in.at == in.end;
}

/* ---- looking up ---------------------------------------------------------------------------- */

static int16_t attributes_of(const kl_produce_item *item) {
    if (item->records_bytes < KL_BATCH_HEADER_BYTES) return 0;
    return (int16_t)kl_get16(item->records + POS_ATTRIBUTES);
}

static bool is_transactional(const kl_produce_item *item) {
    return attributes_of(item) & KL_ATTR_TRANSACTIONAL;
}

/* True if the coordinator must allow the batch first. */
static bool begins(const kl_produce *produce, const kl_produce_item *item) {
    kl_batch batch;
    if (produce->transactional_id.data == NULL || !is_transactional(item)) return false;
    if (item->replica == NULL || !kl_replica_enter(item->replica)) return false;
    bool begins = kl_batch_parse(item->records, item->records_bytes, &batch) == KL_OK &&
                  !kl_log_is_open(item->replica->log, &batch);
    kl_replica_leave(item->replica);
    return begins;
}

/* True if its compressed records must be read: only they show their largest timestamp, or which are
 * too far ahead. */
static bool time_is_doubtful(const kl_produce_item *item, int64_t now_ms) {
    kl_batch batch;
    if (kl_batch_parse(item->records, item->records_bytes, &batch)) return false;
    return kl_batch_time_is_lost(&batch) ||
           ((item->flags & KL_TOPIC_TIMED) && batch.max_timestamp > now_ms + KL_AHEAD_MS);
}

static bool is_admin(const kl_request *request) {
    static const char admin[] = "__admin_client"; /* Kafka's tools */
    return request->client_id.bytes == sizeof admin - 1 &&
           memcmp(request->client_id.data, admin, sizeof admin - 1) == 0;
}

/* An unknown topic id is reported as unknown to everybody. */
static bool is_denied(const kl_judge *judge, const kl_produce_item *item,
                      const kl_topic *topic) {
    if (topic == NULL && item->topic.id) return false;
    return !kl_judge_allows(judge, KL_RULES_TOPICS,
                            topic ? kl_topic_name(topic) : item->topic.name);
}

/* The id of a transaction is checked if there is a batch of one. */
static bool is_id_denied(const kl_judge *judge, const kl_produce *produce) {
    bool used = false;
    for (size_t i = 0; !used && produce->transactional_id.data && i < produce->count; i++)
        used = is_transactional(&produce->items[i]);
    return used && !kl_judge_allows(judge, KL_RULES_IDS, produce->transactional_id);
}

/* False: Python must handle it first. */
static bool look_up(kl_request *request, kl_produce *produce) {
    kl_topics *topics = kl_data_of(request)->topics;
    const kl_topic *topic = NULL;
    kl_judge judge;
    if (!kl_judge_begin(kl_data_of(request)->admission, request->principal, KL_MAY_WRITE,
                        &judge)) {
        request->no_up = false;
        return false;
    }
    judge.quiet = request->no_up;
    judge.tenure = request->tenure;
    produce->id_denied = is_id_denied(&judge, produce);
    bool known = true, denied = false;
    kl_topics_lock(topics);
    for (size_t i = 0; i < produce->count; i++) {
        kl_produce_item *item = &produce->items[i];
        if (item->group_count) {
            topic = kl_topics_find(topics, &item->topic);
            denied = produce->id_denied || is_denied(&judge, item, topic);
        }
        item->denied = denied;
        if (denied) continue;
        item->replica = topic ? kl_topic_replica(topic, item->partition, false) : NULL;
        item->offline = topic && kl_topic_offline(topic, item->partition);
        item->flags = topic ? kl_topic_flags(topic) : 0;
        if (item->replica) item->epoch = atomic_load(&item->replica->leader_epoch);
        bool packed = (attributes_of(item) & KL_CODEC_MASK) != 0;
        bool inside = item->flags & (packed ? KL_TOPIC_LOOK_INSIDE : KL_TOPIC_COMPRESS);
        known &= item->replica != NULL && !inside &&
                 !(packed && time_is_doubtful(item, kl_wall_of(request)));
    }
    kl_topics_unlock(topics);
    kl_judge_end(&judge);
    for (size_t i = 0; known && i < produce->count; i++)
        known = !begins(produce, &produce->items[i]);
    return known || request->no_up;
}

/* ---- preparation by the disk ---------------------------------------------------------------- */

/* True if its append would wait for more than its own write.  An append that the log will refuse
 * needs no preparation. */
static bool is_cold(const kl_produce_item *item, int64_t now_ms, kl_upcoming *next) {
    kl_batch batch;
    if (item->replica == NULL || !kl_replica_enter(item->replica)) return false;
    bool cold = false;
    if (kl_batch_parse(item->records, item->records_bytes, &batch) == KL_OK) {
        *next = (kl_upcoming){batch.batch_bytes, batch.max_timestamp,
                              (int64_t)batch.last_offset_delta + 1, now_ms};
        cold = !kl_log_is_ready(item->replica->log, next) &&
               kl_batch_check(item->records, item->records_bytes, &batch) == KL_OK;
    }
    kl_replica_leave(item->replica);
    return cold;
}

/* Have a cold reader prepare the logs.  False: none needs that, or it is impossible. */
static bool park_cold(kl_request *request, kl_produce *produce) {
    kl_load *load = NULL;
    for (size_t i = 0; i < produce->count; i++) {
        kl_upcoming next;
        if (!is_cold(&produce->items[i], kl_wall_of(request), &next)) continue;
        if (load == NULL) load = kl_load_new(produce->count);
        if (load == NULL) return false;
        load->items[load->count++] = (kl_load_item){
            .replica = kl_replica_retain(produce->items[i].replica), .append = next};
    }
    if (load == NULL) return false;
    request->parked = produce;
    request->deadline_ms = INT64_MAX;
    if (!kl_cold_load(&kl_data_of(request)->cold, load, request)) {
        request->parked = NULL;
        return false;
    }
    kl_lane *lane = kl_lane_of(request);
    produce->load = load;
    request->counts =
        request->bytes > COLD_BYTES_MAX - KL_MIN(lane->cold_bytes, (size_t)COLD_BYTES_MAX);
    produce->cold_bytes = request->counts ? 0 : request->bytes;
    lane->cold_bytes += produce->cold_bytes;
    return true;
}

/* ---- appending ---------------------------------------------------------------------------- */

/* Replace paths in a text with their last components. */
static void leave_folders_out(char *out, size_t room, const char *text) {
    size_t used = 0;
    for (const char *p = text; *p && used + 1 < room;) {
        if (*p == '/' && (p == text || p[-1] == ' ')) {
            const char *end = p + strcspn(p, ":, ");
            for (const char *q = p; q < end; q++)
                if (*q == '/') p = q + 1;
        } else out[used++] = *p++;
    }
    out[used] = 0;
}

/* Keep the failure's message for the client, without the paths of our files.  A request may name a
 * hundred thousand partitions: only the first refusals keep one. */
static void keep_message(kl_produce *produce, kl_produce_item *item, const char *text) {
    char shown[400];
    KL_ASSERT(produce->fault_count <= KL_FAULTS_MAX && item->fault == NULL);
    if (produce->fault_count == KL_FAULTS_MAX) return;
    leave_folders_out(shown, sizeof shown, text);
    size_t bytes = strlen(shown) + 1;
    item->fault = kl_alloc(sizeof *item->fault + bytes);
    if (item->fault == NULL) return;
    memcpy(item->fault->text, shown, bytes);
    item->fault->records = NULL;
    item->fault->record_count = 0;
    produce->fault_count++;
}

static void refuse(kl_produce *produce, kl_produce_item *item, int16_t code,
                   const char *text) {
    item->code = code;
    if (text) keep_message(produce, item, text);
}

/* Refuse a partition before the log sees it. */
static bool refuse_early(const kl_request *request, kl_produce *produce,
                         kl_produce_item *item) {
    int16_t attributes = attributes_of(item);
    if (item->denied)
        refuse(produce, item,
               produce->id_denied ? CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                                  : CODE_TOPIC_AUTHORIZATION_FAILED,
               NULL);
    else if (produce->acks < -1 || produce->acks > 1)
        refuse(produce, item, CODE_INVALID_REQUIRED_ACKS, NULL);
    else if (item->replica == NULL)
        refuse(produce, item,
               item->offline    ? CODE_KAFKA_STORAGE_ERROR
               : item->topic.id ? CODE_UNKNOWN_TOPIC_ID
                                : CODE_UNKNOWN_TOPIC_OR_PARTITION,
               NULL);
    else if ((item->flags & KL_TOPIC_INTERNAL) && !is_admin(request))
        refuse(produce, item, CODE_INVALID_TOPIC,
               "clients may not write to an internal topic");
    else if (item->records_bytes > POS_MAGIC && item->records[POS_MAGIC] < 2)
        refuse(produce, item, CODE_INVALID_RECORD,
               "message formats 0 and 1: wanted magic 2");
    else if (item->records_bytes < KL_BATCH_HEADER_BYTES)
        refuse(produce, item, CODE_INVALID_RECORD,
               "no whole record batch, wanted exactly one");
    else if (request->api_version < VERSION_ZSTD && (attributes & KL_CODEC_MASK) == 4)
        refuse(produce, item, CODE_UNSUPPORTED_COMPRESSION_TYPE,
               "zstd wants Produce of version 7 or later");
    else if ((attributes & KL_ATTR_TRANSACTIONAL) && produce->transactional_id.data == NULL)
        refuse(produce, item, CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
               "a transactional batch in a request without a transactional id");
    return item->code != CODE_NONE;
}

/* Name the invalid records, so that the producer can resend the others. */
static void keep_record_faults(kl_produce_item *item, int64_t now_ms) {
    if (item->fault == NULL) return;
    if (item->code != CODE_INVALID_RECORD && item->code != CODE_INVALID_TIMESTAMP) return;
    const kl_span batch = {item->records, item->records_bytes};
    kl_record_fault faults[KL_RECORD_FAULTS_MAX];
    kl_record_faults found = {faults, KL_RECORD_FAULTS_MAX, 0};
    kl_status status = kl_log_find_faults(item->replica->log, batch, now_ms, &found);
    if (status || found.count == 0) return;
    item->fault->records = kl_alloc(found.count * sizeof *faults);
    if (item->fault->records == NULL) return;
    memcpy(item->fault->records, faults, found.count * sizeof *faults);
    item->fault->record_count = (int32_t)found.count;
}

static void append_item(const kl_request *request, kl_produce *produce,
                        kl_produce_item *item) {
    if (refuse_early(request, produce, item)) return;
    if (!kl_replica_enter(item->replica)) {
        item->code = CODE_UNKNOWN_TOPIC_OR_PARTITION;
        return;
    }
    const kl_append_options options = {.origin = KL_ORIGIN_CLIENT,
                                       .leader_epoch = item->epoch,
                                       .one_batch = 1,
                                       .continues = 1,
                                       .now_ms = kl_wall_of(request),
                                       .in_place = 1};
    kl_status status =
        kl_replica_append(item->replica, (kl_span){item->records, item->records_bytes},
                          &options, produce->acks, &item->appended, &item->promise);
    if (KL_UNLIKELY(status)) {
        refuse(produce, item, kl_code_of(status), kl_error_message());
        keep_record_faults(item, options.now_ms);
        item->appended = (kl_appended){-1, -1, -1, -1, 0, 0, 0, 0};
    }
    kl_replica_leave(item->replica);
    /* Wait for acks=all, and for a sync due by flush.messages. */
    item->waiting = !status && (produce->acks == -1 || item->appended.sync_due);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void wake(void *owner) { kl_request_wake(owner); }

/* Update the waiting partitions; returns how many still wait. */
static size_t look_again(kl_produce *produce, bool expired) {
    size_t left = 0;
    for (size_t i = 0; i < produce->count; i++) {
        kl_produce_item *item = &produce->items[i];
        if (!item->waiting) continue;
        /* In this order: after a truncation, another record at its offset does not count. */
        bool kept = kl_replica_kept(item->replica, &item->promise);
        if (kl_replica_broken(item->replica, &item->promise)) {
            item->code = CODE_NOT_LEADER_OR_FOLLOWER;
        } else if (!kept && !kl_replica_enter(item->replica)) {
            item->code = CODE_UNKNOWN_TOPIC_OR_PARTITION;
        } else if (!kept) {
            bool ended = atomic_load(&item->replica->ended);
            bool follows = atomic_load(&item->replica->follows);
            kl_replica_leave(item->replica);
            if (!ended && !follows && !expired) {
                left++;
                continue;
            }
            item->code = follows ? CODE_NOT_LEADER_OR_FOLLOWER
                         : ended ? CODE_KAFKA_STORAGE_ERROR
                                 : CODE_REQUEST_TIMED_OUT;
        } else if (produce->acks == -1 &&
                   !kl_followers_suffice(&item->replica->followers)) {
            item->code = CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
        }
        item->waiting = false;
    }
    return left;
}

void kl_produce_cancel(kl_request *request) { put_back(request, request->parked); }

/* False: all are decided. */
static bool park(kl_request *request, kl_produce *produce) {
    bool armed = false;
    KL_ASSERT(produce->load == NULL);
    while (!armed) {
        size_t left = look_again(produce, request->expired);
        if (left == 0) return false;
        kl_wait_init(&produce->wait, wake, request, (int64_t)left);
        for (size_t i = 0; i < produce->count; i++) {
            kl_produce_item *item = &produce->items[i];
            if (!item->waiting) continue;
            KL_ASSERT(!item->waiter.linked);
            item->waiter.replica = item->replica;
            item->waiter.promise = item->promise;
            kl_wait_add(&produce->wait, &item->waiter);
        }
        armed = kl_wait_arm(&produce->wait);
        for (size_t i = 0; !armed && i < produce->count; i++)
            if (produce->items[i].waiting) kl_wait_remove(&produce->items[i].waiter);
    }
    request->parked = produce;
    return true;
}

/* ---- runs -------------------------------------------------------------------------------- */

static void count(kl_request *request, kl_produce *produce) {
    int64_t denied = 0;
    for (size_t i = 0; i < produce->count; i++) {
        denied += produce->items[i].denied;
        kl_count_error(request, produce->items[i].code);
    }
    produce->throttle_ms =
        kl_admission_count(kl_data_of(request)->admission, request->principal, KL_MAY_WRITE,
                           (int64_t)request->bytes, denied);
    if (KL_LIKELY(!kl_charge_any(&produce->charge))) return;
    /* With acks=0 only the bytes count, as in Kafka. */
    request->throttle_ms = kl_charge_end(kl_data_of(request)->buckets, &produce->charge,
                                         KL_QUOTA_PRODUCE, (int64_t)request->bytes,
                                         produce->acks != 0, false, kl_now_of(request));
    produce->throttle_ms = KL_MAX(produce->throttle_ms, request->throttle_ms);
}

static kl_verdict finish(kl_request *request, kl_produce *produce) {
    kl_verdict verdict = KL_SILENT;
    count(request, produce);
    if (produce->acks != 0) {
        verdict = kl_produce_answer(request, produce) ? KL_DONE : KL_DROP;
    } else {
        /* With acks=0 the client notices an error only by the closed connection. */
        for (size_t i = 0; i < produce->count; i++)
            if (produce->items[i].code) verdict = KL_DROP;
    }
    put_back(request, produce);
    return verdict;
}

/* All partitions are known: append their batches. */
static kl_verdict append_all(kl_request *request, kl_produce *produce) {
    bool waiting = false;
    for (size_t i = 0; i < produce->count; i++) {
        append_item(request, produce, &produce->items[i]);
        waiting |= produce->items[i].waiting;
    }
    if (waiting && park(request, produce)) {
        /* Only acks=all has a timeout: the others wait only for the disk, which answers. */
        if (produce->acks == -1)
            request->deadline_ms = kl_now_of(request) + KL_MAX(produce->timeout_ms, 0);
        return KL_PARKED_READ_ON;
    }
    return finish(request, produce);
}

static kl_verdict resume(kl_request *request) {
    kl_produce *produce = request->parked;
    if (produce->load) {
        /* Even if the client has closed its side, its records are appended. */
        request->expired = false;
        if (!kl_cold_loaded(&kl_data_of(request)->cold, produce->load)) return KL_PARKED;
        leave_load(request, produce);
        request->parked = NULL;
        return append_all(request, produce);
    }
    for (size_t i = 0; i < produce->count; i++)
        if (produce->items[i].waiting) kl_wait_remove(&produce->items[i].waiter);
    if (park(request, produce)) return KL_PARKED_READ_ON;
    return finish(request, produce);
}

static kl_verdict run_first(kl_request *request, kl_produce *produce) {
    if (!parse(request, produce)) {
        put_back(request, produce);
        return KL_DROP;
    }
    if (request->api_version < VERSION_MIN) {
        for (size_t i = 0; i < produce->count; i++)
            produce->items[i].code = CODE_UNSUPPORTED_VERSION;
        return finish(request, produce);
    }
    if (!kl_charge_find(kl_data_of(request)->buckets, request, &produce->charge) ||
        !look_up(request, produce)) {
        put_back(request, produce);
        return KL_UP;
    }
    if (park_cold(request, produce)) return KL_PARKED;
    return append_all(request, produce);
}

static kl_verdict run(kl_request *request) {
    if (request->parked) {
        kl_charge_begin(&((kl_produce *)request->parked)->charge);
        return resume(request);
    }
    if (request->api_version < 0 || request->api_version > VERSION_MAX) return KL_DROP;
    kl_produce *produce = take(request);
    return produce ? run_first(request, produce) : KL_DROP;
}

kl_verdict kl_produce_run(kl_request *request) {
    kl_verdict verdict = run(request);
    if (request->parked) kl_charge_pause(&((kl_produce *)request->parked)->charge);
    return verdict;
}
