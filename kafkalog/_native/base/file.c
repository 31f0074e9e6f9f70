/* file.c: the files of logs, and the limit on open ones.
 *
 * A file's `state` holds its pin count, a bit for an open `fd`, and one for what a sync has to
 * cover.  A pin adds one and checks the first bit; a write sets the second before its unpin; an
 * eviction swaps "open, synced, no pins" for "closed" atomically, so each sees the others.  Rare
 * operations take locks: opening (one at a time per file), a sync, and the ring of open files.
 * Lock order: opening, then the cache's; a sync holds neither. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static const int64_t FILE_OPEN = (int64_t)1 << 32;
/* Written since its last sync.  Closing it could hide a failed write-back. */
static const int64_t FILE_UNSYNCED = (int64_t)1 << 33;
static const int64_t FILE_PINS = ((int64_t)1 << 32) - 1;
/* Space for a segment's name with any suffix that a rename may add. */
enum { NAME_BYTES_MIN = 64 };

struct kl_file {
    _Atomic int64_t state;
    _Atomic int fd;       /* changes only while the file is closed */
    _Atomic bool touched; /* pinned since the clock hand last passed */
    /* The kernel reports a failure to only one of two concurrent syncs.  Syncs by its log share
     * this lock, as either failure is the log's; a sync by the cache takes it exclusively. */
    pthread_rwlock_t syncing;
    _Atomic int sync_errno; /* of a failed sync by the cache: the next sync fails with it */
    _Atomic int references;
    int generation; /* of the creating process */
    bool writable;

    pthread_mutex_t opening; /* guards the members below */
    bool known;              /* opened once: id and birth time identify the file */
    uint64_t device;
    uint64_t inode;
    int64_t born_ns; /* 0: unknown to the file system */
    size_t name_bytes;
    _Atomic int name_slot; /* index of the current name; a rename fills the other */
    char *names;
    char *dir_path;

    kl_file *next, *previous; /* the ring; guarded by cache.lock */
};

static struct {
    pthread_mutex_t lock;
    kl_file *hand; /* NULL: no file is open */
    _Atomic int64_t open_count;
    _Atomic int64_t limit; /* 0: unknown yet */
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the bounded set of open files --------------------------------------------------- */

static int64_t default_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY) return 1 << 20;
    return KL_MAX((int64_t)(files.rlim_cur / 2), 1);
}

static void ring_add(kl_file *file) {
    if (!cache.hand) {
        file->next = file->previous = cache.hand = file;
        return;
    }
    /* Behind the hand: visited last. */
    file->next = cache.hand;
    file->previous = cache.hand->previous;
    file->previous->next = file->next->previous = file;
}

static void ring_remove(kl_file *file) {
    if (cache.hand == file) cache.hand = file->next == file ? NULL : file->next;
    file->next->previous = file->previous;
    file->previous->next = file->next;
    file->next = file->previous = NULL;
}

/* Close idle files until `limit` are open, untouched ones first.  Pinned files stay open, so their
 * number may exceed the limit; so do unsynced ones, except in a forked child, whose parent has
 * them. */
static void evict_down_to(int64_t limit, bool all) {
    int64_t looks = 2 * atomic_load(&cache.open_count);
    while (cache.hand && atomic_load(&cache.open_count) > limit && looks-- > 0) {
        kl_file *file = cache.hand;
        int fd = atomic_load(&file->fd);
        int64_t idle = FILE_OPEN;
        if (all) atomic_fetch_and(&file->state, ~FILE_UNSYNCED);
        if (atomic_exchange(&file->touched, false) ||
            !atomic_compare_exchange_strong(&file->state, &idle, 0)) {
            cache.hand = file->next;
            continue;
        }
        ring_remove(file);
        kl_io->close(fd);
        atomic_fetch_sub(&cache.open_count, 1);
    }
}

