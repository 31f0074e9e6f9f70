/* Target: a batch's header, its checksum and its records. */
#include "fuzz.h"

/* The writer of headers writes back exactly what the parser read. */
static void put_again(const uint8_t *data, const kl_batch *batch) {
    size_t size = (size_t)batch->batch_bytes;
    uint8_t *copy = fuzz_copy((kl_span){data, size});
    kl_batch again;
    kl_batch_put_header(copy, size, batch);
    WANT(memcmp(copy, data, size) == 0);
    kl_batch_set_time(copy, size, 12345, true);
    WANT(kl_batch_check(copy, size, &again) == KL_OK);
    WANT(again.max_timestamp == 12345 && again.attributes & KL_ATTR_LOG_APPEND_TIME);
    kl_batch_assign(copy, 77, 3);
    WANT(kl_batch_check(copy, size, &again) == KL_OK);
    WANT(again.base_offset == 77 && again.leader_epoch == 3);
    WANT(again.record_count == batch->record_count);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_batch parsed, checked;
    memset(&parsed, 0, sizeof parsed); /* compared below, padding included */
    memset(&checked, 0, sizeof checked);
    kl_status parse = kl_batch_parse(data, bytes, &parsed);
    kl_status check = kl_batch_check(data, bytes, &checked);
    WANT(parse == KL_OK || check == parse);
    WANT(check == KL_OK || kl_error_message()[0] != 0);
    if (parse == KL_E_BUFFER_TOO_SMALL && bytes >= POS_RECORDS)
        WANT((size_t)parsed.batch_bytes > bytes);
    if (parse != KL_OK) return 0;
    WANT((size_t)parsed.batch_bytes <= bytes && parsed.batch_bytes >= POS_RECORDS);
    WANT(parsed.base_offset >= 0 && parsed.last_offset >= parsed.base_offset);
    WANT(parsed.last_offset < INT64_MAX && parsed.record_count >= 0);
    if (check != KL_OK) return 0;
    WANT(memcmp(&parsed, &checked, sizeof parsed) == 0);
    put_again(data, &checked);
    int32_t type, epoch;
    if (kl_batch_is_control(&checked))
        (void)kl_batch_control(&checked, data, &type, &epoch);
    if (kl_batch_codec(&checked) == 0)
        fuzz_records(&checked, data + POS_RECORDS,
                     (size_t)checked.batch_bytes - POS_RECORDS);
    return 0;
}
