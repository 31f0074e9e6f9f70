/* rules.c: see rules.h.
 *
 * The names are sorted by their bytes.  All prefixes of a name are prefixes of the last entry that
 * is not above it, too; so they are found by one binary search and a walk from entry to `parent`,
 * the longest other entry that is a prefix of it. */
#include "rules.h"

enum {
    ANY_RULE = KL_RULE_WRITE | KL_RULE_READ | KL_RULE_NAMED | KL_RULE_NO_WRITE |
        KL_RULE_NO_READ,
    NONE = -1
};

typedef struct {
    uint32_t at;
    uint32_t bytes;
    int32_t parent;   /* NONE: no entry is a prefix of it */
    uint8_t literal;  /* KL_RULE_* for this name alone, */
    uint8_t prefixed; /* and for all that begin with it or with its parents */
} entry;

struct kl_ruleset {
    _Atomic int32_t references;
    int32_t everywhere;
    int32_t count;
    uint8_t *names;
    entry entries[];
};

static kl_span span_of(const kl_ruleset *set, int32_t index) {
    const entry *one = &set->entries[index];
    return (kl_span){set->names + one->at, one->bytes};
}

static int compare(kl_span one, kl_span other) {
    size_t bytes = KL_MIN(one.bytes, other.bytes);
    int order = bytes ? memcmp(one.data, other.data, bytes) : 0;
    return order ? order : (one.bytes > other.bytes) - (one.bytes < other.bytes);
}

static bool begins_with(kl_span name, kl_span prefix) {
    return prefix.bytes <= name.bytes &&
           (prefix.bytes == 0 || memcmp(name.data, prefix.data, prefix.bytes) == 0);
}

/* False: it is invalid, or not above the one before. */
static bool fill(kl_ruleset *set, const kl_rules *rules, int32_t index, uint32_t at) {
    entry *one = &set->entries[index];
    uint8_t literal = rules->bits[2 * index], prefixed = rules->bits[2 * index + 1];
    *one = (entry){at, (uint32_t)rules->name_bytes[index], index - 1, literal, prefixed};
    if ((literal | prefixed) & ~ANY_RULE) return false;
    const kl_span name = span_of(set, index);
    if (index > 0 && compare(span_of(set, index - 1), name) >= 0) return false;
    while (one->parent != NONE && !begins_with(name, span_of(set, one->parent)))
        one->parent = set->entries[one->parent].parent;
    if (one->parent != NONE) one->prefixed |= set->entries[one->parent].prefixed;
    return true;
}

/* UINT32_MAX: too many, or negative. */
static uint32_t total_of(const kl_rules *rules) {
    uint32_t total = 0;
    for (int32_t i = 0; i < rules->count; i++) {
        if (rules->name_bytes[i] < 0) return UINT32_MAX;
        if ((uint32_t)rules->name_bytes[i] > (uint32_t)INT32_MAX - total) return UINT32_MAX;
        total += (uint32_t)rules->name_bytes[i];
    }
    return total;
}

kl_status kl_ruleset_new(const kl_rules *rules, kl_ruleset **out) {
    *out = NULL;
    uint32_t total = rules->count < 0 ? UINT32_MAX : total_of(rules);
    if (total == UINT32_MAX || rules->everywhere & ~ANY_RULE)
        return kl_fail(KL_E_ARGUMENT, "rules of a size or with bits that are invalid");
    kl_ruleset *set = kl_alloc(sizeof *set + (size_t)rules->count * sizeof *set->entries);
    uint8_t *names = kl_alloc((size_t)total + 1);
    if (set == NULL || names == NULL) {
        kl_release(set);
        kl_release(names);
        return kl_fail(KL_E_NO_MEMORY, "no memory for %d rules", rules->count);
    }
    if (total) memcpy(names, rules->names, total);
    atomic_init(&set->references, 1);
    set->everywhere = rules->everywhere;
    set->count = rules->count;
    set->names = names;
    uint32_t at = 0;
    for (int32_t i = 0; i < rules->count; i++) {
        if (!fill(set, rules, i, at)) {
            kl_ruleset_drop(set);
            return kl_fail(KL_E_ARGUMENT, "rule %d is not above the one before it", i);
        }
        at += set->entries[i].bytes;
    }
    *out = set;
    return KL_OK;
}

kl_ruleset *kl_ruleset_retain(kl_ruleset *set) {
    if (set) atomic_fetch_add_explicit(&set->references, 1, memory_order_relaxed);
    return set;
}

void kl_ruleset_drop(kl_ruleset *set) {
    if (set == NULL) return;
    int32_t before = atomic_fetch_sub_explicit(&set->references, 1, memory_order_acq_rel);
    KL_ASSERT(before > 0);
    if (before > 1) return;
    kl_release(set->names);
    kl_release(set);
}

int32_t kl_ruleset_find(const kl_ruleset *set, kl_span name) {
    if (set == NULL) return 0;
    int32_t low = 0, high = set->count; /* the entries below `low` are not above the name */
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (compare(span_of(set, middle), name) <= 0) low = middle + 1;
        else high = middle;
    }
    int32_t found = set->everywhere, at = low - 1;
    if (at != NONE && compare(span_of(set, at), name) == 0)
        found |= set->entries[at].literal;
    while (at != NONE && !begins_with(name, span_of(set, at))) at = set->entries[at].parent;
    return at == NONE ? found : found | set->entries[at].prefixed;
}
