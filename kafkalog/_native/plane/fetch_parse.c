/* fetch_parse.c: the body of Fetch, versions 4 to 18.  Kafka's FetchRequest.json. */
#include "fetch.h"

enum {
    VERSION_LOG_START = 5,
    TAG_REPLICA_STATE = 1,
    TOPIC_BYTES_MIN = 2,
    PARTITION_BYTES_MIN = 16
};

static bool parse_topic_key(bool by_id, kl_in *in, kl_topic_key *key) {
    *key = (kl_topic_key){{NULL, 0}, NULL};
    if (by_id) key->id = kl_in_take(in, KL_TOPIC_ID_BYTES);
    else key->name = kl_in_string(in);
    return !in->bad && (key->id || key->name.data);
}

static bool parse_partition(const kl_request *request, kl_fetch *fetch, kl_in *in,
                            kl_fetch_topic *topic) {
    int16_t version = request->api_version;
    kl_fetch_item *item = kl_fetch_set_add(&fetch->asked, topic, kl_in_i32(in));
    if (item == NULL) return false;
    item->leader_epoch = version >= KL_FETCH_EPOCHS ? kl_in_i32(in) : -1;
    item->offset = kl_in_i64(in);
    item->last_fetched_epoch = version >= KL_FETCH_FLEXIBLE ? kl_in_i32(in) : -1;
    item->follower_start = version >= VERSION_LOG_START ? kl_in_i64(in) : -1;
    item->max_bytes = kl_in_i32(in);
    kl_in_skip_tags(in); /* a follower's directory id */
    return !in->bad;
}

static bool parse_topics(const kl_request *request, kl_fetch *fetch, kl_in *in) {
    bool by_id = request->api_version >= KL_FETCH_TOPIC_IDS;
    for (uint32_t topics = kl_in_array(in, TOPIC_BYTES_MIN); topics > 0; topics--) {
        kl_topic_key key;
        if (!parse_topic_key(by_id, in, &key)) return false;
        uint32_t count = kl_in_array(in, PARTITION_BYTES_MIN);
        if (fetch->asked.count + count > KL_REQUEST_PARTITIONS_MAX) return false;
        kl_fetch_topic *topic = count ? kl_fetch_set_topic(&fetch->asked, &key) : NULL;
        if (count && topic == NULL) return false;
        for (; count > 0; count--)
            if (!parse_partition(request, fetch, in, topic)) return false;
        kl_in_skip_tags(in);
    }
    return !in->bad;
}

/* With `fetch`, forget them in its session; without, skip them. */
static bool walk_forgotten(kl_fetch *fetch, kl_in *in, bool by_id, uint32_t topics) {
    for (; topics > 0; topics--) {
        kl_topic_key key;
        if (!parse_topic_key(by_id, in, &key)) return false;
        for (uint32_t count = kl_in_array(in, sizeof(int32_t)); count > 0; count--) {
            int32_t partition = kl_in_i32(in);
            if (fetch) kl_fetch_set_forget(&fetch->session->set, &key, partition);
        }
        kl_in_skip_tags(in);
    }
    return !in->bad;
}

void kl_fetch_forget(kl_fetch *fetch) {
    kl_in in = fetch->forgotten;
    walk_forgotten(fetch, &in, fetch->session->by_id, fetch->forgotten_topics);
}

/* The final tagged fields: ignores the cluster id, reads a follower's state. */
static void parse_tags(const kl_request *request, kl_fetch *fetch, kl_in *in) {
    if (!in->flexible) return;
    for (uint32_t count = kl_in_uvarint(in); count > 0 && !in->bad; count--) {
        uint32_t tag = kl_in_uvarint(in), bytes = kl_in_uvarint(in);
        const uint8_t *value = kl_in_take(in, bytes);
        bool state = tag == TAG_REPLICA_STATE && request->api_version >= KL_FETCH_STATE;
        if (!value || !state) continue;
        if (bytes >= sizeof(int32_t)) fetch->replica_id = (int32_t)kl_get32(value);
        if (bytes >= sizeof(int32_t) + sizeof(int64_t))
            fetch->broker_epoch = (int64_t)kl_get64(value + sizeof(int32_t));
    }
}

bool kl_fetch_parse(kl_request *request, kl_fetch *fetch) {
    int16_t version = request->api_version;
    kl_in in = kl_request_body(request, version >= KL_FETCH_FLEXIBLE);
    fetch->replica_id = version < KL_FETCH_STATE ? kl_in_i32(&in) : -1;
    fetch->broker_epoch = -1;
    fetch->max_wait_ms = kl_in_i32(&in);
    fetch->min_bytes = kl_in_i32(&in);
    fetch->max_bytes = kl_in_i32(&in);
    fetch->to = kl_in_i8(&in) == 1 ? KL_COMMITTED : KL_UNCOMMITTED;
    bool sessions = version >= KL_FETCH_SESSIONS;
    fetch->session_id = sessions ? kl_in_i32(&in) : 0;
    fetch->session_epoch = sessions ? kl_in_i32(&in) : KL_SESSION_FINAL;
    if (!parse_topics(request, fetch, &in)) return false;
    if (sessions) {
        fetch->forgotten_topics = kl_in_array(&in, TOPIC_BYTES_MIN);
        fetch->forgotten = in;
        if (!walk_forgotten(NULL, &in, version >= KL_FETCH_TOPIC_IDS,
                            fetch->forgotten_topics))
            return false;
    }
    kl_span rack = version >= KL_FETCH_RACK ? kl_in_string(&in) : (kl_span){NULL, 0};
    parse_tags(request, fetch, &in);
    fetch->near_count = 0;
    if (fetch->replica_id < 0)
        fetch->near_count =
            kl_racks_find(&fetch->data->racks, rack, fetch->data->config->node_id,
                          fetch->near, KL_FETCH_NEAR_MAX);
    if (fetch->replica_id >= 0) fetch->to = KL_LOG_END;
    return !in.bad && in.at == in.end;
}
