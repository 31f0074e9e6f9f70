/* recall.c: finds each producer's batches before its last one, which a snapshot omits, in the log
 * below it. */
#include "log.h"

/* Limits of the search, so that an open stays cheap: producers resend only recent batches. Entries
 * of the offset index: 64 are 256 KiB of small batches, or 64 large ones; five per producer if that
 * is more.  Segments: one per batch, and an empty last one.  Bytes: a cap if the index is wrong. */
enum {
    ENTRIES_MIN = 64,
    ENTRIES_MAX = 256,
    SEGMENTS_MAX = KL_PRODUCER_BATCHES + 1,
    READ_BYTES_MAX = 4 << 20
};

static size_t entries_wanted(const kl_log *log, const kl_producers *producers) {
    size_t wanted = KL_MIN(producers->count * KL_PRODUCER_BATCHES, (size_t)ENTRIES_MAX);
    size_t interval = (size_t)KL_MAX(log->config.index_interval_bytes, 1);
    wanted = KL_MIN(KL_MAX(wanted, (size_t)ENTRIES_MIN), READ_BYTES_MAX / 2 / interval);
    return KL_MAX(wanted, (size_t)1);
}

/* The entry `*entries` before offset `at`, or the segment's start; *entries is the number left. */
static kl_offset_entry go_back(const kl_index *index, int64_t at, size_t *entries) {
    size_t below = kl_index_count_below(index, at), taken = KL_MIN(below, *entries);
    *entries -= taken;
    if (*entries > 0) return (kl_offset_entry){index->base_offset, 0};
    return kl_index_offset_at(index, below - taken);
}

static kl_offset_entry find_start(kl_segment *segment, kl_dir *dir, int64_t at,
                                  size_t *entries) {
    kl_offset_entry start = {segment->base_offset, 0};
    kl_lock(&segment->lock);
    bool loaded = segment->offsets.loaded;
    if (loaded) start = go_back(&segment->offsets, at, entries);
    kl_unlock(&segment->lock);
    if (loaded || segment->size == 0) return start;
    kl_index index; /* its own: a sealed segment's is loaded on its first read */
    bool sane;
    kl_index_init(&index, KL_OFFSET_INDEX, segment->base_offset);
    if (kl_index_load(&index, dir, at, segment->size, false, &sane) == KL_OK)
        start = go_back(&index, at, entries);
    kl_index_free(&index);
    return start;
}

/* Collect the batches of the snapshot's producers from `start` up to `at`; false: the headers are
 * invalid, or there are too many. */
static bool collect(kl_segment *segment, kl_offset_entry start, int64_t at,
                    const kl_producers *producers, kl_producers *found, int64_t *left) {
    kl_walk walk;
    uint8_t scratch[KL_CHUNK_LOOKUP_BYTES];
    bool good = true;
    int64_t next = segment->base_offset;
    kl_walk_headers(&walk, segment->file, start.pos, segment->size, scratch,
                    sizeof scratch);
    for (kl_batch batch; good && kl_walk_more(&walk, &batch) && batch.base_offset < at;) {
        *left -= KL_MIN(batch.batch_bytes, (int64_t)sizeof scratch);
        good = *left >= 0 && batch.base_offset >= next;
        if (batch.pos == start.pos && start.pos > 0) /* does it match the index entry? */
            good = good && batch.base_offset <= start.offset;
        next = batch.last_offset + 1;
        if (!good || batch.producer_id < 0 || kl_batch_is_control(&batch)) continue;
        const kl_producer_entry *known = kl_producers_find(producers, batch.producer_id);
        if (known && known->producer_epoch == batch.producer_epoch)
            walk.status = kl_producers_apply(found, &batch, 0);
    }
    return kl_walk_end(&walk) == KL_OK && good;
}

void kl_log_recall(const kl_log *log, const kl_version *version, kl_dir *dir, int64_t at,
                   kl_producers *producers) {
    if (!log->writable || producers->count == 0) return; /* a reader checks no sequences */
    size_t entries = entries_wanted(log, producers), segments = 1;
    size_t i = kl_version_find(version, at);
    kl_offset_entry start = find_start(version->segments[i], dir, at, &entries);
    for (; i > 0 && entries > 0 && segments < SEGMENTS_MAX; segments++)
        start = find_start(version->segments[--i], dir, at, &entries);
    if (!kl_producers_reach(producers, start.offset)) return;
    kl_producers found;
    int64_t left = READ_BYTES_MAX;
    bool good = true;
    kl_producers_init(&found);
    for (; good && i < version->count && version->segments[i]->base_offset < at; i++) {
        good = collect(version->segments[i], start, at, producers, &found, &left);
        start.pos = 0;
    }
    if (good) kl_producers_recall(producers, &found);
    kl_producers_free(&found);
}