static int64_t open_limit(void) {
    int64_t limit = atomic_load(&cache.limit);
    if (limit == 0) atomic_store(&cache.limit, limit = default_limit());
    return limit;
}

/* Retain a file of the ring, unless its last reference was just dropped: the dropping thread then
 * waits for the cache's lock, to remove and free it. */
static bool retain_living(kl_file *file) {
    int references = atomic_load(&file->references);
    while (references > 0)
        if (atomic_compare_exchange_weak(&file->references, &references, references + 1))
            return true;
    return false;
}

/* The cache's lock is held.  Pin an idle file that is open only because it is unsynced. */
static kl_file *pin_unsynced(void) {
    kl_file *file = cache.hand;
    for (int64_t looks = atomic_load(&cache.open_count); file && looks-- > 0;) {
        int64_t idle = FILE_OPEN | FILE_UNSYNCED;
        if (atomic_compare_exchange_strong(&file->state, &idle, idle + 1)) {
            if (retain_living(file)) return file;
            atomic_fetch_sub(&file->state, 1);
        }
        file = file->next;
    }
    return NULL;
}

/* Sync it, so that it can be closed; keep a failure for its log. */
static void sync_kept(kl_file *file) {
    int result, fd = atomic_load(&file->fd);
    KL_ASSERT(pthread_rwlock_wrlock(&file->syncing) == 0);
    atomic_fetch_and(&file->state, ~FILE_UNSYNCED);
    do result = kl_io->fdatasync(fd);
    while (result && errno == EINTR);
    if (result) atomic_store(&file->sync_errno, errno);
    KL_ASSERT(pthread_rwlock_unlock(&file->syncing) == 0);
    kl_file_unpin(file);
    kl_file_drop(file);
}

/* If all open files are unsynced, sync one, so that it can be closed. */
static void cache_reserve(void) {
    kl_file *kept = NULL;
    kl_lock(&cache.lock);
    evict_down_to(open_limit() - 1, false);
    if (atomic_load(&cache.open_count) >= open_limit()) kept = pin_unsynced();
    atomic_fetch_add(&cache.open_count, 1);
    kl_unlock(&cache.lock);
    if (kept == NULL) return;
    sync_kept(kept);
    kl_lock(&cache.lock);
    evict_down_to(open_limit(), false);
    kl_unlock(&cache.lock);
}

void kl_set_max_open_files(int64_t max_open) {
    kl_lock(&cache.lock);
    atomic_store(&cache.limit, KL_MAX(max_open, 1));
    evict_down_to(open_limit(), false);
    kl_unlock(&cache.lock);
}

int64_t kl_open_files(void) { return atomic_load(&cache.open_count); }

