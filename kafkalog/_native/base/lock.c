/* lock.c: one call at a time in a handle, one owner per directory.
 *
 * A lock on `.lock` excludes other processes, including Java's, and ends with its holder.  Three
 * cases need a list of held locks: `.lock` may be deleted, and a second handle of this process
 * would lock a new file; a forked child may share the lock, so it must close its copy at once, or
 * the directory stays locked while the child lives; and where the lock is the process's, closing
 * another descriptor of the file would end it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "file.h"

#define LOCK_NAME ".lock"

typedef struct held_lock held_lock;
struct held_lock {
    held_lock *next;
    kl_dir *dir;
    dev_t device; /* of the directory */
    ino_t inode;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards held and every lock_fd */
static held_lock *held;

/* The pid of the holder of `fd`'s lock, if known; 0: unknown. */
static int64_t owner_pid(int fd) {
    int64_t pid = 0;
    if (kl_system_lock_holder(fd, &pid) != 1 || pid > 0) return pid;
    char text[32] = {0};
    if (kl_io->pread(fd, text, sizeof text - 1, 0) <= 0) return 0;
    return strtol(text, NULL, 10);
}

static kl_status refused(const kl_dir *dir, int fd) {
    long pid = (long)owner_pid(fd);
    char program[128] = "this process, by another handle";
    if (pid == 0)
        return kl_fail(KL_E_LOCKED, "%s: another process owns this directory", dir->path);
    if (pid != getpid()) kl_system_program(pid, program, sizeof program);
    return kl_fail(KL_E_LOCKED, "%s: process %ld owns this directory%s%s%s", dir->path, pid,
                   *program ? " (" : "", program, *program ? ")" : "");
}

static kl_status take(kl_dir *dir, held_lock *mine) {
    struct stat found;
    if (dir->fd < 0)
        return kl_fail(KL_E_CLOSED, "%s: the directory handle is closed", dir->path);
    if (kl_io->fstat(dir->fd, &found))
        return kl_fail_errno(errno, "%s: cannot stat", dir->path);
    for (const held_lock *other = held; other; other = other->next)
        if (other->device == found.st_dev && other->inode == found.st_ino)
            return kl_fail(
                KL_E_LOCKED, "%s: process %ld owns this directory (this process%s)",
                dir->path, (long)getpid(), other->dir == dir ? "" : ", by another handle");
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = kl_open_at(dir->fd, LOCK_NAME, flags, 0600);
    if (fd < 0) return kl_fail_errno(errno, "%s/" LOCK_NAME ": cannot open", dir->path);
    if (kl_system_lock(fd)) {
        kl_status status =
            errno == EAGAIN || errno == EACCES
                ? refused(dir, fd)
                : kl_fail_errno(errno, "%s/" LOCK_NAME ": cannot lock", dir->path);
        kl_io->close(fd);
        return status;
    }
    /* The pid is informative: on a full disk the lock still holds. */
    char text[32];
    int bytes = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (kl_io->ftruncate(fd, 0) == 0) (void)!kl_io->pwrite(fd, text, (size_t)bytes, 0);
    dir->lock_fd = fd;
    *mine = (held_lock){held, dir, found.st_dev, found.st_ino};
    held = mine;
    return KL_OK;
}

kl_status kl_dir_enter(kl_dir *dir) {
    if (dir->generation != kl_process_generation)
        return kl_fail(KL_E_FORKED,
                       "%s: the directory handle belongs to the parent process", dir->path);
    kl_lock(&dir->lock);
    if (dir->fd >= 0) return KL_OK;
    kl_unlock(&dir->lock);
    return kl_fail(KL_E_CLOSED, "%s: the directory handle is closed", dir->path);
}

kl_status kl_dir_lock(kl_dir *dir) {
    held_lock *mine = kl_alloc(sizeof *mine);
    if (!mine) return kl_fail(KL_E_NO_MEMORY, "%s: no memory for a lock", dir->path);
    kl_status status = kl_dir_enter(dir);
    if (!status) {
        kl_lock(&lock);
        status = take(dir, mine);
        kl_unlock(&lock);
        kl_unlock(&dir->lock);
    }
    if (status) kl_release(mine);
    return status;
}

