/* io_test.c: the I/O table of test builds: counts calls, fails or shortens the N-th, and records
 * changes of the disk.  docs/architecture.md, "Hooks for tests". */
#include "io.h"

#ifdef KL_TEST
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

typedef enum {
    CALL_OPENAT,
    CALL_CLOSE,
    CALL_PREAD,
    CALL_PWRITE,
    CALL_FDATASYNC,
    CALL_FSYNC,
    CALL_SYNCFS,
    CALL_FTRUNCATE,
    CALL_FALLOCATE,
    CALL_FSTAT,
    CALL_FSTATAT,
    CALL_STATX,
    CALL_RENAMEAT,
    CALL_UNLINKAT,
    CALL_MKDIRAT,
    CALL_FUTIMENS,
    CALL_MMAP,
    CALL_SENDFILE,
    CALL_COPY_FILE_RANGE,
    CALL_CACHED, /* "fails": not cached */
    CALL_ALLOC,  /* not part of "any call", from here on */
    CALL_ACCEPT4,
    CALL_ROOM, /* calls that a full disk may refuse; also counted by kind */
    CALL_COUNT
} call_kind;

static const char *const call_names[CALL_COUNT] = {
    "openat",          "close",     "pread",     "pwrite",   "fdatasync", "fsync",
    "syncfs",          "ftruncate", "fallocate", "fstat",    "fstatat",   "statx",
    "renameat",        "unlinkat",  "mkdirat",   "futimens", "mmap",      "sendfile",
    "copy_file_range", "cached",    "alloc",     "accept4",  "room",
};

/* A plan for the N-th call of a kind. */
typedef struct {
    int64_t to_go;       /* fires at 0; 0: off */
    int64_t short_bytes; /* > 0: transfer this much instead of failing */
    int error_number;
    bool sticky;
} call_plan;

enum { ANY_CALL = CALL_COUNT };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static call_plan plans[CALL_COUNT + 1];
static int64_t counts[CALL_COUNT + 1];
static int held[CALL_COUNT];        /* whether calls of this kind wait (KL_HOLD_) */
static int64_t waiting[CALL_COUNT]; /* calls waiting now */
static int64_t to_hold[CALL_COUNT]; /* this many calls from now, one waits; 0: none */
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static _Atomic int64_t stall_ms, ahead_ms; /* of an fdatasync; of the monotonic clock */
static int record_fd = -1;
static int64_t recorded; /* lines since kl_io_record */

static void after_fork_in_child(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&let_go, NULL);
    memset(held, 0, sizeof held);
}
/* Early: the first handler in a child, as others may close files. */
__attribute__((constructor(101))) static void register_fork_handler(void) {
    KL_ASSERT(pthread_atfork(NULL, NULL, after_fork_in_child) == 0);
}

static int find_call(const char *call) {
    if (!call) return ANY_CALL;
    for (int kind = 0; kind < CALL_COUNT; kind++)
        if (strcmp(call, call_names[kind]) == 0) return kind;
    return -1;
}

int kl_io_fail(const char *call, int64_t nth, int error_number, int sticky,
               int64_t short_bytes) {
    int kind = find_call(call);
    if (kind < 0 || nth < 1) return -1;
    kl_lock(&lock);
    plans[kind] = (call_plan){nth, short_bytes, error_number, sticky};
    kl_unlock(&lock);
    return 0;
}

void kl_io_reset(void) {
    kl_lock(&lock);
    memset(plans, 0, sizeof plans);
    memset(counts, 0, sizeof counts);
    memset(held, 0, sizeof held);
    memset(to_hold, 0, sizeof to_hold);
    atomic_store(&stall_ms, 0);
    atomic_store(&ahead_ms, 0);
    pthread_cond_broadcast(&let_go);
    kl_unlock(&lock);
}

int kl_io_hold(const char *call, int hold) {
    int kind = find_call(call);
    if (kind < 0 || kind == CALL_ALLOC || kind == ANY_CALL) return -1;
    kl_lock(&lock);
    held[kind] = hold;
    pthread_cond_broadcast(&let_go);
    kl_unlock(&lock);
    return 0;
}

