/* base.h: used by all of the data plane: assertions, failures, spans, locks. */
#ifndef KL_BASE_H
#define KL_BASE_H

#include "kafkalog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KL_STATIC_ASSERT(condition, why) _Static_assert(condition, why)
/* For our own invariants only, never for bytes from outside; kept in release builds. */
#define KL_ASSERT(condition) \
    ((condition) ? (void)0 : kl_assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void kl_assert_failed(const char *condition, const char *file, int line);
/* Like KL_ASSERT, but only in test builds: checks per record, or that cost more than a comparison.
 * */
#ifdef KL_TEST
#define KL_TEST_ASSERT(condition) KL_ASSERT(condition)
#else
#define KL_TEST_ASSERT(condition) ((void)(0 && (condition)))
#endif

#define KL_UNUSED __attribute__((unused))
#define KL_PRINTF(format_index, args_index) \
    __attribute__((format(printf, format_index, args_index)))
#define KL_LIKELY(x) __builtin_expect(!!(x), 1)
#define KL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define KL_MAX(a, b) ((a) > (b) ? (a) : (b))

enum { KL_MESSAGE_BYTES = 1024 };
/* A thread's last failure, saved so that it can be restored after further calls. */
typedef struct {
    char message[KL_MESSAGE_BYTES];
    int error_number; /* 0: not from a system call */
} kl_failure;
void kl_failure_take(kl_failure *out);
void kl_failure_put(const kl_failure *kept);

/* Record this thread's failure and return `status`, for `return kl_fail(...)`. */
kl_status kl_fail(kl_status status, const char *format, ...) KL_PRINTF(2, 3);
/* The same for a failed system call: appends strerror(error_number); ENOSPC and EDQUOT
 * become KL_E_NO_SPACE, ENOENT KL_E_NOT_FOUND, ENOMEM KL_E_NO_MEMORY, else KL_E_IO. */
kl_status kl_fail_errno(int error_number, const char *format, ...) KL_PRINTF(2, 3);
/* Put "text: " before the message of the failure that this thread just recorded. */
kl_status kl_fail_prefix(kl_status status, const char *format, ...) KL_PRINTF(2, 3);

/* True if this thread's last failure is temporary: out of memory, space or descriptors.  A failed
 * write-back is not. */
bool kl_passes(kl_status status);

/* Bytes and their count. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
} kl_span;

/* True if `bytes` bytes exist at `pos`; cannot overflow. */
static inline bool kl_span_has(kl_span span, size_t pos, size_t bytes) {
    return pos <= span.bytes && bytes <= span.bytes - pos;
}

/* calloc and realloc through the fault table in test builds; NULL when out of memory. */
void *kl_alloc(size_t bytes); /* zeroed */
void *kl_resize(void *old, size_t bytes);
/* An array with space for `wanted` items: `old`, or a larger copy, zeroed after the old content;
 * *capacity at least doubles.  NULL: no memory; unchanged. */
void *kl_room_for(void *old, size_t *capacity, size_t wanted, size_t item_bytes);
void kl_release(void *memory);

/* held.c: test builds track which locks a thread holds. */
bool kl_holds(const pthread_mutex_t *mutex);
#ifdef KL_TEST
void kl_note_locked(const pthread_mutex_t *mutex);
void kl_note_unlocked(const pthread_mutex_t *mutex);
#else
static inline void kl_note_locked(const pthread_mutex_t *mutex) { (void)mutex; }
static inline void kl_note_unlocked(const pthread_mutex_t *mutex) { (void)mutex; }
#endif
/* Record that this thread holds it; the functions below call this. */
#define KL_ASSERT_HELD(mutex) KL_TEST_ASSERT(kl_holds(mutex))

/* A mutex held for the length of a call. */
static inline void kl_lock(pthread_mutex_t *mutex) {
    KL_ASSERT(pthread_mutex_lock(mutex) == 0);
    kl_note_locked(mutex);
}
static inline bool kl_try_lock(pthread_mutex_t *mutex) {
    bool locked = pthread_mutex_trylock(mutex) == 0;
    if (locked) kl_note_locked(mutex);
    return locked;
}
static inline void kl_unlock(pthread_mutex_t *mutex) {
    kl_note_unlocked(mutex);
    KL_ASSERT(pthread_mutex_unlock(mutex) == 0);
}
/* A condition on CLOCK_MONOTONIC. */
void kl_cond_init(pthread_cond_t *condition);
/* Wait at most timeout_ms (< 0: forever); false on timeout. */
bool kl_cond_wait_ms(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t timeout_ms);
bool kl_cond_wait_ns(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t timeout_ns);

/* The CRC-32C of bytes whose CRC is `crc` (0: none), followed by `data`. */
uint32_t kl_crc32c_more(uint32_t crc, const uint8_t *data, size_t bytes);

/* The clocks, through the I/O table. */
int64_t kl_now_ms(void);       /* wall clock */
int64_t kl_monotonic_ms(void); /* timers */
int64_t kl_monotonic_ns(void);

/* Incremented in the child of every fork, even of code outside: handles compare it with theirs. */
extern _Atomic int kl_process_generation;

#endif
