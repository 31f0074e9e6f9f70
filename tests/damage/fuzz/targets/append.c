/* Target: whole batches as clients and leaders send them: accepted ones can be read, and
 * Kafka's rules for them hold. */
#include "log.h"

static void check_batches(kl_log *log, const kl_appended *out, bool follower) {
    uint8_t *buffer = malloc(FUZZ_READ_BYTES);
    kl_read read;
    int64_t offset = out->base_offset;
    int32_t seen = 0;
    for (; offset <= out->last_offset; offset = read.next_offset) {
        WANT(kl_log_read(log, offset, -1, KL_LOG_END, 1, buffer, FUZZ_READ_BYTES, &read) ==
             KL_OK);
        WANT(read.bytes > 0 && read.next_offset > offset);
        for (size_t pos = 0; pos < read.bytes; seen++) {
            kl_batch batch;
            WANT(kl_batch_check(buffer + pos, read.bytes - pos, &batch) == KL_OK);
            if (!follower) WANT(batch.record_count == batch.last_offset_delta + 1);
            if (!follower && kl_batch_codec(&batch) == 0)
                WANT(kl_records_check(&batch, buffer + pos + POS_RECORDS,
                                      (size_t)batch.batch_bytes - POS_RECORDS, 1, NULL,
                                      NULL) == KL_OK);
            pos += (size_t)batch.batch_bytes;
        }
    }
    WANT(offset == out->last_offset + 1);
    WANT(out->duplicate || seen >= out->batch_count);
    free(buffer);
}

static kl_log *open_log(const kl_log_config *config, bool clean) {
    kl_log *log;
    kl_recovery recovery;
    kl_open how = fuzz_open_for_writing();
    how.clean = clean;
    WANT(kl_log_open(fuzz_dir()->path, config, &how, NULL, &log, &recovery) == KL_OK);
    WANT(recovery.truncated_bytes == 0);
    return log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < FUZZ_PREFIX_BYTES) return 0;
    kl_span prefix = {data, FUZZ_PREFIX_BYTES};
    kl_log_config config = fuzz_config(&prefix);
    uint8_t flags = fuzz_u8(&prefix);
    bool follower = flags & 1;
    kl_append_options options = {.origin = flags >> 1 & 1,
                                 .leader_epoch = flags & 4 ? fuzz_u8(&prefix) % 4 : -1,
                                 .one_batch = flags >> 3 & 1,
                                 .now_ms = flags & 16 ? fuzz_i64(&prefix) : -1};
    kl_appended out;
    kl_log_state before, after;
    fuzz_empty_dir();
    kl_log *log = open_log(&config, false);
    uint8_t *copy =
        fuzz_copy((kl_span){data + FUZZ_PREFIX_BYTES, bytes - FUZZ_PREFIX_BYTES});
    for (int again = 0; again < 2; again++) {
        WANT(kl_log_get(log, &before) == KL_OK);
        kl_status status =
            follower ? kl_log_append_follower(log, copy, bytes - FUZZ_PREFIX_BYTES, &out)
                     : kl_log_append_batches(log, copy, bytes - FUZZ_PREFIX_BYTES, &options,
                                             &out);
        WANT(status == KL_OK || status >= KL_E_OFFSET_OUT_OF_RANGE);
        WANT(kl_log_get(log, &after) == KL_OK && !after.offline);
        if (out.batch_count) WANT(out.last_offset == after.log_end_offset - 1);
        else WANT(after.log_end_offset == before.log_end_offset);
        if (out.base_offset >= 0) check_batches(log, &out, follower);
        if (follower && !status && out.batch_count) /* never twice */
            WANT(kl_log_append_follower(log, copy, bytes - FUZZ_PREFIX_BYTES, &out) !=
                 KL_OK);
    }
    free(copy);
    WANT(kl_log_get(log, &before) == KL_OK);
    bool clean = flags & 32;
    if (clean) WANT(kl_log_close(log) == KL_OK);
    else kl_log_abandon(log);
    kl_log_free(log);
    log = open_log(&config, clean);
    WANT(kl_log_get(log, &after) == KL_OK);
    WANT(after.log_end_offset == before.log_end_offset);
    WANT(after.last_stable_offset == before.last_stable_offset);
    WANT(after.producer_count == before.producer_count);
    fuzz_look(log, &prefix, true);
    fuzz_close(log);
    return 0;
}