int kl_io_hold_one(const char *call, int64_t nth) {
    int kind = find_call(call);
    if (kind < 0 || kind >= CALL_ALLOC || nth < 1) return -1;
    kl_lock(&lock);
    held[kind] = KL_HOLD_WAITING;
    to_hold[kind] = nth;
    kl_unlock(&lock);
    return 0;
}

int64_t kl_io_waiting(const char *call) {
    int kind = find_call(call);
    if (kind < 0 || kind == CALL_ALLOC || kind == ANY_CALL) return -1;
    kl_lock(&lock);
    int64_t count = waiting[kind];
    kl_unlock(&lock);
    return count;
}

void kl_io_stall(int64_t ms) { atomic_store(&stall_ms, ms); }

int64_t kl_io_calls(const char *call) {
    int kind = find_call(call);
    if (kind < 0) return -1;
    kl_lock(&lock);
    int64_t count = counts[kind];
    kl_unlock(&lock);
    return count;
}

int kl_io_record(int fd) {
    kl_lock(&lock);
    record_fd = fd;
    recorded = 0;
    kl_unlock(&lock);
    return 0;
}

static bool fires(call_plan *plan) {
    if (plan->to_go == 0) return false;
    if (plan->to_go > 1) {
        plan->to_go--;
        return false;
    }
    if (!plan->sticky) plan->to_go = 0;
    return true;
}

/* Count a call.  True: it must fail with errno.  A transfer may be shortened instead. */
static bool fails(call_kind kind, size_t *bytes) {
    call_plan hit = {0};
    kl_lock(&lock);
    counts[kind]++;
    if (fires(&plans[kind])) hit = plans[kind];
    if (kind < CALL_ALLOC) {
        counts[ANY_CALL]++;
        if (fires(&plans[ANY_CALL])) hit = plans[ANY_CALL];
    }
    waiting[kind]++;
    if (held[kind] == KL_HOLD_ALL || (to_hold[kind] > 0 && --to_hold[kind] == 0))
        while (held[kind]) KL_ASSERT(pthread_cond_wait(&let_go, &lock) == 0);
    waiting[kind]--;
    kl_unlock(&lock);
    if (hit.short_bytes > 0 && bytes) {
        *bytes = KL_MIN(*bytes, (size_t)hit.short_bytes);
        return false;
    }
    if (hit.error_number == 0) return false;
    errno = hit.error_number;
    return true;
}

/* True if a call that needs disk space must fail. */
static bool has_no_room(call_kind kind, size_t *bytes) {
    return fails(CALL_ROOM, bytes) || fails(kind, bytes);
}

bool kl_io_alloc_fails(void) { return fails(CALL_ALLOC, NULL); }

/* ---- the record ---------------------------------------------------------------------- */

/* A JSON string; bytes outside ASCII as single \u00xx. */
static void print_string(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p > 0x7e || *p == '"' || *p == '\\') fprintf(out, "\\u%04x", *p);
        else fputc(*p, out);
    fputc('"', out);
}

/* The path of `fd`, in up to 4,096 bytes; 0: unknown. */
static ssize_t path_of(int fd, char *path) {
#ifdef __APPLE__
    bool known =
        fd == AT_FDCWD ? getcwd(path, 4096) != NULL : fcntl(fd, F_GETPATH, path) == 0;
    return known ? (ssize_t)strlen(path) : 0;
#else
    char link[64];
    snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
    return KL_MAX(readlink(link, path, 4096), 0);
#endif
}

/* The path of `fd`, or `name` below it. */
static void print_path(FILE *out, const char *key, int fd, const char *name) {
    char path[8192];
    ssize_t bytes = !name || name[0] != '/' ? path_of(fd, path) : 0;
    path[bytes] = 0;
    if (name)
        snprintf(path + bytes, sizeof path - (size_t)bytes, "%s%s", bytes ? "/" : "", name);
    fprintf(out, ",\"%s\":", key);
    print_string(out, path);
}

static void print_hex(FILE *out, const uint8_t *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    fputs(",\"data\":\"", out);
    for (size_t i = 0; i < bytes; i++) {
        fputc(digits[data[i] >> 4], out);
        fputc(digits[data[i] & 15], out);
    }
    fputc('"', out);
}

