/* guard.c: see guard.h. */
#include "guard.h"

#include "segment.h"

struct kl_guard {
    kl_sidecar sidecar; /* points into `file`; file NULL: unguarded */
    uint8_t *file;
    bool foreign;             /* the side-car of another segment or partition */
    bool resized;             /* the `.log` changed size since this index was sealed */
    _Atomic uint8_t *checked; /* per region: 1 if its checksum matched */
};

void kl_guard_free(kl_guard *guard) {
    if (guard == NULL) return;
    kl_release(guard->file);
    kl_release((void *)guard->checked);
    kl_release(guard);
}

/* The sealed size and CRC at `sums` match `bytes` and `crc`. */
static bool is_same(const uint8_t *sums, int64_t bytes, uint32_t crc) {
    return (int64_t)kl_get64(sums) == bytes && (bytes < 0 || kl_get32(sums + 8) == crc);
}

/* *has: the index is unchanged since the seal and not empty.  *last: its last four bytes. */
static kl_status has_sealed(const kl_sidecar *sidecar, kl_dir *dir, kl_index_kind kind,
                            bool *has, uint32_t *last) {
    enum { INDEX_BYTES_MAX = 64 << 20 };
    bool is_time = kind == KL_TIME_INDEX;
    char name[KL_NAME_BYTES];
    uint8_t *data = NULL;
    size_t bytes = 0;
    kl_segment_name(name, sidecar->base_offset, is_time ? KL_TIME_SUFFIX : KL_INDEX_SUFFIX);
    kl_status status = kl_dir_slurp(dir, name, INDEX_BYTES_MAX, &data, &bytes);
    *has = !status && bytes >= sizeof *last &&
           is_same(sidecar->index_sums + (is_time ? KL_FILE_SUM_BYTES : 0), (int64_t)bytes,
                   kl_crc32c(data, bytes));
    if (*has) *last = kl_get32(data + bytes - sizeof *last);
    kl_release(data);
    return status == KL_E_NOT_FOUND || status == KL_E_CORRUPT ? KL_OK : status;
}

/* *resized: a `.log` of another size was truncated, or replaced without its indexes: a program that
 * rewrites a `.log`, as Kafka does, also writes new indexes.  A small segment's offset index is
 * empty before and after; then its time index must not name records after the end. */
static kl_status is_resized(const kl_sidecar *sidecar, const kl_segment *segment,
                            kl_dir *dir, bool *resized) {
    uint32_t last = 0;
    int64_t end = segment->base_offset;
    kl_status status = has_sealed(sidecar, dir, KL_OFFSET_INDEX, resized, &last);
    if (status || *resized || kl_get64(sidecar->index_sums) > 0) return status;
    status = has_sealed(sidecar, dir, KL_TIME_INDEX, resized, &last);
    if (!status && *resized) status = kl_walk_to_end(segment->file, segment->size, &end);
    *resized = *resized && segment->base_offset + (int32_t)last >= end;
    return status;
}

static kl_status load(kl_guard *guard, const kl_segment *segment, kl_dir *dir) {
    bool belongs = false;
    kl_status status =
        kl_sidecar_load(dir, segment->base_offset, &guard->file, &guard->sidecar);
    if (status || guard->file == NULL) return status;
    status = kl_sidecar_belongs(&guard->sidecar, dir, &belongs);
    if (status) return status;
    guard->foreign = !belongs || guard->sidecar.base_offset != segment->base_offset;
    if (!guard->foreign && guard->sidecar.log_bytes != segment->size)
        status = is_resized(&guard->sidecar, segment, dir, &guard->resized);
    if (status) return status;
    guard->checked = kl_alloc(guard->sidecar.region_count);
    return guard->checked ? KL_OK : kl_fail(KL_E_NO_MEMORY, "no memory for a side-car");
}

