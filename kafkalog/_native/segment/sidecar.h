/* sidecar.h: `<base>.chk`, the checksums that Kafka's files lack.  docs/format.md,
 * "Side-car".
 *
 * The crc of a batch leaves out its first 17 bytes, and indexes have none at all.  When a
 * segment is sealed, a file next to it records checksums of both, and whose they are.
 * Kafka ignores it.  It is the truth about one `.log`, so code that changes a sealed `.log`
 * drops the side-car first (kl_sidecar_drop) and may write another one afterwards; code that
 * renames or removes a segment does so with the side-car, too. */
#ifndef KL_SIDECAR_H
#define KL_SIDECAR_H

#include "base/buffer.h"
#include "base/file.h"

struct kl_segment;

#define KL_SIDECAR_SUFFIX ".chk"

enum {
    KL_REGION_BYTES = 64 << 10,
    /* Of each header: the 17 bytes outside of the batch's crc, and that crc, which binds
     * them to the rest. */
    KL_SUMMED_BYTES = 21
};

/* The batches that begin in one KL_REGION_BYTES of a `.log`. */
typedef struct {
    int64_t pos;  /* of the first one */
    uint32_t crc; /* CRC-32C of KL_SUMMED_BYTES of each */
} kl_region;

/* Regions that contain a batch, of the bytes below `pos`; grow with the segment. */
typedef struct {
    kl_buffer regions; /* kl_region[] */
    int64_t pos;
} kl_sums;

/* Room for the next batches. */
static inline kl_status kl_sums_reserve(kl_sums *sums, size_t batches) {
    size_t bytes = batches * sizeof(kl_region);
    if (KL_LIKELY(sums->regions.capacity - sums->regions.bytes >= bytes)) return KL_OK;
    return kl_buffer_reserve(&sums->regions, bytes);
}
/* The batch at `pos` of the `.log` begins with `header`; there was a kl_sums_reserve.
 * Passed over when a batch before it was not added: then the sums are made at the seal. */
void kl_sums_add(kl_sums *sums, const uint8_t *header, int64_t pos, int64_t batch_bytes);
void kl_sums_clear(kl_sums *sums);
void kl_sums_free(kl_sums *sums);

/* A side-car's file, decoded in place. */
enum { KL_FILE_SUM_BYTES = 12 };
typedef struct {
    int64_t base_offset;
    int64_t log_bytes;
    const uint8_t *index_sums; /* `.index`, `.timeindex`, `.txnindex`: size (8), crc (4) */
    kl_span topic_id;          /* as partition.metadata spells it; empty: not known then */
    kl_span folder;            /* the name of the partition's folder */
    const uint8_t *regions;
    size_t region_count;
} kl_sidecar;

/* False when the bytes are no side-car, whole and right. */
bool kl_sidecar_parse(const uint8_t *data, size_t bytes, kl_sidecar *out);
kl_region kl_sidecar_region(const kl_sidecar *sidecar, size_t index);
/* The side-car of a segment; *file NULL (free it with kl_release): there is none, or none
 * that can be used. */
kl_status kl_sidecar_load(kl_dir *dir, int64_t base_offset, uint8_t **file,
                          kl_sidecar *out);
/* False when it was written for another partition.  Where no topic id is known a folder
 * may have been copied under any name. */
kl_status kl_sidecar_belongs(const kl_sidecar *sidecar, kl_dir *dir, bool *belongs);

/* Write the side-car of a segment whose indexes are in memory or mapped, and saved.  None
 * is left when the segment holds a batch that does not parse.  Not synced. */
kl_status kl_sidecar_write(struct kl_segment *segment, kl_dir *dir);
/* index_sums of a segment's indexes, of those that are loaded, and of its aborted transactions
 * where they are known to be whole. */
void kl_sidecar_put_indexes(uint8_t *index_sums, const struct kl_segment *segment,
                            bool aborts);
/* The bytes of that file, at the start of `out`; the segment's sums must be whole. */
kl_status kl_sidecar_encode(const struct kl_segment *segment, kl_dir *dir, kl_buffer *out);
/* kl_guard_reseal's part on disk.  *renewed false: there is none that is this `.log`'s. */
kl_status kl_sidecar_renew(const struct kl_segment *segment, kl_dir *dir, bool aborts,
                           bool *renewed);
kl_status kl_sidecar_drop(kl_dir *dir, int64_t base_offset); /* a missing one is fine */

#endif
