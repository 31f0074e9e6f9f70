/* process.c: clocks, timed waits, the process generation. */
#include <errno.h>

#include "io.h"

_Atomic int kl_process_generation;

static void after_fork_in_child(void) { atomic_fetch_add(&kl_process_generation, 1); }

__attribute__((constructor)) static void register_fork_handler(void) {
    KL_ASSERT(pthread_atfork(NULL, NULL, after_fork_in_child) == 0);
}

static struct timespec now(clockid_t clock) {
    struct timespec time;
    KL_ASSERT(kl_io->clock_gettime(clock, &time) == 0);
    return time;
}

static int64_t milliseconds(struct timespec time) {
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int64_t kl_now_ms(void) { return milliseconds(now(CLOCK_REALTIME)); }

int64_t kl_monotonic_ms(void) { return milliseconds(now(CLOCK_MONOTONIC)); }
int64_t kl_monotonic_ns(void) {
    struct timespec time = now(CLOCK_MONOTONIC);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* macOS has no condition that waits by the monotonic clock, but one that waits for a time. */
#ifdef __APPLE__
void kl_cond_init(pthread_cond_t *condition) {
    KL_ASSERT(pthread_cond_init(condition, NULL) == 0);
}

static int timed_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                      int64_t timeout_ns) {
    struct timespec left = {(time_t)(timeout_ns / 1000000000),
                            (long)(timeout_ns % 1000000000)};
    return pthread_cond_timedwait_relative_np(condition, mutex, &left);
}
#else
void kl_cond_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    KL_ASSERT(pthread_condattr_init(&attributes) == 0);
    KL_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    KL_ASSERT(pthread_cond_init(condition, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
}

static int timed_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                      int64_t timeout_ns) {
    struct timespec until; /* on the system's clock, as the wait */
    KL_ASSERT(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    until.tv_sec += (time_t)(timeout_ns / 1000000000);
    until.tv_nsec += (long)(timeout_ns % 1000000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec += 1;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(condition, mutex, &until);
}
#endif

bool kl_cond_wait_ms(pthread_cond_t *condition, pthread_mutex_t *mutex,
                     int64_t timeout_ms) {
    KL_ASSERT_HELD(mutex);
    if (timeout_ms >= 0) return kl_cond_wait_ns(condition, mutex, timeout_ms * 1000000);
    KL_ASSERT(pthread_cond_wait(condition, mutex) == 0);
    return true;
}

bool kl_cond_wait_ns(pthread_cond_t *condition, pthread_mutex_t *mutex,
                     int64_t timeout_ns) {
    KL_ASSERT_HELD(mutex);
    KL_ASSERT(timeout_ns >= 0);
    int result = timed_wait(condition, mutex, timeout_ns);
    KL_ASSERT(result == 0 || result == ETIMEDOUT);
    return result == 0;
}