void kl_dir_unlock(kl_dir *dir) {
    held_lock *mine = NULL;
    kl_lock(&lock);
    for (held_lock **at = &held; *at && !mine; at = &(*at)->next)
        if ((*at)->dir == dir) {
            mine = *at;
            *at = mine->next;
            break;
        }
    if (dir->lock_fd >= 0) {
        /* Explicitly, as a child's copy of the descriptor would keep the lock. */
        kl_system_unlock(dir->lock_fd);
        kl_io->close(dir->lock_fd);
        dir->lock_fd = -1;
    }
    kl_unlock(&lock);
    kl_release(mine);
}

static kl_status identify(const kl_dir *dir, int fd, const char *name, kl_identity *out) {
    kl_facts found;
    if (kl_io->facts(fd, &found))
        return kl_fail_errno(errno, "%s%s: cannot stat", dir->path, name);
    *out = (kl_identity){found.inode, found.born_ns, 0};
    if (kl_io->version(fd, &out->version)) out->version = 0;
    return KL_OK;
}

/* The descriptor of the lock that this process holds on `.lock` of a directory; -1: it holds none,
 * or `.lock` is another file by now.  Locked. */
static int held_here(const kl_dir *dir) {
    struct stat folder, named, kept;
    if (kl_io->fstat(dir->fd, &folder)) return -1;
    for (const held_lock *one = held; one; one = one->next)
        if (one->device == folder.st_dev && one->inode == folder.st_ino &&
            kl_io->fstatat(dir->fd, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            kl_io->fstat(one->dir->lock_fd, &kept) == 0 && named.st_ino == kept.st_ino)
            return one->dir->lock_fd;
    return -1;
}

/* Open `.lock` to look at it; *kept: it is the held one, and stays open.  Locked until it is closed
 * again, as where the lock is the process's, that would end one that was taken in between. */
static int open_lock(const kl_dir *dir, bool *kept) {
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = KL_LOCK_IS_OF_PROCESS ? held_here(dir) : -1;
    *kept = fd >= 0;
    return *kept ? fd : kl_open_at(dir->fd, LOCK_NAME, flags, 0);
}

kl_status kl_dir_identify(kl_dir *dir, kl_identity *self, kl_identity *of_lock) {
    bool kept;
    kl_status status = kl_dir_enter(dir);
    if (status) return status;
    *of_lock = (kl_identity){0, 0, 0};
    status = identify(dir, dir->fd, "", self);
    kl_lock(&lock);
    int fd = status ? -1 : open_lock(dir, &kept);
    if (fd >= 0) {
        status = identify(dir, fd, "/" LOCK_NAME, of_lock);
        if (!kept) kl_io->close(fd);
    } else if (!status && errno != ENOENT && errno != EACCES && errno != ELOOP) {
        status = kl_fail_errno(errno, "%s/" LOCK_NAME ": cannot open", dir->path);
    }
    kl_unlock(&lock);
    kl_unlock(&dir->lock);
    return status;
}

int kl_dir_locked(kl_dir *dir) {
    int64_t pid;
    bool kept;
    if (kl_dir_enter(dir)) return -1;
    kl_lock(&lock);
    int fd = open_lock(dir, &kept);
    int result = kept ? 1 : fd < 0 ? -1 : kl_system_lock_holder(fd, &pid);
    if (fd < 0 && errno == ENOENT) result = 0;
    else if (fd < 0) kl_fail_errno(errno, "%s/" LOCK_NAME ": cannot open", dir->path);
    else if (result < 0)
        kl_fail_errno(errno, "%s/" LOCK_NAME ": cannot ask for the lock", dir->path);
    if (fd >= 0 && !kept) kl_io->close(fd);
    kl_unlock(&lock);
    kl_unlock(&dir->lock);
    return result;
}

static void before_fork(void) { kl_lock(&lock); }
static void after_fork_in_parent(void) { kl_unlock(&lock); }
/* Closing a copy keeps the parent's lock; unlocking would release it. */
static void after_fork_in_child(void) {
    while (held) {
        held_lock *one = held;
        held = one->next;
        close(one->dir->lock_fd);
        one->dir->lock_fd = -1;
        kl_release(one);
    }
    kl_unlock(&lock);
}

__attribute__((constructor)) static void register_fork_handlers(void) {
    KL_ASSERT(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
}
