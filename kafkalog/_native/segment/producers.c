/* producers.c: sequences, epochs and open transactions of a log's producers. */
#include "producers.h"

#include "base/hash.h"

enum { SPARE_MAX = 64 }; /* unused entries kept, about 16 KB */

void kl_producers_init(kl_producers *producers) { *producers = (kl_producers){0}; }

static void give_spare(kl_producers *producers, kl_producer_entry *entry) {
    entry->newer = producers->spare;
    producers->spare = entry;
    producers->spare_count++;
}

static kl_producer_entry *take_spare(kl_producers *producers) {
    kl_producer_entry *entry = producers->spare;
    KL_ASSERT(producers->spare_count > 0);
    producers->spare = entry->newer;
    producers->spare_count--;
    return entry;
}

void kl_producers_trim(kl_producers *producers) {
    while (producers->spare_count > SPARE_MAX) kl_release(take_spare(producers));
}

static void give_list(kl_producers *producers, kl_producer_list *list) {
    for (kl_producer_entry *entry = list->oldest, *next; entry; entry = next) {
        next = entry->newer;
        give_spare(producers, entry);
    }
    *list = (kl_producer_list){0};
}

void kl_producers_clear(kl_producers *producers) {
    KL_ASSERT(producers->count == producers->table.count);
    give_list(producers, &producers->idle);
    give_list(producers, &producers->open);
    producers->count = 0;
    producers->open_txns = 0;
    producers->finished_count = 0;
    kl_table_clear(&producers->table);
    kl_producers_trim(producers);
}

void kl_producers_free(kl_producers *producers) {
    kl_producers_clear(producers);
    while (producers->spare) kl_release(take_spare(producers));
    kl_table_free(&producers->table);
    kl_release(producers->finished);
    kl_producers_init(producers);
}

/* ---- table -------------------------------------------------------------------------- */

static bool same_id(const void *entry, const void *key) {
    return ((const kl_producer_entry *)entry)->producer_id == *(const int64_t *)key;
}

kl_producer_entry *kl_producers_find(const kl_producers *producers, int64_t producer_id) {
    uint64_t hash = kl_hash_number((uint64_t)producer_id);
    return kl_table_find(&producers->table, hash, &producer_id, same_id);
}

/* ---- two lists: producers in a transaction, and all others ---------------------------- */

static void unlink_entry(kl_producer_list *list, kl_producer_entry *entry) {
    KL_ASSERT((entry->older ? entry->older->newer : list->oldest) == entry);
    KL_ASSERT((entry->newer ? entry->newer->older : list->newest) == entry);
    if (entry->older) entry->older->newer = entry->newer;
    else list->oldest = entry->newer;
    if (entry->newer) entry->newer->older = entry->older;
    else list->newest = entry->older;
}

static void link_newest(kl_producer_list *list, kl_producer_entry *entry) {
    entry->older = list->newest;
    entry->newer = NULL;
    if (entry->older) entry->older->newer = entry;
    else list->oldest = entry;
    list->newest = entry;
}

static void hear(kl_producers *producers, kl_producer_entry *entry, int64_t heard_ms) {
    entry->heard_ms = heard_ms;
    if (entry->txn_start_offset >= 0 || producers->idle.newest == entry) return;
    unlink_entry(&producers->idle, entry);
    link_newest(&producers->idle, entry);
}

static void open_txn(kl_producers *producers, kl_producer_entry *entry, int64_t start) {
    KL_ASSERT(entry->txn_start_offset < 0);
    unlink_entry(&producers->idle, entry);
    entry->txn_start_offset = start;
    link_newest(&producers->open, entry);
    producers->open_txns++;
}

/* A new transaction begins after all others, unless a snapshot named later ones. */
static void put_in_order(kl_producer_list *open, kl_producer_entry *entry) {
    kl_producer_entry *before = entry->older;
    if (KL_LIKELY(!before || before->txn_start_offset <= entry->txn_start_offset)) return;
    unlink_entry(open, entry);
    while (before && before->txn_start_offset > entry->txn_start_offset)
        before = before->older;
    entry->older = before;
    entry->newer = before ? before->newer : open->oldest;
    entry->newer->older = entry;
    if (before) before->newer = entry;
    else open->oldest = entry;
}

