/* bytes.h: big-endian numbers and varints, plain and zig-zag. */
#ifndef KL_BYTES_H
#define KL_BYTES_H

#include "base.h"

static inline uint16_t kl_get16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap16(v);
}
static inline uint32_t kl_get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}
static inline uint64_t kl_get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap64(v);
}
static inline void kl_put16(uint8_t *p, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(p, &v, sizeof v);
}
static inline void kl_put32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, sizeof v);
}
static inline void kl_put64(uint8_t *p, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(p, &v, sizeof v);
}
KL_STATIC_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian machine");

enum { KL_VARINT_BYTES_MAX = 5, KL_VARLONG_BYTES_MAX = 10 };

static inline uint64_t kl_zigzag(int64_t v) {
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t kl_unzigzag(uint64_t v) {
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* Bytes that kl_put_varint writes for `v`. */
static inline size_t kl_varint_bytes(int64_t v) {
    uint64_t u = kl_zigzag(v) | 1;
    return (size_t)(70 - __builtin_clzll(u)) / 7;
}
/* Write `u` at `p` (up to 10 bytes); returns its size. */
static inline size_t kl_put_uvarint(uint8_t *p, uint64_t u) {
    size_t n = 0;
    while (u >= 0x80) {
        p[n++] = (uint8_t)(u | 0x80);
        u >>= 7;
    }
    p[n++] = (uint8_t)u;
    return n;
}
static inline size_t kl_put_varint(uint8_t *p, int64_t v) {
    return kl_put_uvarint(p, kl_zigzag(v));
}
/* Read a varint of at most `bytes_max` bytes before `end`; returns the position after it, or NULL
 * if it is incomplete or too long. */
static inline const uint8_t *kl_get_uvarlong(const uint8_t *p, const uint8_t *end,
                                             int bytes_max, uint64_t *out) {
    if (KL_LIKELY(p < end && *p < 0x80)) {
        *out = *p;
        return p + 1;
    }
    uint64_t u = 0;
    for (int i = 0; i < bytes_max && p < end; i++) {
        uint8_t b = *p++;
        u |= (uint64_t)(b & 0x7f) << (7 * i);
        if (b < 0x80) {
            *out = u;
            return p;
        }
    }
    return NULL;
}
/* A 32-bit varint: at most 5 bytes, and a value that fits. */
static inline const uint8_t *kl_get_uvarint(const uint8_t *p, const uint8_t *end,
                                            uint32_t *out) {
    uint64_t u;
    p = kl_get_uvarlong(p, end, KL_VARINT_BYTES_MAX, &u);
    if (KL_UNLIKELY(p == NULL || u > UINT32_MAX)) return NULL;
    *out = (uint32_t)u;
    return p;
}
/* The same if at least two bytes are readable: up to 16,383 without a loop. */
static inline const uint8_t *kl_get_uvarint_near(const uint8_t *p, const uint8_t *end,
                                                 uint32_t *out) {
    uint32_t u = p[0];
    if (KL_LIKELY(u < 0x80)) {
        *out = u;
        return p + 1;
    }
    if (KL_LIKELY(p[1] < 0x80)) {
        *out = (u & 0x7f) | (uint32_t)p[1] << 7;
        return p + 2;
    }
    return kl_get_uvarint(p, end, out);
}
/* Zig-zag varints. */
static inline const uint8_t *kl_get_varlong(const uint8_t *p, const uint8_t *end,
                                            int bytes_max, int64_t *out) {
    uint64_t u;
    p = kl_get_uvarlong(p, end, bytes_max, &u);
    if (KL_LIKELY(p != NULL)) *out = kl_unzigzag(u);
    return p;
}
static inline const uint8_t *kl_get_varint(const uint8_t *p, const uint8_t *end,
                                           int32_t *out) {
    int64_t v;
    p = kl_get_varlong(p, end, KL_VARINT_BYTES_MAX, &v);
    if (KL_UNLIKELY(p == NULL || v != (int32_t)v)) return NULL;
    *out = (int32_t)v;
    return p;
}

#endif
