/* clean_map.h: keys and their latest offsets, in bounded memory.  Keys are represented by a 128-bit
 * hash with a random secret: a collision is less likely than a disk error (docs/decisions.md,
 * "Compaction"). */
#ifndef KL_CLEAN_MAP_H
#define KL_CLEAN_MAP_H

#include "base/hash.h"

typedef kl_hash_128 kl_clean_key;

/* 24 bytes, as in Kafka. */
typedef struct {
    kl_clean_key key;
    int64_t offset_after; /* the offset + 1; 0: free */
} kl_clean_entry;
KL_STATIC_ASSERT(sizeof(kl_clean_entry) == 24, "what kl_clean_options.map_bytes counts");

typedef struct {
    kl_clean_entry *entries;
    size_t slots;
    size_t slots_limit; /* grows by doubling up to this */
    size_t count;
    size_t count_limit; /* for the present slots */
    double load;        /* load factor at slots_limit */
} kl_clean_map;

kl_status kl_clean_map_init(kl_clean_map *map, int64_t bytes, double load);
void kl_clean_map_free(kl_clean_map *map);
/* *fits: space for one more key, after growing if allowed; `beyond`: even past the limit. */
kl_status kl_clean_map_reserve(kl_clean_map *map, bool beyond, bool *fits);

/* The home slot of a key: ascending with its first word, so that growing moves through memory in
 * one direction. */
static inline size_t kl_clean_home(const kl_clean_map *map, kl_clean_key key) {
    return (size_t)(((unsigned __int128)key.word[0] * map->slots) >> 64);
}
static inline void kl_clean_prefetch(const kl_clean_map *map, kl_clean_key key) {
    __builtin_prefetch(&map->entries[kl_clean_home(map, key)]);
}
/* The slot of the key, or the free slot for it; there always is one. */
static inline kl_clean_entry *kl_clean_slot(const kl_clean_map *map, kl_clean_key key) {
    size_t i = kl_clean_home(map, key);
    for (;;) {
        kl_clean_entry *entry = &map->entries[i];
        if (entry->offset_after == 0 ||
            (entry->key.word[0] == key.word[0] && entry->key.word[1] == key.word[1]))
            return entry;
        if (++i == map->slots) i = 0;
    }
}

#endif