/* A line of the record: a call's arguments and result (result, errno). */
typedef struct {
    call_kind kind;
    int fd;
    const char *name; /* NULL: the file of `fd` */
    const char *to;   /* of a rename, below to_fd */
    int to_fd;
    int64_t pos, bytes; /* -1: no argument of this call */
    int64_t covers;     /* of a sync: number of lines at its start */
    const uint8_t *data;
    size_t data_bytes;
    int flags; /* of an open; the mode of fallocate */
    int64_t result;
} call_line;

/* As Python's threading.get_native_id says, so that a test can add lines of its own. */
static uint64_t thread_number(void) {
#ifdef __APPLE__
    uint64_t own = 0;
    KL_ASSERT(pthread_threadid_np(NULL, &own) == 0);
    return own;
#else
    return (uint64_t)gettid();
#endif
}

static void print_line(FILE *out, const call_line *line, int error_number) {
    fprintf(out, "{\"op\":\"%s\",\"thread\":%llu", call_names[line->kind],
            (unsigned long long)thread_number());
    print_path(out, "path", line->fd, line->name);
    if (line->to) print_path(out, "to", line->to_fd, line->to);
    if (line->flags) fprintf(out, ",\"flags\":%d", line->flags);
    if (line->pos >= 0) fprintf(out, ",\"offset\":%lld", (long long)line->pos);
    if (line->bytes >= 0) fprintf(out, ",\"bytes\":%lld", (long long)line->bytes);
    if (line->kind == CALL_FDATASYNC || line->kind == CALL_FSYNC ||
        line->kind == CALL_SYNCFS)
        fprintf(out, ",\"covers\":%lld", (long long)line->covers);
    if (line->data) print_hex(out, line->data, line->data_bytes);
    fprintf(out, ",\"result\":%lld,\"errno\":%d}\n", (long long)line->result,
            line->result < 0 ? error_number : 0);
}

/* Locked.  One write per line, so that a test can insert its own lines. */
static void record_locked(const call_line *line, int error_number) {
    char *text = NULL;
    size_t bytes = 0;
    if (record_fd < 0) return;
    FILE *out = open_memstream(&text, &bytes);
    KL_ASSERT(out != NULL);
    print_line(out, line, error_number);
    fclose(out);
    KL_ASSERT(write(record_fd, text, bytes) == (ssize_t)bytes);
    recorded++;
    free(text);
}

static void record(const call_line *line) {
    int error_number = errno;
    kl_lock(&lock);
    record_locked(line, error_number);
    kl_unlock(&lock);
    errno = error_number;
}

/* ---- the hooked calls ---------------------------------------------------------------- */

static int64_t record_plain(call_kind kind, int fd, int64_t pos, int64_t bytes,
                            int64_t result) {
    record(
        &(call_line){.kind = kind, .fd = fd, .pos = pos, .bytes = bytes, .result = result});
    return result;
}

static int hook_openat(int dir_fd, const char *name, int flags, mode_t mode) {
    bool makes = flags & O_CREAT && faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    bool failed = makes ? has_no_room(CALL_OPENAT, NULL) : fails(CALL_OPENAT, NULL);
    int fd = failed ? -1 : kl_io_system.openat(dir_fd, name, flags, mode);
    if (flags & (O_CREAT | O_TRUNC))
        record(&(call_line){.kind = CALL_OPENAT,
                            .fd = dir_fd,
                            .name = name,
                            .flags = flags,
                            .pos = -1,
                            .bytes = -1,
                            .result = fd});
    return fd;
}

static int hook_close(int fd) {
    bool failed = fails(CALL_CLOSE, NULL);
    int error_number = errno;
    int result = kl_io_system.close(fd); /* Linux closes it even on failure */
    if (!failed) return result;
    errno = error_number;
    return -1;
}

static ssize_t hook_pread(int fd, void *buffer, size_t bytes, off_t pos) {
    return fails(CALL_PREAD, &bytes) ? -1 : kl_io_system.pread(fd, buffer, bytes, pos);
}

static ssize_t hook_pwrite(int fd, const void *buffer, size_t bytes, off_t pos) {
    ssize_t done =
        has_no_room(CALL_PWRITE, &bytes) ? -1 : kl_io_system.pwrite(fd, buffer, bytes, pos);
    record(&(call_line){.kind = CALL_PWRITE,
                        .fd = fd,
                        .pos = pos,
                        .bytes = (int64_t)bytes,
                        .data = buffer,
                        .data_bytes = done < 0 ? 0 : (size_t)done,
                        .result = done});
    return done;
}

