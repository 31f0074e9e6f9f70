/* tls.c: see tls.h, and kl_tls_new in server.h. */
#include "tls.h"

#include <limits.h>
#include <stdio.h>

#include "base/buffer.h"

enum {
    TLS_1_2 = 0x0303,
    TLS_1_3 = 0x0304,
    TICKETS = 1, /* per connection: clients that come back resume without a key exchange */
    NAME_BYTES = 128
};
static const uint8_t SESSIONS[] = "kafkalog";

/* Never asks the terminal. */
static int no_password(char *to, int room, int writes, void *context) {
    (void)to, (void)room, (void)writes, (void)context;
    return -1;
}

/* ---- the parts of the configuration -------------------------------------------------------- */

static kl_bio *open_pem(const kl_pem *pem) {
    return pem->bytes <= INT_MAX ? kl_ossl.BIO_new_mem_buf(pem->data, (int)pem->bytes)
                                 : NULL;
}

static kl_x509 *next_certificate(kl_bio *bio) {
    return kl_ossl.PEM_read_bio_X509(bio, NULL, no_password, NULL);
}

static bool use_certificate(kl_ssl_ctx *context, kl_x509 *certificate, bool first) {
    if (first) return kl_ossl.SSL_CTX_use_certificate(context, certificate) == 1;
    return kl_ossl.SSL_CTX_ctrl(context, KL_SSL_CTRL_CHAIN_CERT, 1, certificate) == 1;
}

static bool trust_certificate(kl_ssl_ctx *context, kl_x509 *certificate, bool first) {
    (void)first;
    return kl_ossl.X509_STORE_add_cert(kl_ossl.SSL_CTX_get_cert_store(context),
                                       certificate) == 1 &&
           kl_ossl.SSL_CTX_add_client_CA(context, certificate) == 1;
}

/* Give each certificate of a PEM text to `use`. */
static kl_status each_certificate(kl_ssl_ctx *context, const kl_pem *pem, const char *what,
                                  bool (*use)(kl_ssl_ctx *, kl_x509 *, bool)) {
    kl_bio *bio = open_pem(pem);
    int count = 0;
    kl_status status = KL_OK;
    for (kl_x509 *one; !status && bio && (one = next_certificate(bio)) != NULL; count++) {
        if (!use(context, one, count == 0))
            status = kl_fail(KL_E_ARGUMENT, "%s: certificate %d: %s", what, count + 1,
                             kl_openssl_reason());
        kl_ossl.X509_free(one);
    }
    if (!status && count == 0)
        status = kl_fail(KL_E_ARGUMENT, "%s: found no certificate that can be read: %s",
                         what, kl_openssl_reason());
    kl_ossl.ERR_clear_error(); /* the end of the text */
    kl_ossl.BIO_free(bio);
    return status;
}

static kl_status use_key(kl_ssl_ctx *context, const kl_pem *pem) {
    kl_bio *bio = open_pem(pem);
    kl_pkey *key =
        bio ? kl_ossl.PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    kl_status status = KL_OK;
    if (key == NULL)
        status = kl_fail(KL_E_ARGUMENT, "the private key cannot be read: %s",
                         kl_openssl_reason());
    else if (kl_ossl.SSL_CTX_use_PrivateKey(context, key) != 1 ||
             kl_ossl.SSL_CTX_check_private_key(context) != 1)
        status = kl_fail(KL_E_ARGUMENT, "the private key does not fit its certificate: %s",
                         kl_openssl_reason());
    kl_ossl.EVP_PKEY_free(key);
    kl_ossl.BIO_free(bio);
    return status;
}

static bool is_of_1_3(const char *suite) {
    return strncmp(suite, "TLS_AES_", 8) == 0 ||
           strcmp(suite, "TLS_CHACHA20_POLY1305_SHA256") == 0;
}

