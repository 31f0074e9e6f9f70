/* system_posix.c: see system.h.  What POSIX has, and macOS's own calls where POSIX has none. */
#include "system.h"

#if !KL_LINUX
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#ifdef __APPLE__
#include <libproc.h>
#include <sys/sysctl.h>
#endif

#include "base.h"

const char *kl_system_form(void) { return "posix"; }

/* ---- files ---------------------------------------------------------------------------- */

int kl_system_facts(int fd, kl_facts *out) {
    struct stat found;
    if (fstat(fd, &found)) return -1;
    *out = (kl_facts){
        .device = (uint64_t)found.st_dev,
        .inode = found.st_ino,
#ifdef __APPLE__
        .born_ns = (int64_t)found.st_birthtimespec.tv_sec * 1000000000 +
                   found.st_birthtimespec.tv_nsec,
#endif
        .bytes = found.st_size,
        .modified_ms =
            (int64_t)found.st_mtim.tv_sec * 1000 + found.st_mtim.tv_nsec / 1000000,
        .mode = found.st_mode,
    };
    return 0;
}

int kl_system_version(int fd, uint64_t *out) {
    *out = 0;
#ifdef __APPLE__
    struct stat found;
    if (fstat(fd, &found)) return -1;
    *out = found.st_gen;
    return 0;
#else
    (void)fd;
    errno = ENOTTY;
    return -1;
#endif
}

#ifdef __APPLE__
/* fsync leaves the data in the disk's own cache, where a power cut loses it. */
int kl_system_sync_all(int fd) {
    int result = fcntl(fd, F_FULLFSYNC);
    /* Some file systems, of networks above all, do not know it. */
    return result && (errno == ENOTSUP || errno == EINVAL || errno == ENOTTY) ? fsync(fd)
                                                                              : result;
}
#else
int kl_system_sync_all(int fd) { return fsync(fd); }
#endif

int kl_system_sync_data(int fd) { return kl_system_sync_all(fd); }

/* sync() may return before the data is written: the disk is asked after it. */
int kl_system_sync_disk(int fd) {
    sync();
    return kl_system_sync_all(fd);
}

#ifdef __APPLE__
/* Beyond the file's end only; what is there already needs no space, or is a hole. */
static int preallocate(int fd, off_t pos, off_t bytes) {
    struct stat found;
    if (fstat(fd, &found)) return -1;
    off_t more = pos + bytes - found.st_size;
    fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, more, 0};
    if (more <= 0 || fcntl(fd, F_PREALLOCATE, &wanted) == 0) return 0;
    if (errno == ENOTSUP || errno == EINVAL) errno = ENOSYS;
    return -1;
}

int kl_system_reserve(int fd, int mode, off_t pos, off_t bytes) {
    int result = preallocate(fd, pos, bytes);
    if (mode == KL_KEEP_SIZE || (result && errno != ENOSYS)) return result;
    struct stat found;
    if (fstat(fd, &found)) return -1;
    return found.st_size < pos + bytes ? ftruncate(fd, pos + bytes) : 0;
}
#else
/* POSIX cannot reserve space beyond a file's end. */
int kl_system_reserve(int fd, int mode, off_t pos, off_t bytes) {
    errno = mode == KL_KEEP_SIZE ? ENOSYS : posix_fallocate(fd, pos, bytes);
    return errno ? -1 : 0;
}
#endif

enum { COPY_BYTES = 64 << 10 };

ssize_t kl_system_send_file(int out_fd, int in_fd, off_t *pos, size_t bytes) {
    uint8_t data[COPY_BYTES];
    ssize_t got = pread(in_fd, data, KL_MIN(bytes, sizeof data), *pos);
    if (got <= 0) return got;
    ssize_t sent = send(out_fd, data, (size_t)got, 0);
    if (sent < 0 && errno == ENOTSOCK) sent = write(out_fd, data, (size_t)got);
    if (sent > 0) *pos += sent;
    return sent;
}

ssize_t kl_system_copy(int in_fd, off_t *in_pos, int out_fd, off_t *out_pos, size_t bytes,
                       unsigned flags) {
    uint8_t data[COPY_BYTES];
    (void)flags;
    ssize_t got = pread(in_fd, data, KL_MIN(bytes, sizeof data), *in_pos);
    if (got <= 0) return got;
    ssize_t written = pwrite(out_fd, data, (size_t)got, *out_pos);
    if (written <= 0) return written;
    *in_pos += written;
    *out_pos += written;
    return written;
}

bool kl_system_cached(int fd, off_t pos, size_t bytes) {
    (void)fd, (void)pos, (void)bytes;
    return true; /* unknown */
}

int kl_system_list(int dir_fd, int (*take)(void *holder, const char *name), void *holder) {
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        int error = errno;
        if (fd >= 0) close(fd);
        errno = error;
        return -1;
    }
    int result = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) result = errno ? -1 : 0;
        else result = take(holder, entry->d_name);
        if (entry == NULL || result) break;
    }
    int error = errno;
    closedir(dir);
    errno = error;
    return result;
}

