/* segment.c: see segment.h. */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/io.h"

static kl_segment *segment_new(int64_t base_offset) {
    kl_segment *segment = kl_alloc(sizeof *segment);
    if (segment == NULL) return NULL;
    atomic_init(&segment->refs, 1);
    pthread_mutex_init(&segment->lock, NULL);
    segment->base_offset = base_offset;
    segment->unshown = true;
    segment->max_timestamp = KL_UNKNOWN;
    segment->max_timestamp_offset = base_offset;
    segment->first_timestamp = KL_UNKNOWN;
    kl_index_init(&segment->offsets, KL_OFFSET_INDEX, base_offset);
    kl_index_init(&segment->times, KL_TIME_INDEX, base_offset);
    kl_aborts_init(&segment->aborts, base_offset);
    return segment;
}

kl_segment *kl_segment_retain(kl_segment *segment) {
    int before = atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
    KL_ASSERT(before > 0);
    return segment;
}

void kl_segment_drop(kl_segment *segment) {
    if (segment == NULL) return;
    int before = atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel);
    KL_ASSERT(before > 0);
    if (before > 1) return;
    KL_ASSERT(atomic_load(&segment->slices) == 0); /* each holds a reference */
    kl_file_drop(segment->file);
    kl_index_free(&segment->offsets);
    kl_index_free(&segment->times);
    kl_aborts_free(&segment->aborts);
    kl_sums_free(&segment->sums);
    kl_guard_free(atomic_load_explicit(&segment->guard, memory_order_acquire));
    pthread_mutex_destroy(&segment->lock);
    kl_release(segment);
}

