/* clean.c: a round of compaction: its segments, the walk over batches, calls for the codecs. */
#include "clean.h"

#include "log/read.h"

enum {
    RAW_BYTES_MAX = 8 << 20, /* limit of compressed batches passed to the caller at once */
    PAUSE_BYTES_MIN = 64 << 10
};

/* ---- open --------------------------------------------------------------------------- */

static kl_status check_options(const kl_clean_options *options) {
    if (options->first_dirty_offset < 0 ||
        options->end_offset < options->first_dirty_offset)
        return kl_fail(KL_E_ARGUMENT, "compaction of offsets [%lld, %lld)",
                       (long long)options->first_dirty_offset,
                       (long long)options->end_offset);
    if (options->map_bytes < 1 || !(options->map_load > 0 && options->map_load <= 0.95))
        return kl_fail(KL_E_ARGUMENT,
                       "a map of %lld bytes, %g full: wanted at least 1, and above 0 to "
                       "0.95",
                       (long long)options->map_bytes, options->map_load);
    if (options->now_ms < 0 || options->delete_retention_ms < 0)
        return kl_fail(KL_E_ARGUMENT, "times %lld and %lld: wanted at least 0",
                       (long long)options->now_ms, (long long)options->delete_retention_ms);
    return KL_OK;
}

/* Locked.  Take the sealed segments that end at or below the round's end, and the log's producers
 * and aborted transactions. */
static kl_status take_segments(kl_cleaner *cleaner) {
    kl_log *log = cleaner->log;
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(log->version->count > 0); /* the active segment */
    int64_t limit = KL_MIN(cleaner->options.end_offset, log->last_stable);
    size_t sealed = log->version->count - 1;
    cleaner->segments = kl_alloc(log->version->count * sizeof *cleaner->segments);
    cleaner->next_bases = kl_alloc(log->version->count * sizeof *cleaner->next_bases);
    cleaner->groups = kl_alloc(log->version->count * sizeof *cleaner->groups);
    if (!cleaner->segments || !cleaner->next_bases || !cleaner->groups)
        return kl_fail(KL_E_NO_MEMORY, "no memory to compact %s", log->path);
    for (size_t i = 0; i < sealed && kl_log_next_base(log, i) <= limit; i++) {
        kl_status status =
            kl_clean_txns_add_aborted(&cleaner->txns, &log->version->segments[i]->aborts);
        if (status) return status;
        cleaner->segments[i] = kl_segment_retain(log->version->segments[i]);
        cleaner->next_bases[i] = kl_log_next_base(log, i);
        cleaner->segment_count++;
    }
    /* A transaction aborted above the range may begin in it. */
    for (size_t i = cleaner->segment_count; i < log->version->count; i++) {
        kl_status status =
            kl_clean_txns_add_aborted(&cleaner->txns, &log->version->segments[i]->aborts);
        if (status) return status;
    }
    return KL_OK;
}

