/* version.h: the segments of a log as they were at one time.
 *
 * The log holds a reference to the newest version, and so does every caller that works with one:
 * it does not change while two hold it.  When the log is its only holder, a change is made in
 * place, else to a copy that takes its place. */
#ifndef KL_VERSION_H
#define KL_VERSION_H

#include "segment.h"

typedef struct {
    _Atomic int refs;
    size_t count;
    size_t capacity;
    kl_segment *
        *segments; /* ascending base_offset, a reference to each; the last is active */
    /* Of the first `known` segments, all sealed: the largest timestamp of each and those
     * before it.  Written by the threads that look first; all write the same. */
    _Atomic size_t known;
    _Atomic int64_t *largest;
    /* In no segment, all sealed, from the one at quiet_from to before the one at quiet_until
     * does an aborted transaction end.  Under the log's lock; equal: not known of any. */
    int64_t quiet_from;
    int64_t quiet_until;
} kl_version;

kl_status kl_version_new(kl_version **out); /* without segments */
/* Locked.  The first `count` segments of another one, and `last` behind them.  Takes the
 * reference to `last`, also when it fails. */
kl_status kl_version_begin(const kl_version *version, size_t count, kl_segment *last,
                           kl_version **out);
/* Only under the log's lock, so that a sole holder knows that it is the only one. */
kl_version *kl_version_retain(kl_version *version);
void kl_version_drop(kl_version *version); /* NULL is fine */

static inline kl_segment *kl_version_active(const kl_version *version) {
    KL_TEST_ASSERT(version->count > 0);
    return version->segments[version->count - 1];
}
/* Index of the segment that holds `offset`: the last with base_offset <= it, or 0. */
size_t kl_version_find(const kl_version *version, int64_t offset);

/* Locked.  In those from `from` to before `until` no aborted transaction ends: noted, unless a
 * longer row of them is known elsewhere. */
void kl_version_note_quiet(kl_version *version, int64_t from, int64_t until);
/* Locked.  `index`, or the first segment behind it of which that is not known. */
size_t kl_version_skip_quiet(const kl_version *version, size_t index);

/* Changes, under the log's lock: *version may be another afterwards.  KL_E_NO_MEMORY: it is
 * as it was.  They take the reference to the segments that come, also when they fail. */
kl_status kl_version_add(kl_version **version, kl_segment *segment);
kl_status kl_version_replace(kl_version **version, size_t at, kl_segment *segment);
kl_status kl_version_remove(kl_version **version, size_t from, size_t count);

#endif
