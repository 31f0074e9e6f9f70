/* error.c: the last failure of each thread. */
#include "base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum { MESSAGE_BYTES = 1024 };
static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local int message_errno;

const char *kl_error_message(void) { return message; }

int kl_error_errno(void) { return message_errno; }

_Noreturn void kl_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "kafkalog: %s:%d: broken promise: %s\n", file, line, condition);
    abort();
}

kl_status kl_fail(kl_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    message_errno = 0;
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
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t used = strlen(message);
    char text[128];
#ifdef __GLIBC__ /* which has a form of its own */
    const char *said = strerror_r(error_number, text, sizeof text);
#else
    const char *said = strerror_r(error_number, text, sizeof text) ? "unknown" : text;
#endif
    snprintf(message + used, sizeof message - used, ": %s", said);
    message_errno = error_number;
    return status_of_errno(error_number);
}

bool kl_passes(kl_status status) {
    if (status == KL_E_NO_SPACE || status == KL_E_NO_MEMORY) return true;
    return status == KL_E_IO && (message_errno == EMFILE || message_errno == ENFILE);
}

kl_status kl_fail_prefix(kl_status status, const char *format, ...) {
    char old[MESSAGE_BYTES];
    memcpy(old, message, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t used = strlen(message);
    snprintf(message + used, sizeof message - used, ": %s", old);
    return status;
}
