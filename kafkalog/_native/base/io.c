/* io.c: the system calls themselves. */
#include "io.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

KL_STATIC_ASSERT(sizeof(size_t) == 8 && sizeof(off_t) == 8, "a 64-bit machine");

static int open_at(int dir_fd, const char *name, int flags, mode_t mode) {
    return openat(dir_fd, name, flags, mode);
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
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .fstat = fstat,
    .fstatat = fstatat,
    .statx = statx,
    .renameat = renameat,
    .unlinkat = unlinkat,
    .mkdirat = mkdirat,
    .futimens = futimens,
    .mmap = mmap,
    .munmap = munmap,
    .sendfile = sendfile,
    .copy_file_range = copy_file_range,
    .clock_gettime = clock_gettime,
};

#ifndef KL_TEST
const kl_io_table *const kl_io = &system_calls;
#endif
