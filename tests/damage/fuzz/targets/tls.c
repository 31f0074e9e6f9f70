/* Target: TLS between a client and the stream of a connection: someone in the middle cuts what the
 * client sends into pieces, changes, inserts, repeats and leaves out bytes, and ends it anywhere.
 * What the server receives is the beginning of what the client has sent, all of it if nothing was
 * changed. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../../../kafkalog/_native/net/stream.h"
#include "fuzz.h"
#include "tls_key.h"

enum { SENT_MAX = 64 << 10, STEPS_MAX = 400, PIECE_MAX = 500 };

/* ---- the client: OpenSSL over memory ----------------------------------------------------- */

static struct {
    const void *(*method)(void);
    const void *(*memory)(void);
    void (*set_connect)(kl_ssl *);
    int (*renegotiate)(kl_ssl *);
    long (*control)(kl_ssl *, int, long, void *);
    int (*read)(kl_bio *, void *, int);
    int (*write)(kl_bio *, const void *, int);
} client_ossl;
static kl_ssl_ctx *client_context;
static kl_tls *tls;

static void *found(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW);
    WANT(handle != NULL);
    void *function = dlsym(handle, name);
    WANT(function != NULL);
    return function;
}

static void load(void) {
    if (tls != NULL) return;
    kl_pem pem = {(const uint8_t *)TLS_KEY, sizeof TLS_KEY - 1};
    kl_tls_config config = {.chain = pem, .key = pem, .suites = "", .oldest = 12, .newest = 13};
    WANT(kl_tls_new(&config, &tls) == KL_OK);
    *(void **)&client_ossl.method = found("libssl.so.3", "TLS_client_method");
    *(void **)&client_ossl.set_connect = found("libssl.so.3", "SSL_set_connect_state");
    *(void **)&client_ossl.renegotiate = found("libssl.so.3", "SSL_renegotiate");
    *(void **)&client_ossl.control = found("libssl.so.3", "SSL_ctrl");
    *(void **)&client_ossl.memory = found("libcrypto.so.3", "BIO_s_mem");
    *(void **)&client_ossl.read = found("libcrypto.so.3", "BIO_read");
    *(void **)&client_ossl.write = found("libcrypto.so.3", "BIO_write");
    client_context = kl_ossl.SSL_CTX_new(client_ossl.method());
    WANT(client_context != NULL);
}

typedef struct {
    kl_ssl *ssl;
    kl_bio *in, *out;
    bool done; /* with its handshake */
} client;

static client begin_client(bool old) {
    client it = {.ssl = kl_ossl.SSL_new(client_context)};
    WANT(it.ssl != NULL);
    if (old) client_ossl.control(it.ssl, KL_SSL_CTRL_SET_MAX_PROTO_VERSION, 0x0303, NULL);
    it.in = kl_ossl.BIO_new(client_ossl.memory());
    it.out = kl_ossl.BIO_new(client_ossl.memory());
    kl_ossl.SSL_set_bio(it.ssl, it.in, it.out);
    client_ossl.set_connect(it.ssl);
    return it;
}

/* ---- the server ----------------------------------------------------------------------------- */

typedef struct {
    kl_stream stream;
    int peer; /* the other end of its socket */
    bool shakes, failed, ended;
    uint8_t got[SENT_MAX];
    size_t got_bytes;
} server;

static void serve(server *it, kl_span *script) {
    if (it->failed || it->ended) return;
    if (it->shakes) {
        kl_shake outcome = kl_stream_shake(&it->stream);
        it->failed = outcome == KL_SHAKE_FAILED;
        it->shakes = outcome == KL_SHAKE_READS || outcome == KL_SHAKE_WRITES;
    }
    while (!it->shakes && !it->failed && !it->ended) {
        size_t room = 1 + fuzz_below(script, 200);
        WANT(it->got_bytes + 2 * room <= sizeof it->got);
        struct iovec to[2] = {{it->got + it->got_bytes, room},
                              {it->got + it->got_bytes + room, room}};
        bool drained;
        ssize_t got = kl_stream_receive(&it->stream, to, 1 + room % 2, &drained);
        WANT(got <= (ssize_t)(2 * room));
        if (got > 0) it->got_bytes += (size_t)got;
        it->ended = got == 0;
        it->failed = got < 0 && errno != EAGAIN && errno != EINTR;
        if (got < 0 || drained) return;
    }
}

/* ---- in the middle -------------------------------------------------------------------------- */

