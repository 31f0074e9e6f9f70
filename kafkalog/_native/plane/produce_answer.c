/* produce_answer.c: the response of Produce, versions 0 to 13.  Kafka's ProduceResponse.json. */
#include "produce.h"

enum {
    VERSION_THROTTLE = 1,
    VERSION_TIME = 2,
    VERSION_START = 5,
    VERSION_ERRORS = 8,
    VERSION_FLEXIBLE = 9,
    VERSION_LEADERS = 10,
    FIXED_BYTES_MAX = 64 /* per partition, topic or response, without texts */
};

static kl_span text_of(const char *text) {
    return (kl_span){(const uint8_t *)text, text ? strlen(text) : 0};
}

static uint8_t *put_faults(uint8_t *p, bool flexible, const kl_produce_fault *fault) {
    int32_t count = fault ? fault->record_count : 0;
    p = kl_out_length(p, flexible, count);
    for (int32_t i = 0; i < count; i++) {
        p = kl_out_i32(p, fault->records[i].index);
        p = kl_out_string(p, flexible, text_of(fault->records[i].text));
        p = kl_out_no_tags(p, flexible);
    }
    return kl_out_string(p, flexible, text_of(fault ? fault->text : NULL));
}

static size_t fault_bytes_max(const kl_produce_fault *fault) {
    if (fault == NULL) return 0;
    size_t bytes = strlen(fault->text);
    for (int32_t i = 0; i < fault->record_count; i++)
        bytes += FIXED_BYTES_MAX + strlen(fault->records[i].text);
    return bytes;
}

/* A partition's tagged fields: its current leader. */
static uint8_t *put_tags(uint8_t *p, const kl_request *request, const kl_produce_item *item,
                         kl_leaders *leaders) {
    enum { TAG_LEADER = 0 };
    kl_leader leader = {-1, -1};
    if (request->api_version >= VERSION_LEADERS && item->replica &&
        kl_leader_is_told(item->code))
        leader = kl_leader_of(item->replica, kl_data_of(request)->config->node_id);
    if (leader.node < 0) return kl_out_no_tags(p, request->api_version >= VERSION_FLEXIBLE);
    p = kl_out_uvarint(p, 1);
    return kl_leaders_put(leaders, leader, TAG_LEADER, p);
}

static uint8_t *put_partition(uint8_t *p, const kl_request *request,
                              const kl_produce_item *item, kl_leaders *leaders) {
    int16_t version = request->api_version;
    bool flexible = version >= VERSION_FLEXIBLE;
    p = kl_out_i32(p, item->partition);
    p = kl_out_i16(p, item->code);
    p = kl_out_i64(p, item->appended.base_offset);
    if (version >= VERSION_TIME) p = kl_out_i64(p, item->appended.log_append_time_ms);
    if (version >= VERSION_START) p = kl_out_i64(p, item->appended.log_start_offset);
    if (version >= VERSION_ERRORS) p = put_faults(p, flexible, item->fault);
    return put_tags(p, request, item, leaders);
}

/* Reserve at most `bytes`; give_back returns the unused part. */
static uint8_t *reserve(kl_request *request, size_t bytes) {
    return kl_response_reserve(request, bytes);
}

static void give_back(kl_request *request, const uint8_t *start, const uint8_t *p,
                      size_t reserved) {
    size_t used = (size_t)(p - start);
    KL_ASSERT(used <= reserved);
    kl_response_rewind(request, kl_response_pos(request) - (reserved - used));
}

static bool answer_item(kl_request *request, const kl_produce_item *item,
                        kl_leaders *leaders) {
    int16_t version = request->api_version;
    bool flexible = version >= VERSION_FLEXIBLE, first = item->group_count > 0;
    size_t bytes = FIXED_BYTES_MAX + fault_bytes_max(item->fault);
    if (first) bytes += FIXED_BYTES_MAX + item->topic.name.bytes;
    uint8_t *start = reserve(request, bytes), *p = start;
    if (p == NULL) return false;
    if (first) {
        if (item->topic.id) p = kl_out_bytes(p, item->topic.id, KL_TOPIC_ID_BYTES);
        else p = kl_out_string(p, flexible, item->topic.name);
        p = kl_out_length(p, flexible, item->group_count);
    }
    p = put_partition(p, request, item, leaders);
    give_back(request, start, p, bytes);
    return true;
}

/* A topic's tagged fields follow its last partition. */
static bool end_topic(kl_request *request, bool flexible) {
    if (!flexible) return true;
    uint8_t *p = reserve(request, 1);
    if (p) *p = 0;
    return p != NULL;
}

bool kl_produce_answer(kl_request *request, const kl_produce *produce) {
    int16_t version = request->api_version;
    bool flexible = version >= VERSION_FLEXIBLE;
    kl_leaders leaders = {.count = 0};
    uint8_t *start = reserve(request, FIXED_BYTES_MAX);
    if (start == NULL) return false;
    give_back(request, start, kl_out_length(start, flexible, produce->topic_count),
              FIXED_BYTES_MAX);
    for (size_t i = 0; i < produce->count; i++) {
        bool last = i + 1 == produce->count || produce->items[i + 1].group_count > 0;
        if (!answer_item(request, &produce->items[i], &leaders)) return false;
        if (last && !end_topic(request, flexible)) return false;
    }
    start = reserve(request, FIXED_BYTES_MAX);
    if (start == NULL) return false;
    uint8_t *p = start;
    if (version >= VERSION_THROTTLE) p = kl_out_i32(p, produce->throttle_ms);
    give_back(request, start, p, FIXED_BYTES_MAX);
    return !flexible || kl_leaders_end(&leaders, &kl_data_of(request)->places, request);
}