static void end_txn(kl_producers *producers, kl_producer_entry *entry) {
    KL_ASSERT(producers->open_txns > 0 && entry->txn_start_offset >= 0);
    unlink_entry(&producers->open, entry);
    entry->txn_start_offset = -1;
    link_newest(&producers->idle, entry);
    producers->open_txns--;
}

static void forget(kl_producers *producers, kl_producer_entry *entry) {
    KL_ASSERT(producers->count > 0 && entry->txn_start_offset < 0);
    kl_table_remove(&producers->table, kl_hash_number((uint64_t)entry->producer_id), entry);
    unlink_entry(&producers->idle, entry);
    give_spare(producers, entry);
    producers->count--;
}

static kl_status reserve_entries(kl_producers *producers, size_t more) {
    while (producers->spare_count < more) {
        kl_producer_entry *entry = kl_alloc(sizeof *entry);
        if (entry == NULL)
            return kl_fail(KL_E_NO_MEMORY, "no memory for %zu producers",
                           producers->count + more);
        give_spare(producers, entry);
    }
    return kl_table_reserve(&producers->table, more);
}

static kl_status reserve_finished(kl_producers *producers, size_t wanted) {
    kl_finished_txn *finished = kl_room_for(
        producers->finished, &producers->finished_capacity, wanted, sizeof *finished);
    if (finished == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu finished transactions", wanted);
    producers->finished = finished;
    return KL_OK;
}

kl_status kl_producers_reserve(kl_producers *producers, size_t more) {
    kl_status status = reserve_entries(producers, more);
    if (status) return status;
    return reserve_finished(producers, producers->finished_count + 1);
}

/* Find the producer's entry, or create it. */
static kl_status obtain(kl_producers *producers, int64_t producer_id,
                        int16_t producer_epoch, kl_producer_entry **out) {
    *out = kl_producers_find(producers, producer_id);
    if (*out) return KL_OK;
    if (producers->count >= KL_PRODUCERS_MAX && producers->idle.oldest)
        forget(producers, producers->idle.oldest);
    kl_status status = reserve_entries(producers, 1);
    if (status) return status;
    kl_producer_entry *entry = take_spare(producers);
    *entry = (kl_producer_entry){
        .producer_id = producer_id,
        .txn_start_offset = -1,
        .last_timestamp_ms = -1,
        .coordinator_epoch = -1,
        .producer_epoch = producer_epoch,
    };
    link_newest(&producers->idle, entry);
    producers->count++;
    *out = entry;
    kl_table_put(&producers->table, kl_hash_number((uint64_t)producer_id), entry);
    return KL_OK;
}

/* ---- check -------------------------------------------------------------------------- */

static const kl_producer_batch *last_batch(const kl_producer_entry *entry) {
    return entry->batch_count ? &entry->batches[entry->batch_count - 1] : NULL;
}

static const kl_producer_batch *find_duplicate(const kl_producer_entry *entry,
                                               const kl_batch *batch) {
    if (entry->producer_epoch != batch->producer_epoch) return NULL;
    for (int i = 0; i < entry->batch_count; i++)
        if (entry->batches[i].first_sequence == batch->base_sequence &&
            entry->batches[i].last_sequence == batch->last_sequence)
            return &entry->batches[i];
    return NULL;
}

static kl_status check_epoch(const kl_producer_entry *entry, int16_t producer_epoch) {
    if (producer_epoch >= entry->producer_epoch) return KL_OK;
    return kl_fail(KL_E_INVALID_PRODUCER_EPOCH,
                   "producer %lld: epoch %d is fenced, the log has seen epoch %d",
                   (long long)entry->producer_id, producer_epoch, entry->producer_epoch);
}

static kl_status check_sequence(const kl_producer_entry *entry, const kl_batch *batch) {
    int32_t wanted = 0;
    const kl_producer_batch *last = last_batch(entry);
    if (batch->producer_epoch == entry->producer_epoch && last)
        wanted = kl_sequence_add(last->last_sequence, 1);
    if (batch->base_sequence == wanted) return KL_OK;
    return kl_fail(KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER,
                   "producer %lld, epoch %d: sequence %d, wanted %d",
                   (long long)batch->producer_id, batch->producer_epoch,
                   batch->base_sequence, wanted);
}

/* Check that one more producer can be remembered after `more` transactions are opened. */
static kl_status check_room(const kl_producers *producers, size_t more,
                            int64_t producer_id) {
    KL_ASSERT(producers->open_txns <= producers->count);
    if (KL_LIKELY(producers->open_txns + more < KL_PRODUCERS_MAX)) return KL_OK;
    return kl_fail(KL_E_NO_MEMORY,
                   "producer %lld: %zu others are in transactions, wanted fewer than %d "
                   "before another one writes",
                   (long long)producer_id, producers->open_txns + more, KL_PRODUCERS_MAX);
}

kl_status kl_producers_check(kl_producers *producers, const kl_batch *batch,
                             bool sequence_checked, const kl_producer_batch **duplicate) {
    *duplicate = NULL;
    if (batch->producer_epoch < 0)
        return kl_fail(KL_E_INVALID_RECORD, "producer %lld: epoch %d, wanted at least 0",
                       (long long)batch->producer_id, batch->producer_epoch);
    if (sequence_checked && batch->base_sequence < 0)
        return kl_fail(KL_E_INVALID_RECORD, "producer %lld: sequence %d, wanted at least 0",
                       (long long)batch->producer_id, batch->base_sequence);
    const kl_producer_entry *entry = kl_producers_find(producers, batch->producer_id);
    if (entry == NULL) /* unknown, expired or removed by retention: any sequence */
        return check_room(producers, 0, batch->producer_id);
    if (sequence_checked) {
        *duplicate = find_duplicate(entry, batch);
        if (*duplicate) return KL_OK;
    }
    kl_status status = check_epoch(entry, batch->producer_epoch);
    if (!status && sequence_checked) status = check_sequence(entry, batch);
    if (status) return status;
    if (entry->txn_start_offset >= 0 && !kl_batch_is_transactional(batch))
        return kl_fail(KL_E_INVALID_TXN_STATE,
                       "producer %lld: a batch outside of its transaction, which is open "
                       "since offset %lld",
                       (long long)batch->producer_id, (long long)entry->txn_start_offset);
    return KL_OK;
}

bool kl_producers_is_open(const kl_producers *producers, const kl_batch *batch) {
    const kl_producer_entry *entry = kl_producers_find(producers, batch->producer_id);
    return entry && entry->txn_start_offset >= 0 &&
           entry->producer_epoch == batch->producer_epoch;
}

kl_status kl_producers_try(kl_producers *producers, kl_producers *after,
                           const kl_batch *batch, bool check_sequence,
                           const kl_producer_batch **duplicate) {
    if (after == NULL)
        return kl_producers_check(producers, batch, check_sequence, duplicate);
    const kl_producer_entry *known = kl_producers_find(producers, batch->producer_id);
    if (known && kl_producers_find(after, batch->producer_id) == NULL) {
        kl_producer_entry *entry;
        kl_status status = obtain(after, batch->producer_id, batch->producer_epoch, &entry);
        if (status) return status;
        unlink_entry(&after->idle, entry);
        *entry = *known;
        bool open = known->txn_start_offset >= 0; /* counted already if known */
        link_newest(open ? &after->open : &after->idle, entry);
    }
    kl_status status = KL_OK;
    if (known == NULL && kl_producers_find(after, batch->producer_id) == NULL)
        status = check_room(producers, after->open_txns, batch->producer_id);
    if (!status) status = kl_producers_check(after, batch, check_sequence, duplicate);
    if (status || *duplicate) return status;
    return kl_producers_apply(after, batch, 0);
}

kl_status kl_producers_check_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    bool raised) {
    const kl_producer_entry *entry = kl_producers_find(producers, producer_id);
    if (entry == NULL) return KL_OK;
    kl_status status = check_epoch(entry, producer_epoch); /* the same order as Kafka */
    if (!status && raised && producer_epoch == entry->producer_epoch &&
        entry->txn_start_offset >= 0 && producer_epoch != INT16_MAX)
        return kl_fail(KL_E_INVALID_PRODUCER_EPOCH,
                       "producer %lld: epoch %d has a transaction open, the end of the one "
                       "before comes late",
                       (long long)producer_id, producer_epoch);
    if (status || coordinator_epoch >= entry->coordinator_epoch) return status;
    return kl_fail(KL_E_TRANSACTION_COORDINATOR_FENCED,
                   "producer %lld: coordinator epoch %d is fenced, the log has seen %d",
                   (long long)producer_id, coordinator_epoch, entry->coordinator_epoch);
}

