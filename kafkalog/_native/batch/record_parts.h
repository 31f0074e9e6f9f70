/* record_parts.h: the parts of kl_record_next that are not inlined: fields near the end of the
 * data, headers. */
#ifndef KL_RECORD_PARTS_H
#define KL_RECORD_PARTS_H

#include "record.h"

/* Maximum size of the fixed fields up to the key's length: length 5, attributes 1, timestamp delta
 * 10, offset delta 5, key length 5. */
enum { RECORD_PREFIX_BYTES_MAX = 26 };
/* Minimum size of a header: two lengths. */
enum { HEADER_BYTES_MIN = 2 };

/* The fields before the key, with a bounds check for each. */
const uint8_t *kl_record_prefix_checked(const uint8_t *p, const uint8_t *end,
                                        int32_t *length, const uint8_t **body,
                                        kl_record_view *out);
/* True if the headers end exactly at `end`. */
bool kl_record_headers_fill(const kl_record_view *view, const uint8_t *end);

#endif
