/* scan_memory.c: a scan of batches in memory, as in a Fetch response. */
#include "scan.h"

kl_status kl_scan_open_memory(const kl_scan_options *options, kl_scan **out) {
    *out = NULL;
    kl_scan *scan = NULL;
    kl_status status = kl_scan_make(options, &scan);
    if (status) {
        kl_scan_free(scan);
        return status;
    }
    scan->options.start_time_ms = INT64_MIN;
    scan->options.stop_time_ms = INT64_MAX;
    scan->options.control = 0;
    scan->options.key_match = KL_KEY_ANY;
    *out = scan;
    return KL_OK;
}

/* An aborted transaction ends at its marker: in this chunk, or after it. */
static void end_aborted(kl_scan *scan, const kl_batch *batch, const uint8_t *data) {
    int32_t type = -1, epoch;
    /* An invalid marker is reported when the scan reaches it. */
    if (kl_batch_control(batch, data, &type, &epoch) || type != KL_CONTROL_ABORT) return;
    kl_aborted *entry = kl_scan_aborted_at(scan, batch->producer_id, batch->base_offset);
    if (entry != NULL && entry->last_offset == INT64_MAX)
        entry->last_offset = batch->base_offset;
}

static kl_status take_aborted(kl_scan *scan, const kl_fetched *fetched) {
    size_t count = (size_t)fetched->aborted_count;
    scan->aborted_count = 0;
    if (count == 0) return KL_OK;
    kl_aborted *entries = kl_resize(scan->aborted, count * sizeof *entries);
    if (entries == NULL)
        return kl_fail(KL_E_NO_MEMORY, "a list of %zu aborted transactions", count);
    memset(entries, 0, count * sizeof *entries);
    scan->aborted = entries;
    for (size_t i = 0; i < count; i++) {
        entries[i].producer_id = fetched->aborted[2 * i];
        entries[i].first_offset = fetched->aborted[2 * i + 1];
        entries[i].last_offset = INT64_MAX;
    }
    scan->aborted_count = count;
    kl_scan_sort_aborted(scan);
    return KL_OK;
}

/* Walk the whole batches from *pos on; with `scan`, record where transactions end.  *last is the
 * last batch, unchanged if there is none.  KL_OK: *pos is their end. */
static kl_status walk(const uint8_t *data, size_t bytes, size_t *pos, kl_batch *last,
                      kl_scan *scan) {
    while (bytes - *pos >= MAGIC_BYTES_NEEDED) {
        kl_batch batch;
        kl_status status = kl_batch_parse(data + *pos, bytes - *pos, &batch);
        if (status == KL_E_BUFFER_TOO_SMALL) break;
        if (status) return status;
        if (scan != NULL && kl_batch_is_control(&batch))
            end_aborted(scan, &batch, data + *pos);
        *last = batch;
        *pos += (size_t)batch.batch_bytes;
        KL_ASSERT(*pos <= bytes); /* the batch is complete */
    }
    return KL_OK;
}

kl_status kl_batches_next(const uint8_t *data, size_t bytes, int64_t *next_offset,
                          int32_t *leader_epoch) {
    size_t pos = 0;
    kl_batch last = {.last_offset = -2, .leader_epoch = -1};
    kl_status status = walk(data, bytes, &pos, &last, NULL);
    *next_offset = last.last_offset + 1;
    *leader_epoch = last.leader_epoch;
    return pos == 0 ? status : KL_OK;
}

kl_status kl_scan_give(kl_scan *scan, const kl_fetched *fetched) {
    if (scan->log != NULL) return kl_fail(KL_E_ARGUMENT, "the scan reads a log");
    if (fetched->topic == NULL || fetched->aborted_count < 0)
        return kl_fail(KL_E_ARGUMENT, "topic is NULL, or aborted_count %d below 0",
                       fetched->aborted_count);
    kl_scan_drop_rows(scan);
    scan->pending_count = scan->pending_next = 0;
    scan->memory.bytes = scan->chunk_pos = 0;
    kl_status status = kl_scan_name(scan, fetched->topic, fetched->partition);
    if (!status) status = take_aborted(scan, fetched);
    if (!status) status = kl_buffer_append(&scan->memory, fetched->data, fetched->bytes);
    if (status) return status;
    scan->chunk = (kl_span){scan->memory.data, scan->memory.bytes};
    scan->options.start_offset = scan->position = fetched->start_offset;
    scan->options.stop_offset = fetched->stop_offset ? fetched->stop_offset : INT64_MAX;
    size_t pos = 0;
    kl_batch last;
    kl_scan *noting = scan->aborted_count ? scan : NULL;
    status = walk(scan->chunk.data, scan->chunk.bytes, &pos, &last, noting);
    /* The scan reports damage when it reaches it: earlier batches are good. */
    if (!status) scan->chunk.bytes = pos;
    return KL_OK;
}
