/* guard.h: checks reads of a sealed segment against its side-car.
 *
 * Each region of the `.log` is checked once, on the first read with checksums; later damage to the
 * page cache is not detected.  A segment with another partition's side-car is refused, and so is
 * one whose size has changed while its index has not.  A segment whose side-car is missing or
 * unreadable, or that was rewritten together with its index (by Kafka, which knows no side-cars),
 * is read unchecked; kafkalog verify reports it. */
#ifndef KL_GUARD_H
#define KL_GUARD_H

#include "index.h"

struct kl_segment;
typedef struct kl_guard kl_guard;

/* Check that the batches in [pos, stop_pos) of the `.log` have the headers that were sealed. `data`
 * may hold `bytes` of the file from data_pos on, to save a read.  `size`: of the sealed segment.
 * *good_pos: batches that begin before it are good.  KL_E_CORRUPT_MESSAGE; errors of reading the
 * side-car. */
kl_status kl_guard_check(struct kl_segment *segment, int64_t size, int64_t pos,
                         int64_t stop_pos, kl_span data, int64_t data_pos,
                         int64_t *good_pos);
/* *same: the loaded index of a sealed segment is, or may be, unchanged.  The segment's lock is
 * held, as in kl_guard_reseal. */
kl_status kl_guard_index(struct kl_segment *segment, const kl_index *index, bool *same);
/* Size and CRC of a segment's aborted transactions when it was sealed. */
typedef struct {
    bool known; /* false: not recorded */
    int64_t bytes;
    uint32_t crc;
} kl_sealed_aborts;
/* Reads the side-car unless it is in memory, and does not keep it: the caller visits all segments.
 * Takes the segment's lock. */
kl_status kl_guard_sealed_aborts(struct kl_segment *segment, kl_sealed_aborts *out);
/* True if the segment's list may be the sealed one; takes its lock. */
bool kl_guard_has_aborts(struct kl_segment *segment, const kl_sealed_aborts *sealed);
/* After the indexes of a sealed segment were rebuilt: update their checksums in the side-car, and
 * with `aborts` those of its aborted transactions, by which a lost list is noticed.  A side-car
 * that is unreadable or belongs to another `.log` is left unchanged. */
kl_status kl_guard_reseal(struct kl_segment *segment, kl_dir *dir, bool aborts);
void kl_guard_free(kl_guard *guard);

#endif
