/* index.c: the sparse offset and time indexes of a segment. */
#include "index.h"

#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

/* Copy sealed indexes up to this size: a map costs a page fault and a mapping per 4 KiB saved. */
enum { COPY_BYTES_MAX = 64 * 1024 };
enum { SEGMENT_DIGITS = 20 };
KL_STATIC_ASSERT(SEGMENT_DIGITS + sizeof ".txnindex.deleted" <= KL_NAME_BYTES,
                 "the longest name that a segment's file can have");

void kl_segment_name(char *out, int64_t base_offset, const char *suffix) {
    KL_ASSERT(base_offset >= 0);
    int written = snprintf(out, KL_NAME_BYTES, "%020" PRId64 "%s", base_offset, suffix);
    KL_ASSERT(written > 0 && written < KL_NAME_BYTES);
}

bool kl_segment_name_parse(const char *name, const char *suffix, int64_t *base_offset) {
    uint64_t offset = 0;
    for (int i = 0; i < SEGMENT_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9') return false;
        uint64_t digit = (uint64_t)(name[i] - '0');
        if (offset > ((uint64_t)INT64_MAX - digit) / 10) return false;
        offset = offset * 10 + digit;
    }
    if (strcmp(name + SEGMENT_DIGITS, suffix) != 0) return false;
    *base_offset = (int64_t)offset;
    return true;
}

static size_t entry_bytes(const kl_index *index) {
    return index->kind == KL_OFFSET_INDEX ? OFFSET_ENTRY_BYTES : TIME_ENTRY_BYTES;
}

static const uint8_t *entry_at(const kl_index *index, size_t i) {
    const uint8_t *entries = index->map ? index->map : index->entries.data;
    return entries + i * entry_bytes(index);
}

/* The entries fill the bytes in use, and saved and shown entries exist. */
static bool is_whole(const kl_index *index) {
    size_t bytes = index->count * entry_bytes(index);
    bool fits = index->map ? bytes <= index->map_bytes : bytes == index->entries.bytes;
    return fits && index->saved <= index->count && index->shown <= index->count;
}

static void file_name(const kl_index *index, char *out) {
    kl_segment_name(out, index->base_offset,
                    index->kind == KL_OFFSET_INDEX ? ".index" : ".timeindex");
}

void kl_index_init(kl_index *index, kl_index_kind kind, int64_t base_offset) {
    *index = (kl_index){.kind = kind, .base_offset = base_offset};
}

static void unmap(kl_index *index) {
    if (index->map)
        KL_ASSERT(kl_io->munmap((void *)(uintptr_t)index->map, index->map_bytes) == 0);
    index->map = NULL;
    index->map_bytes = 0;
}

void kl_index_clear(kl_index *index) {
    unmap(index);
    index->entries.bytes = 0;
    index->count = 0;
    index->saved = index->shown = 0;
    index->on_file = false;
    index->loaded = true;
}

void kl_index_unload(kl_index *index) {
    kl_index_clear(index);
    kl_buffer_free(&index->entries);
    index->loaded = false;
}

void kl_index_free(kl_index *index) { kl_index_unload(index); }

kl_offset_entry kl_index_offset_at(const kl_index *index, size_t i) {
    KL_ASSERT(index->kind == KL_OFFSET_INDEX && i < index->count);
    const uint8_t *entry = entry_at(index, i);
    return (kl_offset_entry){index->base_offset + (int32_t)kl_get32(entry),
                             (int32_t)kl_get32(entry + 4)};
}

kl_time_entry kl_index_time_at(const kl_index *index, size_t i) {
    KL_ASSERT(index->kind == KL_TIME_INDEX && i < index->count);
    const uint8_t *entry = entry_at(index, i);
    return (kl_time_entry){(int64_t)kl_get64(entry),
                           index->base_offset + (int32_t)kl_get32(entry + 8)};
}

/* ---- load --------------------------------------------------------------------------- */

/* Count the entries that kl_index_add_offset would accept: no entry has position 0, so a zero tail
 * has none. */
