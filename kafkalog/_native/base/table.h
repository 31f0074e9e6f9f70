/* table.h: finds the caller's entries by a hash of their key; the only hash table in C.
 *
 * Keys from outside are hashed by kl_hash (hash.h), so that no client can make a search long.
 * Open addressing; an entry is a pointer to the caller's memory, which must not move.  Finding,
 * adding and removing take constant time; growing, which doubles, takes time proportional to the
 * count.  Nothing is locked. */
#ifndef KL_TABLE_H
#define KL_TABLE_H

#include "base.h"

typedef struct {
    uint64_t hash;
    void *entry; /* NULL: free */
} kl_table_slot;

/* Zeroed: empty. */
typedef struct {
    kl_table_slot *slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t count;
} kl_table;

/* Whether the entry is that of `key`. */
typedef bool kl_table_same(const void *entry, const void *key);

/* NULL: not found. */
void *kl_table_find(const kl_table *table, uint64_t hash, const void *key,
                    kl_table_same *same);
/* Room for `more` entries.  KL_E_NO_MEMORY: nothing is changed. */
kl_status kl_table_reserve(kl_table *table, size_t more);
/* Add an entry whose key is not in the table.  KL_E_NO_MEMORY. */
kl_status kl_table_add(kl_table *table, uint64_t hash, void *entry);
/* The same after kl_table_reserve has made room. */
void kl_table_put(kl_table *table, uint64_t hash, void *entry);
/* Remove this very entry, which must be in the table. */
void kl_table_remove(kl_table *table, uint64_t hash, const void *entry);
/* Iterate over the entries in no order, from *at = 0 on; NULL after the last.  None may be added
 * or removed in between. */
void *kl_table_next(const kl_table *table, size_t *at);
/* Forget all entries; the memory of the slots is kept. */
void kl_table_clear(kl_table *table);
void kl_table_free(kl_table *table); /* and zero it */

#endif