/* ---- apply -------------------------------------------------------------------------- */

/* Sequences start over with each epoch. */
static void take_epoch(kl_producer_entry *entry, int16_t producer_epoch) {
    if (entry->producer_epoch == producer_epoch) return;
    entry->producer_epoch = producer_epoch;
    entry->batch_count = 0;
}

static void push_batch(kl_producer_entry *entry, const kl_producer_batch *batch) {
    if (entry->batch_count == KL_PRODUCER_BATCHES) {
        memmove(entry->batches, entry->batches + 1,
                (KL_PRODUCER_BATCHES - 1) * sizeof *entry->batches);
        entry->batch_count--;
    }
    entry->batches[entry->batch_count++] = *batch;
}

kl_status kl_producers_apply(kl_producers *producers, const kl_batch *batch,
                             int64_t heard_ms) {
    kl_producer_entry *entry;
    kl_status status = obtain(producers, batch->producer_id, batch->producer_epoch, &entry);
    if (status) return status;
    hear(producers, entry, heard_ms);
    take_epoch(entry, batch->producer_epoch);
    kl_producer_batch seen = {
        .first_sequence = batch->base_sequence,
        .last_sequence = batch->last_sequence,
        .last_offset = batch->last_offset,
        .offset_delta = batch->last_offset_delta,
        .timestamp_ms = batch->max_timestamp,
    };
    push_batch(entry, &seen);
    entry->last_timestamp_ms = batch->max_timestamp;
    if (kl_batch_is_transactional(batch) && entry->txn_start_offset < 0) {
        open_txn(producers, entry, batch->base_offset);
        put_in_order(&producers->open, entry);
    }
    return KL_OK;
}

