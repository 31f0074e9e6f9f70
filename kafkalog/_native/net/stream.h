/* stream.h: the bytes of a connection.
 *
 * All reads, writes, watches and closes of a connection's socket are here; encryption belongs here,
 * too. A stream belongs to the network thread of its connection. */
#ifndef KL_STREAM_H
#define KL_STREAM_H

#include <sys/uio.h>

#include "base/base.h"

typedef struct {
    int fd; /* -1 once closed */
} kl_stream;

/* Take a connected, non-blocking socket.  `local`: not TCP; `send_buffer_bytes` -1: the system's
 * default. */
kl_stream kl_stream_of(int fd, bool local, int32_t send_buffer_bytes);
static inline bool kl_stream_is_open(const kl_stream *stream) { return stream->fd >= 0; }
void kl_stream_close(kl_stream *stream);

/* Report readability, writability and the end to epoll, edge-triggered.  KL_E_IO. */
kl_status kl_stream_watch(const kl_stream *stream, int epoll_fd, void *data);
void kl_stream_ignore(const kl_stream *stream, int epoll_fd);

/* The next three return the number of bytes, or -1 with errno: EAGAIN, wait for an event; EINTR,
 * call again; otherwise it has failed.
 *
 * 0: the peer sends no more.  *drained: nothing is left, and more will be an event. */
ssize_t kl_stream_receive(kl_stream *stream, const struct iovec *to, int count,
                          bool *drained);
/* `more`: another call follows immediately. */
ssize_t kl_stream_send(kl_stream *stream, struct iovec *from, int count, bool more);
/* From the page cache if possible.  0: the file is shorter. */
ssize_t kl_stream_send_file(kl_stream *stream, int file, int64_t pos, size_t bytes);

#endif
