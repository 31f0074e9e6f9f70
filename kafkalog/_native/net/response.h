/* response.h: the memory and the pieces of files of a response.  request.h declares how handlers
 * put them. */
#ifndef KL_RESPONSE_H
#define KL_RESPONSE_H

#include "exchange.h"

/* Empty, but for room for the header.  False: no memory. */
bool kl_response_begin(kl_exchange *exchange);
/* Write size and header in front of a response that is put.  False: it is too large. */
bool kl_response_finish(kl_exchange *exchange, int32_t header_version);
/* Without any of it; what was not sent is let go. */
void kl_response_clear(kl_exchange *exchange);
/* Let the part that goes out go: it was sent. */
void kl_response_part_sent(kl_exchange *exchange);

#endif