kl_status kl_producers_apply_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    int64_t offset, int64_t timestamp_ms, int64_t heard_ms,
                                    int64_t *first_offset) {
    *first_offset = -1;
    kl_status status = kl_producers_reserve(producers, 1);
    if (status) return status;
    kl_producer_entry *entry;
    status = obtain(producers, producer_id, producer_epoch, &entry);
    if (status) return status;
    hear(producers, entry, heard_ms);
    take_epoch(entry, producer_epoch);
    entry->coordinator_epoch = coordinator_epoch;
    entry->last_timestamp_ms = timestamp_ms;
    if (entry->txn_start_offset < 0) return KL_OK;
    *first_offset = entry->txn_start_offset;
    end_txn(producers, entry);
    KL_ASSERT(producers->finished_count < producers->finished_capacity);
    producers->finished[producers->finished_count++] = (kl_finished_txn){
        .producer_id = producer_id,
        .first_offset = *first_offset,
        .last_offset = offset,
    };
    return KL_OK;
}

int64_t kl_producers_first_open(const kl_producers *producers) {
    return producers->open.oldest ? producers->open.oldest->txn_start_offset : INT64_MAX;
}

int64_t kl_producers_first_open_besides(const kl_producers *producers,
                                        const kl_producer_entry *left_out) {
    const kl_producer_entry *first = producers->open.oldest;
    if (first == left_out) first = first->newer;
    return first ? first->txn_start_offset : INT64_MAX;
}

