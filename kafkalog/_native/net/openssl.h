/* openssl.h: the functions of OpenSSL 3 in use, loaded when a listener first needs them.
 *
 * Not linked: without libssl everything but TLS works.  The prototypes and numbers are those of
 * OpenSSL's public interface, which is stable within version 3. */
#ifndef KL_OPENSSL_H
#define KL_OPENSSL_H

#include "base/base.h"

#include <sys/types.h>

typedef struct ssl_st kl_ssl;
typedef struct ssl_ctx_st kl_ssl_ctx;
typedef struct bio_st kl_bio;
typedef struct bio_method_st kl_bio_method;
typedef struct x509_st kl_x509;
typedef struct evp_pkey_st kl_pkey;
typedef int kl_pem_password(char *to, int room, int writes, void *context);

enum {
    KL_SSL_CTRL_MODE = 33,
    KL_SSL_CTRL_SET_READ_AHEAD = 41,
    KL_SSL_CTRL_SET_SESS_CACHE_MODE = 44,
    KL_SSL_CTRL_CHAIN_CERT = 89,
    KL_SSL_CTRL_SET_MIN_PROTO_VERSION = 123,
    KL_SSL_CTRL_SET_MAX_PROTO_VERSION = 124,

    KL_SSL_MODE_ENABLE_PARTIAL_WRITE = 1,
    KL_SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 2,
    KL_SSL_MODE_RELEASE_BUFFERS = 16,

    KL_SSL_VERIFY_PEER = 1,
    KL_SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2,

    KL_SSL_ERROR_WANT_READ = 2,
    KL_SSL_ERROR_WANT_WRITE = 3,
    KL_SSL_ERROR_ZERO_RETURN = 6,

    KL_BIO_CTRL_EOF = 2,
    KL_BIO_CTRL_FLUSH = 11,
    KL_BIO_CTRL_GET_KTLS_SEND = 73,
    KL_BIO_TYPE_SOURCE_SINK = 0x0400,
    KL_BIO_FLAGS_READ = 0x01,
    KL_BIO_FLAGS_WRITE = 0x02,
    KL_BIO_FLAGS_SHOULD_RETRY = 0x08,
    KL_BIO_FLAGS_ALL = 0x0f,

    KL_X509_V_FLAG_PARTIAL_CHAIN = 0x80000,
    KL_X509_V_OK = 0,
    KL_OPENSSL_INIT_NO_ATEXIT = 0x00080000
};
#define KL_SSL_OP_ENABLE_KTLS ((uint64_t)1 << 3)
#define KL_SSL_OP_IGNORE_UNEXPECTED_EOF ((uint64_t)1 << 7)
#define KL_SSL_OP_NO_COMPRESSION ((uint64_t)1 << 17)
#define KL_SSL_OP_NO_RENEGOTIATION ((uint64_t)1 << 30)

