/* aborts.c: the aborted-transaction index of one segment. */
#include "aborts.h"

#include "base/bytes.h"
#include "base/fault.h"
#include "index.h"

/*   pos  bytes  field
 *     0      2  version             0
 *     2      8  producerId
 *    10      8  firstOffset
 *    18      8  lastOffset          of the abort marker
 *    26      8  lastStableOffset    right after the marker */
enum {
    POS_VERSION = 0,
    POS_PRODUCER = 2,
    POS_FIRST_OFFSET = 10,
    POS_LAST_OFFSET = 18,
    POS_LAST_STABLE = 26
};
KL_STATIC_ASSERT(POS_PRODUCER == POS_VERSION + 2 && POS_FIRST_OFFSET == POS_PRODUCER + 8,
                 "as the table says");
KL_STATIC_ASSERT(POS_LAST_OFFSET == POS_FIRST_OFFSET + 8 &&
                     POS_LAST_STABLE == POS_LAST_OFFSET + 8,
                 "as the table says");
KL_STATIC_ASSERT(POS_LAST_STABLE + 8 == ABORT_ENTRY_BYTES, "the entry ends here");
/* More than a segment of 2 GiB can have markers for. */
enum { FILE_BYTES_MAX = 1 << 30 };

void kl_aborts_init(kl_aborts *aborts, int64_t base_offset) {
    *aborts = (kl_aborts){.base_offset = base_offset};
}

void kl_aborts_clear(kl_aborts *aborts) {
    aborts->count = 0;
    aborts->saved = 0;
    aborts->loaded = true;
}

void kl_aborts_free(kl_aborts *aborts) {
    kl_release(aborts->entries);
    kl_aborts_init(aborts, aborts->base_offset);
}

