/* Target: file names, text in UTF-8, varints and checksums, each checked in two ways. */
#include "fuzz.h"

#include "../../../../kafkalog/_native/segment/index.h"
#include "../../../../kafkalog/_native/scan/scan.h"

static void check_name(kl_span input) {
    char name[KL_NAME_BYTES * 2] = {0};
    char again[KL_NAME_BYTES];
    int64_t base;
    if (input.bytes >= sizeof name) return;
    if (input.bytes) memcpy(name, input.data, input.bytes);
    if (!kl_segment_name_parse(name, ".log", &base)) return;
    WANT(base >= 0);
    kl_segment_name(again, base, ".log");
    WANT(strcmp(name, again) == 0);
}

static void check_text(const uint8_t *p, const uint8_t *end) {
    bool all_valid = true;
    const uint8_t *begin = p;
    while (p < end) {
        bool valid;
        size_t bytes = kl_utf8_next(p, end, &valid);
        WANT(bytes >= 1 && bytes <= 4 && bytes <= (size_t)(end - p));
        all_valid = all_valid && valid;
        p += bytes;
    }
    WANT(kl_utf8_valid(begin, (size_t)(end - begin)) == all_valid);
}

static void check_numbers(const uint8_t *p, const uint8_t *end) {
    int64_t wide;
    int32_t narrow;
    uint8_t out[KL_VARLONG_BYTES_MAX];
    const uint8_t *wide_end = kl_get_varlong(p, end, KL_VARLONG_BYTES_MAX, &wide);
    const uint8_t *narrow_end = kl_get_varint(p, end, &narrow);
    if (narrow_end) WANT(wide_end == narrow_end && wide == narrow);
    if (wide_end == NULL) return;
    size_t bytes = kl_put_varint(out, wide);
    WANT(bytes == kl_varint_bytes(wide) && bytes <= (size_t)(wide_end - p));
    WANT(kl_get_varlong(out, out + bytes, KL_VARLONG_BYTES_MAX, &wide) == out + bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    check_name((kl_span){data, bytes});
    check_text(data, data + bytes);
    check_numbers(data, data + bytes);
    WANT(kl_crc32c(data, bytes) == kl_crc32c_portable(data, bytes));
    return 0;
}