int64_t kl_producers_first_unstable(kl_producers *producers, int64_t high_watermark) {
    size_t below = 0;
    while (below < producers->finished_count &&
           producers->finished[below].last_offset < high_watermark)
        below++;
    if (below > 0) {
        producers->finished_count -= below;
        memmove(producers->finished, producers->finished + below,
                producers->finished_count * sizeof *producers->finished);
    }
    int64_t first = kl_producers_first_open(producers);
    for (size_t i = 0; i < producers->finished_count; i++)
        first = KL_MIN(first, producers->finished[i].first_offset);
    return first;
}

size_t kl_producers_expire(kl_producers *producers, int64_t before_ms) {
    size_t before = producers->count;
    for (kl_producer_entry *entry = producers->idle.oldest, *next; entry; entry = next) {
        next = entry->newer;
        if (entry->heard_ms < before_ms) forget(producers, entry);
    }
    kl_producers_trim(producers);
    return before - producers->count;
}

/* ---- lists and snapshots ------------------------------------------------------------ */

/*   pos  bytes  field
 *     0      2  version     1
 *     2      4  crc         CRC-32C of pos 6 to the end
 *     6      4  count
 *    10         entries, 46 bytes each:
 *     0      8  producerId
 *     8      2  producerEpoch
 *    10      4  lastSequence         of the last batch, -1: no batch
 *    14      8  lastOffset           of the last batch, -1: no batch
 *    22      4  offsetDelta          its last offset less its first
 *    26      8  timestamp            of the last batch or marker
 *    34      4  coordinatorEpoch     -1: no marker yet
 *    38      8  currentTxnFirstOffset   -1: none is open */
enum {
    SNAPSHOT_VERSION = 1,
    SNAPSHOT_POS_CRC = 2,
    SNAPSHOT_POS_COUNT = 6,
    SNAPSHOT_POS_ENTRIES = 10,
    SNAPSHOT_ENTRY_BYTES = 46,
    ENTRY_POS_EPOCH = 8,
    ENTRY_POS_LAST_SEQUENCE = 10,
    ENTRY_POS_LAST_OFFSET = 14,
    ENTRY_POS_OFFSET_DELTA = 22,
    ENTRY_POS_TIMESTAMP = 26,
    ENTRY_POS_COORDINATOR_EPOCH = 34,
    ENTRY_POS_TXN_START = 38
};
KL_STATIC_ASSERT(SNAPSHOT_POS_COUNT == SNAPSHOT_POS_CRC + 4, "the crc covers what follows");
KL_STATIC_ASSERT(SNAPSHOT_POS_ENTRIES == SNAPSHOT_POS_COUNT + 4, "the count comes last");
KL_STATIC_ASSERT(ENTRY_POS_LAST_SEQUENCE == ENTRY_POS_EPOCH + 2 &&
                     ENTRY_POS_LAST_OFFSET == ENTRY_POS_LAST_SEQUENCE + 4 &&
                     ENTRY_POS_OFFSET_DELTA == ENTRY_POS_LAST_OFFSET + 8,
                 "as the table says");
KL_STATIC_ASSERT(ENTRY_POS_TIMESTAMP == ENTRY_POS_OFFSET_DELTA + 4 &&
                     ENTRY_POS_COORDINATOR_EPOCH == ENTRY_POS_TIMESTAMP + 8 &&
                     ENTRY_POS_TXN_START == ENTRY_POS_COORDINATOR_EPOCH + 4,
                 "as the table says");
KL_STATIC_ASSERT(ENTRY_POS_TXN_START + 8 == SNAPSHOT_ENTRY_BYTES, "the entry ends here");

static kl_producer describe(const kl_producer_entry *entry) {
    const kl_producer_batch *last = last_batch(entry);
    return (kl_producer){
        .producer_id = entry->producer_id,
        .last_offset = last ? last->last_offset : -1,
        .last_timestamp_ms = entry->last_timestamp_ms,
        .txn_start_offset = entry->txn_start_offset,
        .last_sequence = last ? last->last_sequence : -1,
        .offset_delta = last ? last->offset_delta : 0,
        .coordinator_epoch = entry->coordinator_epoch,
        .producer_epoch = entry->producer_epoch,
    };
}

