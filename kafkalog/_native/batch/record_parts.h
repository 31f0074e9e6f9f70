/* record_parts.h: what the step over a record leaves to a call: its fields near the end of the
 * bytes, its headers. */
#ifndef KL_RECORD_PARTS_H
#define KL_RECORD_PARTS_H

#include "record.h"

/* Bytes that the fixed fields up to the key's length can take at most: length 5,
 * attributes 1, timestamp delta 10, offset delta 5, key length 5. */
enum { RECORD_PREFIX_BYTES_MAX = 26 };
/* Fewest bytes of a header: two lengths. */
enum { HEADER_BYTES_MIN = 2 };

/* The fields before the key, whose bytes may run out anywhere. */
const uint8_t *kl_record_prefix_checked(const uint8_t *p, const uint8_t *end,
                                        int32_t *length, const uint8_t **body,
                                        kl_record_view *out);
/* Whether the headers end where the record does. */
bool kl_record_headers_fill(const kl_record_view *view, const uint8_t *end);

#endif
