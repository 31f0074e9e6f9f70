/* derive.c: rebuilds derived state from batches: indexes, leader epochs, producers, aborted
 * transactions. */
#include "log.h"

/* An invalid batch, or one that extends past the end: recovery stops there. */
static bool is_damage(kl_status status) {
    return status == KL_E_CORRUPT_MESSAGE || status == KL_E_BUFFER_TOO_SMALL;
}

/* zip's CRC-32, used by messages of old formats. */
static uint32_t crc32_update(uint32_t crc, const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return crc;
}

/* After a power failure, a torn header followed by zeros can look like magic 0.  The message's own
 * checksum tells an old format from damage. */
kl_status kl_log_judge_format(kl_segment *segment, int64_t pos, int64_t end_pos,
                              kl_status status) {
    if (KL_LIKELY(status != KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT)) return status;
    uint8_t chunk[4096];
    size_t got;
    kl_status looked = kl_file_read(segment->file, chunk, MAGIC_BYTES_NEEDED, pos, &got);
    if (looked || got < MAGIC_BYTES_NEEDED) return looked ? looked : KL_E_CORRUPT_MESSAGE;
    int64_t end =
        pos + LENGTH_OVERHEAD + (int64_t)(int32_t)kl_get32(chunk + POS_BATCH_LENGTH);
    /* Layout of an old message: offset, size, crc, magic. */
    uint32_t stored = kl_get32(chunk + LENGTH_OVERHEAD), crc = UINT32_MAX;
    if (end > end_pos) return KL_E_CORRUPT_MESSAGE;
    for (pos += POS_MAGIC; pos < end; pos += (int64_t)got) {
        size_t want = (size_t)KL_MIN(end - pos, (int64_t)sizeof chunk);
        looked = kl_file_read(segment->file, chunk, want, pos, &got);
        if (looked || got == 0) return looked ? looked : KL_E_CORRUPT_MESSAGE;
        crc = crc32_update(crc, chunk, got);
    }
    return ~crc == stored ? status : KL_E_CORRUPT_MESSAGE;
}

/* `epochs` NULL: they are known already. */
static kl_status note_recovered(const kl_log *log, kl_segment *segment, kl_epochs *epochs,
                                const kl_batch *batch, const uint8_t *data, int64_t pos) {
    kl_status status =
        kl_segment_note(segment, batch, pos, log->config.index_interval_bytes);
    if (!status && log->writable) status = kl_sums_reserve(&segment->sums, 1);
    if (!status && log->writable)
        kl_sums_add(&segment->sums, data, pos, batch->batch_bytes);
    if (!status && epochs && batch->leader_epoch > kl_epochs_latest(epochs))
        status = kl_epochs_assign(epochs, batch->leader_epoch, batch->base_offset);
    return status;
}

/* Check whole batches from `pos` on and add them to the derived state; offsets must grow (I2). */
static kl_status recover_from(const kl_log *log, kl_segment *segment, kl_epochs *epochs,
                              int64_t pos, int64_t end_pos, int64_t *valid_bytes,
                              int64_t *end_offset) {
    kl_walk walk;
    kl_status status = KL_OK;
    kl_walk_init(&walk, segment->file, pos, end_pos, KL_CHUNK_RECOVER_BYTES);
    for (;;) {
        kl_batch batch;
        const uint8_t *data;
        bool found;
        *valid_bytes = walk.pos;
        status = kl_walk_step(&walk, true, &batch, &data, &found);
        if (is_damage(kl_log_judge_format(segment, walk.pos, end_pos, status))) {
            status = KL_OK;
            break;
        }
        if (status || !found || batch.base_offset < *end_offset) break;
        if (batch.base_offset > *end_offset ||
            batch.record_count <= batch.last_offset - batch.base_offset)
            segment->has_gaps = true;
        status = note_recovered(log, segment, epochs, &batch, data, *valid_bytes);
        if (status) break;
        *end_offset = batch.last_offset + 1;
    }
    KL_ASSERT(*valid_bytes <= end_pos);
    if (status) kl_fail_prefix(status, "log %s", log->path);
    kl_walk_done(&walk);
    return status;
}

