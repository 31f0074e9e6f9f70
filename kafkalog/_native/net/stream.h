/* stream.h: the bytes of a connection, encrypted or not.
 *
 * All reads, writes, watches and closes of a connection's socket are here and in tls_stream.c. A
 * stream belongs to the network thread of its connection. */
#ifndef KL_STREAM_H
#define KL_STREAM_H

#include <sys/uio.h>

#include "tls.h"

typedef struct {
    int fd; /* -1 once closed */

    kl_ssl *ssl; /* NULL: not encrypted, and nothing below is used */
    int error;   /* of the last call of the system that failed */
    bool heard;  /* the peer has sent something */
    bool dry;    /* the last read took all: more is an event */
    bool at_end; /* the peer sends no more */
    bool more;   /* more is sent at once */
    bool broken; /* failed for good: not even an end is sent */
    bool kernel; /* the kernel encrypts what is sent */
} kl_stream;

/* Take a connected, non-blocking socket.  `local`: not TCP; `send_buffer_bytes` -1: the system's
 * default. */
kl_stream kl_stream_of(int fd, bool local, int32_t send_buffer_bytes);
static inline bool kl_stream_is_open(const kl_stream *stream) { return stream->fd >= 0; }
/* Encrypt it from now on; the stream must not move in memory.  kl_stream_shake comes next.
 * KL_E_NO_MEMORY. */
kl_status kl_stream_encrypt(kl_stream *stream, const kl_tls *tls);
void kl_stream_close(kl_stream *stream);
/* In a forked child, where the parent goes on with it: send nothing, and keep the memory. */
void kl_stream_forget(kl_stream *stream);

/* What a handshake waits for. */
typedef enum { KL_SHAKE_DONE, KL_SHAKE_READS, KL_SHAKE_WRITES, KL_SHAKE_FAILED } kl_shake;
/* One step: as far as the received bytes go.  On KL_SHAKE_FAILED, kl_fail has the reason. */
kl_shake kl_stream_shake(kl_stream *stream);
/* The DER of the subject of the peer's certificate, to be released; NULL: it showed none.
 * KL_E_ARGUMENT: it is too long; KL_E_NO_MEMORY. */
kl_status kl_stream_subject(const kl_stream *stream, uint8_t **out, size_t *bytes);
/* True if received bytes wait in memory: for them there is no event. */
bool kl_stream_holds(const kl_stream *stream);

/* The next three return the number of bytes, or -1 with errno: EAGAIN, wait for an event; EINTR,
 * call again; otherwise it has failed.
 *
 * 0: the peer sends no more.  *drained: nothing is left, and more will be an event; EAGAIN without
 * it: call again once the socket is writable. */
ssize_t kl_stream_receive(kl_stream *stream, const struct iovec *to, int count,
                          bool *drained);
/* `more`: another call follows immediately.  After EAGAIN, the next call must begin with the same
 * bytes. */
ssize_t kl_stream_send(kl_stream *stream, struct iovec *from, int count, bool more);
/* From the page cache if possible.  0: the file is shorter. */
ssize_t kl_stream_send_file(kl_stream *stream, int file, int64_t pos, size_t bytes);

#endif
