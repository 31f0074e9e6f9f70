/* sidecar.c: see sidecar.h. */
#include "sidecar.h"

#include <stdio.h>

#include "base/fault.h"
#include "segment.h"

/*   pos  bytes  field
 *     0      4  magic
 *     4      2  version
 *     6      4  fileBytes     the whole file
 *    10      4  crc           CRC-32C of pos 14 to the end
 *    14      8  baseOffset
 *    22      8  logBytes
 *    30     12  index         bytes (8), CRC-32C (4)
 *    42     12  timeindex
 *    54     12  txnindex      bytes -1: none
 *    66      4  regionBytes
 *    70      4  regionCount
 *    74      1  topicIdBytes
 *    75      1  folderBytes
 *    76         topicId, folder, then the regions: pos (8), crc (4) */
enum {
    POS_SIDECAR_VERSION = 4,
    POS_FILE_BYTES = 6,
    POS_SIDECAR_CRC = 10,
    POS_BASE = 14,
    POS_LOG_BYTES = 22,
    POS_INDEX = 30,
    POS_TIMEINDEX = 42,
    POS_TXNINDEX = 54,
    POS_REGION_BYTES = 66,
    POS_REGION_COUNT = 70,
    POS_TOPIC_ID_BYTES = 74,
    POS_FOLDER_BYTES = 75,
    POS_NAMES = 76,
    REGION_ENTRY_BYTES = 12
};
KL_STATIC_ASSERT(POS_BASE == POS_SIDECAR_CRC + 4, "the crc covers all that follows it");
KL_STATIC_ASSERT(POS_TIMEINDEX == POS_INDEX + KL_FILE_SUM_BYTES &&
                     POS_TXNINDEX == POS_TIMEINDEX + KL_FILE_SUM_BYTES &&
                     POS_REGION_BYTES == POS_TXNINDEX + KL_FILE_SUM_BYTES,
                 "the sums of three files lie behind one another");
KL_STATIC_ASSERT(POS_NAMES == POS_FOLDER_BYTES + 1, "the fixed part ends here");
KL_STATIC_ASSERT((int)KL_SUMMED_BYTES == (int)POS_ATTRIBUTES,
                 "what the crc of a batch leaves out, and that crc");

enum {
    SIDECAR_VERSION = 1,
    TOPIC_ID_BYTES = 22, /* 16 bytes in base64url */
    FOLDER_BYTES_MAX = 255,
    METADATA_BYTES_MAX = 4096,
    SIDECAR_BYTES_MAX = 16 << 20 /* regions of a `.log` of 80 GiB */
};
static const uint8_t MAGIC[4] = {'K', 'L', 'C', 'K'};
KL_STATIC_ASSERT(FOLDER_BYTES_MAX <= UINT8_MAX && TOPIC_ID_BYTES <= UINT8_MAX,
                 "their lengths are one byte each");

KL_STATIC_ASSERT((KL_REGION_BYTES & (KL_REGION_BYTES - 1)) == 0, "a power of two");

/* ---- the regions ---------------------------------------------------------------------- */

static kl_region *last_region(const kl_sums *sums) {
    size_t count = sums->regions.bytes / sizeof(kl_region);
    return count ? (kl_region *)(void *)sums->regions.data + (count - 1) : NULL;
}

void kl_sums_add(kl_sums *sums, const uint8_t *header, int64_t pos, int64_t batch_bytes) {
    if (KL_UNLIKELY(pos != sums->pos)) return;
    kl_region *region = last_region(sums);
    /* Two positions of one region differ in their low bits only. */
    if (region == NULL || (region->pos ^ pos) >= KL_REGION_BYTES) {
        KL_ASSERT(sums->regions.capacity - sums->regions.bytes >= sizeof *region);
        sums->regions.bytes += sizeof *region;
        region = last_region(sums);
        *region = (kl_region){.pos = pos};
    }
    region->crc = kl_crc32c_more(region->crc, header, KL_SUMMED_BYTES);
    sums->pos = pos + batch_bytes;
}

void kl_sums_clear(kl_sums *sums) {
    sums->regions.bytes = 0;
    sums->pos = 0;
}

void kl_sums_free(kl_sums *sums) {
    kl_buffer_free(&sums->regions);
    sums->pos = 0;
}

