/* table.c: see table.h.  Linear probing; a removal moves later entries up, so no tombstones
 * accumulate. */
#include "table.h"

enum { SLOTS_MIN = 16 };
KL_STATIC_ASSERT((SLOTS_MIN & (SLOTS_MIN - 1)) == 0, "a mask of them finds a place");

/* Three quarters: probes stay short for all keys. */
static size_t count_max(size_t slot_count) { return slot_count / 4 * 3; }

void *kl_table_find(const kl_table *table, uint64_t hash, const void *key,
                    kl_table_same *same) {
    if (table->count == 0) return NULL;
    size_t mask = table->slot_count - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        const kl_table_slot *slot = &table->slots[i];
        if (slot->entry == NULL) return NULL;
        if (slot->hash == hash && same(slot->entry, key)) return slot->entry;
    }
}

static void place(kl_table *table, uint64_t hash, void *entry) {
    size_t mask = table->slot_count - 1, i = (size_t)hash & mask;
    while (table->slots[i].entry) i = (i + 1) & mask;
    table->slots[i] = (kl_table_slot){hash, entry};
}

kl_status kl_table_reserve(kl_table *table, size_t more) {
    size_t wanted = table->count + more, slot_count = KL_MAX(table->slot_count, SLOTS_MIN);
    if (wanted <= count_max(table->slot_count)) return KL_OK;
    while (slot_count < SIZE_MAX / 2 / sizeof(kl_table_slot) &&
           count_max(slot_count) < wanted)
        slot_count *= 2;
    kl_table_slot *slots = NULL;
    if (count_max(slot_count) >= wanted) slots = kl_alloc(slot_count * sizeof *slots);
    if (slots == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a table of %zu entries", wanted);
    kl_table old = *table;
    table->slots = slots;
    table->slot_count = slot_count;
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].entry) place(table, old.slots[i].hash, old.slots[i].entry);
    kl_release(old.slots);
    return KL_OK;
}

kl_status kl_table_add(kl_table *table, uint64_t hash, void *entry) {
    kl_status status = kl_table_reserve(table, 1);
    if (status) return status;
    kl_table_put(table, hash, entry);
    return KL_OK;
}

void kl_table_put(kl_table *table, uint64_t hash, void *entry) {
    KL_ASSERT(table->count < count_max(table->slot_count)); /* the caller has made space */
    place(table, hash, entry);
    table->count++;
}

void kl_table_remove(kl_table *table, uint64_t hash, const void *entry) {
    KL_ASSERT(table->count > 0);
    size_t mask = table->slot_count - 1, hole = (size_t)hash & mask;
    while (table->slots[hole].entry != entry) {
        KL_ASSERT(table->slots[hole].entry != NULL);
        hole = (hole + 1) & mask;
    }
    for (size_t i = (hole + 1) & mask; table->slots[i].entry; i = (i + 1) & mask) {
        size_t home = (size_t)table->slots[i].hash & mask;
        /* The entry may move to the hole unless its home is after it. */
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        table->slots[hole] = table->slots[i];
        hole = i;
    }
    table->slots[hole] = (kl_table_slot){0, NULL};
    table->count--;
}

void *kl_table_next(const kl_table *table, size_t *at) {
    while (*at < table->slot_count) {
        void *entry = table->slots[(*at)++].entry;
        if (entry) return entry;
    }
    return NULL;
}

void kl_table_clear(kl_table *table) {
    if (table->count) memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    table->count = 0;
}

void kl_table_free(kl_table *table) {
    kl_release(table->slots);
    *table = (kl_table){0};
}
