/* fetch_read.c: reads the records, or the error, of each partition of a Fetch.  Kafka's
 * ReplicaManager.readFromLog. */
#include "fetch.h"

#include <errno.h>

#include "base/io.h"

enum {
    COPIED_BYTES_MAX = 4096, /* below this a slice (two calls, one packet) does not pay */
    /* Per response.  Beyond this, and when all responses have used their share of descriptors,
     * records are copied, up to this size per response, but at least one batch. */
    SLICES_MAX = 64,
    UNPINNED_BYTES_MAX = 64 << 10
};

void kl_fetch_drop_slices(kl_fetch *fetch) {
    for (kl_fetch_item *item = kl_fetch_set_first(fetch->set); item;
         item = kl_fetch_set_behind(fetch->set, item))
        kl_data_drop_slice(fetch->data, &item->slice);
}

static void forget_findings(const kl_fetch *fetch, kl_fetch_item *item) {
    kl_data_drop_slice(fetch->data, &item->slice);
    item->slice_bytes = 0;
    item->copied = item->cold = false;
    item->code = CODE_NONE;
    item->diverging_end = -1;
    item->high_watermark = item->last_stable = item->log_start = -1;
    item->read_from = -1;
    item->aborted_count = 0;
}

/* ---- one partition ------------------------------------------------------------------------- */

static int16_t unknown(const kl_fetch_item *item) {
    if (item->denied) return CODE_TOPIC_AUTHORIZATION_FAILED;
    if (item->offline) return CODE_KAFKA_STORAGE_ERROR;
    if (item->topic->by_id && !item->topic_known) return CODE_UNKNOWN_TOPIC_ID;
    return CODE_UNKNOWN_TOPIC_OR_PARTITION;
}

/* Errors that need no read of the log. */
static int16_t check_role(const kl_request *request, const kl_fetch *fetch,
                          kl_fetch_item *item) {
    const kl_replica *replica = item->replica;
    int32_t epoch = item->seen_epoch = atomic_load(&replica->leader_epoch);
    if (atomic_load(&replica->ended)) return CODE_KAFKA_STORAGE_ERROR;
    if ((item->flags & KL_TOPIC_ZSTD) && request->api_version < KL_FETCH_ZSTD)
        return CODE_UNSUPPORTED_COMPRESSION_TYPE;
    bool follows = atomic_load(&replica->follows), follower = fetch->replica_id >= 0;
    /* From this version on consumers may read from any replica. */
    if (follows && (follower || request->api_version < KL_FETCH_RACK))
        return CODE_NOT_LEADER_OR_FOLLOWER;
    if (follower && !kl_followers_have(&item->replica->followers, fetch->replica_id,
                                       fetch->broker_epoch))
        return CODE_NOT_LEADER_OR_FOLLOWER;
    if (item->leader_epoch >= 0 && item->leader_epoch < epoch)
        return CODE_FENCED_LEADER_EPOCH;
    if (item->leader_epoch > epoch) return CODE_UNKNOWN_LEADER_EPOCH;
    return CODE_NONE;
}

/* Check that the client's last records are still in the log.  KIP-595. */
static int16_t check_diverging(kl_fetch_item *item, kl_log *log) {
    if (item->last_fetched_epoch < 0) return CODE_NONE;
    bool was = item->last_fetched_epoch <= item->seen_epoch;
    /* Never written: every past epoch ends where it began. */
    int32_t epoch = was ? item->last_fetched_epoch : -1;
    int64_t end = was ? 0 : -1;
    kl_status status = KL_OK;
    if (log) status = kl_log_epoch_end(log, item->last_fetched_epoch, &epoch, &end);
    if (status) return kl_code_of(status);
    if (epoch < 0 || end < 0) return CODE_OFFSET_OUT_OF_RANGE;
    if (item->offset < atomic_load(&item->replica->log_start))
        return CODE_OFFSET_OUT_OF_RANGE;
    if (epoch >= item->last_fetched_epoch && end >= item->offset) return CODE_NONE;
    item->diverging_epoch = epoch;
    item->diverging_end = end;
    return CODE_NONE;
}

