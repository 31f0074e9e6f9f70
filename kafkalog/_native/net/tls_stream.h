/* tls_stream.h: the calls of stream.h on an encrypted stream; for stream.c. */
#ifndef KL_TLS_STREAM_H
#define KL_TLS_STREAM_H

#include "stream.h"

ssize_t kl_tls_receive(kl_stream *stream, const struct iovec *to, int count, bool *drained);
ssize_t kl_tls_send(kl_stream *stream, const struct iovec *from, int count, bool more);
/* Through memory, unless the kernel encrypts. */
ssize_t kl_tls_send_file(kl_stream *stream, int file, int64_t pos, size_t bytes);
/* Tell the peer that nothing more comes, and free the memory. */
void kl_tls_end(kl_stream *stream);

#endif