/* Add one suite, of `bytes` bytes, to the list of its version. */
static kl_status add_suite(const char *suite, size_t bytes, kl_buffer lists[2]) {
    char name[NAME_BYTES];
    if (bytes >= sizeof name)
        return kl_fail(KL_E_ARGUMENT, "a cipher suite's name has %zu bytes", bytes);
    memcpy(name, suite, bytes);
    name[bytes] = '\0';
    bool newest = is_of_1_3(name);
    const char *openssl = newest ? name : kl_ossl.OPENSSL_cipher_name(name);
    if (openssl == NULL || strcmp(openssl, "(NONE)") == 0)
        return kl_fail(KL_E_ARGUMENT, "OpenSSL knows no cipher suite %s", name);
    kl_buffer *list = &lists[newest ? 1 : 0];
    kl_status status = KL_OK;
    if (list->bytes > 0) status = kl_buffer_append(list, (const uint8_t *)":", 1);
    if (!status) status = kl_buffer_append(list, (const uint8_t *)openssl, strlen(openssl));
    return status;
}

/* Suites of a version that is not allowed are left out, as is a version without a suite. */
static kl_status use_suites(kl_ssl_ctx *context, const char *suites, int32_t *oldest,
                            int32_t *newest) {
    kl_buffer lists[2] = {0};
    kl_status status = KL_OK;
    for (const char *at = suites, *end; !status && *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ":");
        status = add_suite(at, (size_t)(end - at), lists);
    }
    for (int i = 0; !status && i < 2; i++)
        status = kl_buffer_append(&lists[i], (const uint8_t *)"", 1);
    if (status) goto out;
    bool of_1_2 = lists[0].bytes > 1, of_1_3 = lists[1].bytes > 1;
    if (!of_1_2) *oldest = KL_MAX(*oldest, 13);
    if (!of_1_3) *newest = KL_MIN(*newest, 12);
    if (*oldest > *newest)
        status = kl_fail(KL_E_ARGUMENT, "no cipher suite is for an enabled version of TLS");
    else if ((of_1_2 &&
              kl_ossl.SSL_CTX_set_cipher_list(context, (const char *)lists[0].data) != 1) ||
             (of_1_3 &&
              kl_ossl.SSL_CTX_set_ciphersuites(context, (const char *)lists[1].data) != 1))
        status = kl_fail(KL_E_ARGUMENT, "the cipher suites: %s", kl_openssl_reason());
out:
    kl_buffer_free(&lists[0]);
    kl_buffer_free(&lists[1]);
    return status;
}

static bool set(kl_ssl_ctx *context, int command, long value) {
    return kl_ossl.SSL_CTX_ctrl(context, command, value, NULL) != 0;
}

static kl_status use_versions(kl_ssl_ctx *context, int32_t oldest, int32_t newest) {
    if (oldest < 12 || newest > 13 || oldest > newest)
        return kl_fail(KL_E_ARGUMENT, "TLS versions %d to %d, wanted 12 or 13", oldest,
                       newest);
    bool fine =
        set(context, KL_SSL_CTRL_SET_MIN_PROTO_VERSION, oldest == 13 ? TLS_1_3 : TLS_1_2) &&
        set(context, KL_SSL_CTRL_SET_MAX_PROTO_VERSION, newest == 13 ? TLS_1_3 : TLS_1_2);
    return fine ? KL_OK : kl_fail(KL_E_ARGUMENT, "TLS versions: %s", kl_openssl_reason());
}

static kl_status use_client_auth(kl_ssl_ctx *context, const kl_tls_config *config) {
    if (config->client_auth == KL_CLIENT_AUTH_NONE) return KL_OK;
    kl_status status = each_certificate(context, &config->trust, "trusted certificates",
                                        trust_certificate);
    /* As Java: each trusted certificate is an anchor, also one that another has signed. */
    kl_ossl.X509_STORE_set_flags(kl_ossl.SSL_CTX_get_cert_store(context),
                                 KL_X509_V_FLAG_PARTIAL_CHAIN);
    int verify = KL_SSL_VERIFY_PEER;
    if (config->client_auth == KL_CLIENT_AUTH_REQUIRED)
        verify |= KL_SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    kl_ossl.SSL_CTX_set_verify(context, verify, NULL);
    return status;
}

