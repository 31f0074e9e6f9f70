/* A wall clock that a test sets: preloaded before a program's C library, it adds the milliseconds
 * in the file WALL_CLOCK_AHEAD, and the program sees the clock jump when they change.
 * Clocks that only measure durations are not changed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_ms;

__attribute__((constructor)) static void find_file(void) {
    const char *path = getenv("WALL_CLOCK_AHEAD");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *ahead_ms, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) ahead_ms = map;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    long result = syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && ahead_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ms = *ahead_ms, ns = out->tv_nsec + ms % 1000 * 1000000;
        out->tv_sec += ms / 1000 + (ns >= 1000000000) - (ns < 0);
        out->tv_nsec = ns >= 1000000000 ? ns - 1000000000 : ns < 0 ? ns + 1000000000 : ns;
    }
    return (int)result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
