/* dir.c: a directory's small files: replaced as a whole, synced, locked. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "buffer.h"
#include "fault.h"
#include "file.h"
#include "sync.h"

enum { FILE_MODE = 0600, DIR_MODE = 0700 };

/* ---- open directories ---------------------------------------------------------------- */

static kl_status dir_failed(const kl_dir *dir, const char *name, const char *what) {
    return kl_fail_errno(errno, "%s/%s: cannot %s", dir->path, name, what);
}

/* A name is one component: names from users must not leave the directory. */
static kl_status check_name(const kl_dir *dir, const char *name) {
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > NAME_MAX || strchr(name, '/') || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return kl_fail(KL_E_ARGUMENT, "\"%.300s\" in %s: wanted a plain file name", name,
                       dir->path);
    return KL_OK;
}

static int open_path(const char *path) {
    return kl_open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

static kl_status sync_fd(int fd, const char *path) {
    int result;
    do result = kl_io->fsync(fd);
    while (result && errno == EINTR);
    return result ? kl_fail_errno(errno, "%s: cannot fsync the directory", path) : KL_OK;
}

/* Create a directory in an existing parent; `sync`: durably. */
static kl_status make_one(const char *path, const char *parent, bool sync) {
    int fd = open_path(parent);
    if (fd < 0) return kl_fail_errno(errno, "%s: cannot open", parent);
    kl_status status = KL_OK;
    if (kl_io->mkdirat(AT_FDCWD, path, DIR_MODE) == 0) {
        if (sync) status = sync_fd(fd, parent);
    } else if (errno != EEXIST) {
        status = kl_fail_errno(errno, "%s: cannot make the directory", path);
    }
    kl_io->close(fd);
    return status;
}

/* Create `path` and its missing parents. */
static kl_status make_path(const char *path, bool sync) {
    size_t bytes = strlen(path);
    char *part = kl_alloc(bytes + 1);
    char *parent = kl_alloc(bytes + 2);
    kl_status status = KL_OK;
    if (!part || !parent) {
        status = kl_fail(KL_E_NO_MEMORY, "%s: no memory for a path", path);
        goto out;
    }
    strcpy(parent, path[0] == '/' ? "/" : ".");
    for (size_t end = 0; end < bytes && !status;) {
        while (path[end] == '/') end++;
        end += strcspn(path + end, "/");
        memcpy(part, path, end);
        part[end] = 0;
        struct stat found;
        if (kl_io->fstatat(AT_FDCWD, part, &found, 0)) {
            if (errno != ENOENT) status = kl_fail_errno(errno, "%s: cannot stat", part);
            else status = make_one(part, parent, sync);
        }
        strcpy(parent, part);
    }
out:
    kl_release(part);
    kl_release(parent);
    return status;
}

kl_status kl_dir_open(const char *path, int create, kl_dir **out) {
    *out = NULL;
    if (!*path) return kl_fail(KL_E_ARGUMENT, "the path of a directory is empty");
    int fd = open_path(path);
    if (fd < 0 && errno == ENOENT && create) {
        kl_status status = make_path(path, create != KL_CREATE_UNSYNCED);
        if (status) return status;
        fd = open_path(path);
    }
    if (fd < 0) return kl_fail_errno(errno, "%s: cannot open the directory", path);
    kl_dir *dir = kl_alloc(sizeof *dir);
    char *copy = kl_alloc(strlen(path) + 1);
    if (!dir || !copy) {
        kl_io->close(fd);
        kl_release(dir);
        kl_release(copy);
        return kl_fail(KL_E_NO_MEMORY, "%s: no memory for a directory handle", path);
    }
    KL_ASSERT(pthread_mutex_init(&dir->lock, NULL) == 0);
    dir->fd = fd;
    dir->lock_fd = -1;
    dir->generation = kl_process_generation;
    dir->path = strcpy(copy, path);
    *out = dir;
    return KL_OK;
}

void kl_dir_close(kl_dir *dir) {
    if (!dir) return; /* cleanup code also calls this after a failed open */
    kl_dir_unlock(dir);
    /* In a forked child, a thread that does not exist there may hold the mutex. */
    bool ours = dir->generation == kl_process_generation;
    if (ours) kl_lock(&dir->lock);
    if (dir->fd >= 0) kl_io->close(dir->fd);
    dir->fd = -1;
    if (ours) kl_unlock(&dir->lock);
}

void kl_dir_free(kl_dir *dir) {
    if (!dir) return;
    kl_dir_close(dir);
    pthread_mutex_destroy(&dir->lock);
    kl_release(dir->path);
    kl_release(dir);
}

kl_status kl_dir_sync(kl_dir *dir) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = sync_fd(dir->fd, dir->path);
    kl_unlock(&dir->lock);
    return status ? KL_E_IO : KL_OK; /* final, whatever the reason */
}