/* How we read and write, and what no client may ask for. */
static void use_habits(kl_tls *tls) {
    kl_ssl_ctx *context = tls->context;
    uint64_t options = KL_SSL_OP_NO_COMPRESSION | KL_SSL_OP_NO_RENEGOTIATION |
                       KL_SSL_OP_IGNORE_UNEXPECTED_EOF; /* frames have their own lengths */
    if (tls->kernel) options |= KL_SSL_OP_ENABLE_KTLS;
    kl_ossl.SSL_CTX_set_options(context, options);
    set(context, KL_SSL_CTRL_MODE,
        KL_SSL_MODE_ENABLE_PARTIAL_WRITE | KL_SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
            KL_SSL_MODE_RELEASE_BUFFERS);
    set(context, KL_SSL_CTRL_SET_SESS_CACHE_MODE, 0); /* tickets only: clients keep them */
    /* A call per record instead of two; the buffer is released as soon as it is empty. */
    set(context, KL_SSL_CTRL_SET_READ_AHEAD, tls->kernel ? 0 : 1);
    kl_ossl.SSL_CTX_set_num_tickets(context, TICKETS);
    kl_ossl.SSL_CTX_set_session_id_context(context, SESSIONS, sizeof SESSIONS - 1);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* True if the kernel has TLS. */
static bool kernel_has_tls(void) {
    char line[256] = "";
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_ulp", "re");
    if (file == NULL) return false;
    bool found = fgets(line, sizeof line, file) && strstr(line, "tls");
    fclose(file);
    return found;
}

static kl_status configure(kl_tls *tls, const kl_tls_config *config) {
    kl_ssl_ctx *context = tls->context;
    int32_t oldest = config->oldest, newest = config->newest;
    kl_status status =
        each_certificate(context, &config->chain, "the certificate chain", use_certificate);
    if (!status) status = use_key(context, &config->key);
    if (!status && config->suites[0])
        status = use_suites(context, config->suites, &oldest, &newest);
    if (!status) status = use_versions(context, oldest, newest);
    if (!status) status = use_client_auth(context, config);
    if (!status) use_habits(tls);
    return status;
}

kl_status kl_tls_new(const kl_tls_config *config, kl_tls **out) {
    *out = NULL;
    kl_status status = kl_openssl_load();
    if (status) return status;
    kl_tls *tls = kl_alloc(sizeof *tls);
    if (tls == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for TLS");
    atomic_init(&tls->holders, 1);
    tls->kernel = config->kernel < 0 ? kernel_has_tls() : config->kernel != 0;
    tls->context = kl_ossl.SSL_CTX_new(kl_ossl.TLS_server_method());
    if (tls->context == NULL)
        status = kl_fail(KL_E_NO_MEMORY, "no TLS: %s", kl_openssl_reason());
    else status = configure(tls, config);
    if (status) kl_tls_free(tls);
    else *out = tls;
    return status;
}

kl_tls *kl_tls_hold(kl_tls *tls) {
    if (tls) atomic_fetch_add(&tls->holders, 1);
    return tls;
}

void kl_tls_free(kl_tls *tls) {
    if (tls == NULL || atomic_fetch_sub(&tls->holders, 1) > 1) return;
    kl_ossl.SSL_CTX_free(tls->context);
    kl_release(tls);
}

int64_t kl_tls_left_s(const kl_tls *tls) {
    enum { DAY_S = 24 * 60 * 60 };
    const kl_x509 *own = kl_ossl.SSL_CTX_get0_certificate(tls->context);
    int days, seconds;
    bool known = own && kl_ossl.ASN1_TIME_diff(&days, &seconds, NULL,
                                               kl_ossl.X509_get0_notAfter(own)) == 1;
    kl_ossl.ERR_clear_error();
    return known ? (int64_t)days * DAY_S + seconds : INT64_MAX;
}