static kl_status guard_new(const kl_segment *segment, kl_guard **out) {
    *out = NULL;
    kl_dir *dir = NULL;
    kl_guard *guard = kl_alloc(sizeof *guard);
    if (guard == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a side-car");
    kl_status status = kl_dir_open(kl_file_dir(segment->file), 0, &dir);
    if (!status) status = load(guard, segment, dir);
    kl_dir_close(dir);
    kl_dir_free(dir);
    if (status) kl_guard_free(guard);
    else *out = guard;
    return status;
}

/* A finished `.swap` does not: the side-car is still its predecessor's. */
static bool owns_sidecar(const kl_segment *segment) {
    char name[KL_NAME_BYTES];
    kl_segment_name(name, segment->base_offset, KL_LOG_SUFFIX);
    return strcmp(kl_file_name(segment->file), name) == 0;
}

/* Read on first use; if several threads read at once, the first to finish stores it. */
static kl_status guard_of(kl_segment *segment, kl_guard **out) {
    static kl_guard none; /* `file` NULL: no checks; never written */
    *out = atomic_load_explicit(&segment->guard, memory_order_acquire);
    if (KL_LIKELY(*out != NULL)) return KL_OK;
    if (!owns_sidecar(segment)) {
        *out = &none;
        return KL_OK;
    }
    kl_guard *fresh = NULL, *seen = NULL;
    kl_status status = guard_new(segment, &fresh);
    if (status) return status;
    if (!atomic_compare_exchange_strong(&segment->guard, &seen, fresh)) {
        kl_guard_free(fresh);
        fresh = seen;
    }
    *out = fresh;
    return KL_OK;
}

/* ---- headers --------------------------------------------------------------------------- */

/* A part of the file, from memory or read on demand. */
typedef struct {
    kl_file *file;
    kl_span data; /* the caller's, from data_pos on */
    int64_t data_pos;
    uint8_t own[4096];
    int64_t own_pos;
    size_t own_bytes;
} window;

KL_STATIC_ASSERT(sizeof(((window *)0)->own) >= KL_SUMMED_BYTES, "one read has a header");

static kl_status header_at(window *from, int64_t pos, const uint8_t **header) {
    if (pos >= from->data_pos &&
        kl_span_has(from->data, (size_t)(pos - from->data_pos), KL_SUMMED_BYTES)) {
        *header = from->data.data + (pos - from->data_pos);
        return KL_OK;
    }
    bool inside = pos >= from->own_pos && pos - from->own_pos <= (int64_t)from->own_bytes &&
                  (int64_t)from->own_bytes - (pos - from->own_pos) >= KL_SUMMED_BYTES;
    if (!inside) {
        from->own_pos = pos;
        kl_status status =
            kl_file_read(from->file, from->own, sizeof from->own, pos, &from->own_bytes);
        if (status) return status;
    }
    *header = from->own + (pos - from->own_pos);
    return from->own_pos + (int64_t)from->own_bytes - pos >= KL_SUMMED_BYTES
               ? KL_OK
               : kl_fail(KL_E_CORRUPT_MESSAGE, "%s ends at %lld, before a header's end",
                         kl_file_name(from->file),
                         (long long)(from->own_pos + (int64_t)from->own_bytes));
}

static kl_status check_region(const kl_sidecar *sidecar, size_t index, window *from) {
    kl_region region = kl_sidecar_region(sidecar, index);
    int64_t pos = region.pos, end = sidecar->log_bytes;
    if (index + 1 < sidecar->region_count) end = kl_sidecar_region(sidecar, index + 1).pos;
    uint32_t crc = 0;
    while (pos < end) {
        const uint8_t *header;
        kl_status status = header_at(from, pos, &header);
        if (status) return status;
        int64_t bytes =
            LENGTH_OVERHEAD + (int64_t)(int32_t)kl_get32(header + POS_BATCH_LENGTH);
        if (bytes < KL_BATCH_HEADER_BYTES || bytes > end - pos) break;
        crc = kl_crc32c_more(crc, header, KL_SUMMED_BYTES);
        pos += bytes;
    }
    if (pos == end && crc == region.crc) return KL_OK;
    return kl_fail(KL_E_CORRUPT_MESSAGE,
                   "%s: the headers of the batches from %lld to %lld are not what was "
                   "sealed: their checksum is %08x, wanted %08x",
                   kl_file_name(from->file), (long long)region.pos, (long long)end, crc,
                   region.crc);
}

/* The last region that begins at or before `pos`, or 0. */
static size_t find_region(const kl_sidecar *sidecar, int64_t pos) {
    size_t low = 0, high = sidecar->region_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (kl_sidecar_region(sidecar, middle).pos <= pos) low = middle;
        else high = middle;
    }
    return low;
}

static kl_status refuse(const kl_segment *segment, const kl_guard *guard) {
    const kl_sidecar *sidecar = &guard->sidecar;
    if (guard->foreign)
        return kl_fail(
            KL_E_CORRUPT_MESSAGE,
            "%s: the side-car next to it is segment %lld's of %.*s, topic id %.*s",
            kl_file_name(segment->file), (long long)sidecar->base_offset,
            (int)sidecar->folder.bytes, (const char *)sidecar->folder.data,
            (int)sidecar->topic_id.bytes, (const char *)sidecar->topic_id.data);
    return kl_fail(KL_E_CORRUPT_MESSAGE, "%s has another size than the %lld bytes sealed",
                   kl_file_name(segment->file), (long long)sidecar->log_bytes);
}