/* Find the aborted transactions among the records sent. */
static kl_status find_aborted(kl_fetch *fetch, kl_fetch_item *item, int64_t next_offset) {
    enum { FEW = 16 };
    item->aborted_at = fetch->aborted_count;
    size_t count = FEW;
    kl_status status = KL_OK;
    do {
        size_t wanted = fetch->aborted_count + count;
        kl_aborted *grown =
            kl_room_for(fetch->aborted, &fetch->aborted_capacity, wanted, sizeof *grown);
        if (grown == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a fetch");
        fetch->aborted = grown;
        size_t room = fetch->aborted_capacity - fetch->aborted_count;
        status = kl_log_aborted(item->replica->log, item->offset, next_offset,
                                fetch->aborted + fetch->aborted_count, room, &count);
        if (status) return status;
    } while (fetch->aborted_count + count > fetch->aborted_capacity);
    item->aborted_count = count;
    fetch->aborted_count += count;
    return KL_OK;
}

/* The response's remaining space. */
typedef struct {
    int64_t left;
    int64_t given;
    bool more;
} budget;

/* Copy records that are not worth a slice, or that cannot get one. */
static kl_status copy_records(kl_fetch *fetch, kl_fetch_item *item) {
    kl_buffer *copied = &fetch->copied;
    int64_t pos = item->slice.pos, end = pos + (int64_t)item->slice.bytes;
    kl_status status = kl_buffer_reserve(copied, item->slice.bytes);
    item->copied_at = copied->bytes;
    while (!status && pos < end) {
        ssize_t got = kl_io->pread(item->slice.fd, copied->data + copied->bytes,
                                   (size_t)(end - pos), (off_t)pos);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) status = kl_fail(KL_E_STALE, "a log was cut while it was read");
        else if (got < 0) status = kl_fail_errno(errno, "a read for a response");
        if (status) break;
        KL_ASSERT((size_t)got <= copied->capacity - copied->bytes);
        copied->bytes += (size_t)got;
        pos += got;
    }
    if (status) copied->bytes = item->copied_at;
    item->copied = !status;
    kl_data_drop_slice(fetch->data, &item->slice);
    return status;
}

static kl_status read_records(kl_fetch *fetch, kl_fetch_item *item, budget *budget) {
    int64_t limit = KL_MIN((int64_t)item->max_bytes, budget->left);
    bool first = budget->given == 0; /* the first gets one batch, whatever its size */
    bool slices = fetch->slices < SLICES_MAX && kl_data_pin(fetch->data);
    if (!slices) {
        limit = KL_MIN(limit, UNPINNED_BYTES_MAX - (int64_t)fetch->copied.bytes);
        atomic_fetch_add(&fetch->data->pinned, 1); /* during the copy */
    }
    if (limit <= 0 && !first) {
        kl_data_unpin(fetch->data);
        budget->more = true;
        return KL_OK;
    }
    if (!fetch->loaded && !kl_log_is_at_hand(item->replica->log, item->offset)) {
        kl_data_unpin(fetch->data);
        item->cold = true;
        fetch->cold_count++;
        return KL_OK;
    }
    kl_read where;
    KL_ASSERT(item->slice.segment == NULL); /* otherwise it would leak */
    kl_status status = kl_log_slice(item->replica->log, item->offset, fetch->to,
                                    (size_t)KL_MAX(limit, 0), first, &item->slice, &where);
    if (status || item->slice.segment == NULL) kl_data_unpin(fetch->data);
    if (status) return status;
    if (where.bytes && (!slices || where.bytes <= COPIED_BYTES_MAX)) {
        status = copy_records(fetch, item);
        /* The log was truncated during the read: the client fetches again. */
        budget->more |= status == KL_E_STALE;
        if (status) return status == KL_E_STALE ? KL_OK : status;
    } else if (where.bytes) {
        KL_ASSERT(fetch->slices < SLICES_MAX);
        fetch->slices++;
    }
    item->slice_bytes = where.bytes;
    budget->left -= (int64_t)where.bytes;
    budget->given += (int64_t)where.bytes;
    /* The segment or the space ended: waiting would gain nothing. */
    if (where.next_offset < where.end_offset) budget->more = true;
    if (fetch->to == KL_COMMITTED && where.bytes)
        status = find_aborted(fetch, item, where.next_offset);
    return status;
}

/* A follower has all records below its fetch offset. */
static void hear_follower(const kl_request *request, const kl_fetch *fetch,
                          const kl_fetch_item *item) {
    kl_replica *replica = item->replica;
    kl_follower_fetch heard = {.id = fetch->replica_id,
                               .broker_epoch = fetch->broker_epoch,
                               .offset = item->offset,
                               .log_start = item->follower_start,
                               .now_ms = kl_now_of(request)};
    if (!kl_replica_fetched(replica, &heard)) return;
    const kl_caught_up told = {atomic_load(&replica->tag), fetch->broker_epoch,
                               fetch->replica_id, item->seen_epoch};
    /* If there is no room, the next fetch repeats it. */
    if (!kl_notices_put(&fetch->data->caught_ups, &told))
        kl_followers_untold(&replica->followers, fetch->replica_id);
}

/* True if an out-of-sync follower has used up its rate: no acks=all waits for it. */
static bool is_held_back(const kl_request *request, kl_fetch *fetch,
                         const kl_fetch_item *item) {
    if (KL_LIKELY(!atomic_load(&item->replica->throttled)) || fetch->replica_id < 0)
        return false;
    fetch->throttled = true;
    return !kl_followers_in_sync(&item->replica->followers, fetch->replica_id) &&
           kl_quota_exceeded(fetch->data->quota, kl_now_of(request));
}