kl_status kl_segment_open(const char *dir_path, const char *name, int64_t base_offset,
                          bool writable, kl_segment **out) {
    *out = NULL;
    kl_segment *segment = segment_new(base_offset);
    if (segment == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a segment of %s", dir_path);
    kl_status status = kl_file_new(dir_path, name, writable, &segment->file);
    if (status) goto out;
    status = kl_file_stat(segment->file, &segment->size, &segment->created_ms);
    if (status) goto out;
    segment->reserved = segment->size;
    *out = segment;
    segment = NULL;
out:
    kl_segment_drop(segment);
    return status;
}

bool kl_segment_is_listed(const kl_names *names, int64_t base, const char *suffix) {
    char wanted[KL_NAME_BYTES];
    kl_segment_name(wanted, base, suffix);
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(names->names[middle], wanted);
        if (order == 0) return true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

bool kl_segment_is_orphan(const kl_names *names, const char *name, int64_t *base_offset) {
    static const char *const kinds[] = {KL_INDEX_SUFFIX, KL_TIME_SUFFIX, KL_TXN_SUFFIX,
                                        KL_SIDECAR_SUFFIX};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kl_segment_name_parse(name, kinds[i], base_offset))
            return !kl_segment_is_listed(names, *base_offset, KL_LOG_SUFFIX);
    return false;
}

kl_status kl_segment_file_end(kl_dir *dir, const char *name, int64_t base, int64_t *end) {
    kl_segment *segment = NULL;
    *end = base;
    kl_status status = kl_segment_open(dir->path, name, base, false, &segment);
    if (status) return status;
    status = kl_walk_to_end(segment->file, segment->size, end);
    kl_segment_drop(segment);
    return status;
}

kl_status kl_segment_absent(const char *dir_path, int64_t base_offset, kl_segment **out) {
    char name[KL_NAME_BYTES];
    *out = segment_new(base_offset);
    if (*out == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a segment of %s", dir_path);
    kl_segment_name(name, base_offset, KL_LOG_SUFFIX);
    (*out)->max_timestamp = (*out)->first_timestamp = -1;
    (*out)->offsets.loaded = (*out)->times.loaded = (*out)->aborts.loaded = true;
    kl_status status = kl_file_new(dir_path, name, false, &(*out)->file);
    if (status) kl_segment_drop(*out);
    return status;
}

kl_status kl_segment_clear(kl_dir *dir, int64_t base_offset) {
    static const char *const suffixes[] = {KL_INDEX_SUFFIX, KL_TIME_SUFFIX, KL_TXN_SUFFIX,
                                           KL_SIDECAR_SUFFIX};
    char name[KL_NAME_BYTES];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        kl_segment_name(name, base_offset, suffixes[i]);
        kl_status status = kl_dir_unlink(dir, name);
        if (status && status != KL_E_NOT_FOUND) return status;
    }
    return KL_OK;
}

static kl_status create(kl_dir *dir, int64_t base_offset, const char *suffix,
                        kl_segment **out) {
    *out = NULL;
    kl_segment *segment = segment_new(base_offset);
    if (segment == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a segment of %s", dir->path);
    char name[KL_NAME_BYTES];
    kl_segment_name(name, base_offset, suffix);
    kl_status status = KL_FP_STATUS("segment.create.before_file");
    if (status) goto out;
    status = kl_file_create(dir->path, name, &segment->file);
    if (status) goto out;
    segment->max_timestamp = -1;
    segment->first_timestamp = -1;
    segment->created_ms = kl_now_ms();
    segment->offsets.loaded = segment->times.loaded = segment->aborts.loaded = true;
    KL_FP("segment.create.after_file");
    *out = segment;
    segment = NULL;
out:
    kl_segment_drop(segment);
    return status;
}

kl_status kl_segment_create(kl_dir *dir, int64_t base_offset, kl_segment **out) {
    *out = NULL;
    kl_status status = kl_segment_clear(dir, base_offset);
    return status ? status : create(dir, base_offset, KL_LOG_SUFFIX, out);
}

kl_status kl_segment_unmake(kl_dir *dir, int64_t base_offset) {
    char name[KL_NAME_BYTES];
    kl_segment_name(name, base_offset, KL_LOG_SUFFIX);
    bool there;
    kl_status status = kl_dir_exists(dir, name, &there);
    return !status && there ? kl_dir_unlink(dir, name) : status;
}

/* The failure is already reported; an open would remove the file, too. */
static void unlink_aside(kl_dir *dir, int64_t base_offset) {
    char name[KL_NAME_BYTES];
    kl_segment_name(name, base_offset, KL_LOG_SUFFIX KL_CLEANED_SUFFIX);
    (void)kl_io->unlinkat(dir->fd, name, 0);
}

kl_status kl_segment_create_aside(kl_dir *dir, int64_t base_offset, kl_segment **out) {
    kl_status status = create(dir, base_offset, KL_LOG_SUFFIX KL_CLEANED_SUFFIX, out);
    if (status) unlink_aside(dir, base_offset);
    return status;
}

kl_status kl_segment_place(kl_segment *segment, kl_dir *dir) {
    char name[KL_NAME_BYTES];
    kl_segment_name(name, segment->base_offset, KL_LOG_SUFFIX);
    kl_status status = kl_file_rename(segment->file, dir, name);
    if (!status) KL_FP("segment.cut.after_rename");
    return status;
}

static bool has_room(const kl_buffer *buffer, size_t bytes) {
    return buffer->capacity - buffer->bytes >= bytes;
}

kl_status kl_segment_reserve_notes(kl_segment *segment, size_t count) {
    kl_buffer *offsets = &segment->offsets.entries, *times = &segment->times.entries;
    if (KL_LIKELY(has_room(offsets, count * OFFSET_ENTRY_BYTES) &&
                  has_room(times, count * TIME_ENTRY_BYTES)))
        return KL_OK;
    kl_lock(&segment->lock); /* growing moves the buffers */
    kl_status status = kl_buffer_reserve(offsets, count * OFFSET_ENTRY_BYTES);
    if (!status) status = kl_buffer_reserve(times, count * TIME_ENTRY_BYTES);
    kl_unlock(&segment->lock);
    return status;
}

/* Locked. */
static kl_status note(kl_segment *segment, const kl_batch *batch, int64_t pos,
                      int64_t index_interval_bytes) {
    KL_ASSERT_HELD(&segment->lock);
    if (segment->first_timestamp < 0 && pos == 0)
        segment->first_timestamp = batch->max_timestamp;
    if (batch->max_timestamp > segment->max_timestamp) {
        segment->max_timestamp = batch->max_timestamp;
        segment->max_timestamp_offset = batch->last_offset;
    }
    kl_status status = KL_OK;
    if (segment->bytes_since_entry > index_interval_bytes) {
        status = kl_index_add_offset(&segment->offsets, batch->last_offset, pos);
        if (status) return status;
        status = kl_index_add_time(&segment->times, segment->max_timestamp,
                                   segment->max_timestamp_offset);
        if (status) return status;
        segment->bytes_since_entry = 0;
        segment->unshown = true;
    }
    segment->bytes_since_entry += batch->batch_bytes;
    return KL_OK;
}

kl_status kl_segment_note(kl_segment *segment, const kl_batch *batch, int64_t pos,
                          int64_t index_interval_bytes) {
    kl_lock(&segment->lock);
    kl_status status = note(segment, batch, pos, index_interval_bytes);
    kl_unlock(&segment->lock);
    return status;
}

void kl_segment_share(kl_segment *segment, kl_statepage *page) {
    kl_lock(&segment->lock);
    kl_statepage_share(page, &segment->offsets, &segment->times);
    segment->unshown = false;
    kl_unlock(&segment->lock);
}

/* Locked. */
static size_t header_chunk(const kl_segment *segment, int64_t end_pos, size_t otherwise) {
    KL_ASSERT_HELD(&segment->lock);
    if (segment->offsets.count == 0) return otherwise; /* unknown batch sizes */
    int64_t apart = end_pos / (int64_t)(segment->offsets.count + 1);
    return apart > KL_CHUNK_LOOKUP_BYTES ? KL_BATCH_HEADER_BYTES : otherwise;
}

/* Locked.  Index the batches after the last entry by their headers, up to the first invalid one:
 * reads report damage. */
static kl_status note_rest(kl_segment *segment, const kl_index_source *source) {
    const kl_index *offsets = &segment->offsets, *times = &segment->times;
    int64_t from = 0;
    segment->max_timestamp = -1;
    segment->max_timestamp_offset = segment->base_offset;
    segment->bytes_since_entry = 0;
    if (offsets->count) from = kl_index_offset_at(offsets, offsets->count - 1).pos;
    if (times->count) {
        kl_time_entry last = kl_index_time_at(times, times->count - 1);
        segment->max_timestamp = last.timestamp;
        segment->max_timestamp_offset = last.offset;
    }
    kl_walk walk;
    kl_walk_init(&walk, segment->file, from, source->end_pos,
                 header_chunk(segment, source->end_pos, KL_CHUNK_RECOVER_BYTES));
    for (kl_batch batch; kl_walk_more(&walk, &batch);)
        walk.status = note(segment, &batch, batch.pos, source->index_interval_bytes);
    kl_status status = kl_walk_end(&walk);
    return kl_walk_met_damage(status) ? KL_OK : status;
}

/* Locked.  Rebuild both indexes; does not change the log. */
static kl_status rebuild_indexes(kl_segment *segment, const kl_index_source *source) {
    KL_ASSERT_HELD(&segment->lock);
    kl_index_clear(&segment->offsets);
    kl_index_clear(&segment->times);
    segment->first_timestamp = -1;
    return note_rest(segment, source);
}

/* False if the segment was deleted or replaced and still has readers: its names may belong to other
 * files. */
static bool has_its_names(const kl_segment *segment) {
    char name[KL_NAME_BYTES];
    kl_segment_name(name, segment->base_offset, KL_LOG_SUFFIX);
    return strcmp(kl_file_name(segment->file), name) == 0;
}

static kl_status remove_indexes(const kl_segment *segment, kl_dir *dir) {
    static const char *const suffixes[] = {KL_INDEX_SUFFIX, KL_TIME_SUFFIX};
    kl_status status = KL_OK;
    for (int i = 0; i < 2 && !status; i++) {
        char name[KL_NAME_BYTES];
        kl_segment_name(name, segment->base_offset, suffixes[i]);
        status = kl_dir_unlink(dir, name);
        if (status == KL_E_NOT_FOUND) status = KL_OK;
    }
    return status;
}

/* Locked. */
static kl_status renew_indexes(kl_segment *segment, const kl_index_source *source) {
    kl_status status = rebuild_indexes(segment, source);
    if (status) return status;
    if (segment->max_timestamp >= 0 && !source->active) {
        status = kl_index_add_time(&segment->times, segment->max_timestamp,
                                   segment->max_timestamp_offset);
        if (status) return status;
    }
    if (!source->writable || !has_its_names(segment)) return KL_OK;
    status = kl_index_rewrite_if_room(&segment->offsets, source->dir);
    if (!status) status = kl_index_rewrite_if_room(&segment->times, source->dir);
    /* A deletion renames the `.log` first: either it finds these files, or this sees that it is
     * late. */
    if (!has_its_names(segment)) return remove_indexes(segment, source->dir);
    if (status || source->active) return status;
    status = kl_guard_reseal(segment, source->dir, false);
    return status == KL_E_NO_SPACE ? kl_sidecar_drop(source->dir, segment->base_offset)
                                   : status;
}

kl_status kl_segment_renew_indexes(kl_segment *segment, const kl_index_source *source) {
    kl_lock(&segment->lock);
    kl_status status = renew_indexes(segment, source);
    kl_unlock(&segment->lock);
    return status;
}

bool kl_segment_has_indexes(kl_segment *segment) {
    kl_lock(&segment->lock);
    bool loaded = segment->offsets.loaded && segment->times.loaded;
    kl_unlock(&segment->lock);
    return loaded;
}

bool kl_segment_indexes_at_hand(kl_segment *segment) {
    if (!kl_try_lock(&segment->lock)) return false;
    bool loaded = segment->offsets.loaded && segment->times.loaded;
    kl_unlock(&segment->lock);
    return loaded;
}

void kl_segment_unload_indexes(kl_segment *segment) {
    if (!kl_try_lock(&segment->lock)) return;
    kl_index_unload(&segment->offsets);
    kl_index_unload(&segment->times);
    kl_unlock(&segment->lock);
}

void kl_segment_count_entries(kl_segment *segment, size_t *offsets, size_t *times) {
    kl_lock(&segment->lock);
    *offsets = segment->offsets.count;
    *times = segment->times.count;
    kl_unlock(&segment->lock);
}

/* Locked. */
static kl_status load_indexes(kl_segment *segment, const kl_index_source *source,
                              int32_t *rebuilt) {
    KL_ASSERT_HELD(&segment->lock);
    if (segment->offsets.loaded && segment->times.loaded) return KL_OK;
    bool offsets_sane = false, times_sane = false, active = source->active;
    kl_status status = kl_index_load(&segment->offsets, source->dir, source->next_offset,
                                     source->end_pos, active, &offsets_sane);
    if (status) return status;
    status = kl_index_load(&segment->times, source->dir, source->next_offset,
                           source->end_pos, active, &times_sane);
    if (status) return status;
    /* A reader's view of an active writer's indexes lags: usable entries are enough. */
    /* A sealed segment has at least the time entry that its roll wrote. */
    bool usable = offsets_sane && times_sane && (active || segment->times.count > 0);
    if (!source->writable && active) usable = true;
    if (usable && !active) {
        status = kl_guard_index(segment, &segment->offsets, &offsets_sane);
        if (!status) status = kl_guard_index(segment, &segment->times, &times_sane);
        if (status) return status;
        usable = offsets_sane && times_sane;
    }
    if (usable || source->end_pos == 0) return KL_OK;
    status = renew_indexes(segment, source);
    if (!status && rebuilt) *rebuilt += 1;
    return status;
}

kl_status kl_segment_load_indexes(kl_segment *segment, const kl_index_source *source,
                                  int32_t *rebuilt) {
    kl_lock(&segment->lock);
    kl_status status = load_indexes(segment, source, rebuilt);
    kl_unlock(&segment->lock);
    return status;
}

bool kl_segment_is_covered(kl_segment *segment, int64_t end_pos) {
    enum { LAG_BYTES = 64 << 10 };
    kl_lock(&segment->lock);
    bool covered = segment->offsets.loaded && segment->times.loaded &&
                   end_pos - segment->covered <= LAG_BYTES;
    kl_unlock(&segment->lock);
    return covered;
}

kl_status kl_segment_follow(kl_segment *segment, kl_statepage *page,
                            const kl_page_values *values, bool if_loaded) {
    kl_status status = KL_OK;
    kl_lock(&segment->lock);
    bool loaded = segment->offsets.loaded && segment->times.loaded;
    if (segment->own_entries || (if_loaded && !loaded)) goto out;
    if (!loaded) {
        kl_index_clear(&segment->offsets);
        kl_index_clear(&segment->times);
    }
    status = kl_statepage_take(page, values, &segment->offsets, &segment->times);
    if (status) {
        kl_index_unload(&segment->offsets);
        kl_index_unload(&segment->times);
    } else if (values->entries_whole &&
               (int64_t)segment->offsets.count >= values->offset_entries &&
               (int64_t)segment->times.count >= values->time_entries) {
        segment->covered = KL_MAX(segment->covered, values->active_bytes);
    }
out:
    kl_unlock(&segment->lock);
    return status;
}

kl_status kl_segment_cover(kl_segment *segment, const kl_index_source *source) {
    kl_lock(&segment->lock);
    int64_t largest = segment->max_timestamp, offset = segment->max_timestamp_offset;
    kl_status status = load_indexes(segment, source, NULL);
    if (!status && source->end_pos > segment->covered) {
        segment->own_entries = true;
        status = note_rest(segment, source);
        if (!status) segment->covered = source->end_pos;
    }
    if (largest > segment->max_timestamp) { /* unless a later look saw more */
        segment->max_timestamp = largest;
        segment->max_timestamp_offset = offset;
    }
    kl_unlock(&segment->lock);
    return status;
}

/* The timestamps of a segment's batches. */
typedef struct {
    int64_t largest;
    int64_t largest_offset;
    int64_t first;
} time_range;

/* The largest timestamp of batches in [pos, end_pos). */
static kl_status scan_times(kl_segment *segment, int64_t pos, int64_t end_pos,
                            time_range *range) {
    kl_walk walk;
    kl_walk_init(&walk, segment->file, pos, end_pos, KL_CHUNK_LOOKUP_BYTES);
    for (kl_batch batch; kl_walk_more(&walk, &batch);)
        if (batch.max_timestamp > range->largest) {
            range->largest = batch.max_timestamp;
            range->largest_offset = batch.last_offset;
        }
    kl_status status = kl_walk_end(&walk);
    return kl_walk_met_damage(status) ? KL_OK : status;
}

static kl_status read_first(kl_segment *segment, int64_t end_pos, int64_t *first) {
    *first = -1;
    if (end_pos < KL_BATCH_HEADER_BYTES) return KL_OK;
    uint8_t header[KL_BATCH_HEADER_BYTES];
    size_t got;
    kl_status status = kl_file_read(segment->file, header, sizeof header, 0, &got);
    if (status) return status;
    if (got == sizeof header) *first = (int64_t)kl_get64(header + POS_MAX_TIMESTAMP);
    return KL_OK;
}

/* Locked.  The largest timestamp in the indexes, and the position of the batches that may have a
 * larger one. */
static int64_t begin_times(const kl_segment *segment, time_range *range) {
    KL_ASSERT_HELD(&segment->lock);
    range->largest = -1;
    range->largest_offset = segment->base_offset;
    if (segment->times.count) {
        kl_time_entry last = kl_index_time_at(&segment->times, segment->times.count - 1);
        range->largest = last.timestamp;
        range->largest_offset = last.offset;
    }
    return kl_index_find_offset(&segment->offsets, range->largest_offset).pos;
}

/* Locked.  The larger of the last entry's time and those of the batches after it. */
static kl_status find_largest(kl_segment *segment, int64_t end_pos, time_range *range) {
    int64_t from = begin_times(segment, range);
    return scan_times(segment, from, end_pos, range);
}

bool kl_segment_begin_times(kl_segment *segment, int64_t pos) {
    time_range range;
    kl_lock(&segment->lock);
    bool begun =
        segment->max_timestamp == KL_UNKNOWN && begin_times(segment, &range) == pos;
    if (begun) {
        segment->max_timestamp = range.largest;
        segment->max_timestamp_offset = range.largest_offset;
    }
    kl_unlock(&segment->lock);
    return begun;
}

void kl_segment_see_times(kl_segment *segment, const kl_batch *batch) {
    kl_lock(&segment->lock);
    if (batch->pos == 0) segment->first_timestamp = batch->max_timestamp;
    if (batch->max_timestamp > segment->max_timestamp) {
        segment->max_timestamp = batch->max_timestamp;
        segment->max_timestamp_offset = batch->last_offset;
    }
    kl_unlock(&segment->lock);
}

kl_status kl_segment_load_times(kl_segment *segment) {
    time_range range;
    kl_status status = KL_OK;
    kl_lock(&segment->lock);
    if (segment->first_timestamp == KL_UNKNOWN)
        status = read_first(segment, segment->size, &segment->first_timestamp);
    if (status || segment->max_timestamp != KL_UNKNOWN) goto out;
    status = find_largest(segment, segment->size, &range);
    if (status) goto out;
    segment->max_timestamp = range.largest;
    segment->max_timestamp_offset = range.largest_offset;
out:
    kl_unlock(&segment->lock);
    return status;
}

void kl_segment_forget_times(kl_segment *segment) {
    kl_lock(&segment->lock);
    segment->max_timestamp = KL_UNKNOWN;
    kl_unlock(&segment->lock);
}

bool kl_segment_get_times(kl_segment *segment, int64_t *largest, int64_t *first) {
    kl_lock(&segment->lock);
    *largest = segment->max_timestamp;
    *first = segment->first_timestamp;
    kl_unlock(&segment->lock);
    return *largest != KL_UNKNOWN && *first != KL_UNKNOWN;
}

kl_status kl_segment_find_times(kl_segment *segment, int64_t end_pos, int64_t *largest,
                                int64_t *first) {
    time_range range = {.largest = -1};
    kl_lock(&segment->lock);
    kl_status status = find_largest(segment, end_pos, &range);
    kl_unlock(&segment->lock);
    if (!status) status = read_first(segment, end_pos, first);
    *largest = range.largest;
    return status;
}

size_t kl_segment_header_chunk(kl_segment *segment, int64_t end_pos, size_t otherwise) {
    kl_lock(&segment->lock);
    size_t chunk = header_chunk(segment, end_pos, otherwise);
    kl_unlock(&segment->lock);
    return chunk;
}

int64_t kl_segment_guess_end(kl_segment *segment, int64_t pos, int64_t limit,
                             int64_t bound) {
    kl_lock(&segment->lock);
    for (size_t low = 0, high = segment->offsets.count; low < high;) {
        size_t middle = low + (high - low) / 2;
        kl_offset_entry entry = kl_index_offset_at(&segment->offsets, middle);
        bool inside = entry.pos <= limit && entry.offset < bound;
        if (inside && entry.pos > pos) pos = entry.pos;
        if (inside) low = middle + 1;
        else high = middle;
    }
    kl_unlock(&segment->lock);
    return pos;
}

/* Index entries around an offset. */
typedef struct {
    kl_offset_entry floor;
    kl_offset_entry next;
    bool has_next;
    size_t chunk; /* read size for headers */
} index_hint;

static index_hint look_up(kl_segment *segment, int64_t end_pos, int64_t offset) {
    index_hint hint = {0};
    kl_lock(&segment->lock);
    hint.floor = kl_index_find_offset(&segment->offsets, offset);
    hint.has_next = kl_index_next_offset(&segment->offsets, offset, &hint.next);
    hint.chunk = header_chunk(segment, end_pos, KL_CHUNK_LOOKUP_BYTES);
    kl_unlock(&segment->lock);
    if (hint.floor.pos > end_pos) hint.floor.pos = 0;
    return hint;
}

/* If every batch has an entry, the next entry is probably the batch that contains the offset: check
 * its header. */
static bool locate_at_entry(kl_segment *segment, const index_hint *hint, int64_t end_pos,
                            int64_t offset, int64_t *pos) {
    uint8_t header[KL_BATCH_HEADER_BYTES];
    kl_batch batch;
    size_t got;
    if (hint->chunk > KL_BATCH_HEADER_BYTES || !hint->has_next ||
        hint->next.pos > end_pos - KL_BATCH_HEADER_BYTES ||
        kl_file_read(segment->file, header, sizeof header, hint->next.pos, &got) ||
        got < sizeof header || kl_batch_header(header, &batch) ||
        batch.base_offset > offset || batch.last_offset != hint->next.offset ||
        batch.batch_bytes > end_pos - hint->next.pos)
        return false;
    *pos = hint->next.pos;
    return true;
}

kl_status kl_segment_locate(kl_segment *segment, int64_t end_pos, int64_t offset,
                            int64_t *pos) {
    index_hint hint = look_up(segment, end_pos, offset);
    if (locate_at_entry(segment, &hint, end_pos, offset, pos)) return KL_OK;
    kl_offset_entry floor = hint.floor;
    kl_walk walk;
    uint8_t scratch[KL_CHUNK_LOOKUP_BYTES];
    kl_status status = KL_OK;
    kl_walk_headers(&walk, segment->file, floor.pos, end_pos, scratch, hint.chunk);
    for (;;) {
        kl_batch batch;
        bool found;
        *pos = walk.pos;
        status = kl_walk_step(&walk, false, &batch, NULL, &found);
        if (*pos == floor.pos && *pos > 0 &&
            (status || (found && batch.base_offset > floor.offset))) {
            /* The index entry or the batch is wrong: walk from the start. */
            floor.pos = walk.pos = 0;
            continue;
        }
        if (status) {
            status = kl_fail_prefix(status, "%s, looking for offset %lld",
                                    kl_file_name(segment->file), (long long)offset);
            break;
        }
        if (!found || batch.last_offset >= offset) break;
    }
    if (status == KL_E_BUFFER_TOO_SMALL)
        status = kl_fail(KL_E_CORRUPT_MESSAGE,
                         "%s: the batch at %lld passes the segment's end %lld",
                         kl_file_name(segment->file), (long long)*pos, (long long)end_pos);
    kl_walk_done(&walk);
    return status;
}

kl_status kl_segment_seal(kl_segment *segment, kl_dir *dir) {
    KL_ASSERT(segment->size <= segment->reserved);
    kl_status status = KL_OK;
    kl_lock(&segment->lock);
    if (segment->max_timestamp >= 0)
        status = kl_index_add_time(&segment->times, segment->max_timestamp,
                                   segment->max_timestamp_offset);
    kl_unlock(&segment->lock);
    if (status) return status;
    status = KL_FP_STATUS("segment.seal.before_indexes");
    if (status) return status;
    status = kl_index_save(&segment->offsets, dir, false);
    if (status) return status;
    status = kl_index_save(&segment->times, dir, false);
    if (status) return status;
    status = kl_aborts_save(&segment->aborts, dir, false);
    if (!status && segment->stale_aborts) status = kl_aborts_cut(&segment->aborts, dir);
    if (status) return status;
    segment->stale_aborts = false;
    KL_FP("segment.seal.before_trim");
    if (segment->reserved > segment->size || segment->torn) {
        status = kl_file_truncate(segment->file, segment->size);
        if (status) return status;
        segment->torn = false;
        segment->reserved = segment->size;
    }
    return KL_OK;
}

kl_status kl_segment_sync_derived(const kl_segment *segment, const char *dir_path,
                                  int64_t next_offset, bool *tried) {
    static const char *const suffixes[] = {KL_INDEX_SUFFIX, KL_TIME_SUFFIX, KL_TXN_SUFFIX,
                                           KL_SIDECAR_SUFFIX, KL_SNAPSHOT_SUFFIX};
    enum { SNAPSHOT = 4 }; /* named by its offset */
    KL_STATIC_ASSERT(sizeof suffixes / sizeof *suffixes == SNAPSHOT + 1, "it is the last");
    kl_status status = KL_OK;
    for (int i = 0; i <= SNAPSHOT && !status; i++) {
        char name[KL_NAME_BYTES];
        kl_file *file = NULL;
        kl_segment_name(name, i < SNAPSHOT ? segment->base_offset : next_offset,
                        suffixes[i]);
        status = kl_file_new(dir_path, name, false, &file);
        *tried = false;
        if (!status) status = kl_file_try_sync(file, tried);
        if (status == KL_E_NOT_FOUND) status = KL_OK; /* absent, or deleted */
        kl_file_drop(file);
    }
    return status;
}

static _Atomic uint64_t deletions;

uint64_t kl_deletions(void) { return deletions; }

static kl_status rename_deleted(kl_segment *segment, kl_dir *dir) {
    static const char *const suffixes[] = {KL_LOG_SUFFIX, KL_INDEX_SUFFIX, KL_TIME_SUFFIX,
                                           KL_TXN_SUFFIX, KL_SIDECAR_SUFFIX};
    char from[KL_NAME_BYTES], to[KL_NAME_BYTES * 2];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        kl_segment_name(from, segment->base_offset, suffixes[i]);
        snprintf(to, sizeof to, "%s" KL_DELETED_SUFFIX, from);
        kl_status status =
            i == 0 ? kl_file_rename(segment->file, dir, to) : kl_dir_rename(dir, from, to);
        /* A longer name may need a directory block; unlinking needs none. */
        if (status == KL_E_NO_SPACE) status = kl_dir_unlink(dir, from);
        if (status && status != KL_E_NOT_FOUND) return status;
        if (i == 0) KL_FP("segment.delete.after_log");
    }
    return KL_OK;
}

kl_status kl_segment_delete(kl_segment *segment, kl_dir *dir) {
    kl_status status = rename_deleted(segment, dir);
    deletions++; /* once they have their names: a purge before that finds none */
    return status;
}

/* Copy the first `bytes` of a file to another, in the kernel if possible. */
static kl_status copy_prefix(kl_file *from, kl_file *to, int64_t bytes) {
    enum { STEP = 1 << 20 };
    uint8_t *step = kl_alloc(STEP);
    if (step == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory to copy %s", kl_file_name(from));
    kl_status status = KL_OK;
    for (int64_t pos = 0; pos < bytes && !status;) {
        size_t want = (size_t)KL_MIN(bytes - pos, (int64_t)STEP), got;
        status = kl_file_read(from, step, want, pos, &got);
        if (!status && got < want)
            status = kl_fail(KL_E_CORRUPT, "%s ends at %lld, expected at least %lld bytes",
                             kl_file_name(from), (long long)(pos + (int64_t)got),
                             (long long)bytes);
        if (!status) status = kl_file_write(to, step, want, pos);
        pos += (int64_t)want;
    }
    kl_release(step);
    return status;
}

/* At open, Kafka also removes a file of this name. */
kl_status kl_segment_copy(kl_segment *segment, kl_dir *dir, int64_t pos, kl_segment **out) {
    KL_ASSERT(pos >= 0 && pos <= segment->size);
    kl_segment *copy = NULL;
    kl_status status = kl_segment_create_aside(dir, segment->base_offset, &copy);
    if (!status) status = copy_prefix(segment->file, copy->file, pos);
    if (!status) status = kl_file_sync(copy->file);
    *out = status ? NULL : copy;
    if (status) {
        if (copy) unlink_aside(dir, segment->base_offset);
        kl_segment_drop(copy);
        return status;
    }
    copy->size = copy->reserved = pos;
    copy->created_ms = segment->created_ms;
    copy->jitter_ms = segment->jitter_ms;
    KL_FP("segment.cut.before_rename");
    return KL_OK;
}

kl_status kl_segment_shorten(const kl_segment *segment, int64_t pos, kl_segment **out) {
    KL_ASSERT(pos >= 0 && pos <= segment->size);
    *out = segment_new(segment->base_offset);
    if (*out == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a segment of %s",
                       kl_file_dir(segment->file));
    (*out)->file = kl_file_retain(segment->file);
    (*out)->created_ms = segment->created_ms;
    (*out)->jitter_ms = segment->jitter_ms;
    (*out)->size = pos;
    (*out)->reserved = segment->reserved;
    return KL_OK;
}

kl_status kl_segment_trim(kl_segment *segment) {
    KL_FP("segment.cut.before_truncate");
    kl_status status = kl_file_truncate(segment->file, segment->size);
    if (status) return status;
    segment->reserved = segment->size;
    KL_FP("segment.cut.after_truncate");
    return KL_OK;
}
