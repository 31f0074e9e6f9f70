/* clean_map.c: the table of keys and their latest offsets. */
#include "clean_map.h"

void kl_clean_hash(const uint8_t key[16], const uint8_t *data, size_t bytes,
                   uint8_t out[16]) {
    uint64_t secret[2]; /* little-endian, as this machine */
    memcpy(secret, key, sizeof secret);
    kl_hash_128 found = kl_hash_24(secret, data, bytes);
    memcpy(out, found.word, sizeof found.word);
}

enum { SLOTS_FIRST = 1 << 14, SLOTS_MIN = 16 };
/* Before the limit it grows early, so that probes stay short. */
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
    KL_ASSERT(map->count <= map->count_limit && map->count_limit < map->slots);
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
