/* stream.c: see stream.h. */
#include "stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "tls_stream.h"

kl_stream kl_stream_of(int fd, bool local, int32_t send_buffer_bytes) {
    static const int on = 1;
    KL_ASSERT(fd >= 0);
    if (!local) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (send_buffer_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
    return (kl_stream){.fd = fd};
}

void kl_stream_close(kl_stream *stream) {
    KL_ASSERT(stream->fd >= 0);
    if (stream->ssl) kl_tls_end(stream);
    kl_stream_forget(stream);
}

void kl_stream_forget(kl_stream *stream) {
    close(stream->fd);
    stream->fd = -1;
}

ssize_t kl_stream_receive(kl_stream *stream, const struct iovec *to, int count,
                          bool *drained) {
    KL_ASSERT(count > 0);
    if (stream->ssl) return kl_tls_receive(stream, to, count, drained);
    size_t room = 0;
    for (int i = 0; i < count; i++) room += to[i].iov_len;
    ssize_t got =
        count == 1 ? recv(stream->fd, to->iov_base, room, 0) : readv(stream->fd, to, count);
    *drained = got < 0 ? errno == EAGAIN : (size_t)got < room;
    return got;
}

ssize_t kl_stream_send(kl_stream *stream, struct iovec *from, int count, bool more) {
    KL_ASSERT(count > 0);
    if (stream->ssl) return kl_tls_send(stream, from, count, more);
    struct msghdr message = {.msg_iov = from};
    message.msg_iovlen = (__typeof__(message.msg_iovlen))count;
    int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    return count == 1 ? send(stream->fd, from->iov_base, from->iov_len, flags)
                      : sendmsg(stream->fd, &message, flags);
}

ssize_t kl_stream_send_file(kl_stream *stream, int file, int64_t pos, size_t bytes) {
    KL_ASSERT(pos >= 0 && bytes > 0);
    if (stream->ssl) return kl_tls_send_file(stream, file, pos, bytes);
    off_t at = (off_t)pos;
    return kl_io->sendfile(stream->fd, file, &at, bytes);
}
