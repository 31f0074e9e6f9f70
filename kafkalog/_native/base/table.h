/* table.h: maps hashed keys to the caller's entries; the only hash table in C.
 *
 * Untrusted keys are hashed by kl_hash (hash.h), so that clients cannot make searches long.  Open
 * addressing; an entry is a pointer to the caller's memory, which must not move.  Lookup, insertion
 * and removal take constant time; growing, by doubling, is linear.  Not locked. */
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

/* True if `entry` has this key. */
typedef bool kl_table_same(const void *entry, const void *key);

/* NULL: not found. */
void *kl_table_find(const kl_table *table, uint64_t hash, const void *key,
                    kl_table_same *same);
/* Make space for `more` entries.  KL_E_NO_MEMORY: unchanged. */
kl_status kl_table_reserve(kl_table *table, size_t more);
/* Add an entry whose key is not in the table.  KL_E_NO_MEMORY. */
kl_status kl_table_add(kl_table *table, uint64_t hash, void *entry);
/* The same after kl_table_reserve has made room. */
void kl_table_put(kl_table *table, uint64_t hash, void *entry);
/* Remove this entry, which must be in the table. */
void kl_table_remove(kl_table *table, uint64_t hash, const void *entry);
/* Iterate over the entries, unordered, from *at = 0 on; NULL after the last.  Do not add or remove
 * entries in between. */
void *kl_table_next(const kl_table *table, size_t *at);
/* Remove all entries; keep the slots' memory. */
void kl_table_clear(kl_table *table);
void kl_table_free(kl_table *table); /* zeroes it */

#endif
