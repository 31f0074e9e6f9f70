/* fetch_answer.c: the response of Fetch, versions 4 to 18.  Kafka's FetchResponse.json. */
#include "fetch.h"

enum {
    VERSION_LOG_START = 5,
    FIXED_BYTES_MAX = 96,  /* per partition, topic or response, without lists */
    ABORTED_BYTES_MAX = 17 /* of one transaction */
};

/* Output position; there is space until the next `begin`. */
typedef struct {
    kl_request *request;
    kl_leaders leaders;
    uint8_t *start;
    uint8_t *p;
    size_t reserved;
    int16_t version;
    bool flexible;
} out;

static bool begin(out *out, size_t bytes) {
    out->reserved = bytes;
    out->start = out->p = kl_response_reserve(out->request, bytes);
    return out->p != NULL;
}

static inline void end(const out *out) {
    size_t used = (size_t)(out->p - out->start);
    KL_ASSERT(used <= out->reserved);
    size_t unused = out->reserved - used;
    kl_response_rewind(out->request, kl_response_pos(out->request) - unused);
}

static void put_aborted(out *out, const kl_fetch *fetch, const kl_fetch_item *item) {
    bool list = fetch->to == KL_COMMITTED && item->code == CODE_NONE;
    out->p = kl_out_length(out->p, out->flexible, list ? (int64_t)item->aborted_count : -1);
    for (size_t i = 0; list && i < item->aborted_count; i++) {
        KL_ASSERT(item->aborted_at + i < fetch->aborted_count);
        const kl_aborted *aborted = &fetch->aborted[item->aborted_at + i];
        out->p = kl_out_i64(out->p, aborted->producer_id);
        out->p = kl_out_i64(out->p, aborted->first_offset);
        out->p = kl_out_no_tags(out->p, out->flexible);
    }
}

/* A partition's tagged fields: the diverging epoch, and the current leader. */
static void put_tags(out *out, const kl_fetch_item *item) {
    enum { TAG_DIVERGING = 0, TAG_LEADER = 1, DIVERGING_BYTES = 13 };
    KL_STATIC_ASSERT(DIVERGING_BYTES == sizeof(int32_t) + sizeof(int64_t) + 1,
                     "an epoch, an offset, no tags");
    KL_STATIC_ASSERT(1 + 2 + DIVERGING_BYTES + KL_LEADER_BYTES <= FIXED_BYTES_MAX,
                     "there is room");
    bool diverging = item->diverging_end >= 0;
    kl_leader leader = {-1, -1};
    if (out->version >= KL_FETCH_ENDPOINTS && item->replica &&
        kl_leader_is_told(item->code))
        leader = kl_leader_of(item->replica, kl_data_of(out->request)->config->node_id);
    if (!out->flexible) return;
    uint8_t *p = kl_out_uvarint(out->p, (uint32_t)diverging + (leader.node >= 0));
    if (diverging) {
        p = kl_out_uvarint(p, TAG_DIVERGING);
        p = kl_out_uvarint(p, DIVERGING_BYTES);
        p = kl_out_i32(p, item->diverging_epoch);
        p = kl_out_i64(p, item->diverging_end);
        p = kl_out_no_tags(p, true);
    }
    if (leader.node >= 0) p = kl_leaders_put(&out->leaders, leader, TAG_LEADER, p);
    out->p = p;
}

static bool put_records(out *out, const kl_fetch *fetch, kl_fetch_item *item) {
    if (item->slice_bytes == 0) return true;
    KL_ASSERT(item->copied == (item->slice.segment == NULL));
    if (!item->copied) return kl_response_slice(out->request, &item->slice) == KL_OK;
    uint8_t *to = kl_response_reserve(out->request, item->slice_bytes);
    if (to) memcpy(to, fetch->copied.data + item->copied_at, item->slice_bytes);
    return to != NULL;
}

static void count_item(const kl_request *request, const kl_fetch *fetch,
                       const kl_fetch_item *item) {
    kl_count_error(request, item->code);
    if (item->replica == NULL) return;
    kl_count *traffic = item->replica->traffic;
    bool follower = fetch->replica_id >= 0;
    if (!follower) kl_count_share(&traffic[KL_TRAFFIC_FETCHED], 1);
    if (!follower && item->code) kl_count_share(&traffic[KL_TRAFFIC_FETCH_FAILED], 1);
    if (item->slice_bytes)
        kl_count_share(
            &traffic[follower ? KL_TRAFFIC_REPLICATED_OUT : KL_TRAFFIC_BYTES_OUT],
            (int64_t)item->slice_bytes);
}