kl_status kl_log_recover_segment(const kl_log *log, kl_segment *segment, kl_epochs *epochs,
                                 int64_t *valid_bytes, int64_t *end_offset) {
    kl_index_clear(&segment->offsets);
    kl_index_clear(&segment->times);
    segment->offsets.loaded = segment->times.loaded = true;
    segment->max_timestamp = segment->first_timestamp = -1;
    segment->max_timestamp_offset = segment->base_offset;
    segment->bytes_since_entry = 0;
    kl_sums_clear(&segment->sums);
    *end_offset = segment->base_offset;
    return recover_from(log, segment, epochs, 0, segment->size, valid_bytes, end_offset);
}

kl_status kl_log_extend_tail(kl_log *log, kl_segment *segment, int64_t *end_offset) {
    int64_t valid_bytes = segment->size, bytes, modified_ms;
    kl_status status = kl_file_stat(segment->file, &bytes, &modified_ms);
    if (status || bytes <= segment->size) return status;
    status = recover_from(log, segment, &log->epochs, segment->size, bytes, &valid_bytes,
                          end_offset);
    segment->size = valid_bytes;
    return status;
}

enum { LOADED_INDEXES_MAX = 16384 };

/* Unload the indexes of sealed segments that are not in use. */
static void unload_indexes(kl_log *log, const kl_version *version) {
    for (size_t i = 0; i + 1 < version->count; i++)
        kl_segment_unload_indexes(version->segments[i]);
    atomic_store(&log->loaded_indexes, 0);
}

/* Read a reader's active indexes from the writer's state page. */
static kl_status follow(kl_log *log, kl_segment *segment) {
    kl_page_values values;
    kl_status status = kl_log_enter(log);
    if (status) return status;
    if (log->page && kl_log_active(log) == segment &&
        kl_statepage_read(log->page, &values) && values.generation == log->generation &&
        values.active_base_offset == segment->base_offset)
        status = kl_segment_follow(segment, log->page, &values, false);
    kl_log_leave(log);
    return status;
}

