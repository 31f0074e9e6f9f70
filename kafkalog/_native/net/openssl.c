/* openssl.c: see openssl.h. */
#include "openssl.h"

#include <dlfcn.h>
#include <stdio.h>

kl_openssl kl_ossl;

enum { SSL, CRYPTO, LIBRARIES };
static const char *const LIBRARY[LIBRARIES] = {
#ifdef __APPLE__
    "libssl.3.dylib",
    "libcrypto.3.dylib",
#else
    "libssl.so.3",
    "libcrypto.so.3",
#endif
};

typedef struct {
    int library;
    const char *name;
    size_t pos; /* in kl_openssl */
} function;

#define FUNCTION(library, result, name, arguments) \
    {library, #name, offsetof(kl_openssl, name)},
static const function FUNCTIONS[] = {KL_OPENSSL_FUNCTIONS(FUNCTION)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char problem[256]; /* empty: loaded */

static void load(void) {
    void *library[LIBRARIES];
    for (int i = 0; i < LIBRARIES; i++) {
        /* Never closed: connections may use it until the process ends. */
        library[i] = dlopen(LIBRARY[i], RTLD_NOW | RTLD_LOCAL);
        if (library[i] == NULL) {
            snprintf(problem, sizeof problem, "TLS needs OpenSSL 3: %s", dlerror());
            return;
        }
    }
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; i++) {
        const function *each = &FUNCTIONS[i];
        void *found = dlsym(library[each->library], each->name);
        if (found == NULL) {
            snprintf(problem, sizeof problem, "TLS needs OpenSSL 3: %s has no function %s",
                     LIBRARY[each->library], each->name);
            return;
        }
        memcpy((uint8_t *)&kl_ossl + each->pos, &found, sizeof found);
    }
    /* Without a handler at exit: our threads may still use it then. */
    if (!kl_ossl.OPENSSL_init_ssl(KL_OPENSSL_INIT_NO_ATEXIT, NULL))
        snprintf(problem, sizeof problem, "OpenSSL cannot start: %s", kl_openssl_reason());
}

kl_status kl_openssl_load(void) {
    KL_ASSERT(pthread_once(&once, load) == 0);
    return problem[0] ? kl_fail(KL_E_NOT_FOUND, "%s", problem) : KL_OK;
}

const char *kl_openssl_reason(void) {
    unsigned long error = kl_ossl.ERR_get_error();
    const char *reason = error ? kl_ossl.ERR_reason_error_string(error) : NULL;
    kl_ossl.ERR_clear_error();
    return reason ? reason : "no reason given";
}