static size_t usable_offsets(const uint8_t *p, size_t count, int64_t relative_limit,
                             int64_t pos_limit) {
    int64_t offset_before = -1, pos_before = 0;
    size_t i = 0;
    for (; i < count; i++, p += OFFSET_ENTRY_BYTES) {
        int64_t offset = (int32_t)kl_get32(p), pos = (int32_t)kl_get32(p + 4);
        if (offset <= offset_before || offset >= relative_limit) break;
        if (pos <= pos_before || pos >= pos_limit) break;
        offset_before = offset;
        pos_before = pos;
    }
    return i;
}

/* A zero tail looks like an entry (0, 0), which a first record of 1970 also makes; but then a later
 * time follows. */
static size_t usable_times(const uint8_t *p, size_t count, int64_t relative_limit) {
    static const uint8_t zeros[2 * TIME_ENTRY_BYTES];
    if (count >= 2 && memcmp(p, zeros, sizeof zeros) == 0) return 0;
    int64_t timestamp_before = -1, offset_before = 0;
    size_t i = 0;
    for (; i < count; i++, p += TIME_ENTRY_BYTES) {
        int64_t timestamp = (int64_t)kl_get64(p), offset = (int32_t)kl_get32(p + 8);
        if (timestamp <= timestamp_before) break;
        if (offset < offset_before || offset >= relative_limit) break;
        timestamp_before = timestamp;
        offset_before = offset;
    }
    return i;
}

static kl_status copy_in(kl_index *index, kl_file *file, size_t bytes) {
    kl_status status = kl_buffer_reserve(&index->entries, bytes);
    if (status) return status;
    size_t got = 0;
    status = kl_file_read(file, index->entries.data, bytes, 0, &got);
    if (!status) index->entries.bytes = got;
    return status;
}

static kl_status map_in(kl_index *index, kl_file *file, size_t bytes) {
    int fd;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    void *map = kl_io->mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        status = kl_fail_errno(errno, "mmap of %s", kl_file_name(file));
    } else {
        index->map = map;
        index->map_bytes = bytes;
    }
    kl_file_unpin(file);
    return status;
}

static void take_usable(kl_index *index, int64_t offset_limit, int64_t pos_limit,
                        size_t file_bytes, bool *sane) {
    size_t bytes = index->map ? index->map_bytes : index->entries.bytes;
    const uint8_t *p = index->map ? index->map : index->entries.data;
    size_t in_file = bytes / entry_bytes(index);
    int64_t limit =
        offset_limit > index->base_offset ? offset_limit - index->base_offset : 0;
    if (in_file == 0) index->count = 0;
    else if (index->kind == KL_OFFSET_INDEX)
        index->count = usable_offsets(p, in_file, limit, pos_limit);
    else index->count = usable_times(p, in_file, limit);
    *sane = index->count * entry_bytes(index) == file_bytes;
    if (index->map == NULL) index->entries.bytes = index->count * entry_bytes(index);
    index->saved = index->count;
    index->on_file = *sane;
    index->loaded = true;
    KL_ASSERT(is_whole(index));
}

kl_status kl_index_load(kl_index *index, kl_dir *dir, int64_t offset_limit,
                        int64_t pos_limit, bool into_memory, bool *sane) {
    char name[KL_NAME_BYTES];
    kl_file *file = NULL;
    int64_t bytes = 0, modified_ms;
    *sane = false;
    kl_index_clear(index);
    file_name(index, name);
    kl_status status = kl_file_new(dir->path, name, false, &file);
    if (status) goto out;
    status = kl_file_stat(file, &bytes, &modified_ms);
    if (status == KL_E_NOT_FOUND) {
        status = KL_OK;
        goto out;
    }
    if (status) goto out;
    /* Relative offsets have 31 bits, so bytes beyond that many entries are no index. */
    size_t usable_bytes =
        (size_t)KL_MIN(bytes, (int64_t)INT32_MAX * (int64_t)entry_bytes(index));
    if (usable_bytes > 0 && !into_memory && usable_bytes > COPY_BYTES_MAX)
        status = map_in(index, file, usable_bytes);
    else if (usable_bytes > 0) status = copy_in(index, file, usable_bytes);
    if (status) goto out;
    take_usable(index, offset_limit, pos_limit, (size_t)bytes, sane);
out:
    if (status) kl_index_unload(index);
    kl_file_drop(file);
    return status;
}