/* Count bytes against the replication rate. */
static void count_throttled(const kl_request *request, const kl_fetch *fetch) {
    int64_t bytes = 0;
    for (const kl_fetch_item *item = kl_fetch_set_first(fetch->set); item;
         item = kl_fetch_set_behind(fetch->set, item))
        if (item->replica && atomic_load(&item->replica->throttled))
            bytes += (int64_t)item->slice_bytes;
    if (bytes > 0) kl_quota_count(fetch->data->quota, bytes, kl_now_of(request));
}

/* As Kafka: the answer is empty, and its bytes do not count. */
static void charge(kl_request *request, kl_fetch *fetch) {
    request->throttle_ms =
        kl_charge_end(fetch->data->buckets, &fetch->charge, KL_QUOTA_FETCH, fetch->bytes,
                      true, true, kl_now_of(request));
    if (request->throttle_ms == 0) return;
    fetch->withheld = true;
    fetch->bytes = 0;
}

void kl_fetch_count(kl_request *request, kl_fetch *fetch) {
    if (KL_UNLIKELY(kl_charge_any(&fetch->charge))) charge(request, fetch);
    if (KL_UNLIKELY(fetch->throttled)) count_throttled(request, fetch);
    fetch->throttle_ms = kl_admission_count(fetch->data->admission, request->principal,
                                            KL_MAY_READ, fetch->bytes, fetch->denied);
    fetch->throttle_ms = KL_MAX(fetch->throttle_ms, request->throttle_ms);
}

/* Between enter and leave. */
static int16_t read_entered(const kl_request *request, kl_fetch *fetch, kl_fetch_item *item,
                            budget *budget) {
    kl_replica *replica = item->replica;
    int16_t code = check_role(request, fetch, item);
    kl_log *log = replica->log;
    if (code == CODE_NONE) code = check_diverging(item, log);
    if (code) return code;
    if (log == NULL) { /* kl_watch_add notices a log attached after this */
        item->bound = item->high_watermark = item->last_stable = item->log_start = 0;
        bool beyond = item->offset != 0 && item->diverging_end < 0;
        return beyond ? CODE_OFFSET_OUT_OF_RANGE : CODE_NONE;
    }
    item->bound = kl_replica_bound(replica, fetch->to);
    if (fetch->near_count > 0 && item->diverging_end < 0 && !atomic_load(&replica->follows))
        item->read_from = kl_followers_nearest(&replica->followers, fetch->near,
                                               fetch->near_count, item->offset);
    bool inside = item->offset >= atomic_load(&replica->log_start) &&
                  item->offset <= atomic_load(&replica->log_end);
    kl_status status = KL_OK;
    if (fetch->replica_id >= 0 && inside && item->diverging_end < 0)
        hear_follower(request, fetch, item);
    /* The log reports what is wrong with an offset out of range. */
    if (item->diverging_end < 0 && item->read_from < 0 &&
        (item->offset < item->bound || !inside) &&
        !(inside && is_held_back(request, fetch, item)))
        status = read_records(fetch, item, budget);
    if (status) return kl_code_of(status);
    item->high_watermark = atomic_load(&replica->high_watermark);
    item->last_stable = atomic_load(&replica->last_stable);
    item->log_start = atomic_load(&replica->log_start);
    return CODE_NONE;
}

static void read_item(const kl_request *request, kl_fetch *fetch, kl_fetch_item *item,
                      budget *budget) {
    forget_findings(fetch, item);
    if (item->replica && kl_replica_enter(item->replica)) {
        item->code = read_entered(request, fetch, item, budget);
        kl_replica_leave(item->replica);
    } else {
        item->code =
            item->replica && item->topic->by_id ? CODE_UNKNOWN_TOPIC_ID : unknown(item);
    }
    if (item->code == CODE_NONE) return;
    int16_t code = item->code;
    budget->given -= (int64_t)item->slice_bytes;
    KL_ASSERT(budget->given >= 0);
    forget_findings(fetch, item);
    /* Clients of these versions do not know the other code. */
    bool old = request->api_version <= 5;
    item->code =
        code == CODE_KAFKA_STORAGE_ERROR && old ? CODE_NOT_LEADER_OR_FOLLOWER : code;
}

bool kl_fetch_read(kl_request *request, kl_fetch *fetch, int64_t *bytes) {
    const kl_server_config *config = kl_data_of(request)->config;
    budget budget = {KL_MIN(fetch->max_bytes, config->fetch_bytes_max), 0, false};
    bool at_once = fetch->set->count == 0;
    fetch->aborted_count = 0;
    fetch->copied.bytes = 0;
    fetch->slices = 0;
    fetch->cold_count = 0;
    fetch->throttled = false;
    kl_fetch_set_hear(fetch->set);
    int64_t looks = 0;
    for (kl_fetch_item *item = kl_fetch_set_first(fetch->set); item;
         item = kl_fetch_set_behind(fetch->set, item), looks++) {
        read_item(request, fetch, item, &budget);
        at_once |=
            item->code != CODE_NONE || item->diverging_end >= 0 || item->read_from >= 0;
    }
    if (fetch->session) kl_sessions_looked(kl_data_of(request)->sessions, looks);
    *bytes = fetch->bytes = budget.given;
    return at_once || budget.more;
}
