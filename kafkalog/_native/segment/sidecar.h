/* sidecar.h: `<base>.chk`, the checksums that Kafka's files lack; docs/format.md, "Side-car".
 *
 * A batch's crc excludes its first 17 bytes, and indexes have none.  When a segment is sealed, a
 * file next to it records checksums of both, and its owner.  Kafka ignores it.  It describes one
 * `.log`, so code that changes a sealed `.log` drops the side-car first (kl_sidecar_drop) and may
 * write another afterwards; code that renames or removes a segment includes the side-car. */
#ifndef KL_SIDECAR_H
#define KL_SIDECAR_H

#include "base/buffer.h"
#include "base/file.h"

struct kl_segment;

#define KL_SIDECAR_SUFFIX ".chk"

enum {
    KL_REGION_BYTES = 64 << 10,
    /* Per header: the 17 bytes outside the batch's crc, and that crc, which ties them to the
     * rest. */
    KL_SUMMED_BYTES = 21
};

/* The batches that begin in one KL_REGION_BYTES of a `.log`. */
typedef struct {
    int64_t pos;  /* of the first one */
    uint32_t crc; /* CRC-32C of KL_SUMMED_BYTES of each */
} kl_region;

/* Regions that contain a batch, of the bytes below `pos`; they grow with the segment. */
typedef struct {
    kl_buffer regions; /* kl_region[] */
    int64_t pos;
} kl_sums;

/* Reserve memory for the next batches. */
static inline kl_status kl_sums_reserve(kl_sums *sums, size_t batches) {
    size_t bytes = batches * sizeof(kl_region);
    if (KL_LIKELY(sums->regions.capacity - sums->regions.bytes >= bytes)) return KL_OK;
    return kl_buffer_reserve(&sums->regions, bytes);
}
/* Add the batch at `pos` of the `.log` with this header, after kl_sums_reserve.  Ignored if an
 * earlier batch was not added: then the sums are computed at the seal. */
void kl_sums_add(kl_sums *sums, const uint8_t *header, int64_t pos, int64_t batch_bytes);
void kl_sums_clear(kl_sums *sums);
void kl_sums_free(kl_sums *sums);

/* A decoded side-car, pointing into the file's bytes. */
enum { KL_FILE_SUM_BYTES = 12 };
typedef struct {
    int64_t base_offset;
    int64_t log_bytes;
    const uint8_t *index_sums; /* `.index`, `.timeindex`, `.txnindex`: size (8), crc (4) */
    kl_span topic_id;          /* as in partition.metadata; empty: it was unknown */
    kl_span folder;            /* the name of the partition's folder */
    const uint8_t *regions;
    size_t region_count;
} kl_sidecar;

/* False: not a valid side-car. */
bool kl_sidecar_parse(const uint8_t *data, size_t bytes, kl_sidecar *out);
kl_region kl_sidecar_region(const kl_sidecar *sidecar, size_t index);
/* Load a segment's side-car; *file (free it with kl_release) NULL: missing or unusable. */
kl_status kl_sidecar_load(kl_dir *dir, int64_t base_offset, uint8_t **file,
                          kl_sidecar *out);
/* *belongs false: written for another partition.  Without a topic id the folder may have been
 * copied under any name. */
kl_status kl_sidecar_belongs(const kl_sidecar *sidecar, kl_dir *dir, bool *belongs);

/* Write the side-car of a segment whose indexes are in memory or mapped, and saved; removes it if
 * the segment contains an invalid batch.  Not synced. */
kl_status kl_sidecar_write(struct kl_segment *segment, kl_dir *dir);
/* Put the sums of the loaded indexes, and with `aborts` of the aborted transactions, which must be
 * complete. */
void kl_sidecar_put_indexes(uint8_t *index_sums, const struct kl_segment *segment,
                            bool aborts);
/* Encode the file at the start of `out`; the segment's sums must be complete. */
kl_status kl_sidecar_encode(const struct kl_segment *segment, kl_dir *dir, kl_buffer *out);
/* The disk part of kl_guard_reseal.  *renewed false: this `.log` has no side-car. */
kl_status kl_sidecar_renew(const struct kl_segment *segment, kl_dir *dir, bool aborts,
                           bool *renewed);
kl_status kl_sidecar_drop(kl_dir *dir, int64_t base_offset); /* a missing one is fine */

#endif
