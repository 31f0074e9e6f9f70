/* clean_map.c: the hash of keys, and the table of their latest offsets. */
#include "clean_map.h"

/* ---- SipHash-2-4 with 128 bits
 * --------------------------------------------------------- */
/* Aumasson and Bernstein, "SipHash: a fast short-input PRF"; the 128-bit form
 * is that of their reference text: v1 is marked at the start, and a second word
 * follows. */

static inline uint64_t rotate(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v; /* little-endian, as this machine (base/bytes.h asserts it) */
    memcpy(&v, p, sizeof v);
    return v;
}

#define SIP_ROUND            \
    do {                     \
        v0 += v1;            \
        v1 = rotate(v1, 13); \
        v1 ^= v0;            \
        v0 = rotate(v0, 32); \
        v2 += v3;            \
        v3 = rotate(v3, 16); \
        v3 ^= v2;            \
        v0 += v3;            \
        v3 = rotate(v3, 21); \
        v3 ^= v0;            \
        v2 += v1;            \
        v1 = rotate(v1, 17); \
        v1 ^= v2;            \
        v2 = rotate(v2, 32); \
    } while (0)

/* The bytes behind the last whole word, and the length in the highest byte. */
static inline uint64_t last_word(const uint8_t *p, size_t bytes) {
    uint64_t word = (uint64_t)bytes << 56;
    size_t left = bytes & 7;
    if (left >= 4) {
        uint32_t low;
        memcpy(&low, p, sizeof low);
        word |= low;
        for (size_t i = 4; i < left; i++) word |= (uint64_t)p[i] << (8 * i);
    } else {
        for (size_t i = 0; i < left; i++) word |= (uint64_t)p[i] << (8 * i);
    }
    return word;
}

kl_clean_key kl_clean_hash_key(const uint64_t secret[2], const uint8_t *data,
                               size_t bytes) {
    uint64_t v0 = 0x736f6d6570736575ULL ^ secret[0];
    uint64_t v1 = 0x646f72616e646f6dULL ^ secret[1] ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ULL ^ secret[0];
    uint64_t v3 = 0x7465646279746573ULL ^ secret[1];
    const uint8_t *p = data, *words_end = data + (bytes & ~(size_t)7);
    for (; p < words_end; p += 8) {
        uint64_t word = load64(p);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    uint64_t word = last_word(p, bytes);
    v3 ^= word;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= word;
    kl_clean_key key;
    v2 ^= 0xee;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    key.word[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    key.word[1] = v0 ^ v1 ^ v2 ^ v3;
    return key;
}

void kl_clean_hash(const uint8_t key[16], const uint8_t *data, size_t bytes,
                   uint8_t out[16]) {
    const uint64_t secret[2] = {load64(key), load64(key + 8)};
    kl_clean_key found = kl_clean_hash_key(secret, data, bytes);
    memcpy(out, found.word, sizeof found.word);
}

/* ---- the table
 * ---------------------------------------------------------------------------
 */

enum { SLOTS_FIRST = 1 << 14, SLOTS_MIN = 16 };
/* Until the limit it grows early: probes stay short. */
static const double LOAD_GROWING = 0.6;

static void set_limits(kl_clean_map *map) {
    double load = map->slots < map->slots_limit ? LOAD_GROWING : map->load;
    map->count_limit = (size_t)((double)map->slots * load);
    if (map->count_limit >= map->slots) map->count_limit = map->slots - 1;
}

static kl_status resize(kl_clean_map *map, size_t slots) {
    kl_clean_entry *entries = NULL;
    if (slots <= SIZE_MAX / sizeof *entries) entries = kl_alloc(slots * sizeof *entries);
    if (entries == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a map of %zu keys", slots);
    kl_clean_entry *old = map->entries;
    size_t old_slots = map->slots;
    map->entries = entries;
    map->slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].offset_after) *kl_clean_slot(map, old[i].key) = old[i];
    kl_release(old);
    set_limits(map);
    return KL_OK;
}

kl_status kl_clean_map_init(kl_clean_map *map, int64_t bytes, double load) {
    *map = (kl_clean_map){.load = load};
    map->slots_limit = KL_MAX((size_t)bytes / sizeof *map->entries, (size_t)SLOTS_MIN);
    return resize(map, KL_MIN(map->slots_limit, (size_t)SLOTS_FIRST));
}

void kl_clean_map_free(kl_clean_map *map) {
    kl_release(map->entries);
    *map = (kl_clean_map){0};
}

kl_status kl_clean_map_reserve(kl_clean_map *map, bool beyond, bool *fits) {
    *fits = map->count < map->count_limit;
    if (KL_LIKELY(*fits)) return KL_OK;
    if (map->slots >= map->slots_limit) {
        if (!beyond) return KL_OK;
        map->slots_limit = 2 * map->slots;
    }
    *fits = true;
    return resize(map, KL_MIN(2 * map->slots, map->slots_limit));
}