kl_status kl_log_prepare(kl_log *log, const kl_look *look, size_t index) {
    KL_ASSERT(index < look->version->count);
    kl_segment *segment = look->version->segments[index];
    bool active = !kl_look_is_sealed(look, index), followed = active && !log->writable;
    if (KL_LIKELY(!followed && kl_segment_has_indexes(segment))) return KL_OK;
    kl_status status = KL_OK;
    if (followed && !kl_segment_is_covered(segment, look->active_bytes))
        status = follow(log, segment);
    if (followed && kl_segment_is_covered(segment, look->active_bytes)) return status;
    /* A writer's active segment always has indexes: this one was sealed since, and unloaded. */
    if (active && log->writable)
        return kl_fail(KL_E_STALE, "log %s rolled since it was looked at", log->path);
    if (atomic_load(&log->loaded_indexes) > LOADED_INDEXES_MAX ||
        KL_FP_STATUS("log.indexes.too_many"))
        unload_indexes(log, look->version);
    kl_dir *dir = NULL;
    if (!status) status = kl_dir_open(log->path, 0, &dir);
    const kl_index_source source = {.dir = dir,
                                    .next_offset = kl_look_next_base(look, index),
                                    .end_pos = kl_look_bytes(look, index),
                                    .index_interval_bytes = look->index_interval_bytes,
                                    .active = active,
                                    .writable = log->writable};
    if (!status)
        status = followed ? kl_segment_cover(segment, &source)
                          : kl_segment_load_indexes(segment, &source, NULL);
    atomic_fetch_add(&log->loaded_indexes, 1);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* ---- producers and epochs ---------------------------------------------------------------- */

/* `aborts` NULL: do not collect them. */
static kl_status replay_marker(kl_producers *into, kl_aborts *aborts, const kl_batch *batch,
                               const uint8_t *data, int64_t now_ms) {
    int32_t type, coordinator_epoch;
    kl_status status = kl_batch_control(batch, data, &type, &coordinator_epoch);
    if (status == KL_E_CORRUPT_MESSAGE) return KL_OK; /* reads report it */
    if (status || (type != KL_CONTROL_ABORT && type != KL_CONTROL_COMMIT)) return status;
    int64_t first_offset;
    status = kl_producers_apply_marker(
        into, batch->producer_id, batch->producer_epoch, coordinator_epoch,
        batch->last_offset, batch->max_timestamp,
        kl_producers_heard(batch->max_timestamp, now_ms), &first_offset);
    if (status || type != KL_CONTROL_ABORT || first_offset < 0 || !aborts) return status;
    int64_t open = kl_producers_first_open(into);
    const kl_aborted entry = {batch->producer_id, first_offset, batch->last_offset,
                              KL_MIN(open, batch->last_offset + 1)};
    return kl_aborts_add(aborts, &entry);
}

static kl_status replay_segment(kl_producers *into, kl_segment *segment, int64_t from,
                                kl_aborts *aborts) {
    kl_walk walk;
    int64_t now_ms = kl_now_ms();
    kl_walk_init(&walk, segment->file, 0, segment->size,
                 kl_segment_header_chunk(segment, segment->size, KL_CHUNK_RECOVER_BYTES));
    for (kl_batch batch; kl_walk_more(&walk, &batch);) {
        if (batch.base_offset < from || batch.producer_id < 0) continue;
        if (!kl_batch_is_control(&batch)) {
            walk.status = kl_producers_apply(
                into, &batch, kl_producers_heard(batch.max_timestamp, now_ms));
        } else {
            const uint8_t *data;
            bool found;
            walk.pos = batch.pos;
            walk.status = kl_walk_step(&walk, true, &batch, &data, &found);
            if (!walk.status)
                walk.status = replay_marker(into, aborts, &batch, data, now_ms);
        }
    }
    kl_status status = kl_walk_end(&walk);
    /* Damage below the recovery point is left alone; reads report it. */
    return kl_walk_met_damage(status) ? KL_OK : status;
}

/* The segment is locked.  Write its aborted transactions to disk; update a sealed one's side-car
 * to match. */
static kl_status save_aborts(kl_segment *segment, kl_dir *dir, bool sealed) {
    KL_ASSERT_HELD(&segment->lock);
    kl_status status = kl_aborts_rewrite(&segment->aborts, dir, true);
    if (status == KL_E_NO_SPACE) return KL_OK; /* the seal or the next open retries */
    if (status || !sealed) return status;
    status = kl_guard_reseal(segment, dir, true);
    return status == KL_E_NO_SPACE ? kl_sidecar_drop(dir, segment->base_offset) : status;
}

/* The segment is locked.  Replace its aborted transactions with those found by a replay. */
static void take_aborts(kl_segment *segment, kl_aborts *found) {
    KL_ASSERT_HELD(&segment->lock);
    KL_ASSERT(found->base_offset == segment->base_offset);
    const kl_aborts before = segment->aborts;
    segment->aborts = *found;
    segment->aborts.loaded = true;
    *found = before;
}

static kl_status rebuild_segment(const kl_log *log, kl_producers *into, kl_dir *dir,
                                 kl_segment *segment, bool sealed, int64_t from) {
    kl_aborts aborts;
    kl_aborts_init(&aborts, segment->base_offset);
    kl_status status = replay_segment(into, segment, from, &aborts);
    if (!status) {
        kl_lock(&segment->lock);
        take_aborts(segment, &aborts);
        if (log->writable) status = save_aborts(segment, dir, sealed);
        kl_unlock(&segment->lock);
    }
    kl_aborts_free(&aborts);
    return status;
}

kl_status kl_log_derive_producers(const kl_log *log, const kl_version *version,
                                  kl_producers *into, kl_dir *dir, int64_t from,
                                  int64_t rebuild_from) {
    int64_t at;
    kl_status status = kl_log_load_snapshot(
        log, into, dir, version->segments[0]->base_offset, KL_MIN(from, rebuild_from), &at);
    if (!status) kl_log_recall(log, version, dir, at, into);
    for (size_t i = kl_version_find(version, at); !status && i < version->count; i++) {
        kl_segment *segment = version->segments[i];
        bool rebuild = segment->base_offset >= rebuild_from;
        /* An existing snapshot may be incomplete or refer to batches that are gone.  Synced,
         * because recovery after another crash may start above it. */
        if (rebuild && log->writable && segment->base_offset > at)
            status = kl_log_write_snapshot(into, dir, segment->base_offset, true);
        if (status == KL_E_NO_SPACE) status = KL_OK; /* costs a longer replay next time */
        if (status) break;
        bool sealed = i + 1 < version->count;
        if (rebuild) status = rebuild_segment(log, into, dir, segment, sealed, at);
        else if ((sealed ? version->segments[i + 1]->base_offset : from) > at)
            status = replay_segment(into, segment, at, NULL);
    }
    return status;
}

kl_status kl_log_load_producers(kl_log *log, kl_dir *dir, int64_t from,
                                int64_t rebuild_from) {
    kl_status status = kl_log_derive_producers(log, log->version, &log->producers, dir,
                                               from, rebuild_from);
    log->producers_known = !status;
    return status;
}

/* Aborted transactions of segment `index`, from a snapshot and a replay. */
static kl_status derive_aborts(const kl_log *log, const kl_version *version, size_t index,
                               kl_dir *dir, kl_aborts *found) {
    kl_producers producers;
    int64_t at;
    kl_producers_init(&producers);
    kl_status status = kl_log_load_snapshot(
        log, &producers, dir, version->segments[0]->base_offset, found->base_offset, &at);
    for (size_t i = kl_version_find(version, at); !status && i <= index; i++)
        status =
            replay_segment(&producers, version->segments[i], at, i == index ? found : NULL);
    kl_producers_free(&producers);
    return status;
}

/* Locked.  *saves: segments are claimed, to write the list; release with kl_log_release. */
static void mend_aborts(kl_log *log, kl_segment *segment, kl_aborts *found, bool *saves) {
    KL_ASSERT_HELD(&log->lock);
    kl_lock(&segment->lock);
    take_aborts(segment, found);
    kl_unlock(&segment->lock);
    segment->aborts_checked = true;
    *saves = log->writable && !log->offline && !log->changing && !log->noting;
    if (*saves) kl_log_claim(log);
}

static kl_status rebuild_aborts(kl_log *log, const kl_look *look, size_t index) {
    kl_dir *dir = NULL;
    kl_aborts found;
    bool saves = false;
    kl_segment *segment = look->version->segments[index];
    kl_aborts_init(&found, segment->base_offset);
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = derive_aborts(log, look->version, index, dir, &found);
    if (!status) status = kl_log_enter(log);
    if (status) goto out;
    /* Another thread may have stored them already; if segments changed, the caller asks again. */
    if (!segment->aborts_checked && log->generation == look->generation)
        mend_aborts(log, segment, &found, &saves);
    kl_log_leave(log);
    if (!saves) goto out;
    kl_lock(&segment->lock);
    (void)save_aborts(segment, dir, true); /* on failure, the next open does it */
    kl_unlock(&segment->lock);
    kl_lock(&log->lock);
    kl_log_release(log);
    kl_log_leave(log);
out:
    kl_aborts_free(&found);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

/* Most segments have no aborted transactions, so only the side-car shows that a list is lost: it is
 * read once, when the list is first needed. */
kl_status kl_log_enter_aborts(kl_log *log, const kl_look *look, size_t index) {
    kl_segment *segment = look->version->segments[index];
    kl_sealed_aborts was;
    kl_status status = kl_log_enter(log);
    if (status || !kl_look_is_sealed(look, index)) return status;
    if (segment->aborts.count > 0 || segment->aborts_checked) return KL_OK;
    kl_log_leave(log);
    status = kl_guard_sealed_aborts(segment, &was);
    if (!status) status = kl_log_enter(log);
    if (status) return status;
    segment->aborts_checked |= kl_guard_has_aborts(segment, &was);
    if (segment->aborts_checked) return KL_OK;
    kl_log_leave(log);
    status = rebuild_aborts(log, look, index);
    return status ? status : kl_log_enter(log);
}

kl_status kl_log_search_aborts(kl_log *log, kl_dir *dir) {
    kl_aborts found;
    kl_segment *active = kl_log_active(log);
    if (!kl_producers_ended_txn(&log->producers)) return KL_OK;
    kl_aborts_init(&found, active->base_offset);
    kl_status status =
        derive_aborts(log, log->version, log->version->count - 1, dir, &found);
    if (!status && found.count > 0) {
        kl_lock(&active->lock);
        take_aborts(active, &found);
        if (log->writable) status = save_aborts(active, dir, false);
        kl_unlock(&active->lock);
    }
    kl_aborts_free(&found);
    return status;
}

kl_status kl_log_rebuild_epochs(kl_log *log) {
    kl_status status = KL_OK;
    kl_epochs_clear(&log->epochs);
    for (size_t i = 0; !status && i < log->version->count; i++) {
        kl_segment *segment = log->version->segments[i];
        kl_walk walk;
        kl_walk_init(&walk, segment->file, 0, segment->size, KL_CHUNK_RECOVER_BYTES);
        for (kl_batch batch; kl_walk_more(&walk, &batch);)
            if (batch.leader_epoch > kl_epochs_latest(&log->epochs))
                walk.status =
                    kl_epochs_assign(&log->epochs, batch.leader_epoch, batch.base_offset);
        status = kl_walk_end(&walk);
        if (kl_walk_met_damage(status)) status = KL_OK;
    }
    return status;
}
