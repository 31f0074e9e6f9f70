/* clean_records.c: collects, filters and rewrites the records of a batch. */
#include "clean.h"

/* Keys looked up together, so that their cache misses overlap. */
enum { WINDOW = 32 };

typedef struct {
    int32_t count;
    kl_record_view views[WINDOW];
    kl_clean_key keys[WINDOW]; /* of records with a key and below the end */
} window;

/* Decode the next records and prefetch the slots of their keys. */
static kl_status fill_window(const kl_cleaner *cleaner, const kl_batch *batch,
                             const uint8_t **p, const uint8_t *end, int32_t left,
                             window *out) {
    out->count = 0;
    while (out->count < WINDOW && out->count < left) {
        kl_record_view *view = &out->views[out->count];
        const uint8_t *next = kl_record_next(*p, end, false, view);
        if (KL_UNLIKELY(next == NULL || view->offset_delta < 0 ||
                        view->offset_delta > batch->last_offset_delta))
            return kl_fail(KL_E_CORRUPT_MESSAGE,
                           "batch at offset %lld: record %d of %d is not a record",
                           (long long)batch->base_offset,
                           batch->record_count - left + out->count, batch->record_count);
        kl_clean_key key = {{0, 0}};
        if (view->key) {
            key = kl_hash_24(cleaner->secret, view->key, (size_t)view->key_bytes);
            kl_clean_prefetch(&cleaner->map, key);
        }
        out->keys[out->count] = key;
        out->count++;
        *p = next;
    }
    return KL_OK;
}

static kl_status bytes_left(const kl_batch *batch, const uint8_t *p, const uint8_t *end) {
    if (KL_LIKELY(p == end)) return KL_OK;
    return kl_fail(
        KL_E_CORRUPT_MESSAGE, "batch at offset %lld: %lld bytes follow its %d records",
        (long long)batch->base_offset, (long long)(end - p), batch->record_count);
}

/* ---- pass 1 ------------------------------------------------------------------------- */

kl_status kl_clean_index(kl_cleaner *cleaner, const kl_batch *batch, kl_span records,
                         bool *full) {
    kl_clean_map *map = &cleaner->map;
    const uint8_t *p = records.data, *end = records.data + records.bytes;
    /* At least one batch must fit, whatever the limit, or rounds would make no progress. */
    bool first = cleaner->end_offset <= cleaner->options.first_dirty_offset;
    *full = false;
    for (int32_t left = batch->record_count; left > 0;) {
        window w;
        kl_status status = fill_window(cleaner, batch, &p, end, left, &w);
        if (status) return status;
        left -= w.count;
        for (int32_t i = 0; i < w.count; i++) {
            int64_t offset = batch->base_offset + w.views[i].offset_delta;
            if (w.views[i].key == NULL || offset < cleaner->options.first_dirty_offset)
                continue;
            kl_clean_entry *entry = kl_clean_slot(map, w.keys[i]);
            if (entry->offset_after == 0) {
                bool fits;
                status = kl_clean_map_reserve(map, first, &fits);
                if (status) return status;
                if (!fits) {
                    *full = true;
                    return KL_OK;
                }
                entry = kl_clean_slot(map, w.keys[i]); /* the map may have grown */
                entry->key = w.keys[i];
                map->count++;
            }
            entry->offset_after = offset + 1;
        }
    }
    return bytes_left(batch, p, end);
}

/* ---- pass 2 ------------------------------------------------------------------------- */

/* True if the batch's delete horizon has passed. */
static bool horizon_is_over(const kl_cleaner *cleaner, const kl_batch *batch) {
    return batch->attributes & KL_ATTR_DELETE_HORIZON &&
           batch->base_timestamp <= cleaner->options.now_ms;
}

static bool stays(const kl_cleaner *cleaner, int64_t offset, bool tombstones_go,
                  const kl_record_view *view, kl_clean_key key) {
    if (offset >= cleaner->end_offset) return true; /* newer than the map */
    if (view->key == NULL) return false;
    if (view->value == NULL && tombstones_go) return false;
    return offset + 1 >= kl_clean_slot(&cleaner->map, key)->offset_after;
}

