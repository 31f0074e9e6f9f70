/* frame.h: a request's size field and header.
 *
 *   pos  bytes  field
 *     0      4  size           of what follows
 *     4      2  api key
 *     6      2  api version
 *     8      4  correlation id
 *    12      2  client id      its bytes, -1: null; not in version 0 of the header
 *    14      n
 *            1  tagged fields  only in version 2 of the header, that of flexible versions */
#ifndef KL_FRAME_H
#define KL_FRAME_H

#include "base/bytes.h"

enum {
    KL_SIZE_BYTES = 4,
    KL_API_PRODUCE = 0,
    KL_API_FETCH = 1,
    KL_API_SASL_HANDSHAKE = 17,
    KL_API_SASL_AUTHENTICATE = 36,
    KL_API_CONSUMER_GROUP_HEARTBEAT = 68,
    /* A response: size, correlation id, in version 1 of its header empty tagged fields. */
    KL_RESPONSE_HEADER_BYTES = 8
};

typedef struct {
    int16_t api_key;
    int16_t api_version;
    int32_t correlation_id;
    kl_span client_id; /* data NULL: null */
    size_t body_pos;   /* after the header */
} kl_header;

/* Parse the header of a frame (without its size field).  False: invalid. */
bool kl_header_parse(kl_span frame, kl_header *out);
/* The header of a frame that has none, but is a token of SASL as a whole, as after version 0 of
 * SaslHandshake: version -1 of SaslAuthenticate. */
static inline kl_header kl_header_of_token(void) {
    return (kl_header){.api_key = KL_API_SASL_AUTHENTICATE, .api_version = -1};
}
/* True if requests of this key and version have tagged fields: header version 2.  Includes unknown
 * versions; unknown keys have none. */
bool kl_header_flexible(int16_t api_key, int16_t api_version);

#endif
