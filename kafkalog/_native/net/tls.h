/* tls.h: TLS of a listener: a key, its certificates, and what is asked of clients.
 *
 * Immutable, so that connections of many threads share it.  A connection keeps what it needs of it:
 * a replaced one may be freed at once. */
#ifndef KL_TLS_H
#define KL_TLS_H

#include "openssl.h"

struct kl_tls {
    _Atomic int holders;
    kl_ssl_ctx *context;
    bool kernel; /* let the kernel encrypt, if it can */
};

/* For one more holder; each frees it with kl_tls_free. */
kl_tls *kl_tls_hold(kl_tls *tls);

#endif
