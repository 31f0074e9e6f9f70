/* version.c: see version.h. */
#include "version.h"

enum { CAPACITY_MIN = 4 };

static kl_status version_new(size_t capacity, kl_version **out) {
    kl_version *version = kl_alloc(sizeof *version);
    kl_segment **segments = kl_alloc(capacity * sizeof(kl_segment *));
    _Atomic int64_t *largest = kl_alloc(capacity * sizeof *largest);
    *out = version;
    if (version == NULL || segments == NULL || largest == NULL) {
        kl_release(version);
        kl_release(segments);
        kl_release((void *)largest);
        *out = NULL;
        return kl_fail(KL_E_NO_MEMORY, "no memory for a list of %zu segments", capacity);
    }
    atomic_init(&version->refs, 1);
    version->capacity = capacity;
    version->segments = segments;
    version->largest = largest;
    return KL_OK;
}

kl_status kl_version_new(kl_version **out) { return version_new(CAPACITY_MIN, out); }

kl_version *kl_version_retain(kl_version *version) {
    int before = atomic_fetch_add_explicit(&version->refs, 1, memory_order_relaxed);
    KL_ASSERT(before > 0);
    return version;
}

void kl_version_drop(kl_version *version) {
    if (version == NULL) return;
    int before = atomic_fetch_sub_explicit(&version->refs, 1, memory_order_acq_rel);
    KL_ASSERT(before > 0);
    if (before > 1) return;
    for (size_t i = 0; i < version->count; i++) kl_segment_drop(version->segments[i]);
    kl_release(version->segments);
    kl_release((void *)version->largest);
    kl_release(version);
}

size_t kl_version_find(const kl_version *version, int64_t offset) {
    KL_ASSERT(version->count > 0);
    size_t low = 0, high = version->count;
    if (version->segments[high - 1]->base_offset <= offset) return high - 1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (version->segments[middle]->base_offset <= offset) low = middle;
        else high = middle;
    }
    return low;
}

void kl_version_note_quiet(kl_version *version, int64_t from, int64_t until) {
    KL_ASSERT(from <= until);
    bool touch = from <= version->quiet_until && version->quiet_from <= until;
    if (touch) {
        version->quiet_from = KL_MIN(version->quiet_from, from);
        version->quiet_until = KL_MAX(version->quiet_until, until);
    } else if (until - from > version->quiet_until - version->quiet_from) {
        version->quiet_from = from;
        version->quiet_until = until;
    }
}

size_t kl_version_skip_quiet(const kl_version *version, size_t index) {
    if (index >= version->count) return index;
    int64_t base = version->segments[index]->base_offset;
    if (base < version->quiet_from || base >= version->quiet_until) return index;
    return kl_version_find(version, version->quiet_until);
}

/* The last segment is active from now on. */
static void clip_quiet(kl_version *version) {
    int64_t last = version->count ? kl_version_active(version)->base_offset : 0;
    version->quiet_until = KL_MIN(version->quiet_until, last);
    version->quiet_from = KL_MIN(version->quiet_from, version->quiet_until);
    KL_ASSERT(version->quiet_until <= last);
}

/* Copy the first `count` segments of `from`, and cached facts about them, to an empty version. */
static void copy_first(const kl_version *from, size_t count, kl_version *copy) {
    KL_ASSERT(count <= from->count && count <= copy->capacity && copy->count == 0);
    for (size_t i = 0; i < count; i++)
        copy->segments[i] = kl_segment_retain(from->segments[i]);
    copy->count = count;
    size_t known = KL_MIN(atomic_load_explicit(&from->known, memory_order_acquire), count);
    for (size_t i = 0; i < known; i++)
        atomic_store_explicit(&copy->largest[i],
                              atomic_load_explicit(&from->largest[i], memory_order_relaxed),
                              memory_order_relaxed);
    atomic_store_explicit(&copy->known, known, memory_order_relaxed);
    copy->quiet_from = from->quiet_from;
    copy->quiet_until = from->quiet_until;
    if (count < from->count) clip_quiet(copy);
}

kl_status kl_version_begin(const kl_version *version, size_t count, kl_segment *last,
                           kl_version **out) {
    kl_status status = version_new(KL_MAX(count + 1, (size_t)CAPACITY_MIN), out);
    if (status) {
        kl_segment_drop(last);
        return status;
    }
    copy_first(version, count, *out);
    KL_ASSERT(count == 0 || version->segments[count - 1]->base_offset < last->base_offset);
    (*out)->segments[(*out)->count++] = last;
    return KL_OK;
}

/* True if `segment` may follow the first `at` segments: bases ascend. */
static bool follows(const kl_version *version, size_t at, const kl_segment *segment) {
    return at == 0 || version->segments[at - 1]->base_offset < segment->base_offset;
}

/* Make *version exclusive, by a copy if needed, with space for `count` segments. */
static kl_status own(kl_version **version, size_t count) {
    kl_version *old = *version, *copy;
    bool alone = atomic_load_explicit(&old->refs, memory_order_acquire) == 1;
    if (alone && count <= old->capacity) return KL_OK;
    kl_status status =
        version_new(count <= old->capacity ? old->capacity : 2 * old->capacity, &copy);
    if (status) return status;
    copy_first(old, old->count, copy);
    *version = copy;
    kl_version_drop(old);
    return KL_OK;
}

kl_status kl_version_add(kl_version **version, kl_segment *segment) {
    KL_ASSERT(follows(*version, (*version)->count, segment));
    kl_status status = own(version, (*version)->count + 1);
    if (status) kl_segment_drop(segment);
    else (*version)->segments[(*version)->count++] = segment;
    return status;
}

/* Drop cached timestamps of segments from `at` on. */
static void forget(kl_version *version, size_t at) {
    if (atomic_load(&version->known) > at) atomic_store(&version->known, at);
}

kl_status kl_version_replace(kl_version **version, size_t at, kl_segment *segment) {
    KL_ASSERT(at < (*version)->count);
    KL_ASSERT((*version)->segments[at]->base_offset == segment->base_offset);
    kl_status status = own(version, (*version)->count);
    if (status) {
        kl_segment_drop(segment);
        return status;
    }
    kl_segment_drop((*version)->segments[at]);
    (*version)->segments[at] = segment;
    (*version)->quiet_from = (*version)->quiet_until = 0;
    forget(*version, at);
    return KL_OK;
}

kl_status kl_version_remove(kl_version **version, size_t from, size_t count) {
    if (count == 0) return KL_OK;
    KL_ASSERT(from <= (*version)->count && count <= (*version)->count - from);
    kl_status status = own(version, (*version)->count);
    if (status) return status;
    kl_version *now = *version;
    for (size_t i = from; i < from + count; i++) kl_segment_drop(now->segments[i]);
    memmove(now->segments + from, now->segments + from + count,
            (now->count - from - count) * sizeof *now->segments);
    now->count -= count;
    forget(now, from);
    if (now->count) forget(now, now->count - 1); /* the last one is active */
    clip_quiet(now);
    return KL_OK;
}