/* Compute the sums from headers, for a segment that was opened in the middle. */
static kl_status sum_headers(kl_segment *segment) {
    kl_walk walk;
    kl_walk_init(&walk, segment->file, 0, segment->size, KL_REGION_BYTES);
    kl_sums_clear(&segment->sums);
    for (kl_batch batch; kl_walk_more(&walk, &batch);) {
        walk.status = kl_sums_reserve(&segment->sums, 1);
        if (!walk.status)
            kl_sums_add(&segment->sums, walk.chunk.data + (batch.pos - walk.chunk_pos),
                        batch.pos, batch.batch_bytes);
    }
    return kl_walk_end(&walk);
}

/* ---- whose it is ---------------------------------------------------------------------- */

/* The six bits of a base64url character, or -1. */
static int id_bits(uint8_t c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* The last four of the 132 bits of an id's text are padding. */
static bool is_same_id(const uint8_t *a, const uint8_t *b) {
    enum { LAST = TOPIC_ID_BYTES - 1 };
    return memcmp(a, b, LAST) == 0 && id_bits(a[LAST]) >> 4 == id_bits(b[LAST]) >> 4;
}

/* The topic id as partition.metadata spells it; *bytes 0: none. */
static kl_status read_topic_id(kl_dir *dir, uint8_t id[TOPIC_ID_BYTES], size_t *bytes) {
    static const char key[] = "topic_id:";
    uint8_t *data = NULL;
    size_t size = 0, pos = 0;
    *bytes = 0;
    kl_status status =
        kl_dir_slurp(dir, KL_PARTITION_METADATA_NAME, METADATA_BYTES_MAX, &data, &size);
    if (status == KL_E_NOT_FOUND || status == KL_E_CORRUPT) return KL_OK;
    if (status) return status;
    const uint8_t *found = memmem(data, size, key, sizeof key - 1);
    if (found == NULL) goto out;
    pos = (size_t)(found - data) + sizeof key - 1;
    while (pos < size && data[pos] == ' ') pos++;
    while (pos < size && *bytes < TOPIC_ID_BYTES && id_bits(data[pos]) >= 0)
        id[(*bytes)++] = data[pos++];
    if (*bytes < TOPIC_ID_BYTES) *bytes = 0;
out:
    kl_release(data);
    return KL_OK;
}

static kl_span folder_of(const kl_dir *dir) {
    const char *slash = strrchr(dir->path, '/');
    const char *name = slash ? slash + 1 : dir->path;
    return (kl_span){(const uint8_t *)name, KL_MIN(strlen(name), (size_t)FOLDER_BYTES_MAX)};
}

/* ---- the file ------------------------------------------------------------------------- */

static void sidecar_name(char name[KL_NAME_BYTES], int64_t base_offset) {
    kl_segment_name(name, base_offset, KL_SIDECAR_SUFFIX);
}

static void put_index(uint8_t *p, const kl_index *index) {
    kl_span file = kl_index_bytes(index);
    kl_put64(p, file.bytes);
    kl_put32(p + 8, kl_crc32c(file.data, file.bytes));
}

static void put_aborts(uint8_t *p, const kl_aborts *aborts) {
    uint32_t crc = kl_aborts_crc(aborts);
    kl_put64(p, aborts->count ? (uint64_t)(aborts->count * ABORT_ENTRY_BYTES) : UINT64_MAX);
    kl_put32(p + 8, crc);
}

void kl_sidecar_put_indexes(uint8_t *index_sums, const kl_segment *segment, bool aborts) {
    if (segment->offsets.loaded) put_index(index_sums, &segment->offsets);
    if (segment->times.loaded) put_index(index_sums + KL_FILE_SUM_BYTES, &segment->times);
    if (aborts) put_aborts(index_sums + 2 * KL_FILE_SUM_BYTES, &segment->aborts);
}

static void put_crc(uint8_t *data, size_t bytes) {
    kl_put32(data + POS_SIDECAR_CRC, kl_crc32c(data + POS_BASE, bytes - POS_BASE));
}

kl_status kl_sidecar_encode(const kl_segment *segment, kl_dir *dir, kl_buffer *out) {
    KL_ASSERT(segment->sums.pos == segment->size);
    uint8_t id[TOPIC_ID_BYTES];
    size_t id_bytes;
    kl_status status = read_topic_id(dir, id, &id_bytes);
    if (status) return status;
    kl_span folder = folder_of(dir);
    const kl_region *regions = (const kl_region *)(const void *)segment->sums.regions.data;
    size_t count = segment->sums.regions.bytes / sizeof *regions;
    size_t bytes = POS_NAMES + id_bytes + folder.bytes + count * REGION_ENTRY_BYTES;
    status = kl_buffer_reserve(out, bytes);
    if (status) return status;
    uint8_t *p = out->data;
    memcpy(p, MAGIC, sizeof MAGIC);
    kl_put16(p + POS_SIDECAR_VERSION, SIDECAR_VERSION);
    kl_put32(p + POS_FILE_BYTES, (uint32_t)bytes);
    kl_put64(p + POS_BASE, (uint64_t)segment->base_offset);
    kl_put64(p + POS_LOG_BYTES, (uint64_t)segment->size);
    kl_sidecar_put_indexes(p + POS_INDEX, segment, true);
    kl_put32(p + POS_REGION_BYTES, KL_REGION_BYTES);
    kl_put32(p + POS_REGION_COUNT, (uint32_t)count);
    p[POS_TOPIC_ID_BYTES] = (uint8_t)id_bytes;
    p[POS_FOLDER_BYTES] = (uint8_t)folder.bytes;
    memcpy(p + POS_NAMES, id, id_bytes);
    memcpy(p + POS_NAMES + id_bytes, folder.data, folder.bytes);
    uint8_t *entry = p + POS_NAMES + id_bytes + folder.bytes;
    for (size_t i = 0; i < count; i++, entry += REGION_ENTRY_BYTES) {
        kl_put64(entry, (uint64_t)regions[i].pos);
        kl_put32(entry + 8, regions[i].crc);
    }
    KL_ASSERT(entry == p + bytes);
    put_crc(p, bytes);
    out->bytes = bytes;
    return KL_OK;
}

kl_status kl_sidecar_write(kl_segment *segment, kl_dir *dir) {
    char name[KL_NAME_BYTES];
    kl_buffer file = {0};
    sidecar_name(name, segment->base_offset);
    kl_status status = KL_OK;
    if (segment->sums.pos != segment->size) status = sum_headers(segment);
    if (kl_walk_met_damage(status)) {
        status = kl_sidecar_drop(dir, segment->base_offset); /* nothing to vouch for */
        goto out;
    }
    if (!status) status = kl_sidecar_encode(segment, dir, &file);
    if (!status) status = KL_FP_STATUS("sidecar.write.before");
    if (status) goto out;
    status = kl_dir_write_file(dir, name, file.data, file.bytes, false);
    if (!status) KL_FP("sidecar.write.renamed");
out:
    kl_buffer_free(&file);
    return status;
}

static bool are_ascending(const kl_sidecar *sidecar) {
    int64_t after = -1;
    for (size_t i = 0; i < sidecar->region_count; i++) {
        int64_t pos = kl_sidecar_region(sidecar, i).pos;
        if (pos <= after || pos >= sidecar->log_bytes) return false;
        after = pos;
    }
    return true;
}

bool kl_sidecar_parse(const uint8_t *data, size_t bytes, kl_sidecar *out) {
    if (bytes < POS_NAMES || memcmp(data, MAGIC, sizeof MAGIC) != 0 ||
        kl_get16(data + POS_SIDECAR_VERSION) != SIDECAR_VERSION ||
        kl_get32(data + POS_FILE_BYTES) != bytes ||
        kl_get32(data + POS_SIDECAR_CRC) != kl_crc32c(data + POS_BASE, bytes - POS_BASE))
        return false;
    size_t names_bytes = (size_t)data[POS_TOPIC_ID_BYTES] + data[POS_FOLDER_BYTES];
    size_t count = kl_get32(data + POS_REGION_COUNT), left = bytes - POS_NAMES;
    if (left < names_bytes || count != (left - names_bytes) / REGION_ENTRY_BYTES ||
        kl_get32(data + POS_REGION_BYTES) != KL_REGION_BYTES)
        return false;
    *out = (kl_sidecar){
        .base_offset = (int64_t)kl_get64(data + POS_BASE),
        .log_bytes = (int64_t)kl_get64(data + POS_LOG_BYTES),
        .index_sums = data + POS_INDEX,
        .topic_id = {data + POS_NAMES, data[POS_TOPIC_ID_BYTES]},
        .folder = {data + POS_NAMES + data[POS_TOPIC_ID_BYTES], data[POS_FOLDER_BYTES]},
        .regions = data + POS_NAMES + names_bytes,
        .region_count = count,
    };
    return are_ascending(out);
}

kl_region kl_sidecar_region(const kl_sidecar *sidecar, size_t index) {
    KL_ASSERT(index < sidecar->region_count);
    const uint8_t *entry = sidecar->regions + index * REGION_ENTRY_BYTES;
    return (kl_region){(int64_t)kl_get64(entry), kl_get32(entry + 8)};
}

static kl_status slurp(kl_dir *dir, int64_t base_offset, uint8_t **data, size_t *bytes) {
    char name[KL_NAME_BYTES];
    sidecar_name(name, base_offset);
    kl_status status = kl_dir_slurp(dir, name, SIDECAR_BYTES_MAX, data, bytes);
    return status == KL_E_NOT_FOUND || status == KL_E_CORRUPT ? KL_OK : status;
}

kl_status kl_sidecar_load(kl_dir *dir, int64_t base_offset, uint8_t **file,
                          kl_sidecar *out) {
    size_t bytes;
    *file = NULL;
    kl_status status = slurp(dir, base_offset, file, &bytes);
    if (*file && !kl_sidecar_parse(*file, bytes, out)) {
        kl_release(*file);
        *file = NULL;
    }
    return status;
}

/* The number after the last hyphen of a partition's folder, or -1. */
static int64_t partition_of(kl_span folder) {
    int64_t number = 0, power = 1;
    size_t i = folder.bytes;
    for (; i > 0 && folder.data[i - 1] >= '0' && folder.data[i - 1] <= '9'; i--) {
        if (power > INT32_MAX) return -1;
        number += power * (folder.data[i - 1] - '0');
        power *= 10;
    }
    return i > 1 && power > 1 && folder.data[i - 1] == '-' ? number : -1;
}

kl_status kl_sidecar_belongs(const kl_sidecar *sidecar, kl_dir *dir, bool *belongs) {
    uint8_t id[TOPIC_ID_BYTES];
    size_t id_bytes;
    *belongs = true;
    kl_status status = read_topic_id(dir, id, &id_bytes);
    if (status || id_bytes == 0 || sidecar->topic_id.bytes == 0) return status;
    int64_t sealed = partition_of(sidecar->folder), found = partition_of(folder_of(dir));
    *belongs = sidecar->topic_id.bytes == id_bytes &&
               is_same_id(sidecar->topic_id.data, id) &&
               (sealed < 0 || found < 0 || sealed == found);
    return KL_OK;
}

kl_status kl_sidecar_renew(const kl_segment *segment, kl_dir *dir, bool aborts,
                           bool *renewed) {
    char name[KL_NAME_BYTES];
    *renewed = false;
    uint8_t *data = NULL;
    size_t bytes = 0;
    kl_sidecar old;
    sidecar_name(name, segment->base_offset);
    kl_status status = slurp(dir, segment->base_offset, &data, &bytes);
    if (data == NULL || !kl_sidecar_parse(data, bytes, &old) ||
        old.base_offset != segment->base_offset || old.log_bytes != segment->size)
        goto out;
    kl_sidecar_put_indexes(data + POS_INDEX, segment, aborts);
    put_crc(data, bytes);
    status = kl_dir_write_file(dir, name, data, bytes, false);
    if (!status) KL_FP("sidecar.renew.renamed");
    *renewed = true;
out:
    kl_release(data);
    return status;
}

kl_status kl_sidecar_drop(kl_dir *dir, int64_t base_offset) {
    char name[KL_NAME_BYTES];
    sidecar_name(name, base_offset);
    kl_status status = kl_dir_unlink(dir, name);
    return status == KL_E_NOT_FOUND ? KL_OK : status;
}
