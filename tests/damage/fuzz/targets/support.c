/* support.c: the input, the folder and the table of system calls of the fuzz targets. */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

_Noreturn void fuzz_broken(const char *condition, const char *file, int line) {
    fprintf(stderr, "fuzz: %s:%d: does not hold: %s (last failure: %s)\n", file, line,
            condition, kl_error_message());
    abort();
}

/* ---- input ---------------------------------------------------------------------------- */

kl_span fuzz_take(kl_span *input, size_t bytes) {
    kl_span taken = {input->data, KL_MIN(bytes, input->bytes)};
    input->data += taken.bytes;
    input->bytes -= taken.bytes;
    return taken;
}

static uint64_t take_number(kl_span *input, size_t bytes) {
    kl_span taken = fuzz_take(input, bytes);
    uint64_t number = 0;
    for (size_t i = 0; i < taken.bytes; i++) number = number << 8 | taken.data[i];
    return number;
}

uint8_t fuzz_u8(kl_span *input) { return (uint8_t)take_number(input, 1); }
uint32_t fuzz_u32(kl_span *input) { return (uint32_t)take_number(input, 4); }
int64_t fuzz_i64(kl_span *input) { return (int64_t)take_number(input, 8); }

uint32_t fuzz_below(kl_span *input, uint32_t limit) {
    WANT(limit > 0);
    if (limit <= 256) return fuzz_u8(input) % limit;
    return fuzz_u32(input) % limit;
}

uint8_t *fuzz_copy(kl_span span) {
    uint8_t *copy = malloc(KL_MAX(span.bytes, (size_t)1));
    WANT(copy != NULL);
    if (span.bytes) memcpy(copy, span.data, span.bytes);
    return copy;
}

/* ---- system calls --------------------------------------------------------------------- */

static _Atomic int64_t calls_to_go; /* 0: none fails */
static _Atomic int call_errno;
static _Atomic bool call_sticky;
static _Atomic int64_t clock_ms;

void fuzz_fail_call(int64_t nth, int error_number, bool sticky) {
    atomic_store(&call_errno, error_number);
    atomic_store(&call_sticky, sticky);
    atomic_store(&calls_to_go, nth);
}

static bool fails(void) {
    int64_t left = atomic_load(&calls_to_go);
    if (left == 0) return false;
    if (left > 1) {
        atomic_store(&calls_to_go, left - 1);
        return false;
    }
    if (!atomic_load(&call_sticky)) atomic_store(&calls_to_go, 0);
    errno = atomic_load(&call_errno);
    return true;
}

static int at_openat(int dir_fd, const char *name, int flags, mode_t mode) {
    static const char page[] = "/dev/shm/kafkalog-";
    if (strncmp(name, page, sizeof page - 1) == 0) { /* no pages: readers read bytes */
        errno = EACCES;
        return -1;
    }
    return fails() ? -1 : openat(dir_fd, name, flags, mode);
}
static ssize_t at_pread(int fd, void *buffer, size_t bytes, off_t pos) {
    return fails() ? -1 : pread(fd, buffer, bytes, pos);
}
static ssize_t at_pwrite(int fd, const void *buffer, size_t bytes, off_t pos) {
    return fails() ? -1 : pwrite(fd, buffer, bytes, pos);
}
static int at_sync(int fd) {
    (void)fd;
    return fails() ? -1 : 0;
}
static int at_ftruncate(int fd, off_t bytes) { return fails() ? -1 : ftruncate(fd, bytes); }
static int at_fallocate(int fd, int mode, off_t pos, off_t bytes) {
    (void)fd;
    (void)mode;
    WANT(pos >= 0 && bytes > 0);
    return fails() ? -1 : 0;
}
static int at_fstat(int fd, struct stat *out) { return fails() ? -1 : fstat(fd, out); }
static int at_fstatat(int dir_fd, const char *name, struct stat *out, int flags) {
    return fails() ? -1 : fstatat(dir_fd, name, out, flags);
}
static int at_facts(int fd, kl_facts *out) {
    return fails() ? -1 : kl_system_facts(fd, out);
}
static int at_renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return fails() ? -1 : renameat(from_fd, from, to_fd, to);
}
static int at_unlinkat(int dir_fd, const char *name, int flags) {
    return fails() ? -1 : unlinkat(dir_fd, name, flags);
}
static int at_mkdirat(int dir_fd, const char *name, mode_t mode) {
    return fails() ? -1 : mkdirat(dir_fd, name, mode);
}
static int at_futimens(int fd, const struct timespec times[2]) {
    return fails() ? -1 : futimens(fd, times);
}