static bool put_partition(out *out, kl_fetch *fetch, kl_fetch_item *item) {
    count_item(out->request, fetch, item);
    if (!begin(out, FIXED_BYTES_MAX + item->aborted_count * ABORTED_BYTES_MAX))
        return false;
    out->p = kl_out_i32(out->p, item->partition);
    out->p = kl_out_i16(out->p, item->code);
    out->p = kl_out_i64(out->p, item->high_watermark);
    out->p = kl_out_i64(out->p, item->last_stable);
    if (out->version >= VERSION_LOG_START) out->p = kl_out_i64(out->p, item->log_start);
    put_aborted(out, fetch, item);
    if (out->version >= KL_FETCH_RACK) out->p = kl_out_i32(out->p, item->read_from);
    out->p = kl_out_length(out->p, out->flexible, (int64_t)item->slice_bytes);
    end(out);
    if (!put_records(out, fetch, item)) return false;
    if (!begin(out, FIXED_BYTES_MAX)) return false;
    put_tags(out, item);
    end(out);
    return true;
}

static bool put_topic(out *out, const kl_fetch_topic *topic, uint32_t partitions) {
    if (!begin(out, FIXED_BYTES_MAX + topic->name.bytes)) return false;
    if (out->version >= KL_FETCH_TOPIC_IDS)
        out->p = kl_out_bytes(out->p, topic->id, sizeof topic->id);
    else out->p = kl_out_string(out->p, out->flexible, topic->name);
    out->p = kl_out_length(out->p, out->flexible, partitions);
    end(out);
    return true;
}

/* ---- selection of partitions -------------------------------------------------------------- */

/* In a session, answer only changes. */
static bool is_news(const kl_fetch *fetch, kl_fetch_item *item) {
    bool news = item->slice_bytes > 0 || item->code || item->diverging_end >= 0 ||
                item->read_from >= 0 || item->high_watermark != item->told_high_watermark ||
                item->log_start != item->told_log_start;
    item->told_high_watermark = item->high_watermark;
    item->told_log_start = item->log_start;
    return news || !fetch->incremental;
}

/* Number of items of the same topic from `item` on; *next is the one after them. */
static uint32_t group(const kl_fetch *fetch, kl_fetch_item *item, kl_fetch_item **next) {
    const kl_fetch_topic *topic = item->topic;
    uint32_t count = 0;
    for (; item; item = kl_fetch_set_behind(fetch->set, item)) {
        if (!item->answered) continue;
        if (item->topic != topic) break;
        count++;
    }
    *next = item;
    return count;
}

static bool put_group(out *out, kl_fetch *fetch, kl_fetch_item *item,
                      const kl_fetch_item *next, uint32_t count) {
    if (!put_topic(out, item->topic, count)) return false;
    for (; item != next; item = kl_fetch_set_behind(fetch->set, item))
        if (item->answered && !put_partition(out, fetch, item)) return false;
    if (!begin(out, 1)) return false;
    out->p = kl_out_no_tags(out->p, out->flexible);
    end(out);
    return true;
}

/* ---- the whole --------------------------------------------------------------------------- */

bool kl_fetch_goes_on(const kl_fetch *fetch) {
    return fetch->incremental || !fetch->withheld;
}

static bool put_head(out *out, const kl_fetch *fetch, uint32_t topics) {
    bool session = fetch->session && fetch->code == CODE_NONE && kl_fetch_goes_on(fetch);
    if (!begin(out, FIXED_BYTES_MAX)) return false;
    out->p = kl_out_i32(out->p, fetch->throttle_ms);
    if (out->version >= KL_FETCH_SESSIONS) {
        out->p = kl_out_i16(out->p, fetch->code);
        out->p = kl_out_i32(out->p, session ? fetch->session->id : 0);
    }
    out->p = kl_out_length(out->p, out->flexible, topics);
    end(out);
    return true;
}

bool kl_fetch_answer(kl_request *request, kl_fetch *fetch) {
    int16_t version = request->api_version;
    out out = {
        .request = request, .version = version, .flexible = version >= KL_FETCH_FLEXIBLE};
    bool empty = fetch->code || fetch->withheld;
    if (fetch->code) kl_count_error(request, fetch->code);
    kl_fetch_item *first = empty ? NULL : kl_fetch_set_first(fetch->set), *next;
    uint32_t topics = 0;
    for (kl_fetch_item *item = first; item; item = kl_fetch_set_behind(fetch->set, item))
        item->answered = is_news(fetch, item);
    for (kl_fetch_item *item = first; item; item = next)
        topics += group(fetch, item, &next) > 0;
    if (!put_head(&out, fetch, topics)) return false;
    for (kl_fetch_item *item = first; item; item = next) {
        uint32_t partitions = group(fetch, item, &next);
        if (partitions && !put_group(&out, fetch, item, next, partitions)) return false;
    }
    return !out.flexible ||
           kl_leaders_end(&out.leaders, &kl_data_of(request)->places, request);
}
