/* producers.c: sequences, epochs and open transactions of a log's producers. */
#include "producers.h"

enum { SLOTS_MIN = 16 };

void kl_producers_init(kl_producers *producers) {
    *producers = (kl_producers){.first_open = INT64_MAX, .snapshot_offset = -1};
}

void kl_producers_clear(kl_producers *producers) {
    producers->count = 0;
    producers->open_txns = 0;
    producers->first_open = INT64_MAX;
    producers->finished_count = 0;
    if (producers->slots)
        memset(producers->slots, 0, producers->slot_count * sizeof *producers->slots);
}

void kl_producers_free(kl_producers *producers) {
    kl_release(producers->entries);
    kl_release(producers->slots);
    kl_release(producers->finished);
    kl_producers_init(producers);
}

/* ---- table -------------------------------------------------------------------------- */

/* The slot that holds `producer_id`, or the free one where it belongs.  Producer ids come
 * from clients: mixed, so that chosen ones do not meet in one place by their low bits. */
static size_t slot_of(const kl_producers *producers, int64_t producer_id) {
    uint64_t hash = (uint64_t)producer_id * 0x9e3779b97f4a7c15u;
    size_t slot = (size_t)(hash ^ hash >> 32) & (producers->slot_count - 1);
    while (producers->slots[slot] != 0 &&
           producers->entries[producers->slots[slot] - 1].producer_id != producer_id)
        slot = (slot + 1) & (producers->slot_count - 1);
    return slot;
}

static void fill_slots(kl_producers *producers) {
    memset(producers->slots, 0, producers->slot_count * sizeof *producers->slots);
    for (size_t i = 0; i < producers->count; i++)
        producers->slots[slot_of(producers, producers->entries[i].producer_id)] =
            (uint32_t)i + 1;
}

kl_producer_entry *kl_producers_find(kl_producers *producers, int64_t producer_id) {
    if (producers->count == 0) return NULL;
    uint32_t entry = producers->slots[slot_of(producers, producer_id)];
    return entry ? &producers->entries[entry - 1] : NULL;
}

static kl_status reserve_entries(kl_producers *producers, size_t wanted) {
    if (wanted <= producers->capacity) return KL_OK;
    if (wanted > UINT32_MAX / 4) return kl_fail(KL_E_NO_MEMORY, "%zu producers", wanted);
    size_t slot_count = KL_MAX((size_t)SLOTS_MIN, producers->slot_count);
    while (slot_count < wanted * 2) slot_count *= 2;
    size_t capacity = slot_count / 2;
    kl_producer_entry *entries = kl_resize(producers->entries, capacity * sizeof *entries);
    if (entries == NULL) goto no_memory;
    producers->entries = entries;
    uint32_t *slots = kl_resize(producers->slots, slot_count * sizeof *slots);
    if (slots == NULL) goto no_memory; /* the old table still serves the old capacity */
    producers->slots = slots;
    producers->slot_count = slot_count;
    producers->capacity = capacity;
    fill_slots(producers);
    return KL_OK;
no_memory:
    return kl_fail(KL_E_NO_MEMORY, "no memory for %zu producers", capacity);
}

static kl_status reserve_finished(kl_producers *producers, size_t wanted) {
    if (wanted <= producers->finished_capacity) return KL_OK;
    size_t capacity = KL_MAX(wanted, KL_MAX((size_t)8, producers->finished_capacity * 2));
    kl_finished_txn *finished = kl_resize(producers->finished, capacity * sizeof *finished);
    if (finished == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu finished transactions", capacity);
    producers->finished = finished;
    producers->finished_capacity = capacity;
    return KL_OK;
}

kl_status kl_producers_reserve(kl_producers *producers, size_t more) {
    kl_status status = reserve_entries(producers, producers->count + more);
    if (status) return status;
    return reserve_finished(producers, producers->finished_count + more);
}

/* The producer's entry, made when it is unknown. */
static kl_status obtain(kl_producers *producers, int64_t producer_id,
                        int16_t producer_epoch, kl_producer_entry **out) {
    *out = kl_producers_find(producers, producer_id);
    if (*out) return KL_OK;
    kl_status status = reserve_entries(producers, producers->count + 1);
    if (status) return status;
    size_t slot = slot_of(producers, producer_id);
    *out = &producers->entries[producers->count++];
    **out = (kl_producer_entry){
        .producer_id = producer_id,
        .txn_start_offset = -1,
        .last_timestamp_ms = -1,
        .coordinator_epoch = -1,
        .producer_epoch = producer_epoch,
    };
    producers->slots[slot] = (uint32_t)producers->count;
    return KL_OK;
}

static void find_first_open(kl_producers *producers) {
    producers->first_open = INT64_MAX;
    for (size_t i = 0; producers->open_txns > 0 && i < producers->count; i++) {
        int64_t start = producers->entries[i].txn_start_offset;
        if (start >= 0) producers->first_open = KL_MIN(producers->first_open, start);
    }
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
    if (entry == NULL) return KL_OK; /* new, expired or gone by retention: any sequence */
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
        *entry = *known;
    }
    kl_status status = kl_producers_check(after, batch, check_sequence, duplicate);
    if (status || *duplicate) return status;
    return kl_producers_apply(after, batch);
}