static void *at_mmap(void *where, size_t bytes, int protection, int flags, int fd,
                     off_t pos) {
    if (protection & PROT_WRITE) { /* any state page: there are none here */
        errno = ENODEV;
        return MAP_FAILED;
    }
    WANT(where == NULL && protection == PROT_READ && flags == MAP_SHARED && pos == 0);
    if (fails()) return MAP_FAILED;
    uint8_t *copy = malloc(bytes);
    WANT(copy != NULL);
    /* A map past the end of its file would raise SIGBUS later. */
    WANT(pread(fd, copy, bytes, pos) == (ssize_t)bytes);
    return copy;
}
static int at_munmap(void *where, size_t bytes) {
    (void)bytes;
    free(where);
    return 0;
}

static ssize_t at_sendfile(int out_fd, int in_fd, off_t *pos, size_t bytes) {
    return fails() ? -1 : sendfile(out_fd, in_fd, pos, bytes);
}
static ssize_t at_copy(int in_fd, off_t *in_pos, int out_fd, off_t *out_pos, size_t bytes,
                       unsigned flags) {
    return fails() ? -1 : copy_file_range(in_fd, in_pos, out_fd, out_pos, bytes, flags);
}
static int at_clock(clockid_t clock, struct timespec *out) {
    /* Waits of threads need the real one. */
    if (clock != CLOCK_REALTIME) return clock_gettime(clock, out);
    int64_t now = 1700000000000 + atomic_fetch_add(&clock_ms, 1);
    *out = (struct timespec){now / 1000, now % 1000 * 1000000};
    return 0;
}

static const kl_io_table table = {
    .openat = at_openat,
    .close = close,
    .pread = at_pread,
    .pwrite = at_pwrite,
    .fdatasync = at_sync,
    .fsync = at_sync,
    .ftruncate = at_ftruncate,
    .fallocate = at_fallocate,
    .fstat = at_fstat,
    .fstatat = at_fstatat,
    .facts = at_facts,
    .renameat = at_renameat,
    .unlinkat = at_unlinkat,
    .mkdirat = at_mkdirat,
    .futimens = at_futimens,
    .mmap = at_mmap,
    .munmap = at_munmap,
    .sendfile = at_sendfile,
    .copy_file_range = at_copy,
    .clock_gettime = at_clock,
};
const kl_io_table *const kl_io = &table;

/* ---- folder --------------------------------------------------------------------------- */

static kl_dir *folder;
static pid_t owner;

static void each_name(void (*act)(const char *name)) {
    kl_names names;
    WANT(kl_dir_list(folder, &names) == KL_OK);
    for (size_t i = 0; i < names.count; i++) act(names.names[i]);
    kl_names_free(&names);
}

static void remove_name(const char *name) {
    WANT(unlinkat(folder->fd, name, 0) == 0 ||
         unlinkat(folder->fd, name, AT_REMOVEDIR) == 0);
}

static void remove_folder(void) {
    if (getpid() != owner) return;
    fuzz_empty_dir();
    rmdir(folder->path);
    kl_dir_close(folder);
    kl_dir_free(folder);
}

kl_dir *fuzz_dir(void) {
    static char path[4096];
    if (folder != NULL) return folder;
    const char *parent = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/fuzz-XXXXXX", parent ? parent : "/dev/shm");
    WANT(mkdtemp(path) != NULL);
    WANT(kl_dir_open(path, 0, &folder) == KL_OK);
    owner = getpid();
    WANT(atexit(remove_folder) == 0);
    return folder;
}

void fuzz_empty_dir(void) {
    fuzz_fail_call(0, 0, false);
    fuzz_dir();
    each_name(remove_name);
}

void fuzz_write(const char *name, kl_span bytes) {
    int fd = openat(fuzz_dir()->fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    WANT(fd >= 0);
    WANT(write(fd, bytes.data, bytes.bytes) == (ssize_t)bytes.bytes);
    WANT(close(fd) == 0);
}

uint8_t *fuzz_read(const char *name, size_t limit, size_t *bytes) {
    uint8_t *data = malloc(limit);
    int fd = openat(fuzz_dir()->fd, name, O_RDONLY);
    WANT(data != NULL && fd >= 0);
    ssize_t got = read(fd, data, limit);
    WANT(got >= 0 && (size_t)got < limit);
    WANT(close(fd) == 0);
    *bytes = (size_t)got;
    return data;
}
