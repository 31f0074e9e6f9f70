/* io.c: the system calls themselves; system.h has those that differ between systems. */
#include "io.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
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
    .fdatasync = kl_system_sync_data,
    .fsync = kl_system_sync_all,
    .syncfs = kl_system_sync_disk,
    .ftruncate = ftruncate,
    .fallocate = kl_system_reserve,
    .fstat = fstat,
    .fstatat = fstatat,
    .facts = kl_system_facts,
    .version = kl_system_version,
    .renameat = renameat,
    .unlinkat = unlinkat,
    .mkdirat = mkdirat,
    .futimens = futimens,
    .mmap = mmap,
    .munmap = munmap,
    .accept4 = kl_system_accept,
    .sendfile = kl_system_send_file,
    .copy_file_range = kl_system_copy,
    .cached = kl_system_cached,
    .clock_gettime = clock_gettime,
};

#ifndef KL_TEST
const kl_io_table *const kl_io = &system_calls;
#endif