static int64_t recorded_so_far(void) {
    kl_lock(&lock);
    int64_t lines = recorded;
    kl_unlock(&lock);
    return lines;
}

/* Data written during the sync may or may not be on disk. */
static int record_sync(call_kind kind, int fd, int64_t covers, int result) {
    record(&(call_line){.kind = kind,
                        .fd = fd,
                        .pos = -1,
                        .bytes = -1,
                        .covers = covers,
                        .result = result});
    return result;
}

static int hook_fdatasync(int fd) {
    int64_t covers = recorded_so_far();
    int result = fails(CALL_FDATASYNC, NULL) ? -1 : kl_io_system.fdatasync(fd);
    atomic_fetch_add(&ahead_ms, atomic_load(&stall_ms));
    return record_sync(CALL_FDATASYNC, fd, covers, result);
}

static int hook_fsync(int fd) {
    int64_t covers = recorded_so_far();
    int result = fails(CALL_FSYNC, NULL) ? -1 : kl_io_system.fsync(fd);
    return record_sync(CALL_FSYNC, fd, covers, result);
}

static int hook_syncfs(int fd) {
    int64_t covers = recorded_so_far();
    int result = fails(CALL_SYNCFS, NULL) ? -1 : kl_io_system.syncfs(fd);
    return record_sync(CALL_SYNCFS, fd, covers, result);
}

static int hook_ftruncate(int fd, off_t bytes) {
    int result = fails(CALL_FTRUNCATE, NULL) ? -1 : kl_io_system.ftruncate(fd, bytes);
    return (int)record_plain(CALL_FTRUNCATE, fd, -1, bytes, result);
}

static int hook_fallocate(int fd, int mode, off_t pos, off_t bytes) {
    int result = has_no_room(CALL_FALLOCATE, NULL)
                     ? -1
                     : kl_io_system.fallocate(fd, mode, pos, bytes);
    record(&(call_line){.kind = CALL_FALLOCATE,
                        .fd = fd,
                        .pos = pos,
                        .bytes = bytes,
                        .flags = mode,
                        .result = result});
    return result;
}

static int hook_fstat(int fd, struct stat *out) {
    return fails(CALL_FSTAT, NULL) ? -1 : kl_io_system.fstat(fd, out);
}

static int hook_fstatat(int dir_fd, const char *name, struct stat *out, int flags) {
    return fails(CALL_FSTATAT, NULL) ? -1 : kl_io_system.fstatat(dir_fd, name, out, flags);
}

static int hook_facts(int fd, kl_facts *out) {
    return fails(CALL_STATX, NULL) ? -1 : kl_io_system.facts(fd, out);
}

static int hook_version(int fd, uint64_t *out) { return kl_io_system.version(fd, out); }

static int hook_renameat(int from_fd, const char *from, int to_fd, const char *to) {
    /* A longer name may need a directory block; a shorter one does not. */
    bool longer = strlen(to) > strlen(from);
    bool failed = longer ? has_no_room(CALL_RENAMEAT, NULL) : fails(CALL_RENAMEAT, NULL);
    /* No line may name the new file before this one, such as that of a concurrent sync. */
    kl_lock(&lock);
    int result = failed ? -1 : kl_io_system.renameat(from_fd, from, to_fd, to);
    int error_number = errno;
    record_locked(&(call_line){.kind = CALL_RENAMEAT,
                               .fd = from_fd,
                               .name = from,
                               .to = to,
                               .to_fd = to_fd,
                               .pos = -1,
                               .bytes = -1,
                               .result = result},
                  error_number);
    kl_unlock(&lock);
    errno = error_number;
    return result;
}

static int hook_unlinkat(int dir_fd, const char *name, int flags) {
    int result =
        fails(CALL_UNLINKAT, NULL) ? -1 : kl_io_system.unlinkat(dir_fd, name, flags);
    record(&(call_line){.kind = CALL_UNLINKAT,
                        .fd = dir_fd,
                        .name = name,
                        .pos = -1,
                        .bytes = -1,
                        .result = result});
    return result;
}

