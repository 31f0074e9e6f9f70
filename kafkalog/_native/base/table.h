/* table.h: find what the caller keeps by a hash of its key; the one hash table of C.
 *
 * Keys that come from outside are hashed by kl_hash (hash.h), so that no client can make a
 * search long.  Open addressing; an entry is a pointer to memory of the caller's, that stays
 * where it is.  Finding, adding and removing cost the same whatever the count; growing, which
 * doubles, costs the count.  Nothing is locked. */
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

/* NULL: it is not there. */
void *kl_table_find(const kl_table *table, uint64_t hash, const void *key,
                    kl_table_same *same);
/* Room for `more` entries.  KL_E_NO_MEMORY: nothing is changed. */
kl_status kl_table_reserve(kl_table *table, size_t more);
/* Add one whose key is not there.  KL_E_NO_MEMORY. */
kl_status kl_table_add(kl_table *table, uint64_t hash, void *entry);
/* The same where kl_table_reserve has made room. */
void kl_table_put(kl_table *table, uint64_t hash, void *entry);
/* Take this very entry out; it must be there. */
void kl_table_remove(kl_table *table, uint64_t hash, const void *entry);
/* The entries one after another, in no order, from *at = 0 on; NULL behind the last.  None may be
 * added or removed in between. */
void *kl_table_next(const kl_table *table, size_t *at);
/* Forget all entries; the memory of the slots is kept. */
void kl_table_clear(kl_table *table);
void kl_table_free(kl_table *table); /* and zero it */

#endif