static void before_fork(void) { kl_lock(&cache.lock); }
static void after_fork_in_parent(void) { kl_unlock(&cache.lock); }
/* The child's handles are invalid, and must not keep deleted files on disk. */
static void after_fork_in_child(void) {
    int64_t looks = atomic_load(&cache.open_count);
    for (kl_file *file = cache.hand; file && looks-- > 0; file = file->next)
        atomic_store(&file->touched, false);
    evict_down_to(0, true);
    kl_unlock(&cache.lock);
}
__attribute__((constructor)) static void register_fork_handlers(void) {
    KL_ASSERT(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
}

/* ---- handles ------------------------------------------------------------------------- */

kl_status kl_file_new(const char *dir_path, const char *name, bool writable,
                      kl_file **out) {
    *out = NULL;
    size_t name_bytes = KL_MAX(strlen(name) + 1, NAME_BYTES_MIN);
    kl_file *file = kl_alloc(sizeof *file);
    char *names = kl_alloc(2 * name_bytes);
    char *path = kl_alloc(strlen(dir_path) + 1);
    if (!file || !names || !path) {
        kl_release(file);
        kl_release(names);
        kl_release(path);
        return kl_fail(KL_E_NO_MEMORY, "%s/%s: no memory for a file handle", dir_path,
                       name);
    }
    KL_ASSERT(pthread_mutex_init(&file->opening, NULL) == 0);
    KL_ASSERT(pthread_rwlock_init(&file->syncing, NULL) == 0);
    file->fd = -1;
    file->references = 1;
    file->generation = kl_process_generation;
    file->writable = writable;
    file->name_bytes = name_bytes;
    file->names = strcpy(names, name);
    file->dir_path = strcpy(path, dir_path);
    *out = file;
    return KL_OK;
}

kl_file *kl_file_retain(kl_file *file) {
    atomic_fetch_add(&file->references, 1);
    return file;
}

void kl_file_drop(kl_file *file) {
    if (!file || atomic_fetch_sub(&file->references, 1) != 1) return;
    kl_lock(&cache.lock);
    int64_t state = atomic_load(&file->state);
    /* A forked child may find pins of the parent's threads. */
    KL_ASSERT((state & FILE_PINS) == 0 || file->generation != kl_process_generation);
    if (state & FILE_OPEN) {
        ring_remove(file);
        atomic_fetch_sub(&cache.open_count, 1);
    }
    kl_unlock(&cache.lock);
    if (state & FILE_OPEN) kl_io->close(atomic_load(&file->fd));
    pthread_mutex_destroy(&file->opening);
    pthread_rwlock_destroy(&file->syncing);
    kl_release(file->names);
    kl_release(file->dir_path);
    kl_release(file);
}

const char *kl_file_dir(const kl_file *file) { return file->dir_path; }

const char *kl_file_name(const kl_file *file) {
    return file->names + (size_t)atomic_load(&file->name_slot) * file->name_bytes;
}

kl_status kl_file_rename(kl_file *file, kl_dir *dir, const char *to) {
    kl_lock(&file->opening);
    KL_ASSERT(strlen(to) < file->name_bytes);
    kl_status status = kl_dir_rename(dir, kl_file_name(file), to);
    if (!status) {
        int slot = !atomic_load(&file->name_slot);
        strcpy(file->names + (size_t)slot * file->name_bytes, to);
        atomic_store(&file->name_slot, slot);
    }
    kl_unlock(&file->opening);
    return status;
}

/* ---- opening ------------------------------------------------------------------------- */

/* Record the identity of `fd`, or compare it with the recorded one.  `*seen`: the result, with size
 * and times. */
static kl_status identify(kl_file *file, int fd, kl_facts *seen) {
    const char *name = kl_file_name(file);
    kl_facts found;
    if (kl_io->facts(fd, &found))
        return kl_fail_errno(errno, "%s/%s: cannot stat", file->dir_path, name);
    if (!S_ISREG(found.mode))
        return kl_fail(KL_E_CORRUPT, "%s/%s: wanted a regular file, found mode %o",
                       file->dir_path, name, (unsigned)found.mode);
    /* Inode numbers are reused at once; the birth time distinguishes files. */
    if (file->known && (file->device != found.device || file->inode != found.inode ||
                        file->born_ns != found.born_ns))
        return kl_fail(KL_E_STALE,
                       "%s/%s: another file took this name (inode %llu, now %llu)",
                       file->dir_path, name, (unsigned long long)file->inode,
                       (unsigned long long)found.inode);
    file->known = true;
    file->device = found.device;
    file->inode = found.inode;
    file->born_ns = found.born_ns;
    *seen = found;
    return KL_OK;
}

/* Open under file->opening; `create`: an empty file. */
static kl_status open_now(kl_file *file, bool create, kl_facts *seen) {
    char path[4096];
    const char *name = kl_file_name(file);
    int length = snprintf(path, sizeof path, "%s/%s", file->dir_path, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return kl_fail(KL_E_ARGUMENT, "%s/%s: a path of %d bytes, wanted at most %zu",
                       file->dir_path, name, length, sizeof path - 1);
    /* O_NONBLOCK: opening a named pipe must not block. */
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (file->writable ? O_RDWR : O_RDONLY);
    cache_reserve();
    int fd = kl_open_at(AT_FDCWD, path, create ? flags | O_CREAT | O_TRUNC : flags, 0600);
    kl_status status = KL_OK;
    if (fd < 0 && errno == ENOENT && file->known)
        status = kl_fail(KL_E_STALE, "%s: the file was deleted or renamed", path);
    else if (fd < 0) status = kl_fail_errno(errno, "%s: cannot open", path);
    else status = identify(file, fd, seen);
    if (status) {
        if (fd >= 0) kl_io->close(fd);
        atomic_fetch_sub(&cache.open_count, 1);
        return status;
    }
    atomic_store(&file->fd, fd);
    kl_lock(&cache.lock);
    ring_add(file);
    atomic_fetch_or(&file->state, FILE_OPEN);
    kl_unlock(&cache.lock);
    return KL_OK;
}

static kl_status pin_slow(kl_file *file, int *fd, kl_facts *seen) {
    kl_lock(&file->opening);
    kl_status status = KL_OK;
    if (!(atomic_load(&file->state) & FILE_OPEN)) status = open_now(file, false, seen);
    kl_unlock(&file->opening);
    if (status) kl_file_unpin(file);
    else *fd = atomic_load(&file->fd);
    return status;
}

kl_status kl_file_pin(kl_file *file, int *fd) {
    int64_t before = atomic_fetch_add(&file->state, 1);
    if (KL_UNLIKELY(!(before & FILE_OPEN))) {
        kl_facts seen;
        return pin_slow(file, fd, &seen);
    }
    if (!atomic_load_explicit(&file->touched, memory_order_relaxed))
        atomic_store_explicit(&file->touched, true, memory_order_relaxed);
    *fd = atomic_load_explicit(&file->fd, memory_order_relaxed);
    return KL_OK;
}

void kl_file_unpin(kl_file *file) {
    int64_t before = atomic_fetch_sub(&file->state, 1);
    KL_ASSERT((before & FILE_PINS) > 0);
}

kl_status kl_file_create(const char *dir_path, const char *name, kl_file **out) {
    kl_file *file;
    kl_status status = kl_file_new(dir_path, name, true, &file);
    *out = file;
    if (status) return status;
    kl_facts seen;
    kl_lock(&file->opening);
    status = open_now(file, true, &seen);
    kl_unlock(&file->opening);
    if (status) {
        kl_file_drop(file);
        *out = NULL;
    }
    return status;
}

/* Pinned: before the unpin.  A load alone, if an earlier write has set the bit and no sync has
 * cleared it: one that clears it later covers this write, too. */
static void mark_unsynced(kl_file *file) {
    if (!(atomic_load(&file->state) & FILE_UNSYNCED))
        atomic_fetch_or(&file->state, FILE_UNSYNCED);
}

/* ---- whole transfers ----------------------------------------------------------------- */

/* The status of a failed call on an open file, from errno. */
static kl_status file_failed(const kl_file *file, const char *what) {
    return kl_fail_errno(errno, "%s/%s: cannot %s", file->dir_path, kl_file_name(file),
                         what);
}

kl_status kl_file_read(kl_file *file, void *buffer, size_t bytes, int64_t pos,
                       size_t *got) {
    int fd;
    *got = 0;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    while (*got < bytes) {
        ssize_t n =
            kl_io->pread(fd, (char *)buffer + *got, bytes - *got, pos + (off_t)*got);
        if (n == 0) break;
        if (n > 0) {
            *got += (size_t)n;
        } else if (errno != EINTR) {
            status = file_failed(file, "read");
            break;
        }
    }
    kl_file_unpin(file);
    return status;
}

kl_status kl_file_write(kl_file *file, const void *data, size_t bytes, int64_t pos) {
    int fd;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    size_t done = 0;
    while (done < bytes) {
        ssize_t n =
            kl_io->pwrite(fd, (const char *)data + done, bytes - done, pos + (off_t)done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            if (n == 0) errno = EIO;
            status = file_failed(file, "write");
            break;
        }
    }
    mark_unsynced(file);
    kl_file_unpin(file);
    return status;
}

kl_status kl_file_sync(kl_file *file) {
    bool tried;
    return kl_file_try_sync(file, &tried);
}

kl_status kl_file_try_sync(kl_file *file, bool *tried) {
    int fd, result;
    *tried = false;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    *tried = true;
    KL_ASSERT(pthread_rwlock_rdlock(&file->syncing) == 0);
    int failed = atomic_exchange(&file->sync_errno, 0);
    atomic_fetch_and(&file->state, ~FILE_UNSYNCED);
    do result = failed ? (errno = failed, -1) : kl_io->fdatasync(fd);
    while (result && errno == EINTR);
    if (result) (void)file_failed(file, "fdatasync");
    KL_ASSERT(pthread_rwlock_unlock(&file->syncing) == 0);
    if (result) status = KL_E_IO; /* final, whatever the reason */
    kl_file_unpin(file);
    return status;
}

kl_status kl_file_check_there(kl_file *file) {
    int fd;
    struct stat found;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    /* A failed stat proves nothing about the file. */
    bool removed = kl_io->fstat(fd, &found) == 0 && found.st_nlink == 0;
    kl_file_unpin(file);
    if (!removed) return KL_OK;
    return kl_fail(KL_E_STALE, "%s/%s: the file was removed while it was open",
                   file->dir_path, kl_file_name(file));
}

kl_status kl_file_truncate(kl_file *file, int64_t bytes) {
    int fd, result;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    do result = kl_io->ftruncate(fd, bytes);
    while (result && errno == EINTR);
    if (result) status = file_failed(file, "truncate");
    mark_unsynced(file);
    kl_file_unpin(file);
    return status;
}

kl_status kl_file_reserve(kl_file *file, int64_t pos, int64_t bytes) {
    int fd, result;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    do result = kl_io->fallocate(fd, KL_KEEP_SIZE, pos, bytes);
    while (result && errno == EINTR);
    if (result && errno != EOPNOTSUPP && errno != ENOSYS)
        status = file_failed(file, "reserve space");
    kl_file_unpin(file);
    return status;
}

kl_status kl_file_stat(kl_file *file, int64_t *bytes, int64_t *modified_ms) {
    int fd;
    struct stat found;
    kl_facts seen = {.mode = 0};
    int64_t before = atomic_fetch_add(&file->state, 1);
    if (before & FILE_OPEN) fd = atomic_load(&file->fd);
    else {
        kl_status status = pin_slow(file, &fd, &seen);
        if (status) return status;
    }
    kl_status status = KL_OK;
    if (seen.mode) { /* just opened */
        *bytes = seen.bytes;
        *modified_ms = seen.modified_ms;
    } else if (kl_io->fstat(fd, &found)) {
        status = file_failed(file, "stat");
    } else {
        *bytes = found.st_size;
        *modified_ms =
            (int64_t)found.st_mtim.tv_sec * 1000 + found.st_mtim.tv_nsec / 1000000;
    }
    kl_file_unpin(file);
    return status;
}

kl_status kl_file_set_modified(kl_file *file, int64_t modified_ms) {
    int fd;
    kl_status status = kl_file_pin(file, &fd);
    if (status) return status;
    int64_t seconds = modified_ms / 1000 - (modified_ms % 1000 < 0);
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = (time_t)seconds,
         .tv_nsec = (long)(modified_ms - seconds * 1000) * 1000000},
    };
    if (kl_io->futimens(fd, times)) status = file_failed(file, "set the time");
    kl_file_unpin(file);
    return status;
}