static int hook_mkdirat(int dir_fd, const char *name, mode_t mode) {
    int result =
        has_no_room(CALL_MKDIRAT, NULL) ? -1 : kl_io_system.mkdirat(dir_fd, name, mode);
    record(&(call_line){.kind = CALL_MKDIRAT,
                        .fd = dir_fd,
                        .name = name,
                        .pos = -1,
                        .bytes = -1,
                        .result = result});
    return result;
}

static int hook_futimens(int fd, const struct timespec times[2]) {
    int result = fails(CALL_FUTIMENS, NULL) ? -1 : kl_io_system.futimens(fd, times);
    return (int)record_plain(CALL_FUTIMENS, fd, -1, -1, result);
}

static void *hook_mmap(void *where, size_t bytes, int protection, int flags, int fd,
                       off_t pos) {
    if (fails(CALL_MMAP, NULL)) return (void *)-1; /* MAP_FAILED */
    return kl_io_system.mmap(where, bytes, protection, flags, fd, pos);
}

static int hook_munmap(void *where, size_t bytes) {
    return kl_io_system.munmap(where, bytes);
}

static ssize_t hook_sendfile(int out_fd, int in_fd, off_t *pos, size_t bytes) {
    return fails(CALL_SENDFILE, &bytes) ? -1
                                        : kl_io_system.sendfile(out_fd, in_fd, pos, bytes);
}

static int hook_accept4(int fd, struct sockaddr *from, socklen_t *bytes) {
    return fails(CALL_ACCEPT4, NULL) ? -1 : kl_io_system.accept4(fd, from, bytes);
}

static ssize_t hook_copy_file_range(int in_fd, off_t *in_pos, int out_fd, off_t *out_pos,
                                    size_t bytes, unsigned flags) {
    off_t from = in_pos ? *in_pos : 0, pos = out_pos ? *out_pos : 0;
    ssize_t done =
        has_no_room(CALL_COPY_FILE_RANGE, &bytes)
            ? -1
            : kl_io_system.copy_file_range(in_fd, in_pos, out_fd, out_pos, bytes, flags);
    uint8_t *copied = done > 0 ? malloc((size_t)done) : NULL;
    KL_ASSERT(done <= 0 || kl_io_system.pread(in_fd, copied, (size_t)done, from) == done);
    record(&(call_line){.kind = CALL_COPY_FILE_RANGE,
                        .fd = out_fd,
                        .pos = pos,
                        .bytes = (int64_t)bytes,
                        .data = copied,
                        .data_bytes = done < 0 ? 0 : (size_t)done,
                        .result = done});
    free(copied);
    return done;
}

static bool hook_cached(int fd, off_t pos, size_t bytes) {
    return !fails(CALL_CACHED, NULL) && kl_io_system.cached(fd, pos, bytes);
}

static int hook_clock_gettime(clockid_t clock, struct timespec *out) {
    int result = kl_io_system.clock_gettime(clock, out);
    if (result == 0 && clock == CLOCK_MONOTONIC)
        out->tv_sec += (time_t)(atomic_load(&ahead_ms) / 1000);
    return result;
}

static const kl_io_table hooked_calls = {
    .openat = hook_openat,
    .close = hook_close,
    .pread = hook_pread,
    .pwrite = hook_pwrite,
    .fdatasync = hook_fdatasync,
    .fsync = hook_fsync,
    .syncfs = hook_syncfs,
    .ftruncate = hook_ftruncate,
    .fallocate = hook_fallocate,
    .fstat = hook_fstat,
    .fstatat = hook_fstatat,
    .facts = hook_facts,
    .version = hook_version,
    .renameat = hook_renameat,
    .unlinkat = hook_unlinkat,
    .mkdirat = hook_mkdirat,
    .futimens = hook_futimens,
    .mmap = hook_mmap,
    .munmap = hook_munmap,
    .accept4 = hook_accept4,
    .sendfile = hook_sendfile,
    .copy_file_range = hook_copy_file_range,
    .cached = hook_cached,
    .clock_gettime = hook_clock_gettime,
};

const kl_io_table *const kl_io = &hooked_calls;
#endif
