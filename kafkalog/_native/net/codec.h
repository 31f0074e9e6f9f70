/* codec.h: protocol fields in requests and responses (KIP-482).
 *
 * A reader never leaves its span: a field that does not fit sets `bad` and reads as zero or empty
 * from then on, so a parser checks `bad` once, before it acts. */
#ifndef KL_CODEC_H
#define KL_CODEC_H

#include "base/bytes.h"

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    bool flexible; /* compact lengths, tagged fields */
    bool bad;
} kl_in;

static inline size_t kl_in_left(const kl_in *in) { return (size_t)(in->end - in->at); }

/* The next `bytes` bytes, in place; NULL: not enough. */
static inline const uint8_t *kl_in_take(kl_in *in, size_t bytes) {
    if (KL_UNLIKELY(in->bad || bytes > kl_in_left(in))) {
        in->bad = true;
        return NULL;
    }
    const uint8_t *at = in->at;
    in->at += bytes;
    return at;
}
static inline int8_t kl_in_i8(kl_in *in) {
    const uint8_t *p = kl_in_take(in, 1);
    return p ? (int8_t)*p : 0;
}
static inline int16_t kl_in_i16(kl_in *in) {
    const uint8_t *p = kl_in_take(in, 2);
    return p ? (int16_t)kl_get16(p) : 0;
}
static inline int32_t kl_in_i32(kl_in *in) {
    const uint8_t *p = kl_in_take(in, 4);
    return p ? (int32_t)kl_get32(p) : 0;
}
static inline int64_t kl_in_i64(kl_in *in) {
    const uint8_t *p = kl_in_take(in, 8);
    return p ? (int64_t)kl_get64(p) : 0;
}
static inline uint32_t kl_in_uvarint(kl_in *in) {
    uint32_t value;
    const uint8_t *behind = in->bad ? NULL : kl_get_uvarint(in->at, in->end, &value);
    if (KL_UNLIKELY(behind == NULL)) {
        in->bad = true;
        return 0;
    }
    in->at = behind;
    return value;
}
/* The next length, -1: null; `wide`: 4 bytes unless compact, otherwise 2. */
static inline int64_t kl_in_length(kl_in *in, bool wide) {
    if (in->flexible) return (int64_t)kl_in_uvarint(in) - 1;
    return wide ? kl_in_i32(in) : kl_in_i16(in);
}
/* Bytes or a string in place; data NULL: null.  As in Kafka, a compact string is limited to the
 * length of others. */
static inline kl_span kl_in_span(kl_in *in, bool wide) {
    int64_t bytes = kl_in_length(in, wide);
    if (KL_UNLIKELY(bytes < -1 || (!wide && bytes > INT16_MAX))) in->bad = true;
    if (bytes < 0) return (kl_span){NULL, 0};
    const uint8_t *data = kl_in_take(in, (size_t)bytes);
    return (kl_span){data, data ? (size_t)bytes : 0};
}
static inline kl_span kl_in_string(kl_in *in) { return kl_in_span(in, false); }
/* The number of elements, of at least `bytes_min` each; null is 0. */
static inline uint32_t kl_in_array(kl_in *in, size_t bytes_min) {
    int64_t count = kl_in_length(in, true);
    if (KL_UNLIKELY(count < -1 ||
                    (count > 0 && (uint64_t)count > kl_in_left(in) / bytes_min)))
        in->bad = true;
    return count > 0 && !in->bad ? (uint32_t)count : 0;
}
/* Skip tagged fields, if the version has any. */
static inline void kl_in_skip_tags(kl_in *in) {
    if (!in->flexible) return;
    for (uint32_t count = kl_in_uvarint(in); count > 0 && !in->bad; count--) {
        (void)kl_in_uvarint(in);
        kl_in_take(in, kl_in_uvarint(in));
    }
}

/* ---- writing: callers have made space -------------------------------------------------- */

enum { KL_UVARINT_BYTES_MAX = 5 };

static inline uint8_t *kl_out_i8(uint8_t *p, int8_t value) {
    *p = (uint8_t)value;
    return p + 1;
}
static inline uint8_t *kl_out_i16(uint8_t *p, int16_t value) {
    kl_put16(p, (uint16_t)value);
    return p + 2;
}
static inline uint8_t *kl_out_i32(uint8_t *p, int32_t value) {
    kl_put32(p, (uint32_t)value);
    return p + 4;
}
static inline uint8_t *kl_out_i64(uint8_t *p, int64_t value) {
    kl_put64(p, (uint64_t)value);
    return p + 8;
}
static inline uint8_t *kl_out_uvarint(uint8_t *p, uint32_t value) {
    return p + kl_put_uvarint(p, value);
}
static inline uint8_t *kl_out_bytes(uint8_t *p, const void *data, size_t bytes) {
    if (bytes) memcpy(p, data, bytes);
    return p + bytes;
}
/* The length of an array or bytes; -1: null. */
static inline uint8_t *kl_out_length(uint8_t *p, bool flexible, int64_t length) {
    if (flexible) return kl_out_uvarint(p, (uint32_t)(length + 1));
    return kl_out_i32(p, (int32_t)length);
}
/* data NULL: null. */
static inline uint8_t *kl_out_string(uint8_t *p, bool flexible, kl_span text) {
    int64_t length = text.data ? (int64_t)text.bytes : -1;
    if (flexible) p = kl_out_uvarint(p, (uint32_t)(length + 1));
    else p = kl_out_i16(p, (int16_t)length);
    return kl_out_bytes(p, text.data, text.bytes);
}
/* Empty tagged fields, if the version has any. */
static inline uint8_t *kl_out_no_tags(uint8_t *p, bool flexible) {
    if (flexible) *p++ = 0;
    return p;
}

#endif