kl_status kl_dir_sync_all(kl_dir *dir) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    int result;
    do result = kl_io->syncfs(dir->fd);
    while (result && errno == EINTR);
    if (result) {
        (void)kl_fail_errno(errno, "%s: cannot sync its file system", dir->path);
        status = KL_E_IO;
    }
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_sync_names(kl_dir *dir, const char *const *names, size_t count) {
    struct stat folder;
    kl_sync_name *all = kl_alloc((count + 1) * sizeof *all);
    if (!all)
        return kl_fail(KL_E_NO_MEMORY, "%s: no memory for %zu names", dir->path, count);
    kl_status status = kl_dir_enter(dir);
    if (status) {
        kl_release(all);
        return status;
    }
    if (kl_io->fstat(dir->fd, &folder)) status = dir_failed(dir, ".", "stat");
    for (size_t i = 0; i < count; i++)
        all[i] = (kl_sync_name){.dir_fd = dir->fd, .name = names[i]};
    if (!status) {
        kl_sync_names_begin(all, count, (uint64_t)folder.st_dev);
        const kl_sync_name *failed = kl_sync_names_end(all, count);
        if (failed) status = kl_sync_name_failed(failed, dir->path);
    }
    kl_unlock(&dir->lock);
    kl_release(all);
    return status;
}

/* ---- small files --------------------------------------------------------------------- */

static kl_status write_all(const kl_dir *dir, int fd, const char *name, const uint8_t *data,
                           size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = kl_io->pwrite(fd, data + done, bytes - done, (off_t)done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            if (n == 0) errno = EIO;
            return dir_failed(dir, name, "write");
        }
    }
    return KL_OK;
}

/* Create `name`, unlinking a link or the leftover of a crash first. */
static kl_status create_file(const kl_dir *dir, const char *name, int *fd) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    *fd = kl_open_at(dir->fd, name, flags, FILE_MODE);
    if (*fd < 0 && errno == EEXIST) {
        if (kl_io->unlinkat(dir->fd, name, 0)) return dir_failed(dir, name, "unlink");
        *fd = kl_open_at(dir->fd, name, flags, FILE_MODE);
    }
    return *fd < 0 ? dir_failed(dir, name, "create") : KL_OK;
}

static kl_status write_new(const kl_dir *dir, const char *name, const uint8_t *data,
                           size_t bytes, bool sync) {
    int fd;
    kl_status status = create_file(dir, name, &fd);
    if (status) return status;
    KL_FP("dir.replace.created");
    status = write_all(dir, fd, name, data, bytes);
    KL_FP("dir.replace.written");
    if (!status && sync) {
        int result;
        do result = kl_io->fsync(fd);
        while (result && errno == EINTR);
        if (result) status = dir_failed(dir, name, "fsync");
    }
    /* On Linux the descriptor is closed even if interrupted. */
    if (kl_io->close(fd) && errno != EINTR && !status)
        status = dir_failed(dir, name, "close");
    return status;
}