static int compare_ids(const void *a, const void *b) {
    int64_t left = ((const kl_producer *)a)->producer_id;
    int64_t right = ((const kl_producer *)b)->producer_id;
    return (left > right) - (left < right);
}

bool kl_producers_ended_txn(const kl_producers *producers) {
    const kl_producer_list *lists[] = {&producers->idle, &producers->open};
    for (int l = 0; l < 2; l++)
        for (const kl_producer_entry *entry = lists[l]->oldest; entry; entry = entry->newer)
            if (entry->coordinator_epoch >= 0) return true;
    return false;
}

size_t kl_producers_list(const kl_producers *producers, kl_producer *out,
                         size_t max_entries) {
    if (producers->count > max_entries || producers->count == 0) return producers->count;
    size_t i = 0;
    const kl_producer_list *lists[] = {&producers->idle, &producers->open};
    for (int l = 0; l < 2; l++)
        for (const kl_producer_entry *entry = lists[l]->oldest; entry; entry = entry->newer)
            out[i++] = describe(entry);
    KL_ASSERT(i == producers->count);
    return producers->count;
}

void kl_producers_sort(kl_producer *list, size_t count) {
    if (count > 1) qsort(list, count, sizeof *list, compare_ids);
}

static void put_entry(uint8_t *p, const kl_producer *producer) {
    kl_put64(p, (uint64_t)producer->producer_id);
    kl_put16(p + ENTRY_POS_EPOCH, (uint16_t)producer->producer_epoch);
    kl_put32(p + ENTRY_POS_LAST_SEQUENCE, (uint32_t)producer->last_sequence);
    kl_put64(p + ENTRY_POS_LAST_OFFSET, (uint64_t)producer->last_offset);
    kl_put32(p + ENTRY_POS_OFFSET_DELTA, (uint32_t)producer->offset_delta);
    kl_put64(p + ENTRY_POS_TIMESTAMP, (uint64_t)producer->last_timestamp_ms);
    kl_put32(p + ENTRY_POS_COORDINATOR_EPOCH, (uint32_t)producer->coordinator_epoch);
    kl_put64(p + ENTRY_POS_TXN_START, (uint64_t)producer->txn_start_offset);
}

static kl_producer get_entry(const uint8_t *p) {
    return (kl_producer){
        .producer_id = (int64_t)kl_get64(p),
        .last_offset = (int64_t)kl_get64(p + ENTRY_POS_LAST_OFFSET),
        .last_timestamp_ms = (int64_t)kl_get64(p + ENTRY_POS_TIMESTAMP),
        .txn_start_offset = (int64_t)kl_get64(p + ENTRY_POS_TXN_START),
        .last_sequence = (int32_t)kl_get32(p + ENTRY_POS_LAST_SEQUENCE),
        .offset_delta = (int32_t)kl_get32(p + ENTRY_POS_OFFSET_DELTA),
        .coordinator_epoch = (int32_t)kl_get32(p + ENTRY_POS_COORDINATOR_EPOCH),
        .producer_epoch = (int16_t)kl_get16(p + ENTRY_POS_EPOCH),
    };
}

kl_status kl_snapshot_encode(const kl_producers *producers, kl_buffer *out) {
    kl_producer *list = NULL;
    size_t bytes = SNAPSHOT_POS_ENTRIES + producers->count * SNAPSHOT_ENTRY_BYTES;
    kl_status status = kl_buffer_reserve(out, bytes);
    if (status) goto out;
    list = kl_alloc(KL_MAX(producers->count, (size_t)1) * sizeof *list);
    if (list == NULL) {
        status = kl_fail(KL_E_NO_MEMORY, "no memory for a snapshot of %zu producers",
                         producers->count);
        goto out;
    }
    kl_producers_sort(list, kl_producers_list(producers, list, producers->count));
    uint8_t *p = out->data + out->bytes;
    kl_put16(p, SNAPSHOT_VERSION);
    kl_put32(p + SNAPSHOT_POS_COUNT, (uint32_t)producers->count);
    for (size_t i = 0; i < producers->count; i++)
        put_entry(p + SNAPSHOT_POS_ENTRIES + i * SNAPSHOT_ENTRY_BYTES, &list[i]);
    kl_put32(p + SNAPSHOT_POS_CRC,
             kl_crc32c(p + SNAPSHOT_POS_COUNT, bytes - SNAPSHOT_POS_COUNT));
    out->bytes += bytes;
out:
    kl_release(list);
    return status;
}