kl_status kl_guard_check(kl_segment *segment, int64_t size, int64_t pos, int64_t stop_pos,
                         kl_span data, int64_t data_pos, int64_t *good_pos) {
    kl_guard *guard;
    *good_pos = stop_pos;
    kl_status status = guard_of(segment, &guard);
    if (status || guard->file == NULL) return status;
    if (guard->foreign || guard->resized) {
        *good_pos = 0;
        return refuse(segment, guard);
    }
    if (guard->sidecar.log_bytes != size) return KL_OK;
    const kl_sidecar *sidecar = &guard->sidecar;
    window from = {.file = segment->file, .data = data, .data_pos = data_pos};
    for (size_t i = find_region(sidecar, pos); i < sidecar->region_count; i++) {
        int64_t region_pos = kl_sidecar_region(sidecar, i).pos;
        if (region_pos >= stop_pos) break;
        if (atomic_load_explicit(&guard->checked[i], memory_order_relaxed)) continue;
        status = check_region(sidecar, i, &from);
        if (status) {
            *good_pos = region_pos;
            break;
        }
        atomic_store_explicit(&guard->checked[i], 1, memory_order_relaxed);
    }
    return status;
}

/* ---- indexes --------------------------------------------------------------------------- */

kl_status kl_guard_index(kl_segment *segment, const kl_index *index, bool *same) {
    KL_ASSERT_HELD(&segment->lock);
    kl_guard *guard;
    kl_status status = guard_of(segment, &guard);
    *same = true;
    if (status || guard->file == NULL || guard->foreign ||
        guard->sidecar.log_bytes != segment->size)
        return status;
    const uint8_t *sums = guard->sidecar.index_sums;
    if (index->kind == KL_TIME_INDEX) sums += KL_FILE_SUM_BYTES;
    kl_span data = kl_index_bytes(index);
    *same = is_same(sums, (int64_t)data.bytes, kl_crc32c(data.data, data.bytes));
    return KL_OK;
}

kl_status kl_guard_sealed_aborts(kl_segment *segment, kl_sealed_aborts *out) {
    kl_guard *fresh = NULL;
    const kl_guard *guard = atomic_load_explicit(&segment->guard, memory_order_acquire);
    *out = (kl_sealed_aborts){0};
    if (guard == NULL && owns_sidecar(segment)) {
        kl_status status = guard_new(segment, &fresh);
        if (status) return status;
        guard = fresh;
    }
    if (guard && guard->file && !guard->foreign &&
        guard->sidecar.log_bytes == segment->size) {
        const uint8_t *sums = guard->sidecar.index_sums + 2 * KL_FILE_SUM_BYTES;
        kl_lock(&segment->lock);
        *out = (kl_sealed_aborts){true, (int64_t)kl_get64(sums), kl_get32(sums + 8)};
        kl_unlock(&segment->lock);
    }
    kl_guard_free(fresh);
    return KL_OK;
}

bool kl_guard_has_aborts(kl_segment *segment, const kl_sealed_aborts *sealed) {
    if (!sealed->known) return true;
    kl_lock(&segment->lock);
    const kl_aborts *aborts = &segment->aborts;
    int64_t bytes = aborts->count ? (int64_t)(aborts->count * ABORT_ENTRY_BYTES) : -1;
    bool same =
        bytes == sealed->bytes && (bytes < 0 || kl_aborts_crc(aborts) == sealed->crc);
    kl_unlock(&segment->lock);
    return same;
}

/* Locked.  Update the checksums of the indexes. */
static void renew(kl_segment *segment, bool aborts) {
    KL_ASSERT_HELD(&segment->lock);
    kl_guard *guard = atomic_load_explicit(&segment->guard, memory_order_acquire);
    if (guard == NULL || guard->file == NULL) return;
    kl_sidecar_put_indexes(guard->file + (guard->sidecar.index_sums - guard->file), segment,
                           aborts);
}

kl_status kl_guard_reseal(kl_segment *segment, kl_dir *dir, bool aborts) {
    bool renewed;
    kl_status status = kl_sidecar_renew(segment, dir, aborts, &renewed);
    if (renewed) renew(segment, aborts);
    return status;
}