kl_status kl_clean_filter(kl_cleaner *cleaner, kl_clean_item *item, kl_span records) {
    const kl_batch *batch = &item->batch;
    const uint8_t *p = records.data, *end = records.data + records.bytes;
    bool tombstones_go = horizon_is_over(cleaner, batch), tombstones = false;
    cleaner->flags.bytes = 0;
    kl_status status = kl_buffer_reserve(&cleaner->flags, (size_t)batch->record_count);
    if (status) return status;
    uint8_t *flag = cleaner->flags.data;
    int64_t first_timestamp = 0, max_timestamp = -1;
    item->kept = 0;
    for (int32_t left = batch->record_count; left > 0;) {
        window w;
        status = fill_window(cleaner, batch, &p, end, left, &w);
        if (status) return status;
        left -= w.count;
        for (int32_t i = 0; i < w.count; i++) {
            const kl_record_view *view = &w.views[i];
            bool kept = stays(cleaner, batch->base_offset + view->offset_delta,
                              tombstones_go, view, w.keys[i]);
            *flag++ = kept;
            if (!kept) continue;
            int64_t timestamp = kl_record_timestamp(batch, view->timestamp_delta);
            if (item->kept++ == 0) first_timestamp = timestamp;
            tombstones |= view->value == NULL;
            max_timestamp = KL_MAX(max_timestamp, timestamp);
        }
    }
    status = bytes_left(batch, p, end);
    if (status) return status;
    KL_ASSERT(flag == cleaner->flags.data + batch->record_count);
    KL_ASSERT(item->kept <= batch->record_count);
    bool has_horizon = batch->attributes & KL_ATTR_DELETE_HORIZON;
    item->set_horizon = tombstones && !has_horizon;
    item->max_timestamp = max_timestamp;
    item->base_timestamp = batch->base_timestamp;
    /* The base must not exceed the largest timestamp; otherwise records stay unchanged. */
    if (!has_horizon && max_timestamp < batch->base_timestamp)
        item->base_timestamp = first_timestamp;
    if (item->set_horizon) item->base_timestamp = kl_clean_horizon(cleaner);
    if (item->kept == 0) item->fate = item->retain_empty ? KL_FATE_EMPTY : KL_FATE_DROP;
    else if (item->kept == batch->record_count && !item->set_horizon)
        item->fate = KL_FATE_KEEP;
    else item->fate = KL_FATE_REWRITE;
    return KL_OK;
}

int64_t kl_clean_horizon(const kl_cleaner *cleaner) {
    const kl_clean_options *options = &cleaner->options;
    if (options->delete_retention_ms > INT64_MAX - options->now_ms) return INT64_MAX;
    return options->now_ms + options->delete_retention_ms;
}

kl_batch kl_clean_header(const kl_clean_item *item) {
    enum { KEPT = KL_ATTR_LOG_APPEND_TIME | KL_ATTR_TRANSACTIONAL | KL_ATTR_CONTROL };
    kl_batch header = item->batch;
    if (item->fate == KL_FATE_EMPTY) {
        header.attributes &= KEPT;
        header.base_timestamp = -1;
        header.record_count = 0;
        return header;
    }
    header.record_count = item->kept;
    header.base_timestamp = item->base_timestamp;
    header.max_timestamp = item->max_timestamp;
    if (item->set_horizon) header.attributes |= KL_ATTR_DELETE_HORIZON;
    return header;
}

/* Encode a record relative to another base timestamp, which changes its length. */
static uint8_t *put_rebased(uint8_t *out, const uint8_t *body, const uint8_t *end,
                            uint64_t base_change) {
    int64_t delta = 0;
    const uint8_t *rest = kl_get_varlong(body + 1, end, KL_VARLONG_BYTES_MAX, &delta);
    KL_ASSERT(rest != NULL); /* the filter decoded it */
    delta = (int64_t)((uint64_t)delta - base_change);
    size_t rest_bytes = (size_t)(end - rest);
    out += kl_put_varint(out, (int64_t)(1 + kl_varint_bytes(delta) + rest_bytes));
    *out++ = body[0];
    out += kl_put_varint(out, delta);
    memcpy(out, rest, rest_bytes);
    return out + rest_bytes;
}

kl_status kl_clean_rewrite(const kl_cleaner *cleaner, const kl_clean_item *item,
                           kl_span records, kl_buffer *out) {
    enum { GROWTH_MAX = KL_VARINT_BYTES_MAX + KL_VARLONG_BYTES_MAX };
    size_t room = records.bytes;
    bool rebase = item->base_timestamp != item->batch.base_timestamp;
    if (rebase) room += (size_t)item->kept * GROWTH_MAX;
    kl_status status = kl_buffer_reserve(out, room);
    if (status) return status;
    uint64_t base_change =
        (uint64_t)item->base_timestamp - (uint64_t)item->batch.base_timestamp;
    const uint8_t *p = records.data, *end = records.data + records.bytes, *run = NULL;
    uint8_t *to = out->data + out->bytes;
    for (int32_t i = 0; i < item->batch.record_count; i++) {
        int32_t length = 0;
        const uint8_t *body = kl_get_varint(p, end, &length);
        KL_ASSERT(body != NULL && length >= 0 && length <= end - body);
        const uint8_t *next = body + length;
        bool kept = cleaner->flags.data[i];
        if (kept && rebase) {
            to = put_rebased(to, body, next, base_change);
        } else if (kept && run == NULL) {
            run = p; /* copy adjacent records at once */
        } else if (!kept && run) {
            memcpy(to, run, (size_t)(p - run));
            to += p - run;
            run = NULL;
        }
        p = next;
    }
    if (run) {
        memcpy(to, run, (size_t)(p - run));
        to += p - run;
    }
    KL_ASSERT(p == end); /* as the filter found */
    out->bytes = (size_t)(to - out->data);
    KL_ASSERT(out->bytes <= out->capacity);
    return KL_OK;
}
