/* io.c: the system calls themselves. */
#include "io.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

KL_STATIC_ASSERT(sizeof(size_t) == 8 && sizeof(off_t) == 8, "a 64-bit machine");

static int open_at(int dir_fd, const char *name, int flags, mode_t mode) {
    return openat(dir_fd, name, flags, mode);
}

static int take_connection(int fd, struct sockaddr *from, socklen_t *bytes, int flags) {
    return accept4(fd, from, bytes, flags);
}

/* cachestat(2), Linux 6.5; the same number on all machines, missing in the C library. */
enum { SYS_CACHESTAT = 451 };
typedef struct {
    uint64_t pos, bytes;
} cache_range;
typedef struct {
    uint64_t cached, dirty, written_back, evicted, evicted_lately;
} cache_pages;

/* preadv2(2), missing in musl; the flag is RWF_NOWAIT. */
enum { NO_WAIT = 8 };

static bool at_hand(int fd, off_t pos) {
    char byte;
    struct iovec to = {&byte, 1};
    return syscall(SYS_preadv2, fd, &to, 1, pos, 0, NO_WAIT) >= 0 || errno != EAGAIN;
}

/* statx(2), also missing. */
static int stat_more(int dir_fd, const char *name, int flags, unsigned mask,
                     struct statx *out) {
    return (int)syscall(SYS_statx, dir_fd, name, flags, mask, out);
}

/* File systems write an int, whatever size the request's number says. */
static int version(int fd, uint64_t *out) {
    unsigned found[2] = {0, 0};
    int result = ioctl(fd, FS_IOC_GETVERSION, found);
    *out = found[0];
    return result;
}

static bool cached(int fd, off_t pos, size_t bytes) {
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    cache_range range = {(uint64_t)pos / page_bytes * page_bytes, 0};
    cache_pages found = {0, 0, 0, 0, 0};
    range.bytes = (uint64_t)pos + bytes - range.pos;
    if (bytes == 0) return true;
    /* No cached page may mean that the file system keeps them elsewhere, as overlayfs does. */
    if (syscall(SYS_CACHESTAT, fd, &range, &found, 0) == 0 && found.cached > 0)
        return found.cached >= (range.bytes + page_bytes - 1) / page_bytes;
    /* In that case, or without cachestat, check first and last byte: pages read together mostly
     * leave together. */
    return at_hand(fd, pos) && at_hand(fd, pos + (off_t)bytes - 1);
}

#ifdef KL_TEST
const kl_io_table kl_io_system = {
#else
static const kl_io_table system_calls = {
#endif
    .openat = open_at,
    .close = close,
    .pread = pread,
    .pwrite = pwrite,
    .fdatasync = fdatasync,
    .fsync = fsync,
    .syncfs = syncfs,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .fstat = fstat,
    .fstatat = fstatat,
    .statx = stat_more,
    .version = version,
    .renameat = renameat,
    .unlinkat = unlinkat,
    .mkdirat = mkdirat,
    .futimens = futimens,
    .mmap = mmap,
    .munmap = munmap,
    .accept4 = take_connection,
    .sendfile = sendfile,
    .copy_file_range = copy_file_range,
    .cached = cached,
    .clock_gettime = clock_gettime,
};

#ifndef KL_TEST
const kl_io_table *const kl_io = &system_calls;
#endif