/* Check everything in a snapshot except its entries; *count is their number. */
static kl_status check_snapshot(const uint8_t *data, size_t bytes, size_t *count) {
    if (bytes < SNAPSHOT_POS_ENTRIES)
        return kl_fail(KL_E_CORRUPT, "snapshot: %zu bytes, wanted at least %d", bytes,
                       SNAPSHOT_POS_ENTRIES);
    int version = (int16_t)kl_get16(data);
    if (version != SNAPSHOT_VERSION)
        return kl_fail(KL_E_CORRUPT, "snapshot: version %d, wanted %d", version,
                       SNAPSHOT_VERSION);
    uint32_t stored = kl_get32(data + SNAPSHOT_POS_CRC);
    uint32_t computed = kl_crc32c(data + SNAPSHOT_POS_COUNT, bytes - SNAPSHOT_POS_COUNT);
    if (stored != computed)
        return kl_fail(KL_E_CORRUPT, "snapshot: crc %08x is stored, its bytes give %08x",
                       stored, computed);
    size_t entry_bytes = bytes - SNAPSHOT_POS_ENTRIES;
    int32_t found = (int32_t)kl_get32(data + SNAPSHOT_POS_COUNT);
    if (entry_bytes % SNAPSHOT_ENTRY_BYTES != 0 || found < 0 ||
        (size_t)found != entry_bytes / SNAPSHOT_ENTRY_BYTES)
        return kl_fail(KL_E_CORRUPT, "snapshot: count %d does not agree with its %zu bytes",
                       found, bytes);
    *count = (size_t)found;
    return KL_OK;
}

kl_status kl_snapshot_decode(const uint8_t *data, size_t bytes, kl_producer *out,
                             size_t max_entries, size_t *count) {
    *count = 0;
    kl_status status = check_snapshot(data, bytes, count);
    if (status) return status;
    for (size_t i = 0; i < KL_MIN(*count, max_entries); i++)
        out[i] = get_entry(data + SNAPSHOT_POS_ENTRIES + i * SNAPSHOT_ENTRY_BYTES);
    return KL_OK;
}

/* `sequence` - `decrement`, modulo 2^31 as kl_sequence_add. */
static int32_t sequence_less(int32_t sequence, int32_t decrement) {
    if (sequence >= decrement) return sequence - decrement;
    return INT32_MAX - decrement + (sequence + 1); /* sequence is at least -1 */
}

static kl_status load_entry(kl_producers *producers, const kl_producer *from,
                            int64_t now_ms) {
    if (from->producer_id < 0 || from->offset_delta < 0 || from->last_sequence < -1)
        return kl_fail(
            KL_E_CORRUPT, "snapshot: producer %lld, sequence %d, offset delta %d",
            (long long)from->producer_id, from->last_sequence, from->offset_delta);
    if (kl_producers_find(producers, from->producer_id))
        return kl_fail(KL_E_CORRUPT, "snapshot: producer %lld twice",
                       (long long)from->producer_id);
    kl_producer_entry *entry;
    kl_status status = obtain(producers, from->producer_id, from->producer_epoch, &entry);
    if (status) return status;
    entry->coordinator_epoch = from->coordinator_epoch;
    entry->last_timestamp_ms = from->last_timestamp_ms;
    entry->heard_ms = kl_producers_heard(from->last_timestamp_ms, now_ms);
    if (from->last_offset >= 0) {
        kl_producer_batch last = {
            .first_sequence = sequence_less(from->last_sequence, from->offset_delta),
            .last_sequence = from->last_sequence,
            .last_offset = from->last_offset,
            .offset_delta = from->offset_delta,
            .timestamp_ms = from->last_timestamp_ms,
        };
        push_batch(entry, &last);
    }
    if (from->txn_start_offset >= 0) open_txn(producers, entry, from->txn_start_offset);
    return KL_OK;
}

