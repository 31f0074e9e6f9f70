/* clean_map.h: key to latest offset, in bounded memory.  Keys are known by a
 * hash of 128 bits under a random key: two keys of a log share one with a
 * chance that no disk is as good as (docs/decisions.md, "Compaction"). */
#ifndef KL_CLEAN_MAP_H
#define KL_CLEAN_MAP_H

#include "base/hash.h"

typedef kl_hash_128 kl_clean_key;

/* 24 bytes, as Kafka's: an offset of -1 + 1 is a free slot. */
typedef struct {
    kl_clean_key key;
    int64_t offset_after; /* the offset + 1; 0: free */
} kl_clean_entry;
KL_STATIC_ASSERT(sizeof(kl_clean_entry) == 24, "what kl_clean_options.map_bytes counts");

typedef struct {
    kl_clean_entry *entries;
    size_t slots;
    size_t slots_limit; /* it grows by doubling up to this */
    size_t count;
    size_t count_limit; /* of the present slots */
    double load;        /* at the limit of slots */
} kl_clean_map;

kl_status kl_clean_map_init(kl_clean_map *map, int64_t bytes, double load);
void kl_clean_map_free(kl_clean_map *map);
/* Whether one more key fits; grows as far as it may.  `beyond`: past the limit,
 * too. */
kl_status kl_clean_map_reserve(kl_clean_map *map, bool beyond, bool *fits);

/* The home of a key: ascending in its first word, so that growing goes through
 * memory in one direction. */
static inline size_t kl_clean_home(const kl_clean_map *map, kl_clean_key key) {
    return (size_t)(((unsigned __int128)key.word[0] * map->slots) >> 64);
}
static inline void kl_clean_prefetch(const kl_clean_map *map, kl_clean_key key) {
    __builtin_prefetch(&map->entries[kl_clean_home(map, key)]);
}
/* The slot that has the key, or the free one where it belongs; there is always
 * one. */
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
