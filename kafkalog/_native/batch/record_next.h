/* record_next.h: kl_record_next inlined, for loops that cannot afford a call. */
#ifndef KL_RECORD_NEXT_H
#define KL_RECORD_NEXT_H

#include "record_parts.h"

/* A varint whose maximum length is readable. */
static inline const uint8_t *kl_get_varint_there(const uint8_t *p, int32_t *out) {
    uint32_t u;
    p = kl_get_uvarint_near(p, p + KL_VARINT_BYTES_MAX, &u);
    if (KL_LIKELY(p != NULL)) *out = (int32_t)((u >> 1) ^ (0U - (u & 1)));
    return p;
}

static inline const uint8_t *kl_record_prefix(const uint8_t *p, const uint8_t *end,
                                              int32_t *length, const uint8_t **body,
                                              kl_record_view *out) {
    if (KL_UNLIKELY(end - p < RECORD_PREFIX_BYTES_MAX))
        return kl_record_prefix_checked(p, end, length, body, out);
    p = kl_get_varint_there(p, length);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    *body = p++;
    p = kl_get_varlong(p, end, KL_VARLONG_BYTES_MAX, &out->timestamp_delta);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    p = kl_get_varint_there(p, &out->offset_delta);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    return kl_get_varint_there(p, &out->key_bytes);
}

/* kl_record_next, inline. */
static inline const uint8_t *kl_record_next_here(const uint8_t *p, const uint8_t *end,
                                                 bool check_headers, kl_record_view *out) {
    int32_t length;
    const uint8_t *body;
    p = kl_record_prefix(p, end, &length, &body, out);
    if (KL_UNLIKELY(p == NULL || length < 0 || length > end - body)) return NULL;
    const uint8_t *record_end = body + length;

    out->key = NULL;
    if (out->key_bytes >= 0) {
        if (KL_UNLIKELY(out->key_bytes > record_end - p)) return NULL;
        out->key = p;
        p += out->key_bytes;
    } else if (KL_UNLIKELY(out->key_bytes < -1)) {
        return NULL;
    }

    if (KL_LIKELY(record_end - p >= KL_VARINT_BYTES_MAX))
        p = kl_get_varint_there(p, &out->value_bytes);
    else p = p > record_end ? NULL : kl_get_varint(p, record_end, &out->value_bytes);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    out->value = NULL;
    if (out->value_bytes >= 0) {
        if (KL_UNLIKELY(out->value_bytes > record_end - p)) return NULL;
        out->value = p;
        p += out->value_bytes;
    } else if (KL_UNLIKELY(out->value_bytes < -1)) {
        return NULL;
    }

    p = kl_get_varint(p, record_end, &out->header_count);
    if (KL_UNLIKELY(p == NULL)) return NULL;
    out->headers = p;
    if (KL_LIKELY(out->header_count == 0)) return p == record_end ? p : NULL;
    if (out->header_count < 0 || out->header_count > (record_end - p) / HEADER_BYTES_MIN)
        return NULL;
    if (check_headers && !kl_record_headers_fill(out, record_end)) return NULL;
    return record_end;
}

#endif