static int compare_heard(const void *a, const void *b) {
    int64_t left = (*(kl_producer_entry *const *)a)->heard_ms;
    int64_t right = (*(kl_producer_entry *const *)b)->heard_ms;
    return (left > right) - (left < right);
}

static int compare_starts(const void *a, const void *b) {
    int64_t left = (*(kl_producer_entry *const *)a)->txn_start_offset;
    int64_t right = (*(kl_producer_entry *const *)b)->txn_start_offset;
    return (left > right) - (left < right);
}

static void sort(kl_producer_list *list, kl_producer_entry **room,
                 int (*compare)(const void *, const void *)) {
    size_t count = 0;
    for (kl_producer_entry *entry = list->oldest; entry; entry = entry->newer)
        room[count++] = entry;
    qsort(room, count, sizeof *room, compare);
    *list = (kl_producer_list){0};
    for (size_t i = 0; i < count; i++) link_newest(list, room[i]);
}

/* Sort both lists. */
static kl_status sort_lists(kl_producers *producers) {
    size_t count = KL_MAX(producers->count, (size_t)1);
    kl_producer_entry **room = kl_alloc(count * sizeof *room);
    if (room == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for %zu producers", count);
    sort(&producers->idle, room, compare_heard);
    sort(&producers->open, room, compare_starts);
    kl_release(room);
    return KL_OK;
}

kl_status kl_producers_load(kl_producers *producers, const uint8_t *data, size_t bytes,
                            int64_t now_ms) {
    size_t count = 0;
    kl_producers_clear(producers);
    kl_status status = check_snapshot(data, bytes, &count);
    for (size_t i = 0; i < count && !status; i++) {
        const uint8_t *p = data + SNAPSHOT_POS_ENTRIES + i * SNAPSHOT_ENTRY_BYTES;
        kl_producer from = get_entry(p);
        status = load_entry(producers, &from, now_ms);
    }
    if (!status) status = sort_lists(producers);
    if (status) kl_producers_clear(producers);
    return status;
}

/* ---- what a snapshot leaves out ------------------------------------------------------ */

static bool any_reaches(const kl_producer_list *list, int64_t offset) {
    for (const kl_producer_entry *entry = list->oldest; entry; entry = entry->newer)
        if (entry->batch_count && last_batch(entry)->last_offset >= offset) return true;
    return false;
}

bool kl_producers_reach(const kl_producers *producers, int64_t offset) {
    return any_reaches(&producers->idle, offset) || any_reaches(&producers->open, offset);
}

/* The last batch stays as in the snapshot. */
static void recall_entry(kl_producer_entry *entry, const kl_producer_entry *found) {
    const kl_producer_batch *last = last_batch(entry), *seen = last_batch(found);
    if (last == NULL || last->last_offset != seen->last_offset ||
        last->first_sequence != seen->first_sequence ||
        last->last_sequence != seen->last_sequence)
        return;
    const kl_producer_batch *first = seen;
    while (first > found->batches &&
           first->first_sequence == kl_sequence_add(first[-1].last_sequence, 1))
        first--;
    int before = (int)(seen - first);
    KL_ASSERT(before < KL_PRODUCER_BATCHES);
    entry->batches[before] = *last;
    memcpy(entry->batches, first, (size_t)before * sizeof *first);
    entry->batch_count = before + 1;
}

static void recall_list(kl_producers *producers, const kl_producer_list *found) {
    for (const kl_producer_entry *entry = found->oldest; entry; entry = entry->newer)
        recall_entry(kl_producers_find(producers, entry->producer_id), entry);
}

void kl_producers_recall(kl_producers *producers, const kl_producers *found) {
    recall_list(producers, &found->idle);
    recall_list(producers, &found->open);
}