static kl_status take_producers(kl_cleaner *cleaner) {
    size_t count = cleaner->log->producers.count;
    if (count == 0) return KL_OK;
    kl_producer *list = kl_alloc(count * sizeof *list);
    if (list == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for %zu producers", count);
    kl_producers_list(&cleaner->log->producers, list, count);
    kl_status status = KL_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = kl_clean_txns_add_producer(&cleaner->txns, &list[i]);
    kl_release(list);
    return status;
}

/* Load each segment's aborted transactions; they stay complete while the log's generation is
 * `generation`. */
static kl_status know_aborts(kl_log *log, int64_t *generation) {
    kl_look look;
    kl_status status = kl_log_peek(log, &look);
    if (status) return status;
    *generation = look.generation;
    for (size_t i = 0; !status && i < look.version->count; i++) {
        status = kl_log_enter_aborts(log, &look, i);
        if (!status) kl_log_leave(log);
    }
    kl_look_drop(&look);
    return status;
}

/* kl_log_enter_write, with the lists complete. */
static kl_status enter_known(kl_log *log) {
    for (int tries = 0; tries < KL_STALE_TRIES; tries++) {
        int64_t generation;
        kl_status status = know_aborts(log, &generation);
        if (!status) status = kl_log_enter_write(log);
        if (status || log->generation == generation) return status;
        kl_log_leave(log);
    }
    return kl_fail(KL_E_STALE, "log %s: its segments go on changing", log->path);
}

static kl_status take_log(kl_cleaner *cleaner) {
    kl_log *log = cleaner->log;
    kl_status status = enter_known(log);
    if (status) return status;
    if (log->cleaner_open) {
        status = kl_fail(KL_E_LOCKED, "log %s is being compacted already", log->path);
        goto out;
    }
    status = kl_log_make_dirty(log);
    if (!status) status = take_segments(cleaner);
    if (!status) status = take_producers(cleaner);
    if (status) goto out;
    cleaner->generation = log->generation;
    cleaner->index_interval_bytes = log->config.index_interval_bytes;
    log->cleaner_open = true;
out:
    kl_log_leave(log);
    return status;
}

static void free_parts(kl_cleaner *cleaner) {
    if (cleaner->walking) kl_walk_done(&cleaner->walk);
    for (size_t i = 0; i < cleaner->segment_count; i++)
        kl_segment_drop(cleaner->segments[i]);
    kl_release(cleaner->segments);
    kl_release(cleaner->next_bases);
    kl_release(cleaner->groups);
    kl_release(cleaner->pending);
    kl_clean_map_free(&cleaner->map);
    kl_clean_txns_free(&cleaner->txns);
    kl_buffer_free(&cleaner->raw);
    kl_buffer_free(&cleaner->bodies);
    kl_buffer_free(&cleaner->flags);
    kl_buffer_free(&cleaner->out_buffer);
    kl_dir_close(cleaner->dir);
    kl_dir_free(cleaner->dir);
    kl_release(cleaner);
}

kl_status kl_clean_open(kl_log *log, const kl_clean_options *options, kl_cleaner **out) {
    *out = NULL;
    kl_status status = check_options(options);
    if (status) return status;
    kl_cleaner *cleaner = kl_alloc(sizeof *cleaner);
    if (cleaner == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory to compact a log");
    cleaner->log = log;
    cleaner->options = *options;
    cleaner->options.pause_bytes = KL_MAX(options->pause_bytes, (int64_t)PAUSE_BYTES_MIN);
    memcpy(cleaner->secret, options->hash_key, sizeof cleaner->secret);
    cleaner->end_offset = options->first_dirty_offset;
    status = kl_clean_map_init(&cleaner->map, options->map_bytes, options->map_load);
    if (!status) status = kl_dir_open(log->path, 0, &cleaner->dir);
    if (!status) status = take_log(cleaner);
    if (status) {
        free_parts(cleaner);
        return status;
    }
    kl_clean_txns_rewind(&cleaner->txns);
    while (cleaner->segment < cleaner->segment_count &&
           cleaner->next_bases[cleaner->segment] <= options->first_dirty_offset)
        cleaner->segment++;
    *out = cleaner;
    return KL_OK;
}

void kl_clean_free(kl_cleaner *cleaner) {
    if (cleaner == NULL) return;
    kl_log *log = cleaner->log;
    if (log->process_generation == atomic_load(&kl_process_generation)) {
        /* Leave a closed log's folder alone: it may have another owner. */
        bool ours = kl_log_reserve(log) == KL_OK;
        if (ours) kl_log_leave(log);
        kl_clean_out_drop(cleaner, ours);
        kl_lock(&log->lock);
        if (ours) kl_log_release(log);
        log->cleaner_open = false;
        kl_unlock(&log->lock);
    }
    free_parts(cleaner);
}

void kl_clean_get(const kl_cleaner *cleaner, kl_cleaned *out) {
    *out = cleaner->done;
    out->end_offset = cleaner->end_offset;
    out->map_entries = (int64_t)cleaner->map.count;
    out->generation = cleaner->generation;
}

/* ---- batch after batch -------------------------------------------------------------- */

/* The crc does not cover offsets: check that they grow within the segment. */
static kl_status check_place(kl_cleaner *cleaner, const kl_batch *batch) {
    const kl_segment *segment = cleaner->segments[cleaner->segment];
    int64_t from = batch->pos == 0 ? segment->base_offset : cleaner->next_offset;
    if (batch->base_offset < from ||
        batch->last_offset >= cleaner->next_bases[cleaner->segment])
        return kl_fail(KL_E_CORRUPT_MESSAGE,
                       "%s, position %lld: offsets %lld to %lld, wanted some from %lld to "
                       "below %lld",
                       kl_file_name(segment->file), (long long)batch->pos,
                       (long long)batch->base_offset, (long long)batch->last_offset,
                       (long long)from, (long long)cleaner->next_bases[cleaner->segment]);
    cleaner->next_offset = batch->last_offset + 1;
    return KL_OK;
}

/* Compare the header with the side-car, if there is one: rewriting computes new checksums, which
 * would hide damage. */
static kl_status check_header(kl_cleaner *cleaner, const kl_batch *batch) {
    kl_segment *segment = cleaner->segments[cleaner->segment];
    const kl_walk *walk = &cleaner->walk;
    kl_span chunk = {walk->chunk.data, walk->chunk.bytes};
    int64_t good_pos;
    return kl_guard_check(segment, segment->size, batch->pos, batch->pos + 1, chunk,
                          walk->chunk_pos, &good_pos);
}

/* Read the next batch of the current segment into cleaner->item; *found false: at its end. */
static kl_status fetch(kl_cleaner *cleaner, bool *found) {
    *found = cleaner->have_item;
    if (cleaner->have_item || cleaner->walked) return KL_OK;
    kl_segment *segment = cleaner->segments[cleaner->segment];
    KL_ASSERT(cleaner->segment < cleaner->segment_count);
    if (!cleaner->walking)
        kl_walk_init(&cleaner->walk, segment->file, 0, segment->size,
                     KL_CHUNK_RECOVER_BYTES);
    cleaner->walking = true;
    kl_batch *batch = &cleaner->item.batch;
    kl_status status =
        kl_walk_step(&cleaner->walk, true, batch, &cleaner->item_data, found);
    if (status == KL_E_BUFFER_TOO_SMALL) status = KL_E_CORRUPT_MESSAGE;
    if (!status && *found) status = check_place(cleaner, batch);
    if (!status && *found) status = check_header(cleaner, batch);
    if (status) return kl_fail_prefix(status, "log %s", cleaner->log->path);
    cleaner->have_item = *found;
    if (*found) {
        cleaner->passed_bytes += batch->batch_bytes;
        cleaner->done.bytes_read += batch->batch_bytes;
    } else {
        kl_walk_done(&cleaner->walk);
        cleaner->walking = false;
        cleaner->walked = true;
    }
    return KL_OK;
}

static void next_segment(kl_cleaner *cleaner) {
    KL_ASSERT(cleaner->walked && !cleaner->have_item);
    cleaner->segment++;
    cleaner->walked = false;
}

static bool is_compressed(const kl_batch *batch) {
    return !kl_batch_is_control(batch) && kl_batch_codec(batch) != 0;
}

/* True if the pending items must be handled before this one. */
static bool must_wait(const kl_cleaner *cleaner, int32_t max_pending) {
    if (cleaner->pending_count == 0) return false;
    return !is_compressed(&cleaner->item.batch) || cleaner->pending_count == max_pending ||
           cleaner->raw.bytes >= RAW_BYTES_MAX;
}

static kl_status add_pending(kl_cleaner *cleaner, int32_t max_pending) {
    if (cleaner->pending_capacity < max_pending) {
        kl_clean_item *grown =
            kl_resize(cleaner->pending, (size_t)max_pending * sizeof *grown);
        if (grown == NULL)
            return kl_fail(KL_E_NO_MEMORY, "no memory for %d batches", max_pending);
        cleaner->pending = grown;
        cleaner->pending_capacity = max_pending;
    }
    KL_ASSERT(cleaner->pending_count < cleaner->pending_capacity);
    kl_clean_item *item = &cleaner->pending[cleaner->pending_count];
    *item = cleaner->item;
    item->raw_pos = cleaner->raw.bytes;
    kl_status status = kl_buffer_append(&cleaner->raw, cleaner->item_data,
                                        (size_t)item->batch.batch_bytes);
    if (!status) cleaner->pending_count++;
    return status;
}

static kl_span body_of(const kl_batch *batch, const uint8_t *data) {
    return (kl_span){data + POS_RECORDS, (size_t)batch->batch_bytes - POS_RECORDS};
}

/* ---- pass 1 ------------------------------------------------------------------------- */

static void cover(kl_cleaner *cleaner, const kl_batch *batch) {
    cleaner->end_offset = KL_MAX(cleaner->end_offset, batch->last_offset + 1);
}

static void cover_segment(kl_cleaner *cleaner) {
    KL_ASSERT(cleaner->end_offset <= cleaner->next_bases[cleaner->segment]);
    cleaner->end_offset = cleaner->next_bases[cleaner->segment];
    next_segment(cleaner);
}

/* Decide if the batch's keys go into the map. */
static kl_status judge_for_map(kl_cleaner *cleaner, kl_clean_item *item,
                               const uint8_t *data) {
    const kl_batch *batch = &item->batch;
    item->look = false;
    if (kl_batch_is_control(batch)) {
        int32_t type, epoch;
        bool spent;
        const kl_aborted *entry;
        kl_status status = kl_batch_control(batch, data, &type, &epoch);
        if (status) return status;
        return kl_clean_txns_control(&cleaner->txns, batch, type, &spent, &entry);
    }
    bool aborted;
    kl_status status = kl_clean_txns_data(&cleaner->txns, batch, &aborted);
    item->look = !aborted && batch->record_count > 0 &&
                 batch->last_offset >= cleaner->options.first_dirty_offset;
    return status;
}

static kl_status index_item(kl_cleaner *cleaner, const kl_batch *batch, kl_span records) {
    if (cleaner->map_full) return KL_OK;
    kl_status status = kl_clean_index(cleaner, batch, records, &cleaner->map_full);
    if (!status && !cleaner->map_full) cover(cleaner, batch);
    return status;
}

static void begin_writing(kl_cleaner *cleaner);

/* One batch; *wait: handle the pending ones first. */
static kl_status map_one(kl_cleaner *cleaner, int32_t max_pending, bool *wait) {
    bool found = false;
    kl_status status = KL_OK;
    if (cleaner->segment < cleaner->segment_count && !cleaner->map_full)
        status = fetch(cleaner, &found);
    if (status) return status;
    *wait = found ? must_wait(cleaner, max_pending) : cleaner->pending_count > 0;
    if (*wait) return KL_OK;
    if (!found) {
        if (cleaner->segment < cleaner->segment_count && !cleaner->map_full)
            cover_segment(cleaner);
        else begin_writing(cleaner);
        return KL_OK;
    }
    kl_clean_item *item = &cleaner->item;
    status = judge_for_map(cleaner, item, cleaner->item_data);
    if (status) return status;
    if (is_compressed(&item->batch)) status = add_pending(cleaner, max_pending);
    else if (item->look)
        status =
            index_item(cleaner, &item->batch, body_of(&item->batch, cleaner->item_data));
    else cover(cleaner, &item->batch);
    cleaner->have_item = false;
    return status;
}

/* ---- groups ------------------------------------------------------------------------- */

/* The present size of a group, to check if one more segment fits. */
typedef struct {
    int64_t base;
    int64_t bytes;
} group_size;

static bool fits(const kl_cleaner *cleaner, const kl_log_config *config, group_size size,
                 size_t next) {
    int64_t bytes = size.bytes + cleaner->segments[next]->size;
    if (bytes > KL_MIN(config->segment_bytes, (int64_t)INT32_MAX)) return false;
    if (cleaner->segments[next]->size > 0 &&
        cleaner->next_bases[next] - 1 - size.base > INT32_MAX)
        return false;
    /* An upper bound of the entries in the larger index. */
    int64_t step = KL_MAX(config->index_interval_bytes, KL_BATCH_HEADER_BYTES);
    return (bytes / step + 2) * TIME_ENTRY_BYTES <= config->segment_index_bytes;
}

static void make_groups(kl_cleaner *cleaner, const kl_log_config *config) {
    size_t i = 0;
    while (i < cleaner->segment_count &&
           cleaner->segments[i]->base_offset < cleaner->end_offset) {
        kl_clean_group *group = &cleaner->groups[cleaner->group_count++];
        *group = (kl_clean_group){.first = i, .last_full = i};
        group_size size = {cleaner->segments[i]->base_offset, 0};
        do {
            size.bytes += cleaner->segments[i]->size;
            if (cleaner->segments[i]->size > 0) group->last_full = i;
            cleaner->done.bytes_before += cleaner->segments[i]->size;
            group->count++;
            i++;
        } while (i < cleaner->segment_count &&
                 cleaner->segments[i]->base_offset < cleaner->end_offset &&
                 fits(cleaner, config, size, i));
        cleaner->done.segments_before += (int32_t)group->count;
        KL_ASSERT(group->last_full < group->first + group->count);
    }
    KL_ASSERT(cleaner->group_count <= cleaner->segment_count);
}

static void begin_writing(kl_cleaner *cleaner) {
    kl_log_config config;
    KL_ASSERT(cleaner->pass == KL_PASS_MAP && cleaner->pending_count == 0);
    kl_lock(&cleaner->log->lock);
    config = cleaner->log->config;
    kl_unlock(&cleaner->log->lock);
    if (cleaner->walking) kl_walk_done(&cleaner->walk);
    cleaner->walking = cleaner->walked = cleaner->have_item = false;
    make_groups(cleaner, &config);
    kl_clean_txns_rewind(&cleaner->txns);
    cleaner->pass = KL_PASS_WRITE;
    cleaner->segment = 0;
}

/* ---- pass 2 ------------------------------------------------------------------------- */

/* The last batch of a group stays, if only as a header, so that the new segment ends where the old
 * ones did, and a crash during the swap keeps all of it or nothing. */
static bool ends_group(const kl_cleaner *cleaner) {
    const kl_clean_group *group = &cleaner->groups[cleaner->group];
    return cleaner->segment == group->last_full &&
           cleaner->walk.pos >= cleaner->segments[cleaner->segment]->size;
}

static kl_clean_fate fate_of_empty(const kl_clean_item *item) {
    if (!item->retain_empty) return KL_FATE_DROP;
    return item->batch.record_count == 0 ? KL_FATE_KEEP : KL_FATE_EMPTY;
}

/* A marker stays until its transaction has no data left, and then until its delete horizon. */
static kl_status judge_control(kl_cleaner *cleaner, kl_clean_item *item,
                               const uint8_t *data) {
    const kl_batch *batch = &item->batch;
    int32_t type, epoch;
    bool spent = false;
    const kl_aborted *entry;
    kl_status status = kl_batch_control(batch, data, &type, &epoch);
    if (!status)
        status = kl_clean_txns_control(&cleaner->txns, batch, type, &spent, &entry);
    if (!status && entry) status = kl_aborts_add(&cleaner->out->aborts, entry);
    if (status || !spent || batch->base_offset >= cleaner->end_offset) return status;
    bool has_horizon = batch->attributes & KL_ATTR_DELETE_HORIZON;
    bool over = has_horizon && batch->base_timestamp <= cleaner->options.now_ms;
    if (batch->record_count == 0 || over) {
        item->fate = fate_of_empty(item);
    } else if (!has_horizon) {
        kl_span records = body_of(batch, data);
        status = kl_records_check(batch, records.data, records.bytes, 0, NULL, NULL);
        cleaner->flags.bytes = 0;
        if (!status)
            status = kl_buffer_reserve(&cleaner->flags, (size_t)batch->record_count);
        if (status) return status;
        memset(cleaner->flags.data, 1, (size_t)batch->record_count);
        item->fate = KL_FATE_REWRITE;
        item->set_horizon = true;
        item->kept = batch->record_count;
        item->base_timestamp = kl_clean_horizon(cleaner);
        item->max_timestamp = batch->max_timestamp;
    }
    return status;
}

static kl_status judge(kl_cleaner *cleaner, kl_clean_item *item, const uint8_t *data) {
    const kl_batch *batch = &item->batch;
    item->fate = KL_FATE_KEEP;
    item->look = item->set_horizon = false;
    item->retain_empty = kl_clean_txns_is_last(&cleaner->txns, batch) ||
                         batch->last_offset + 1 == cleaner->end_offset ||
                         ends_group(cleaner);
    if (kl_batch_is_control(batch)) return judge_control(cleaner, item, data);
    cleaner->done.records_before += batch->record_count;
    bool aborted;
    kl_status status = kl_clean_txns_data(&cleaner->txns, batch, &aborted);
    if (status || batch->base_offset >= cleaner->end_offset) return status;
    if (aborted || batch->record_count == 0) item->fate = fate_of_empty(item);
    else item->look = true;
    return KL_OK;
}

/* Write a batch's remainder to the new segment.  `data`: the whole old batch; `body`: the new
 * records as stored. */
static kl_status settle(kl_cleaner *cleaner, const kl_clean_item *item, const uint8_t *data,
                        kl_span body) {
    kl_batch header;
    KL_ASSERT(cleaner->pass == KL_PASS_WRITE && cleaner->out != NULL);
    switch (item->fate) {
    case KL_FATE_KEEP: return kl_clean_out_batch(cleaner, &item->batch, data);
    case KL_FATE_DROP: cleaner->out_changed = true; return KL_OK;
    case KL_FATE_EMPTY:
        header = kl_clean_header(item);
        return kl_clean_out_built(cleaner, &header, NULL, 0);
    case KL_FATE_REWRITE:
        header = kl_clean_header(item);
        return kl_clean_out_built(cleaner, &header, body.data, body.bytes);
    }
    return KL_OK;
}

static kl_status write_item(kl_cleaner *cleaner) {
    kl_clean_item *item = &cleaner->item;
    kl_span records = body_of(&item->batch, cleaner->item_data);
    kl_status status = KL_OK;
    if (item->look) status = kl_clean_filter(cleaner, item, records);
    cleaner->bodies.bytes = 0;
    if (!status && item->fate == KL_FATE_REWRITE)
        status = kl_clean_rewrite(cleaner, item, records, &cleaner->bodies);
    kl_span body = {cleaner->bodies.data, cleaner->bodies.bytes};
    return status ? status : settle(cleaner, item, cleaner->item_data, body);
}

static kl_status finish(kl_cleaner *cleaner) {
    kl_log *log = cleaner->log;
    KL_ASSERT(cleaner->out == NULL && cleaner->pending_count == 0);
    cleaner->pass = KL_PASS_DONE;
    kl_status status = kl_log_reserve(log);
    if (status) return status;
    kl_look look = kl_log_see(log);
    kl_version_retain(look.version);
    kl_log_leave(log);
    /* Remove snapshots at the bases of removed segments. */
    status = kl_log_trim_snapshots(look.version, cleaner->dir, INT64_MAX,
                                   kl_version_active(look.version)->base_offset + 1);
    kl_lock(&log->lock);
    kl_look_drop(&look);
    kl_log_release(log);
    kl_log_leave(log);
    return status;
}

static kl_status end_segment(kl_cleaner *cleaner) {
    const kl_clean_group *group = &cleaner->groups[cleaner->group];
    next_segment(cleaner);
    if (cleaner->segment < group->first + group->count) return KL_OK;
    kl_status status = kl_clean_out_end(cleaner);
    cleaner->group++;
    return status;
}

/* One batch; *wait: handle the pending ones first. */
static kl_status write_one(kl_cleaner *cleaner, int32_t max_pending, bool *wait) {
    kl_status status = KL_OK;
    bool found;
    *wait = false;
    if (cleaner->group == cleaner->group_count) return finish(cleaner);
    if (cleaner->out == NULL) status = kl_clean_out_begin(cleaner);
    if (!status) status = fetch(cleaner, &found);
    if (status) return status;
    *wait = found ? must_wait(cleaner, max_pending) : cleaner->pending_count > 0;
    if (*wait) return KL_OK;
    if (!found) return end_segment(cleaner);
    status = judge(cleaner, &cleaner->item, cleaner->item_data);
    if (!status && is_compressed(&cleaner->item.batch))
        status = add_pending(cleaner, max_pending);
    else if (!status) status = write_item(cleaner);
    cleaner->have_item = false;
    return status;
}

/* ---- compression by the caller ------------------------------------------------------ */

static bool is_asked(const kl_cleaner *cleaner, const kl_clean_item *item) {
    return item->look && (!cleaner->deflating || item->fate == KL_FATE_REWRITE);
}

/* Skip pending batches up to the next one that the caller must (de)compress. */
static kl_status advance(kl_cleaner *cleaner) {
    for (; cleaner->pending_next < cleaner->pending_count; cleaner->pending_next++) {
        const kl_clean_item *item = &cleaner->pending[cleaner->pending_next];
        if (is_asked(cleaner, item)) break;
        kl_status status = KL_OK;
        const kl_span none = {NULL, 0};
        if (cleaner->pass == KL_PASS_MAP && !cleaner->map_full)
            cover(cleaner, &item->batch);
        else if (cleaner->deflating)
            status = settle(cleaner, item, cleaner->raw.data + item->raw_pos, none);
        if (status) return status;
    }
    return KL_OK;
}

/* List the bodies for the caller. */
static int32_t list_asked(const kl_cleaner *cleaner, kl_compressed *bodies) {
    int32_t count = 0;
    for (int32_t i = 0; i < cleaner->pending_count; i++) {
        const kl_clean_item *item = &cleaner->pending[i];
        if (!is_asked(cleaner, item)) continue;
        kl_span body = body_of(&item->batch, cleaner->raw.data + item->raw_pos);
        KL_ASSERT(item->body_pos + item->body_bytes <= cleaner->bodies.bytes ||
                  !cleaner->deflating);
        if (cleaner->deflating)
            body = (kl_span){cleaner->bodies.data + item->body_pos, item->body_bytes};
        KL_ASSERT(body.data != NULL && item->batch.record_count > 0);
        bodies[count++] = (kl_compressed){.data = body.data,
                                          .bytes = body.bytes,
                                          .base_offset = item->batch.base_offset,
                                          .codec = kl_batch_codec(&item->batch),
                                          .record_count = item->batch.record_count};
    }
    return count;
}

/* Have the caller decompress the pending batches, then compress the changed ones; *count 0:
 * done. */
static kl_status work_on_pending(kl_cleaner *cleaner, kl_compressed *bodies, int32_t *count,
                                 int32_t *state) {
    kl_status status = advance(cleaner);
    if (status) return status;
    bool asked = cleaner->pending_next < cleaner->pending_count;
    if (asked && cleaner->given > 0)
        return kl_fail(KL_E_ARGUMENT, "%d of the bodies were given back, wanted all",
                       cleaner->given);
    if (!asked && cleaner->pass == KL_PASS_WRITE && !cleaner->deflating) {
        cleaner->deflating = true;
        cleaner->pending_next = cleaner->given = 0;
        return work_on_pending(cleaner, bodies, count, state);
    }
    if (asked) {
        *count = list_asked(cleaner, bodies);
        *state = cleaner->deflating ? KL_CLEAN_DEFLATE : KL_CLEAN_INFLATE;
        return KL_OK;
    }
    cleaner->pending_count = cleaner->pending_next = cleaner->given = 0;
    cleaner->deflating = false;
    cleaner->raw.bytes = cleaner->bodies.bytes = 0;
    return KL_OK;
}

static kl_status give(kl_cleaner *cleaner, kl_clean_item *item, kl_span data) {
    if (cleaner->deflating) return settle(cleaner, item, NULL, data);
    if (cleaner->pass == KL_PASS_MAP) return index_item(cleaner, &item->batch, data);
    kl_status status = kl_clean_filter(cleaner, item, data);
    if (status || item->fate != KL_FATE_REWRITE) return status;
    item->body_pos = cleaner->bodies.bytes;
    status = kl_clean_rewrite(cleaner, item, data, &cleaner->bodies);
    item->body_bytes = cleaner->bodies.bytes - item->body_pos;
    return status;
}

/* ---- calls -------------------------------------------------------------------------- */

/* The log stays open until `leave`. */
static kl_status enter(kl_cleaner *cleaner) {
    kl_log *log = cleaner->log;
    if (cleaner->failed)
        return kl_fail(KL_E_ARGUMENT, "the compaction of %s failed before", log->path);
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    if (log->generation != cleaner->generation)
        status = kl_fail(KL_E_STALE,
                         "log %s was truncated or deleted from while it was compacted",
                         log->path);
    else log->cleaner_busy = true;
    kl_log_leave(log);
    return status;
}

static kl_status leave(kl_cleaner *cleaner, kl_status status) {
    kl_log *log = cleaner->log;
    kl_lock(&log->lock);
    log->cleaner_busy = false;
    pthread_cond_broadcast(&log->changed);
    kl_unlock(&log->lock);
    cleaner->failed = status != KL_OK;
    return status;
}

static kl_status step(kl_cleaner *cleaner, kl_compressed *bodies, int32_t max_bodies,
                      int32_t *count, int32_t *state) {
    bool wait = cleaner->pending_count > 0;
    cleaner->passed_bytes = 0;
    for (;;) {
        kl_status status = KL_OK;
        if (wait) {
            status = work_on_pending(cleaner, bodies, count, state);
            if (status || *count) return status;
        }
        if (cleaner->pass == KL_PASS_DONE) break;
        if (cleaner->passed_bytes >= cleaner->options.pause_bytes &&
            cleaner->pending_count == 0)
            break;
        if (cleaner->pass == KL_PASS_MAP) status = map_one(cleaner, max_bodies, &wait);
        else status = write_one(cleaner, max_bodies, &wait);
        if (status) return status;
    }
    *state = cleaner->pass == KL_PASS_DONE ? KL_CLEAN_END : KL_CLEAN_PAUSE;
    return KL_OK;
}

kl_status kl_clean_step(kl_cleaner *cleaner, kl_compressed *bodies, int32_t max_bodies,
                        int32_t *count, int32_t *state) {
    *count = 0;
    *state = KL_CLEAN_PAUSE;
    if (max_bodies < 1)
        return kl_fail(KL_E_ARGUMENT, "max_bodies %d: wanted 1 or above", max_bodies);
    kl_status status = enter(cleaner);
    if (status) return status;
    return leave(cleaner, step(cleaner, bodies, max_bodies, count, state));
}

kl_status kl_clean_give(kl_cleaner *cleaner, int32_t index, const uint8_t *data,
                        size_t bytes) {
    if (index != cleaner->given || cleaner->pending_next >= cleaner->pending_count)
        return kl_fail(KL_E_ARGUMENT, "body %d: wanted number %d", index, cleaner->given);
    kl_status status = enter(cleaner);
    if (status) return status;
    kl_span span = {data, bytes};
    status = give(cleaner, &cleaner->pending[cleaner->pending_next], span);
    if (!status) {
        cleaner->pending_next++;
        cleaner->given++;
        status = advance(cleaner);
    }
    return leave(cleaner, status);
}