static int lock_call(int fd, int command, short kind, struct flock *found) {
    *found = (struct flock){.l_type = kind, .l_whence = SEEK_SET};
    return fcntl(fd, command, found);
}

int kl_system_lock(int fd) {
    struct flock all;
    return lock_call(fd, F_SETLK, F_WRLCK, &all);
}

void kl_system_unlock(int fd) {
    struct flock all;
    lock_call(fd, F_SETLK, F_UNLCK, &all);
}

int kl_system_lock_holder(int fd, int64_t *pid) {
    struct flock found;
    if (lock_call(fd, F_GETLK, F_WRLCK, &found)) return -1;
    *pid = KL_MAX(found.l_pid, 0);
    return found.l_type != F_UNLCK;
}

/* ---- sockets -------------------------------------------------------------------------- */

/* 0, or -1 with errno, and then the descriptor is closed. */
static int never_waits(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
        fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
        return 0;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int kl_system_socket(int family) {
    int fd = socket(family, SOCK_STREAM, 0);
    return fd < 0 || never_waits(fd) ? -1 : fd;
}

int kl_system_accept(int fd, struct sockaddr *from, socklen_t *bytes) {
    int taken = accept(fd, from, bytes);
    return taken < 0 || never_waits(taken) ? -1 : taken;
}

void kl_system_take_sigpipe(void) {
    sigset_t pipe, pending;
    int taken;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE)) sigwait(&pipe, &taken);
}

int kl_wake_init(kl_wake *wake) {
    int ends[2];
    *wake = (kl_wake){-1, -1};
    if (pipe(ends)) return -1;
    *wake = (kl_wake){ends[0], ends[1]};
    if (never_waits(ends[0])) wake->read_fd = -1;
    if (never_waits(ends[1])) wake->write_fd = -1;
    return wake->read_fd < 0 || wake->write_fd < 0 ? -1 : 0;
}

/* A full pipe wakes, too. */
void kl_wake_ring(const kl_wake *wake) {
    while (write(wake->write_fd, "", 1) < 0 && errno == EINTR) continue;
}

void kl_wake_clear(const kl_wake *wake) {
    char rung[64];
    while (read(wake->read_fd, rung, sizeof rung) == sizeof rung) continue;
}

void kl_wake_close(kl_wake *wake) {
    if (wake->read_fd >= 0) close(wake->read_fd);
    if (wake->write_fd >= 0) close(wake->write_fd);
    *wake = (kl_wake){-1, -1};
}

/* ---- processes and memory --------------------------------------------------------------- */

#ifdef __APPLE__
int64_t kl_system_process_start(int64_t pid) {
    int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, (int)pid};
    struct kinfo_proc found;
    size_t bytes = sizeof found;
    if (sysctl(name, 4, &found, &bytes, NULL, 0) || bytes == 0) return -1;
    enum { ZOMBIE = 5 }; /* SZOMB of the kernel's proc.h */
    if (found.kp_proc.p_stat == ZOMBIE) return -1;
    struct timeval start = found.kp_proc.p_starttime;
    return (int64_t)start.tv_sec * 1000000 + start.tv_usec;
}

void kl_system_program(int64_t pid, char *text, size_t bytes) {
    if (proc_name((int)pid, text, (uint32_t)bytes) <= 0) text[0] = 0;
    text[bytes - 1] = 0;
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
}

void kl_system_boot_id(char *text, size_t bytes) {
    if (sysctlbyname("kern.bootsessionuuid", text, &bytes, NULL, 0)) text[0] = 0;
}

/* Cleared at each start of the system, and open to all users. */
const char *kl_system_memory_folder(void) { return "/private/tmp"; }

/* Only a thread can name itself there. */
void kl_system_name_thread(pthread_t thread, const char *name) { (void)thread, (void)name; }
#else
/* The owner of a reused pid counts as the one before. */
int64_t kl_system_process_start(int64_t pid) {
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM) ? 0 : -1;
}

void kl_system_program(int64_t pid, char *text, size_t bytes) {
    (void)pid, (void)bytes;
    text[0] = 0;
}

void kl_system_boot_id(char *text, size_t bytes) {
    (void)bytes;
    text[0] = 0;
}

const char *kl_system_memory_folder(void) { return "/dev/shm"; }

void kl_system_name_thread(pthread_t thread, const char *name) {
    pthread_setname_np(thread, name);
}
#endif

uint64_t kl_system_pid_namespace(void) { return 0; }

/* A lock of `fd` does not move with it: a page is its writer's as long as that process lives. */
void *kl_system_remap(void *old, size_t old_bytes, size_t bytes, int protection, int fd) {
    void *map = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return NULL;
    munmap(old, old_bytes);
    return map;
}

bool kl_system_random(void *out, size_t bytes) { return getentropy(out, bytes) == 0; }

void kl_system_secret(void *out, size_t bytes) { KL_ASSERT(kl_system_random(out, bytes)); }
#endif