/* ---- change ------------------------------------------------------------------------- */

static bool relative_fits(const kl_index *index, int64_t offset) {
    return offset >= index->base_offset && offset - index->base_offset <= INT32_MAX;
}

kl_status kl_index_add_offset(kl_index *index, int64_t offset, int64_t pos) {
    KL_ASSERT(index->kind == KL_OFFSET_INDEX && index->map == NULL);
    if (!relative_fits(index, offset) || pos <= 0 || pos > INT32_MAX) return KL_OK;
    if (index->count > 0) {
        kl_offset_entry last = kl_index_offset_at(index, index->count - 1);
        if (offset <= last.offset || pos <= last.pos) return KL_OK;
    }
    uint8_t entry[OFFSET_ENTRY_BYTES];
    kl_put32(entry, (uint32_t)(offset - index->base_offset));
    kl_put32(entry + 4, (uint32_t)pos);
    kl_status status = kl_buffer_append(&index->entries, entry, sizeof entry);
    if (!status) index->count++;
    return status;
}

kl_status kl_index_add_time(kl_index *index, int64_t timestamp, int64_t offset) {
    KL_ASSERT(index->kind == KL_TIME_INDEX && index->map == NULL);
    if (!relative_fits(index, offset) || timestamp < 0) return KL_OK;
    if (index->count > 0) {
        kl_time_entry last = kl_index_time_at(index, index->count - 1);
        if (timestamp <= last.timestamp || offset < last.offset) return KL_OK;
    }
    uint8_t entry[TIME_ENTRY_BYTES];
    kl_put64(entry, (uint64_t)timestamp);
    kl_put32(entry + 8, (uint32_t)(offset - index->base_offset));
    kl_status status = kl_buffer_append(&index->entries, entry, sizeof entry);
    if (!status) index->count++;
    return status;
}

kl_status kl_index_truncate(kl_index *index, int64_t offset) {
    KL_ASSERT(index->map == NULL);
    while (index->count > 0) {
        int64_t last = index->kind == KL_OFFSET_INDEX
                           ? kl_index_offset_at(index, index->count - 1).offset
                           : kl_index_time_at(index, index->count - 1).offset;
        if (last < offset) break;
        index->count--;
    }
    index->entries.bytes = index->count * entry_bytes(index);
    index->shown = KL_MIN(index->shown, index->count);
    if (index->saved > index->count) {
        index->saved = index->count;
        index->on_file = false; /* the file still contains the dropped entries */
    }
    KL_ASSERT(is_whole(index));
    return KL_OK;
}

/* ---- save --------------------------------------------------------------------------- */

kl_status kl_index_rewrite(kl_index *index, kl_dir *dir, bool sync) {
    KL_ASSERT(index->map == NULL && is_whole(index));
    char name[KL_NAME_BYTES];
    file_name(index, name);
    kl_status status = KL_FP_STATUS("index.rewrite.before");
    if (status) return status;
    status = kl_dir_write_file(dir, name, index->entries.data, index->entries.bytes, sync);
    if (status) return status;
    KL_FP("index.rewrite.renamed");
    index->saved = index->count;
    index->on_file = true;
    return KL_OK;
}

kl_status kl_index_rewrite_if_room(kl_index *index, kl_dir *dir) {
    char name[KL_NAME_BYTES];
    kl_status status = kl_index_rewrite(index, dir, false);
    if (!status || !kl_passes(status)) return status;
    file_name(index, name);
    status = kl_dir_unlink(dir, name); /* an older file must not be used */
    index->on_file = false;
    index->saved = 0;
    return status == KL_E_NOT_FOUND ? KL_OK : status;
}

