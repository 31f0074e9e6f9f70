/* record_parts.c: see record_parts.h. */
#include "record_parts.h"

const uint8_t *kl_record_prefix_checked(const uint8_t *p, const uint8_t *end,
                                        int32_t *length, const uint8_t **body,
                                        kl_record_view *out) {
    p = kl_get_varint(p, end, length);
    if (p == NULL || p == end) return NULL;
    *body = p++; /* ignore attributes, as Kafka does */
    p = kl_get_varlong(p, end, KL_VARLONG_BYTES_MAX, &out->timestamp_delta);
    if (p == NULL) return NULL;
    p = kl_get_varint(p, end, &out->offset_delta);
    if (p == NULL) return NULL;
    return kl_get_varint(p, end, &out->key_bytes);
}

const uint8_t *kl_header_next(const uint8_t *p, const uint8_t *end, kl_header_view *out) {
    p = kl_get_varint(p, end, &out->name_bytes);
    if (p == NULL || out->name_bytes < 0 || out->name_bytes > end - p) return NULL;
    out->name = p;
    p = kl_get_varint(p + out->name_bytes, end, &out->value_bytes);
    if (p == NULL || out->value_bytes < -1) return NULL;
    if (out->value_bytes < 0) {
        out->value = NULL;
        return p;
    }
    if (out->value_bytes > end - p) return NULL;
    out->value = p;
    return p + out->value_bytes;
}

bool kl_record_headers_fill(const kl_record_view *view, const uint8_t *end) {
    const uint8_t *p = view->headers;
    kl_header_view header;
    for (int32_t i = 0; i < view->header_count && p; i++)
        p = kl_header_next(p, end, &header);
    return p == end;
}
