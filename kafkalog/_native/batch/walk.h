/* walk.h: a walk over the batch headers of a `.log`, read in chunks: for recovery, tail scans,
 * lookups, dump.  One thread at a time. */
#ifndef KL_WALK_H
#define KL_WALK_H

#include "base/buffer.h"
#include "base/file.h"
#include "batch.h"

/* A walk over a file; bytes at and above `end_pos` are ignored. */
struct kl_walk {
    kl_file *file; /* retained */
    int64_t pos;   /* of the next batch */
    int64_t end_pos;
    int64_t chunk_pos; /* file position of chunk.data[0] */
    kl_buffer chunk;
    size_t chunk_bytes; /* read size; grows for a large batch */
    bool borrowed;      /* the chunk is the caller's memory and cannot grow */
    kl_status status;   /* of kl_walk_more, or set by the loop's body */
};

/* `chunk_bytes`: 64 KiB for a lookup, 1 MiB for recovery. */
void kl_walk_init(kl_walk *walk, kl_file *file, int64_t pos, int64_t end_pos,
                  size_t chunk_bytes);
/* Headers only, in `scratch` of chunk_bytes: allocates nothing. */
void kl_walk_headers(kl_walk *walk, kl_file *file, int64_t pos, int64_t end_pos,
                     uint8_t *scratch, size_t chunk_bytes);
void kl_walk_done(kl_walk *walk);
/* Step to the next batch: its header, and with `whole` its bytes at *data, valid until the next
 * call; walk->pos moves after it.  *found false at the end. KL_E_CORRUPT_MESSAGE (with `whole` also
 * for the CRC), KL_E_BUFFER_TOO_SMALL (it extends past end_pos),
 * KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT: walk->pos stays at the bad batch.  Without `whole` only the
 * header of a batch outside the chunk is read. */
kl_status kl_walk_step(kl_walk *walk, bool whole, kl_batch *batch, const uint8_t **data,
                       bool *found);

/* The next header, for a loop; false: at the end, or walk->status is an error. */
static inline bool kl_walk_more(kl_walk *walk, kl_batch *batch) {
    bool found = false;
    if (!walk->status) walk->status = kl_walk_step(walk, false, batch, NULL, &found);
    return found && !walk->status;
}
/* kl_walk_done; returns walk->status. */
static inline kl_status kl_walk_end(kl_walk *walk) {
    kl_walk_done(walk);
    return walk->status;
}
/* The offset after the last valid batch in a file's first `bytes`; *end is unchanged if there is
 * none. */
kl_status kl_walk_to_end(kl_file *file, int64_t bytes, int64_t *end);
/* True if the walk ended at invalid bytes: damage, an incomplete batch, an old format. */
static inline bool kl_walk_met_damage(kl_status status) {
    return status == KL_E_CORRUPT_MESSAGE || status == KL_E_BUFFER_TOO_SMALL ||
           status == KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT;
}

#endif
