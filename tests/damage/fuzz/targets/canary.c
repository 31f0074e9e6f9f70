/* The canary: a decoder of records with a bug that a working fuzzer finds within seconds.
 * The bug is after the checksum and in one kind of record only: a null header value is
 * taken for one of a byte. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/batch/record.h"

static volatile uint8_t seen; /* so that no read is optimised away */

static uint8_t sum_headers(const kl_record_view *record, const uint8_t *end) {
    const uint8_t *p = record->headers;
    uint8_t sum = 0;
    for (int32_t i = 0; i < record->header_count && p; i++) {
        kl_header_view header;
        p = kl_header_next(p, end, &header);
        if (p && header.value_bytes < 0)
            sum ^= *p; /* one past the end of the last record */
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_batch batch;
    if (kl_batch_check(data, bytes, &batch) || kl_batch_codec(&batch)) return 0;
    size_t left = (size_t)batch.batch_bytes - POS_RECORDS;
    uint8_t *records = fuzz_copy((kl_span){data + POS_RECORDS, left});
    const uint8_t *p = records;
    uint8_t sum = 0;
    for (int32_t i = 0; i < batch.record_count && p; i++) {
        kl_record_view record;
        p = kl_record_next(p, records + left, true, &record);
        if (p) sum ^= sum_headers(&record, p);
    }
    free(records);
    seen = sum;
    return 0;
}
