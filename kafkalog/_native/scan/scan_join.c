/* scan_join.c: joins small compressed batches, so that Python decompresses many in one call. */
#include "scan.h"

enum { CODEC_ZSTD = 4 }; /* in a batch's attributes */

kl_status kl_scan_join(kl_scan *scan, const kl_compressed *compressed, int32_t count,
                       size_t max_bytes, kl_joined *out) {
    *out = (kl_joined){.count = 0};
    scan->joined.bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        const kl_compressed *next = &compressed[i];
        uint64_t content_bytes;
        if (next->codec != CODEC_ZSTD ||
            kl_zstd_frame(next->data, next->bytes, &content_bytes) != next->bytes ||
            content_bytes == 0 || content_bytes > max_bytes - out->records_bytes)
            break;
        kl_status status = kl_buffer_append(&scan->joined, next->data, next->bytes);
        if (status) return status;
        out->records_bytes += (size_t)content_bytes;
        out->count++;
    }
    out->data = scan->joined.data;
    out->bytes = scan->joined.bytes;
    return KL_OK;
}

kl_status kl_scan_inflated_joined(kl_scan *scan, const kl_joined *joined,
                                  const uint8_t *records) {
    size_t pos = 0, done = 0;
    for (int32_t i = 0; i < joined->count; i++) {
        uint64_t content_bytes;
        size_t bytes =
            kl_zstd_frame(joined->data + pos, joined->bytes - pos, &content_bytes);
        if (bytes == 0 || content_bytes > joined->records_bytes - done)
            return kl_fail(KL_E_ARGUMENT, "batch %d of %d is not one that was joined", i,
                           joined->count);
        kl_status status = kl_scan_inflated(scan, scan->pending_next, records + done,
                                            (size_t)content_bytes);
        if (status) return status;
        pos += bytes;
        done += (size_t)content_bytes;
    }
    return KL_OK;
}
