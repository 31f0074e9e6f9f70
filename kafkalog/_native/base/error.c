/* error.c: the last failure of each thread. */
#include "base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local kl_failure last;

const char *kl_error_message(void) { return last.message; }

void kl_failure_take(kl_failure *out) { *out = last; }

void kl_failure_put(const kl_failure *kept) { last = *kept; }

int kl_error_errno(void) { return last.error_number; }

_Noreturn void kl_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "kafkalog: %s:%d: broken promise: %s\n", file, line, condition);
    abort();
}

kl_status kl_fail(kl_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last.message, sizeof last.message, format, args);
    va_end(args);
    last.error_number = 0;
    return status;
}

static kl_status status_of_errno(int error_number) {
    switch (error_number) {
    case ENOSPC:
    case EDQUOT: return KL_E_NO_SPACE;
    case ENOENT: return KL_E_NOT_FOUND;
    case ENOMEM: return KL_E_NO_MEMORY;
    default: return KL_E_IO;
    }
}

kl_status kl_fail_errno(int error_number, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last.message, sizeof last.message, format, args);
    va_end(args);
    size_t used = strlen(last.message);
    char text[128];
#ifdef __GLIBC__ /* GNU variant */
    const char *said = strerror_r(error_number, text, sizeof text);
#else
    const char *said = strerror_r(error_number, text, sizeof text) ? "unknown" : text;
#endif
    snprintf(last.message + used, sizeof last.message - used, ": %s", said);
    last.error_number = error_number;
    return status_of_errno(error_number);
}

bool kl_passes(kl_status status) {
    if (status == KL_E_NO_SPACE || status == KL_E_NO_MEMORY) return true;
    return status == KL_E_IO &&
           (last.error_number == EMFILE || last.error_number == ENFILE);
}

kl_status kl_fail_prefix(kl_status status, const char *format, ...) {
    char old[KL_MESSAGE_BYTES];
    memcpy(old, last.message, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(last.message, sizeof last.message, format, args);
    va_end(args);
    size_t used = strlen(last.message);
    snprintf(last.message + used, sizeof last.message - used, ": %s", old);
    return status;
}
