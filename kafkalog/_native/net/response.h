/* response.h: the memory and slices of a response.  request.h declares how handlers add them. */
#ifndef KL_RESPONSE_H
#define KL_RESPONSE_H

#include "exchange.h"

/* Empty, with space for the header.  False: no memory. */
bool kl_response_begin(kl_exchange *exchange);
/* Write size and header before a complete response.  False: it is too large. */
bool kl_response_finish(kl_exchange *exchange, int32_t header_version);
/* Discard it; drop slices that were not sent. */
void kl_response_clear(kl_exchange *exchange);
/* Drop the current part: it was sent. */
void kl_response_part_sent(kl_exchange *exchange);

#endif
