/* system_linux.c: see system.h. */
#include "system.h"

#if KL_LINUX
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef STATX_TYPE /* missing in musl before 1.2.5 */
#include <linux/stat.h>
#endif

#include "base.h"

const char *kl_system_form(void) { return "linux"; }

/* ---- files ---------------------------------------------------------------------------- */

static int64_t nanoseconds(struct statx_timestamp time) {
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* statx(2), missing in musl before 1.2.5. */
int kl_system_facts(int fd, kl_facts *out) {
    struct statx found;
    unsigned mask = STATX_TYPE | STATX_INO | STATX_BTIME | STATX_SIZE | STATX_MTIME;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, mask, &found)) return -1;
    *out = (kl_facts){
        .device = (uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor,
        .inode = found.stx_ino,
        .born_ns = found.stx_mask & STATX_BTIME ? nanoseconds(found.stx_btime) : 0,
        .bytes = (int64_t)found.stx_size,
        .modified_ms = found.stx_mtime.tv_sec * 1000 + found.stx_mtime.tv_nsec / 1000000,
        .mode = found.stx_mode,
    };
    return 0;
}

#ifdef __GLIBC__
typedef unsigned long ioctl_request;
#else
typedef int ioctl_request; /* as POSIX has it: musl */
#endif

/* File systems write an int, whatever size the request's number says. */
int kl_system_version(int fd, uint64_t *out) {
    unsigned found[2] = {0, 0};
    int result = ioctl(fd, (ioctl_request)FS_IOC_GETVERSION, found);
    *out = found[0];
    return result;
}

int kl_system_sync_data(int fd) { return fdatasync(fd); }
int kl_system_sync_all(int fd) { return fsync(fd); }
int kl_system_sync_disk(int fd) { return syncfs(fd); }

KL_STATIC_ASSERT(KL_KEEP_SIZE == FALLOC_FL_KEEP_SIZE, "the mode is the call's");
int kl_system_reserve(int fd, int mode, off_t pos, off_t bytes) {
    return fallocate(fd, mode, pos, bytes);
}

ssize_t kl_system_send_file(int out_fd, int in_fd, off_t *pos, size_t bytes) {
    return sendfile(out_fd, in_fd, pos, bytes);
}