kl_status kl_producers_check_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch) {
    const kl_producer_entry *entry = kl_producers_find(producers, producer_id);
    if (entry == NULL) return KL_OK;
    if (coordinator_epoch < entry->coordinator_epoch)
        return kl_fail(KL_E_TRANSACTION_COORDINATOR_FENCED,
                       "producer %lld: coordinator epoch %d is fenced, the log has seen %d",
                       (long long)producer_id, coordinator_epoch, entry->coordinator_epoch);
    return check_epoch(entry, producer_epoch);
}

/* ---- apply -------------------------------------------------------------------------- */

/* Batches of another epoch tell nothing about the sequences of this one. */
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

kl_status kl_producers_apply(kl_producers *producers, const kl_batch *batch) {
    kl_producer_entry *entry;
    kl_status status = obtain(producers, batch->producer_id, batch->producer_epoch, &entry);
    if (status) return status;
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
        entry->txn_start_offset = batch->base_offset;
        producers->open_txns++;
        producers->first_open = KL_MIN(producers->first_open, batch->base_offset);
    }
    return KL_OK;
}

kl_status kl_producers_apply_marker(kl_producers *producers, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch,
                                    int64_t offset, int64_t timestamp_ms,
                                    int64_t *first_offset) {
    *first_offset = -1;
    kl_status status = kl_producers_reserve(producers, 1);
    if (status) return status;
    kl_producer_entry *entry;
    status = obtain(producers, producer_id, producer_epoch, &entry);
    if (status) return status;
    take_epoch(entry, producer_epoch);
    entry->coordinator_epoch = coordinator_epoch;
    entry->last_timestamp_ms = timestamp_ms;
    if (entry->txn_start_offset < 0) return KL_OK;
    *first_offset = entry->txn_start_offset;
    entry->txn_start_offset = -1;
    producers->open_txns--;
    if (*first_offset == producers->first_open) find_first_open(producers);
    producers->finished[producers->finished_count++] = (kl_finished_txn){
        .producer_id = producer_id,
        .first_offset = *first_offset,
        .last_offset = offset,
    };
    return KL_OK;
}

int64_t kl_producers_first_open(const kl_producers *producers) {
    return producers->first_open;
}

int64_t kl_producers_first_open_besides(const kl_producers *producers,
                                        const kl_producer_entry *left_out) {
    int64_t first = producers->first_open;
    if (left_out->txn_start_offset != first) return first;
    first = INT64_MAX;
    for (size_t i = 0; i < producers->count; i++) {
        const kl_producer_entry *entry = &producers->entries[i];
        if (entry != left_out && entry->txn_start_offset >= 0)
            first = KL_MIN(first, entry->txn_start_offset);
    }
    return first;
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
    int64_t first = producers->first_open;
    for (size_t i = 0; i < producers->finished_count; i++)
        first = KL_MIN(first, producers->finished[i].first_offset);
    return first;
}

size_t kl_producers_expire(kl_producers *producers, int64_t before_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < producers->count; i++) {
        const kl_producer_entry *entry = &producers->entries[i];
        if (entry->txn_start_offset >= 0 || entry->last_timestamp_ms >= before_ms)
            producers->entries[kept++] = *entry;
    }
    size_t expired = producers->count - kept;
    producers->count = kept;
    if (expired > 0) fill_slots(producers);
    return expired;
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

size_t kl_producers_list(const kl_producers *producers, kl_producer *out,
                         size_t max_entries) {
    if (producers->count > max_entries || producers->count == 0) return producers->count;
    for (size_t i = 0; i < producers->count; i++) out[i] = describe(&producers->entries[i]);
    qsort(out, producers->count, sizeof *out, compare_ids);
    return producers->count;
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
    kl_producers_list(producers, list, producers->count);
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

/* Check the whole of a snapshot but its entries; their number. */
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

/* `sequence` - `decrement` in the ring of kl_sequence_add. */
static int32_t sequence_less(int32_t sequence, int32_t decrement) {
    if (sequence >= decrement) return sequence - decrement;
    return INT32_MAX - decrement + (sequence + 1); /* sequence is at least -1 */
}

static kl_status load_entry(kl_producers *producers, const kl_producer *from) {
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
    if (from->txn_start_offset >= 0) {
        entry->txn_start_offset = from->txn_start_offset;
        producers->open_txns++;
        producers->first_open = KL_MIN(producers->first_open, from->txn_start_offset);
    }
    return KL_OK;
}

kl_status kl_producers_load(kl_producers *producers, const uint8_t *data, size_t bytes) {
    size_t count = 0;
    kl_producers_clear(producers);
    kl_status status = check_snapshot(data, bytes, &count);
    if (!status) status = kl_producers_reserve(producers, count);
    for (size_t i = 0; i < count && !status; i++) {
        const uint8_t *p = data + SNAPSHOT_POS_ENTRIES + i * SNAPSHOT_ENTRY_BYTES;
        kl_producer from = get_entry(p);
        status = load_entry(producers, &from);
    }
    if (status) kl_producers_clear(producers);
    return status;
}