/* Each function as X(library, result, name, arguments). */
#define KL_OPENSSL_FUNCTIONS(X)                                                            \
    X(SSL, int, OPENSSL_init_ssl, (uint64_t, const void *))                                \
    X(SSL, const void *, TLS_server_method, (void))                                        \
    X(SSL, kl_ssl_ctx *, SSL_CTX_new, (const void *))                                      \
    X(SSL, void, SSL_CTX_free, (kl_ssl_ctx *))                                             \
    X(SSL, long, SSL_CTX_ctrl, (kl_ssl_ctx *, int, long, void *))                          \
    X(SSL, uint64_t, SSL_CTX_set_options, (kl_ssl_ctx *, uint64_t))                        \
    X(SSL, int, SSL_CTX_use_certificate, (kl_ssl_ctx *, kl_x509 *))                        \
    X(SSL, int, SSL_CTX_use_PrivateKey, (kl_ssl_ctx *, kl_pkey *))                         \
    X(SSL, int, SSL_CTX_check_private_key, (const kl_ssl_ctx *))                           \
    X(SSL, void *, SSL_CTX_get_cert_store, (const kl_ssl_ctx *))                           \
    X(SSL, int, SSL_CTX_add_client_CA, (kl_ssl_ctx *, kl_x509 *))                          \
    X(SSL, void, SSL_CTX_set_verify, (kl_ssl_ctx *, int, void *))                          \
    X(SSL, int, SSL_CTX_set_cipher_list, (kl_ssl_ctx *, const char *))                     \
    X(SSL, int, SSL_CTX_set_ciphersuites, (kl_ssl_ctx *, const char *))                    \
    X(SSL, int, SSL_CTX_set_session_id_context, (kl_ssl_ctx *, const uint8_t *, unsigned)) \
    X(SSL, int, SSL_CTX_set_num_tickets, (kl_ssl_ctx *, size_t))                           \
    X(SSL, kl_x509 *, SSL_CTX_get0_certificate, (const kl_ssl_ctx *))                      \
    X(SSL, const char *, OPENSSL_cipher_name, (const char *))                              \
    X(SSL, kl_ssl *, SSL_new, (kl_ssl_ctx *))                                              \
    X(SSL, void, SSL_free, (kl_ssl *))                                                     \
    X(SSL, void, SSL_set_accept_state, (kl_ssl *))                                         \
    X(SSL, void, SSL_set_bio, (kl_ssl *, kl_bio *, kl_bio *))                              \
    X(SSL, int, SSL_set_fd, (kl_ssl *, int))                                               \
    X(SSL, kl_bio *, SSL_get_wbio, (const kl_ssl *))                                       \
    X(SSL, int, SSL_do_handshake, (kl_ssl *))                                              \
    X(SSL, int, SSL_read_ex, (kl_ssl *, void *, size_t, size_t *))                         \
    X(SSL, int, SSL_write_ex, (kl_ssl *, const void *, size_t, size_t *))                  \
    X(SSL, ssize_t, SSL_sendfile, (kl_ssl *, int, off_t, size_t, int))                     \
    X(SSL, int, SSL_get_error, (const kl_ssl *, int))                                      \
    X(SSL, int, SSL_has_pending, (const kl_ssl *))                                         \
    X(SSL, int, SSL_shutdown, (kl_ssl *))                                                  \
    X(SSL, kl_x509 *, SSL_get1_peer_certificate, (const kl_ssl *))                         \
    X(SSL, long, SSL_get_verify_result, (const kl_ssl *))                                  \
    X(CRYPTO, void, ERR_clear_error, (void))                                               \
    X(CRYPTO, unsigned long, ERR_get_error, (void))                                        \
    X(CRYPTO, const char *, ERR_reason_error_string, (unsigned long))                      \
    X(CRYPTO, int, BIO_free, (kl_bio *))                                                   \
    X(CRYPTO, kl_bio *, BIO_new, (const kl_bio_method *))                                  \
    X(CRYPTO, kl_bio *, BIO_new_mem_buf, (const void *, int))                              \
    X(CRYPTO, kl_bio_method *, BIO_meth_new, (int, const char *))                          \
    X(CRYPTO, int, BIO_meth_set_write,                                                     \
      (kl_bio_method *, int (*)(kl_bio *, const char *, int)))                             \
    X(CRYPTO, int, BIO_meth_set_read, (kl_bio_method *, int (*)(kl_bio *, char *, int)))   \
    X(CRYPTO, int, BIO_meth_set_ctrl,                                                      \
      (kl_bio_method *, long (*)(kl_bio *, int, long, void *)))                            \
    X(CRYPTO, void, BIO_set_data, (kl_bio *, void *))                                      \
    X(CRYPTO, void *, BIO_get_data, (kl_bio *))                                            \
    X(CRYPTO, void, BIO_set_init, (kl_bio *, int))                                         \
    X(CRYPTO, void, BIO_set_flags, (kl_bio *, int))                                        \
    X(CRYPTO, void, BIO_clear_flags, (kl_bio *, int))                                      \
    X(CRYPTO, long, BIO_ctrl, (kl_bio *, int, long, void *))                               \
    X(CRYPTO, kl_x509 *, PEM_read_bio_X509,                                                \
      (kl_bio *, kl_x509 **, kl_pem_password *, void *))                                   \
    X(CRYPTO, kl_pkey *, PEM_read_bio_PrivateKey,                                          \
      (kl_bio *, kl_pkey **, kl_pem_password *, void *))                                   \
    X(CRYPTO, void, X509_free, (kl_x509 *))                                                \
    X(CRYPTO, void, EVP_PKEY_free, (kl_pkey *))                                            \
    X(CRYPTO, int, X509_STORE_add_cert, (void *, kl_x509 *))                               \
    X(CRYPTO, int, X509_STORE_set_flags, (void *, unsigned long))                          \
    X(CRYPTO, void *, X509_get_subject_name, (const kl_x509 *))                            \
    X(CRYPTO, int, i2d_X509_NAME, (const void *, uint8_t **))                              \
    X(CRYPTO, const void *, X509_get0_notAfter, (const kl_x509 *))                         \
    X(CRYPTO, int, ASN1_TIME_diff, (int *, int *, const void *, const void *))             \
    X(CRYPTO, const char *, X509_verify_cert_error_string, (long))

#define KL_OPENSSL_MEMBER(library, result, name, arguments) result(*name) arguments;
typedef struct {
    KL_OPENSSL_FUNCTIONS(KL_OPENSSL_MEMBER)
} kl_openssl;

/* The functions, once kl_openssl_load has succeeded. */
extern kl_openssl kl_ossl;
/* Load libssl and libcrypto, once.  KL_E_NOT_FOUND: one is missing, or too old; the message names
 * it. */
kl_status kl_openssl_load(void);
/* The reason of this thread's oldest error in OpenSSL, and forget all; never NULL. */
const char *kl_openssl_reason(void);

#endif
