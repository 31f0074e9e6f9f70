/* io.h: all calls of the system on the disk path, and accept, in one table, so that tests can fail,
 * tear and record them.  Release builds have one constant table. */
#ifndef KL_IO_H
#define KL_IO_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base.h"
#include "system.h"

typedef struct {
    int (*openat)(int dir_fd, const char *name, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *buffer, size_t bytes, off_t pos);
    ssize_t (*pwrite)(int fd, const void *buffer, size_t bytes, off_t pos);
    int (*fdatasync)(int fd);
    int (*fsync)(int fd);
    int (*syncfs)(int fd);
    int (*ftruncate)(int fd, off_t bytes);
    int (*fallocate)(int fd, int mode, off_t pos, off_t bytes);
    int (*fstat)(int fd, struct stat *out);
    int (*fstatat)(int dir_fd, const char *name, struct stat *out, int flags);
    int (*facts)(int fd, kl_facts *out); /* "statx" to the tests */
    int (*version)(int fd, uint64_t *out);
    int (*renameat)(int from_fd, const char *from, int to_fd, const char *to);
    int (*unlinkat)(int dir_fd, const char *name, int flags);
    int (*mkdirat)(int dir_fd, const char *name, mode_t mode);
    int (*futimens)(int fd, const struct timespec times[2]);
    void *(*mmap)(void *where, size_t bytes, int protection, int flags, int fd, off_t pos);
    int (*munmap)(void *where, size_t bytes);
    int (*accept4)(int fd, struct sockaddr *from, socklen_t *bytes);
    ssize_t (*sendfile)(int out_fd, int in_fd, off_t *pos, size_t bytes);
    ssize_t (*copy_file_range)(int in_fd, off_t *in_pos, int out_fd, off_t *out_pos,
                               size_t bytes, unsigned flags);
    bool (*cached)(int fd, off_t pos, size_t bytes);
    int (*clock_gettime)(clockid_t clock, struct timespec *out);
} kl_io_table;

extern const kl_io_table *const kl_io; /* in test builds the hooked table of io_test.c */

#ifdef KL_TEST
extern const kl_io_table kl_io_system; /* what the hooks call */
bool kl_io_alloc_fails(void);          /* counts as a call of "alloc" */
#endif

/* openat, repeated after EINTR. */
static inline int kl_open_at(int dir_fd, const char *name, int flags, mode_t mode) {
    for (;;) {
        int fd = kl_io->openat(dir_fd, name, flags, mode);
        if (fd >= 0 || errno != EINTR) return fd;
    }
}

#endif