static kl_status reserve(kl_aborts *aborts, size_t count) {
    if (count == 0) return KL_OK;
    kl_aborted *entries =
        kl_room_for(aborts->entries, &aborts->capacity, count, sizeof *entries);
    if (entries == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu aborted transactions", count);
    aborts->entries = entries;
    return KL_OK;
}

kl_status kl_aborts_add(kl_aborts *aborts, const kl_aborted *entry) {
    kl_status status = reserve(aborts, aborts->count + 1);
    if (status) return status;
    KL_ASSERT(aborts->count < aborts->capacity);
    aborts->entries[aborts->count++] = *entry;
    return KL_OK;
}

static kl_status decode(kl_aborts *aborts, const uint8_t *p, size_t i,
                        int64_t offset_limit) {
    int version = (int16_t)kl_get16(p + POS_VERSION);
    kl_aborted entry = {
        .producer_id = (int64_t)kl_get64(p + POS_PRODUCER),
        .first_offset = (int64_t)kl_get64(p + POS_FIRST_OFFSET),
        .last_offset = (int64_t)kl_get64(p + POS_LAST_OFFSET),
        .last_stable_offset = (int64_t)kl_get64(p + POS_LAST_STABLE),
    };
    int64_t last_before = i ? aborts->entries[i - 1].last_offset : aborts->base_offset - 1;
    if (version != 0)
        return kl_fail(KL_E_CORRUPT, "entry %zu has version %d, wanted 0", i, version);
    if (entry.last_offset <= last_before || entry.last_offset >= offset_limit)
        return kl_fail(KL_E_CORRUPT,
                       "entry %zu has lastOffset %lld, wanted above %lld and below %lld", i,
                       (long long)entry.last_offset, (long long)last_before,
                       (long long)offset_limit);
    if (entry.first_offset < 0 || entry.first_offset >= entry.last_offset)
        return kl_fail(
            KL_E_CORRUPT,
            "entry %zu has firstOffset %lld, wanted 0 to below its lastOffset %lld", i,
            (long long)entry.first_offset, (long long)entry.last_offset);
    return kl_aborts_add(aborts, &entry);
}

kl_status kl_aborts_load(kl_aborts *aborts, kl_dir *dir, int64_t offset_limit) {
    char name[KL_NAME_BYTES];
    uint8_t *data = NULL;
    size_t bytes = 0;
    kl_aborts_clear(aborts);
    kl_segment_name(name, aborts->base_offset, ".txnindex");
    kl_status status = kl_dir_slurp(dir, name, FILE_BYTES_MAX, &data, &bytes);
    if (status == KL_E_NOT_FOUND) return KL_OK;
    if (status) goto out;
    if (bytes % ABORT_ENTRY_BYTES != 0) {
        status = kl_fail(KL_E_CORRUPT, "%zu bytes, wanted a multiple of %d", bytes,
                         ABORT_ENTRY_BYTES);
        goto out;
    }
    for (size_t i = 0; i < bytes / ABORT_ENTRY_BYTES && !status; i++)
        status = decode(aborts, data + i * ABORT_ENTRY_BYTES, i, offset_limit);
    aborts->saved = aborts->count;
out:
    kl_release(data);
    if (status) {
        kl_aborts_clear(aborts);
        aborts->loaded = false;
        return kl_fail_prefix(status, "%s", name);
    }
    return KL_OK;
}

static void encode(const kl_aborted *entry, uint8_t *p) {
    kl_put16(p + POS_VERSION, 0);
    kl_put64(p + POS_PRODUCER, (uint64_t)entry->producer_id);
    kl_put64(p + POS_FIRST_OFFSET, (uint64_t)entry->first_offset);
    kl_put64(p + POS_LAST_OFFSET, (uint64_t)entry->last_offset);
    kl_put64(p + POS_LAST_STABLE, (uint64_t)entry->last_stable_offset);
}

uint32_t kl_aborts_crc(const kl_aborts *aborts) {
    uint32_t crc = 0;
    for (size_t i = 0; i < aborts->count; i++) {
        uint8_t entry[ABORT_ENTRY_BYTES];
        encode(&aborts->entries[i], entry);
        crc = kl_crc32c_more(crc, entry, sizeof entry);
    }
    return crc;
}

kl_status kl_aborts_encode(const kl_aborts *aborts, size_t first, uint8_t **data,
                           size_t *bytes) {
    KL_ASSERT(first <= aborts->count);
    *bytes = (aborts->count - first) * ABORT_ENTRY_BYTES;
    *data = kl_alloc(*bytes);
    if (*data == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu bytes of aborted transactions",
                       *bytes);
    for (size_t i = first; i < aborts->count; i++)
        encode(&aborts->entries[i], *data + (i - first) * ABORT_ENTRY_BYTES);
    return KL_OK;
}

kl_status kl_aborts_rewrite(kl_aborts *aborts, kl_dir *dir, bool sync) {
    char name[KL_NAME_BYTES];
    uint8_t *data = NULL;
    size_t bytes;
    kl_segment_name(name, aborts->base_offset, ".txnindex");
    kl_status status = KL_OK;
    if (aborts->count == 0) {
        status = kl_dir_unlink(dir, name);
        if (status == KL_E_NOT_FOUND) status = KL_OK;
        goto out;
    }
    status = kl_aborts_encode(aborts, 0, &data, &bytes);
    if (status) goto out;
    status = kl_dir_write_file(dir, name, data, bytes, sync);
    if (status) goto out;
    KL_FP("aborts.rewrite.renamed");
out:
    kl_release(data);
    if (!status) aborts->saved = aborts->count;
    return status;
}

kl_status kl_aborts_save(kl_aborts *aborts, kl_dir *dir, bool sync) {
    KL_ASSERT(aborts->saved <= aborts->count);
    if (aborts->count == 0 || (aborts->saved == aborts->count && !sync)) return KL_OK;
    if (aborts->saved == 0) return kl_aborts_rewrite(aborts, dir, sync);
    char name[KL_NAME_BYTES];
    uint8_t *data = NULL;
    size_t bytes;
    kl_file *file = NULL;
    kl_segment_name(name, aborts->base_offset, ".txnindex");
    kl_status status = kl_aborts_encode(aborts, aborts->saved, &data, &bytes);
    if (status) goto out;
    status = kl_file_new(dir->path, name, true, &file);
    if (status) goto out;
    if (bytes > 0)
        status =
            kl_file_write(file, data, bytes, (int64_t)(aborts->saved * ABORT_ENTRY_BYTES));
    if (status) goto out;
    KL_FP("aborts.save.written");
    if (sync) status = kl_file_sync(file);
    if (!status) aborts->saved = aborts->count;
out:
    kl_file_drop(file);
    kl_release(data);
    return status;
}

void kl_aborts_truncate(kl_aborts *aborts, int64_t offset) {
    while (aborts->count > 0 && aborts->entries[aborts->count - 1].last_offset >= offset)
        aborts->count--;
    /* The file is longer now, so the next save rewrites it. */
    if (aborts->saved > aborts->count) aborts->saved = 0;
}

kl_status kl_aborts_cut(kl_aborts *aborts, kl_dir *dir) {
    char name[KL_NAME_BYTES];
    kl_file *file = NULL;
    bool there;
    kl_segment_name(name, aborts->base_offset, ".txnindex");
    kl_status status = kl_dir_exists(dir, name, &there);
    if (status || !there) return status;
    if (aborts->count == 0) return kl_aborts_rewrite(aborts, dir, false);
    status = kl_file_new(dir->path, name, true, &file);
    if (!status)
        status = kl_file_truncate(file, (int64_t)(aborts->count * ABORT_ENTRY_BYTES));
    if (!status) aborts->saved = aborts->count;
    kl_file_drop(file);
    return status;
}

bool kl_aborts_find(const kl_aborts *aborts, int64_t start, int64_t stop, kl_aborted *out,
                    size_t max_entries, size_t *count) {
    for (size_t i = 0; i < aborts->count; i++) {
        const kl_aborted *entry = &aborts->entries[i];
        if (entry->last_offset >= start && entry->first_offset < stop) {
            if (*count < max_entries) out[*count] = *entry;
            *count += 1;
        }
        if (entry->last_stable_offset >= stop) return true;
    }
    return false;
}