/* Move what the client has sent, in pieces and maybe changed; false: it was changed. */
static bool forward(client *from, server *to, kl_span *script) {
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 1, 0}; /* the end, not encrypted */
    uint8_t piece[PIECE_MAX + 100];
    bool honest = true;
    int bytes = client_ossl.read(
        from->out, piece, script->bytes ? 1 + (int)fuzz_below(script, PIECE_MAX) : PIECE_MAX);
    if (bytes <= 0) return true;
    uint8_t choice = fuzz_u8(script);
    size_t sent = (size_t)bytes, place = choice % sent;
    switch (choice % 32) {
    case 1: piece[place] ^= (uint8_t)(1 + fuzz_u8(script) % 255); break;
    case 2: memset(piece + place, fuzz_u8(script), sent - place + 1); break;
    case 3: sent += 50; memmove(piece + 50, piece, sent - 50); break; /* repeats its beginning */
    case 4: sent = place; break;
    case 5: memcpy(piece, alert, sizeof alert); break;
    default: break;
    }
    honest = choice % 32 == 0 || choice % 32 > 5;
    ssize_t done = send(to->peer, piece, sent, MSG_NOSIGNAL);
    return (done == (ssize_t)sent || to->failed || to->ended) && honest;
}

static void backward(server *from, client *to) {
    uint8_t bytes[4096];
    ssize_t got;
    while ((got = recv(from->peer, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        WANT(client_ossl.write(to->in, bytes, (int)got) == got);
}

/* One thing that the client does, as far as it can. */
static void act(client *it, kl_span *script, uint8_t *sent, size_t *sent_bytes) {
    kl_ossl.ERR_clear_error();
    if (!it->done) {
        it->done = kl_ossl.SSL_do_handshake(it->ssl) == 1;
    } else if (*sent_bytes < SENT_MAX / 2) {
        size_t bytes = 1 + fuzz_below(script, 300), done = 0;
        for (size_t i = 0; i < bytes; i++) sent[*sent_bytes + i] = (uint8_t)(*sent_bytes + i * 7);
        if (kl_ossl.SSL_write_ex(it->ssl, sent + *sent_bytes, bytes, &done)) *sent_bytes += done;
    }
    uint8_t drop[512];
    size_t got;
    while (it->done && kl_ossl.SSL_read_ex(it->ssl, drop, sizeof drop, &got)) continue;
    kl_ossl.ERR_clear_error();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static server here;
    static uint8_t sent[SENT_MAX];
    int pair[2];
    kl_span script = {bytes ? data : (const uint8_t *)"", bytes};
    size_t sent_bytes = 0;
    bool honest = true;
    load();
    memset(&here, 0, sizeof here);
    WANT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    here.stream = kl_stream_of(pair[0], true, -1);
    here.peer = pair[1];
    here.shakes = true;
    WANT(kl_stream_encrypt(&here.stream, tls) == KL_OK);
    static const uint8_t nothing[1];
    kl_span none = {nothing, 0};
    uint8_t how = fuzz_u8(&script);
    client there = begin_client(how & 1);
    bool whole = how & 6; /* else the handshake is attacked, too */
    for (int i = 0; i < STEPS_MAX && whole && (here.shakes || !there.done); i++) {
        if (!there.done) act(&there, &none, sent, &sent_bytes);
        WANT(forward(&there, &here, &none));
        serve(&here, &none);
        backward(&here, &there);
    }
    WANT(!whole || (there.done && !here.shakes && !here.failed));
    for (int i = 0; i < STEPS_MAX && script.bytes && !here.failed && !here.ended; i++) {
        uint8_t choice = fuzz_u8(&script);
        if (choice % 4 == 0) act(&there, &script, sent, &sent_bytes);
        if (choice % 4 == 1) honest = forward(&there, &here, &script) && honest;
        if (choice % 4 == 2) serve(&here, &script);
        if (choice % 4 == 3) backward(&here, &there);
        if (choice == 255) shutdown(here.peer, SHUT_WR);
        if (choice == 254) kl_ossl.SSL_shutdown(there.ssl);
        if (choice == 253 && there.done) client_ossl.renegotiate(there.ssl);
        honest = honest && choice < 253;
    }
    for (int i = 0; i < STEPS_MAX && honest && here.got_bytes < sent_bytes + !there.done; i++) {
        act(&there, &none, sent, &sent_bytes);
        for (int j = 0; j < 20; j++) honest = forward(&there, &here, &none) && honest;
        serve(&here, &none);
        backward(&here, &there);
    }
    WANT(here.got_bytes <= sent_bytes);
    WANT(memcmp(here.got, sent, here.got_bytes) == 0);
    if (honest) WANT(!here.failed && there.done && here.got_bytes == sent_bytes);
    kl_stream_close(&here.stream);
    kl_ossl.SSL_free(there.ssl);
    kl_ossl.ERR_clear_error();
    close(pair[1]);
    return 0;
}
