/* tls_stream.c: see tls_stream.h, and stream.h for the handshake. */
#include "tls_stream.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/io.h"

enum {
    RECORD_BYTES = 16 << 10,   /* of plaintext: the largest record of TLS */
    RECEIVE_BYTES = 256 << 10, /* per call: others have their turn */
    FILE_BYTES = 64 << 10,     /* read from a file at a time */
    SUBJECT_BYTES_MAX = 1024
};

/* ---- the socket as OpenSSL sees it --------------------------------------------------------- */

/* Our own: the system's would raise signals, and not say whether a read took all. */
static kl_bio_method *socket_method;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int from_socket(kl_bio *bio, char *to, int room) {
    kl_stream *stream = kl_ossl.BIO_get_data(bio);
    kl_ossl.BIO_clear_flags(bio, KL_BIO_FLAGS_ALL);
    ssize_t got;
    do got = recv(stream->fd, to, (size_t)room, 0);
    while (got < 0 && errno == EINTR);
    stream->dry = got < 0 ? errno == EAGAIN : got < room;
    stream->at_end = got == 0;
    stream->heard = stream->heard || got > 0;
    if (got >= 0) return (int)got;
    stream->error = errno;
    if (errno == EAGAIN)
        kl_ossl.BIO_set_flags(bio, KL_BIO_FLAGS_READ | KL_BIO_FLAGS_SHOULD_RETRY);
    return -1;
}

static int to_socket(kl_bio *bio, const char *from, int bytes) {
    kl_stream *stream = kl_ossl.BIO_get_data(bio);
    kl_ossl.BIO_clear_flags(bio, KL_BIO_FLAGS_ALL);
    int flags = MSG_NOSIGNAL | (stream->more ? MSG_MORE : 0);
    ssize_t sent;
    do sent = send(stream->fd, from, (size_t)bytes, flags);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return (int)sent;
    stream->error = errno;
    if (errno == EAGAIN)
        kl_ossl.BIO_set_flags(bio, KL_BIO_FLAGS_WRITE | KL_BIO_FLAGS_SHOULD_RETRY);
    return -1;
}

static long control_socket(kl_bio *bio, int command, long number, void *pointer) {
    (void)number, (void)pointer;
    const kl_stream *stream = kl_ossl.BIO_get_data(bio);
    if (command == KL_BIO_CTRL_EOF) return stream->at_end;
    return command == KL_BIO_CTRL_FLUSH;
}