static kl_status write_file(kl_dir *dir, const char *name, const uint8_t *data,
                            size_t bytes, bool sync) {
    char temporary[NAME_MAX + 1];
    kl_status status = check_name(dir, name);
    if (status) return status;
    int length = snprintf(temporary, sizeof temporary, "%s.tmp", name);
    if ((size_t)length >= sizeof temporary)
        return kl_fail(KL_E_ARGUMENT,
                       "%s/%s: a name of %d bytes with .tmp, wanted at most %d", dir->path,
                       name, length, NAME_MAX);
    status = write_new(dir, temporary, data, bytes, sync);
    if (status) goto out;
    KL_FP("dir.replace.synced");
    if (kl_io->renameat(dir->fd, temporary, dir->fd, name))
        status = dir_failed(dir, temporary, "rename");
    else KL_FP("dir.replace.renamed");
out:
    if (status)
        kl_io->unlinkat(dir->fd, temporary, 0); /* the failure is already reported */
    return status;
}

kl_status kl_dir_write_file(kl_dir *dir, const char *name, const uint8_t *data,
                            size_t bytes, bool sync) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = write_file(dir, name, data, bytes, sync);
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_place(kl_dir *dir, const char *name, const uint8_t *data, size_t bytes) {
    return kl_dir_write_file(dir, name, data, bytes, false);
}

kl_status kl_dir_replace(kl_dir *dir, const char *name, const uint8_t *data, size_t bytes) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = write_file(dir, name, data, bytes, true);
    if (!status) status = sync_fd(dir->fd, dir->path);
    kl_unlock(&dir->lock);
    return status;
}