kl_status kl_index_save(kl_index *index, kl_dir *dir, bool sync) {
    KL_ASSERT(index->map == NULL && is_whole(index));
    /* The file's content is unknown or too long: replace it, since readers may map it. */
    if (!index->on_file) return kl_index_rewrite(index, dir, sync);
    if (index->saved == index->count && !sync) return KL_OK;
    char name[KL_NAME_BYTES];
    file_name(index, name);
    kl_file *file = NULL;
    kl_status status = kl_file_new(dir->path, name, true, &file);
    if (status) goto out;
    size_t pos = index->saved * entry_bytes(index);
    if (index->entries.bytes > pos)
        status = kl_file_write(file, index->entries.data + pos, index->entries.bytes - pos,
                               (int64_t)pos);
    if (status) goto out;
    KL_FP("index.save.written");
    if (sync) status = kl_file_sync(file);
    if (status) goto out;
    index->saved = index->count;
out:
    kl_file_drop(file);
    return status;
}

kl_span kl_index_bytes(const kl_index *index) {
    const uint8_t *data = index->map ? index->map : index->entries.data;
    return (kl_span){data, index->count * entry_bytes(index)};
}

/* ---- find --------------------------------------------------------------------------- */

static int64_t offset_key(const kl_index *index, size_t i) {
    return kl_index_offset_at(index, i).offset;
}
static int64_t time_key(const kl_index *index, size_t i) {
    return kl_index_time_at(index, i).timestamp;
}

/* Interpolate the position of a key among entries 0 to `last`: low_key <= key < high_key. Uses
 * differences, since doubles cannot distinguish large keys. */
static size_t guess(int64_t low_key, int64_t high_key, int64_t key, size_t last) {
    double above = (double)((uint64_t)key - (uint64_t)low_key);
    double range = (double)((uint64_t)high_key - (uint64_t)low_key);
    return KL_MIN((size_t)(above / range * (double)last), last);
}

/* Count the entries with a key <= `key`.  The index of a large log exceeds the processor's caches:
 * an interpolation and a few steps touch fewer cache lines than bisection. */
static inline size_t count_up_to(const kl_index *index, int64_t key,
                                 int64_t (*key_at)(const kl_index *, size_t)) {
    size_t count = index->count;
    if (count == 0 || key_at(index, 0) > key) return 0;
    if (key_at(index, count - 1) <= key) return count;
    size_t low = guess(key_at(index, 0), key_at(index, count - 1), key, count - 1), high;
    size_t step = 1;
    if (key_at(index, low) <= key) { /* entry `low` counts, entry `high` does not */
        for (high = low + 1; high < count && key_at(index, high) <= key; step *= 2) {
            low = high;
            high = KL_MIN(high + step, count - 1);
        }
    } else {
        for (high = low, low = high - 1; key_at(index, low) > key; step *= 2) {
            high = low;
            low = low > step ? low - step : 0;
        }
    }
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (key_at(index, middle) <= key) low = middle;
        else high = middle;
    }
    return high;
}

kl_offset_entry kl_index_find_offset(const kl_index *index, int64_t offset) {
    size_t count = count_up_to(index, offset, offset_key);
    if (count == 0) return (kl_offset_entry){index->base_offset, 0};
    return kl_index_offset_at(index, count - 1);
}

bool kl_index_next_offset(const kl_index *index, int64_t offset, kl_offset_entry *out) {
    size_t count = count_up_to(index, offset, offset_key);
    if (count > 0 && kl_index_offset_at(index, count - 1).offset == offset) count--;
    if (count == index->count) return false;
    *out = kl_index_offset_at(index, count);
    return true;
}

size_t kl_index_count_below(const kl_index *index, int64_t offset) {
    return count_up_to(index, offset - 1, offset_key);
}

kl_time_entry kl_index_find_time(const kl_index *index, int64_t timestamp) {
    size_t count = count_up_to(index, timestamp, time_key);
    if (count == 0) return (kl_time_entry){-1, index->base_offset};
    return kl_index_time_at(index, count - 1);
}