ssize_t kl_system_copy(int in_fd, off_t *in_pos, int out_fd, off_t *out_pos, size_t bytes,
                       unsigned flags) {
    return copy_file_range(in_fd, in_pos, out_fd, out_pos, bytes, flags);
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

bool kl_system_cached(int fd, off_t pos, size_t bytes) {
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

/* An entry of getdents64(2), aligned to 8 bytes. */
typedef struct {
    uint64_t inode;
    int64_t next;
    uint16_t bytes; /* of this entry */
    uint8_t kind;
    char name[];
} list_entry;

enum { LIST_BLOCK_BYTES = 16 << 10 };

/* fdopendir would take five more calls for each of ten thousand logs. */
int kl_system_list(int dir_fd, int (*take)(void *holder, const char *name), void *holder) {
    _Alignas(list_entry) uint8_t block[LIST_BLOCK_BYTES];
    if (lseek(dir_fd, 0, SEEK_SET) < 0) return -1;
    for (;;) {
        long bytes = syscall(SYS_getdents64, dir_fd, block, sizeof block);
        if (bytes <= 0) return (int)bytes;
        for (long pos = 0; pos < bytes;) {
            const list_entry *entry = (const void *)(block + pos);
            pos += entry->bytes;
            int result = take(holder, entry->name);
            if (result) return result;
        }
    }
}

/* Open-file-description locks exclude other processes, Java's among them, and end with their
 * holder. */
static int lock_call(int fd, int command, short kind, struct flock *found) {
    *found = (struct flock){.l_type = kind, .l_whence = SEEK_SET};
    return fcntl(fd, command, found);
}

int kl_system_lock(int fd) {
    struct flock all;
    return lock_call(fd, F_OFD_SETLK, F_WRLCK, &all);
}

void kl_system_unlock(int fd) {
    struct flock all;
    lock_call(fd, F_OFD_SETLK, F_UNLCK, &all);
}

int kl_system_lock_holder(int fd, int64_t *pid) {
    struct flock found;
    if (lock_call(fd, F_OFD_GETLK, F_WRLCK, &found)) return -1;
    *pid = KL_MAX(found.l_pid, 0); /* known of a POSIX lock, as Java's */
    return found.l_type != F_UNLCK;
}

/* ---- sockets -------------------------------------------------------------------------- */

int kl_system_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int kl_system_accept(int fd, struct sockaddr *from, socklen_t *bytes) {
    return accept4(fd, from, bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void kl_system_take_sigpipe(void) {
    static const struct timespec now = {0, 0};
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR) continue;
}

int kl_wake_init(kl_wake *wake) {
    wake->read_fd = wake->write_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return wake->read_fd < 0 ? -1 : 0;
}

void kl_wake_ring(const kl_wake *wake) {
    static const uint64_t one = 1;
    while (write(wake->write_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void kl_wake_clear(const kl_wake *wake) {
    uint64_t rung;
    (void)!read(wake->read_fd, &rung, sizeof rung);
}

void kl_wake_close(kl_wake *wake) {
    if (wake->read_fd >= 0) close(wake->read_fd);
    wake->read_fd = wake->write_fd = -1;
}

/* ---- processes and memory --------------------------------------------------------------- */

/* A file of /proc as text; false: it cannot be read. */
static bool read_text(const char *path, char *text, size_t bytes) {
    text[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = pread(fd, text, bytes - 1, 0);
    close(fd);
    text[KL_MAX(got, 0)] = 0;
    return got > 0;
}

/* A flag in field 9 of /proc/PID/stat; not in the kernel's public headers. */
enum { PF_EXITING = 4 };

/* In ticks since boot: field 22 of /proc/PID/stat, counted from the command's closing bracket. */
int64_t kl_system_process_start(int64_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (!read_text(path, text, sizeof text)) return -1;
    char *p = strrchr(text, ')');
    /* A zombie: dead, not reaped yet. */
    if (p != NULL && p[1] != 0 && (p[2] == 'Z' || p[2] == 'X')) return -1;
    for (int field = 2; p != NULL && field < 22; field++) {
        /* A process being killed closes its files before it is dead. */
        if (field == 9 && strtoll(p + 1, NULL, 10) & PF_EXITING) return -1;
        p = strchr(p + 1, ' ');
    }
    return p == NULL ? -1 : strtoll(p + 1, NULL, 10);
}

void kl_system_program(int64_t pid, char *text, size_t bytes) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/cmdline", (long long)pid);
    ssize_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        length = KL_MAX(pread(fd, text, bytes - 1, 0), 0);
        close(fd);
    }
    text[length] = 0;
    for (ssize_t at = 0; at < length; at++) /* NUL ends each word */
        if (text[at] < ' ' || text[at] > '~') text[at] = text[at] & 0x80 ? '?' : ' ';
    while (length > 0 && text[length - 1] == ' ') text[--length] = 0;
}

void kl_system_boot_id(char *text, size_t bytes) {
    read_text("/proc/sys/kernel/random/boot_id", text, bytes);
}

uint64_t kl_system_pid_namespace(void) {
    struct stat found;
    return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

const char *kl_system_memory_folder(void) { return "/dev/shm"; }

/* The mapping keeps the lock of the descriptor that it was made from. */
void *kl_system_remap(void *old, size_t old_bytes, size_t bytes, int protection, int fd) {
    (void)protection, (void)fd;
    void *map = mremap(old, old_bytes, bytes, MREMAP_MAYMOVE);
    return map == MAP_FAILED ? NULL : map;
}

bool kl_system_random(void *out, size_t bytes) {
    ssize_t got;
    KL_ASSERT(bytes <= 256);
    do got = getrandom(out, bytes, 0);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)bytes;
}

void kl_system_secret(void *out, size_t bytes) {
    if (kl_system_random(out, bytes)) return;
    /* A sandbox forbids the call: use the bytes that the kernel gives each program. */
    const void *given = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    KL_ASSERT(given != NULL && bytes <= 16);
    memcpy(out, given, bytes);
}

void kl_system_name_thread(pthread_t thread, const char *name) {
    pthread_setname_np(thread, name);
}
#endif
