/* follower.c: appends a leader's batches with their offsets and epochs unchanged. */
#include "append.h"

/* Locked.  Whether this empty log's start may lie in the middle of the leader's batch. */
static bool straddles(const kl_log *log, const kl_batch *batch) {
    return kl_log_active(log)->size == 0 && log->version->count == 1 &&
           log->log_start == log->log_end && batch->last_offset >= log->log_start;
}

/* Locked.  Move the base of an empty log down to the batch that contains its start.  Check again
 * after the wait for a change of segments, as others may have appended. */
static kl_status begin_at(kl_log *log, const kl_batch *batch) {
    KL_ASSERT_HELD(&log->lock);
    bool begins = straddles(log, batch);
    if (begins) {
        kl_log_settle_changes(log);
        if (log->closed) return kl_fail(KL_E_CLOSED, "log %s is closed", log->path);
        begins = straddles(log, batch);
    }
    if (!begins)
        return kl_fail(KL_E_UNEXPECTED_APPEND_OFFSET,
                       "log %s: batch begins at offset %lld, the log ends at %lld",
                       log->path, (long long)batch->base_offset, (long long)log->log_end);
    return kl_log_restart_at(log, batch->base_offset);
}

static kl_status append_follower_batch(kl_log *log, const uint8_t *data, size_t bytes,
                                       int64_t now_ms, kl_batch *batch) {
    kl_status status = kl_batch_check(data, bytes, batch);
    if (status) return kl_fail_prefix(status, "log %s", log->path);
    if (batch->base_offset < log->log_end) {
        status = begin_at(log, batch);
        if (status) return status;
    }
    if (batch->leader_epoch >= 0 && batch->leader_epoch > log->leader_epoch)
        log->leader_epoch = batch->leader_epoch;
    return kl_log_append_one_locked(log, batch, data, now_ms);
}

kl_status kl_log_append_follower(kl_log *log, const uint8_t *batches, size_t bytes,
                                 kl_appended *out) {
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0, 0};
    kl_status status = kl_log_enter_write(log);
    if (status) return status;
    int64_t now_ms = kl_now_ms();
    for (size_t pos = 0; !status && pos < bytes;) {
        kl_batch batch;
        status = append_follower_batch(log, batches + pos, bytes - pos, now_ms, &batch);
        if (status == KL_E_BUFFER_TOO_SMALL) {
            status = KL_OK; /* a fetch may end in the middle of a batch */
            break;
        }
        if (status) break;
        pos += (size_t)batch.batch_bytes;
        if (out->base_offset < 0) out->base_offset = batch.base_offset;
        out->last_offset = batch.last_offset;
        out->batch_count++;
    }
    out->log_start_offset = log->log_start;
    kl_log_leave(log);
    return status;
}