static void make_method(void) {
    kl_bio_method *method =
        kl_ossl.BIO_meth_new(KL_BIO_TYPE_SOURCE_SINK, "kafkalog socket");
    if (method == NULL) return;
    kl_ossl.BIO_meth_set_read(method, from_socket);
    kl_ossl.BIO_meth_set_write(method, to_socket);
    kl_ossl.BIO_meth_set_ctrl(method, control_socket);
    socket_method = method;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* The kernel can encrypt only what goes through OpenSSL's own socket. */
static bool connect_bio(kl_stream *stream, kl_ssl *ssl, bool kernel) {
    if (kernel) return kl_ossl.SSL_set_fd(ssl, stream->fd) == 1;
    KL_ASSERT(pthread_once(&once, make_method) == 0);
    kl_bio *bio = socket_method ? kl_ossl.BIO_new(socket_method) : NULL;
    if (bio == NULL) return false;
    kl_ossl.BIO_set_data(bio, stream);
    kl_ossl.BIO_set_init(bio, 1);
    kl_ossl.SSL_set_bio(ssl, bio, bio);
    return true;
}

kl_status kl_stream_encrypt(kl_stream *stream, const kl_tls *tls) {
    KL_ASSERT(stream->fd >= 0 && stream->ssl == NULL);
    kl_ssl *ssl = kl_ossl.SSL_new(tls->context);
    if (ssl == NULL || !connect_bio(stream, ssl, tls->kernel)) {
        if (ssl) kl_ossl.SSL_free(ssl);
        kl_ossl.ERR_clear_error();
        return kl_fail(KL_E_NO_MEMORY, "no memory for TLS of a connection");
    }
    kl_ossl.SSL_set_accept_state(ssl);
    stream->ssl = ssl;
    stream->heard = tls->kernel; /* there, nobody notices */
    stream->broken = true; /* until the handshake is over: an end would be out of place */
    return KL_OK;
}

void kl_tls_end(kl_stream *stream) {
    KL_ASSERT(stream->ssl != NULL);
    stream->more = false;
    if (!stream->broken) (void)kl_ossl.SSL_shutdown(stream->ssl);
    kl_ossl.SSL_free(stream->ssl);
    kl_ossl.ERR_clear_error();
    stream->ssl = NULL;
}

/* ---- the handshake ------------------------------------------------------------------------- */

static kl_shake explain(kl_stream *stream) {
    long verified = kl_ossl.SSL_get_verify_result(stream->ssl);
    unsigned long error = kl_ossl.ERR_get_error();
    const char *reason = error ? kl_ossl.ERR_reason_error_string(error) : NULL;
    if (reason && verified != KL_X509_V_OK)
        kl_fail(KL_E_IO, "%s: %s", reason, kl_ossl.X509_verify_cert_error_string(verified));
    else if (reason) kl_fail(KL_E_IO, "%s", reason);
    else if (stream->error && !stream->at_end)
        kl_fail_errno(stream->error, "the connection failed");
    else kl_fail(KL_E_IO, "the client closed the connection");
    kl_ossl.ERR_clear_error();
    return KL_SHAKE_FAILED;
}

kl_shake kl_stream_shake(kl_stream *stream) {
    KL_ASSERT(stream->ssl != NULL && stream->broken); /* not over yet */
    kl_ossl.ERR_clear_error();
    stream->error = 0;
    int done = kl_ossl.SSL_do_handshake(stream->ssl);
    if (done == 1) {
        stream->broken = false;
        kl_bio *out = kl_ossl.SSL_get_wbio(stream->ssl);
        stream->kernel = kl_ossl.BIO_ctrl(out, KL_BIO_CTRL_GET_KTLS_SEND, 0, NULL) > 0;
        return KL_SHAKE_DONE;
    }
    switch (kl_ossl.SSL_get_error(stream->ssl, done)) {
    case KL_SSL_ERROR_WANT_READ: return KL_SHAKE_READS;
    case KL_SSL_ERROR_WANT_WRITE: return KL_SHAKE_WRITES;
    default: return explain(stream);
    }
}

kl_status kl_stream_subject(const kl_stream *stream, uint8_t **out, size_t *bytes) {
    *out = NULL;
    *bytes = 0;
    kl_x509 *certificate = kl_ossl.SSL_get1_peer_certificate(stream->ssl);
    if (certificate == NULL) return KL_OK;
    const void *name = kl_ossl.X509_get_subject_name(certificate);
    int length = kl_ossl.i2d_X509_NAME(name, NULL);
    kl_status status = KL_OK;
    if (length < 0 || length > SUBJECT_BYTES_MAX)
        status = kl_fail(KL_E_ARGUMENT,
                         "the subject of its certificate has %d bytes, at most %d", length,
                         SUBJECT_BYTES_MAX);
    else if ((*out = kl_alloc((size_t)length + 1)) == NULL)
        status = kl_fail(KL_E_NO_MEMORY, "no memory for a certificate's subject");
    else {
        uint8_t *at = *out;
        *bytes = (size_t)kl_ossl.i2d_X509_NAME(name, &at);
        KL_ASSERT(*bytes == (size_t)length);
    }
    kl_ossl.X509_free(certificate);
    kl_ossl.ERR_clear_error();
    return status;
}

/* ---- bytes --------------------------------------------------------------------------------- */

bool kl_stream_holds(const kl_stream *stream) {
    return stream->ssl && (!stream->dry || kl_ossl.SSL_has_pending(stream->ssl));
}

/* Nothing was transferred: -1 with errno, or 0 at the end. */
static ssize_t nothing(kl_stream *stream, bool *drained) {
    switch (kl_ossl.SSL_get_error(stream->ssl, 0)) {
    case KL_SSL_ERROR_WANT_READ: *drained = true; break;
    case KL_SSL_ERROR_WANT_WRITE: break;
    case KL_SSL_ERROR_ZERO_RETURN: return 0;
    default:
        kl_ossl.ERR_clear_error();
        stream->broken = true;
        errno = EPROTO;
        return -1;
    }
    errno = EAGAIN;
    return -1;
}

ssize_t kl_tls_receive(kl_stream *stream, const struct iovec *to, int count,
                       bool *drained) {
    size_t total = 0;
    *drained = false;
    kl_ossl.ERR_clear_error();
    for (int i = 0; i < count; i++)
        for (size_t pos = 0; pos < to[i].iov_len;) {
            size_t got;
            if (total >= RECEIVE_BYTES) return (ssize_t)total;
            if (!kl_ossl.SSL_read_ex(stream->ssl, (uint8_t *)to[i].iov_base + pos,
                                     to[i].iov_len - pos, &got)) {
                ssize_t result = nothing(stream, drained);
                return total > 0 ? (ssize_t)total : result;
            }
            pos += got;
            total += got;
            *drained = !kl_stream_holds(stream);
            if (*drained) return (ssize_t)total;
        }
    return (ssize_t)total;
}

/* Send at most a record; the bytes of it, or -1 with errno. */
static ssize_t send_record(kl_stream *stream, const void *data, size_t bytes) {
    size_t sent;
    bool drained = false;
    KL_ASSERT(bytes > 0); /* OpenSSL's result for none is not defined */
    kl_ossl.ERR_clear_error();
    if (kl_ossl.SSL_write_ex(stream->ssl, data, bytes, &sent)) return (ssize_t)sent;
    ssize_t result = nothing(stream, &drained);
    if (result == 0 ||
        drained) { /* ended, or it wants a renegotiation: neither can go on */
        stream->broken = true;
        errno = EPIPE;
    }
    return -1;
}

/* Where the unsent bytes begin. */
typedef struct {
    const struct iovec *from;
    int count;
    size_t pos; /* in *from */
} place;

static void skip(place *at, size_t bytes) {
    at->pos += bytes;
    KL_ASSERT(at->count > 0 || at->pos == 0);
    while (at->count > 0 && at->pos >= at->from->iov_len) {
        at->pos -= at->from->iov_len;
        at->from++;
        at->count--;
    }
}

/* Copy up to a record from several pieces, so that small ones share it. */
static size_t gather(place at, uint8_t *to) {
    size_t bytes = 0;
    while (at.count > 0 && bytes < RECORD_BYTES) {
        size_t piece = KL_MIN(at.from->iov_len - at.pos, RECORD_BYTES - bytes);
        memcpy(to + bytes, (const uint8_t *)at.from->iov_base + at.pos, piece);
        bytes += piece;
        skip(&at, piece);
    }
    KL_ASSERT(bytes <= RECORD_BYTES);
    return bytes;
}

ssize_t kl_tls_send(kl_stream *stream, const struct iovec *from, int count, bool more) {
    uint8_t gathered[RECORD_BYTES];
    place at = {from, count, 0};
    ssize_t total = 0;
    stream->more = more;
    skip(&at, 0);
    while (at.count > 0) {
        size_t bytes = at.from->iov_len - at.pos;
        const uint8_t *data = (const uint8_t *)at.from->iov_base + at.pos;
        if (bytes < RECORD_BYTES && at.count > 1) {
            bytes = gather(at, gathered);
            data = gathered;
        }
        ssize_t sent = send_record(stream, data, bytes);
        if (sent < 0) return total > 0 ? total : -1;
        total += sent;
        skip(&at, (size_t)sent);
    }
    return total;
}

ssize_t kl_tls_send_file(kl_stream *stream, int file, int64_t pos, size_t bytes) {
    stream->more = false;
    if (stream->kernel) {
        kl_ossl.ERR_clear_error();
        ssize_t sent = kl_ossl.SSL_sendfile(stream->ssl, file, (off_t)pos, bytes, 0);
        bool drained;
        return sent > 0 ? sent : nothing(stream, &drained);
    }
    uint8_t data[FILE_BYTES];
    ssize_t got = kl_io->pread(file, data, KL_MIN(bytes, sizeof data), (off_t)pos);
    ssize_t total = 0;
    while (total < got) {
        ssize_t sent = send_record(stream, data + total, (size_t)(got - total));
        if (sent < 0) return total > 0 ? total : -1;
        total += sent;
    }
    return got <= 0 ? got : total;
}