/* Open `name` to read it as a whole; returns its size. */
static kl_status open_to_read(const kl_dir *dir, const char *name, int *fd, size_t *bytes) {
    struct stat found;
    kl_status status = check_name(dir, name);
    if (status) return status;
    /* O_NONBLOCK: opening a named pipe must not block. */
    *fd = kl_open_at(dir->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (*fd < 0) return dir_failed(dir, name, "open");
    if (kl_io->fstat(*fd, &found)) status = dir_failed(dir, name, "stat");
    else if (!S_ISREG(found.st_mode))
        status = kl_fail(KL_E_CORRUPT, "%s/%s: wanted a regular file, found mode %o",
                         dir->path, name, (unsigned)found.st_mode);
    else *bytes = (size_t)found.st_size;
    if (status) kl_io->close(*fd);
    return status;
}

/* Read up to *bytes bytes; sets *bytes to the number read. */
static kl_status read_all(const kl_dir *dir, int fd, const char *name, uint8_t *buffer,
                          size_t *bytes) {
    size_t done = 0;
    while (done < *bytes) {
        ssize_t n = kl_io->pread(fd, buffer + done, *bytes - done, (off_t)done);
        if (n == 0) break;
        if (n > 0) done += (size_t)n;
        else if (errno != EINTR) return dir_failed(dir, name, "read");
    }
    *bytes = done;
    return KL_OK;
}

kl_status kl_dir_read(kl_dir *dir, const char *name, uint8_t *buffer, size_t buffer_bytes,
                      size_t *bytes) {
    int fd;
    *bytes = 0;
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = open_to_read(dir, name, &fd, bytes);
    if (status) goto out;
    if (*bytes > buffer_bytes)
        status =
            kl_fail(KL_E_BUFFER_TOO_SMALL, "%s/%s: a file of %zu bytes, a buffer of %zu",
                    dir->path, name, *bytes, buffer_bytes);
    else status = read_all(dir, fd, name, buffer, bytes);
    kl_io->close(fd);
out:
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_slurp(kl_dir *dir, const char *name, size_t limit, uint8_t **data,
                       size_t *bytes) {
    int fd;
    *data = NULL;
    *bytes = 0;
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = open_to_read(dir, name, &fd, bytes);
    if (status) goto out;
    if (*bytes > limit)
        status = kl_fail(KL_E_CORRUPT, "%s/%s: a file of %zu bytes, wanted at most %zu",
                         dir->path, name, *bytes, limit);
    else if (!(*data = kl_alloc(*bytes)))
        status = kl_fail(KL_E_NO_MEMORY, "%s/%s: no memory for %zu bytes", dir->path, name,
                         *bytes);
    else status = read_all(dir, fd, name, *data, bytes);
    kl_io->close(fd);
    if (status) {
        kl_release(*data);
        *data = NULL;
    }
out:
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_unlink(kl_dir *dir, const char *name) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = check_name(dir, name);
    if (!status && kl_io->unlinkat(dir->fd, name, 0))
        status = dir_failed(dir, name, "unlink");
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_rename(kl_dir *dir, const char *from, const char *to) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = check_name(dir, from);
    if (!status) status = check_name(dir, to);
    if (!status && kl_io->renameat(dir->fd, from, dir->fd, to))
        status = kl_fail_errno(errno, "%s/%s: cannot rename to %s", dir->path, from, to);
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_make(kl_dir *dir, const char *name) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = check_name(dir, name);
    if (!status && kl_io->mkdirat(dir->fd, name, DIR_MODE))
        status = dir_failed(dir, name, "make the directory");
    kl_unlock(&dir->lock);
    return status;
}

static kl_status write_into(const kl_dir *dir, const char *folder, const char *name,
                            const uint8_t *data, size_t bytes) {
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    const kl_dir inner = {.path = dir->path, .fd = kl_open_at(dir->fd, folder, flags, 0)};
    if (inner.fd < 0) return dir_failed(dir, folder, "open");
    kl_status status = write_new(&inner, name, data, bytes, false);
    kl_io->close(inner.fd);
    return status;
}

kl_status kl_dir_make_with(kl_dir *dir, const char *folder, const char *name,
                           const uint8_t *data, size_t bytes) {
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = check_name(dir, folder);
    if (!status) status = check_name(dir, name);
    if (!status && kl_io->mkdirat(dir->fd, folder, DIR_MODE))
        status = dir_failed(dir, folder, "make the directory");
    if (!status) status = write_into(dir, folder, name, data, bytes);
    kl_unlock(&dir->lock);
    return status;
}

kl_status kl_dir_exists(kl_dir *dir, const char *name, bool *exists) {
    struct stat found;
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = check_name(dir, name);
    if (status) goto out;
    *exists = kl_io->fstatat(dir->fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*exists && errno != ENOENT) status = dir_failed(dir, name, "stat");
out:
    kl_unlock(&dir->lock);
    return status;
}

/* ---- listing ------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static kl_status add_name(kl_names *names, size_t *capacity, const char *name) {
    char **grown = kl_room_for(names->names, capacity, names->count + 1, sizeof *grown);
    if (!grown) return kl_fail(KL_E_NO_MEMORY, "no memory for %zu names", names->count + 1);
    names->names = grown;
    char *copy = kl_alloc(strlen(name) + 1);
    if (!copy) return kl_fail(KL_E_NO_MEMORY, "no memory for a name");
    names->names[names->count++] = strcpy(copy, name);
    return KL_OK;
}

typedef struct {
    kl_names *names;
    size_t capacity;
} listed;

static int take_name(void *holder, const char *name) {
    listed *into = holder;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return KL_OK;
    return (int)add_name(into->names, &into->capacity, name);
}

static kl_status list_all(const kl_dir *dir, kl_names *out) {
    listed into = {out, 0};
    int result = kl_system_list(dir->fd, take_name, &into);
    if (result < 0) return kl_fail_errno(errno, "%s: cannot list", dir->path);
    if (out->count) qsort(out->names, out->count, sizeof *out->names, by_name);
    return (kl_status)result;
}

kl_status kl_dir_list(kl_dir *dir, kl_names *out) {
    *out = (kl_names){0};
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    status = list_all(dir, out);
    if (status) kl_names_free(out);
    kl_unlock(&dir->lock);
    return status;
}

void kl_names_free(kl_names *names) {
    for (size_t i = 0; i < names->count; i++) kl_release(names->names[i]);
    kl_release(names->names);
    *names = (kl_names){0};
}
