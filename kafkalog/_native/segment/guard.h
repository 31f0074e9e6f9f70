/* guard.h: checks what is read from a sealed segment against its side-car.
 *
 * Each region of the `.log` is checked once, when something in it is first read with checksums;
 * later damage to the page cache is not detected.  A segment with another partition's side-car is
 * refused, and so is one whose size has changed while its index is unchanged since the seal.  A
 * segment without a side-car, with an unreadable one, or that was rewritten together with its index
 * (Kafka does so, and does not know side-cars), is read without this check: kafkalog verify
 * reports it. */
#ifndef KL_GUARD_H
#define KL_GUARD_H

#include "index.h"

struct kl_segment;
typedef struct kl_guard kl_guard;

/* The batches that begin in [pos, stop_pos) of the `.log` have the headers that were
 * sealed; `data` may hold `bytes` of the file from data_pos on, so that they are not read
 * again.  `size`: of the sealed segment.  *good_pos: all that begin before it have.
 * KL_E_CORRUPT_MESSAGE; failures of reading the side-car. */
kl_status kl_guard_check(struct kl_segment *segment, int64_t size, int64_t pos,
                         int64_t stop_pos, kl_span data, int64_t data_pos,
                         int64_t *good_pos);
/* Whether the index of a sealed segment, loaded, may be what was sealed.  The segment's lock is
 * held, as in kl_guard_reseal. */
kl_status kl_guard_index(struct kl_segment *segment, const kl_index *index, bool *same);
/* What was sealed of a segment's aborted transactions. */
typedef struct {
    bool known; /* else it vouches for nothing */
    int64_t bytes;
    uint32_t crc;
} kl_sealed_aborts;
/* Reads the side-car unless it is in memory, and keeps nothing of it: the caller visits all
 * segments.  Takes the segment's lock. */
kl_status kl_guard_sealed_aborts(struct kl_segment *segment, kl_sealed_aborts *out);
/* Whether the segment's list may be that one; takes its lock. */
bool kl_guard_has_aborts(struct kl_segment *segment, const kl_sealed_aborts *sealed);
/* The indexes of a sealed segment were rebuilt: so are their checksums in the side-car, and
 * those of its aborted transactions when these were (`aborts`): a lost list is noticed by what the
 * side-car says of it. A side-car that cannot be read, or that belongs to another
 * `.log`, is left as it is. */
kl_status kl_guard_reseal(struct kl_segment *segment, kl_dir *dir, bool aborts);
void kl_guard_free(kl_guard *guard);

#endif
