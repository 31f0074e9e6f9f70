/* version.h: an immutable list of a log's segments.
 *
 * The log holds a reference to the newest version, as does every caller that works with one: it
 * does not change while two hold it.  If the log is the only holder, a change is made in place,
 * otherwise to a copy that replaces it. */
#ifndef KL_VERSION_H
#define KL_VERSION_H

#include "segment.h"

typedef struct {
    _Atomic int refs;
    size_t count;
    size_t capacity;
    kl_segment *
        *segments; /* ascending base_offset, a reference to each; the last is active */
    /* Running maximum of the largest timestamps of the first `known` segments, all sealed.
     * Written by the first threads to look; all write the same. */
    _Atomic size_t known;
    _Atomic int64_t *largest;
    /* No aborted transaction ends in the sealed segments from base quiet_from up to quiet_until
     * (exclusive).  Under the log's lock; equal: none known. */
    int64_t quiet_from;
    int64_t quiet_until;
} kl_version;

kl_status kl_version_new(kl_version **out); /* without segments */
/* Locked.  The first `count` segments of `version`, then `last`.  Takes the reference to `last`,
 * even on failure. */
kl_status kl_version_begin(const kl_version *version, size_t count, kl_segment *last,
                           kl_version **out);
/* Only under the log's lock, so that a sole holder knows that it is alone. */
kl_version *kl_version_retain(kl_version *version);
void kl_version_drop(kl_version *version); /* NULL is fine */

static inline kl_segment *kl_version_active(const kl_version *version) {
    KL_TEST_ASSERT(version->count > 0);
    return version->segments[version->count - 1];
}
/* Index of the segment that contains `offset`: the last with base_offset <= it, or 0. */
size_t kl_version_find(const kl_version *version, int64_t offset);

/* Locked.  Record that no aborted transaction ends in the segments [from, until), unless a longer
 * range is recorded. */
void kl_version_note_quiet(kl_version *version, int64_t from, int64_t until);
/* Locked.  `index`, or the first segment after it outside the recorded range. */
size_t kl_version_skip_quiet(const kl_version *version, size_t index);

/* Changes, under the log's lock; they may replace *version.  KL_E_NO_MEMORY: unchanged.  They take
 * the reference to the new segment, even on failure. */
kl_status kl_version_add(kl_version **version, kl_segment *segment);
kl_status kl_version_replace(kl_version **version, size_t at, kl_segment *segment);
kl_status kl_version_remove(kl_version **version, size_t from, size_t count);

#endif
