/* file.h: files opened on demand, bounded in number, with complete reads and writes. */
#ifndef KL_FILE_H
#define KL_FILE_H

#include "io.h"

/* A file of a log, known by path, open or not.  All kl_files of the process share one limit of open
 * descriptors (kl_set_max_open_files): opening one may close the least recently used idle one, but
 * never an unsynced one: after reopening it, a failed write-back would go unnoticed. Reference
 * counted; thread-safe. */
typedef struct kl_file kl_file;

/* A handle for `dir_path`/`name`, without opening it.  `writable`: opened O_RDWR.  To create a file
 * see kl_file_create. */
kl_status kl_file_new(const char *dir_path, const char *name, bool writable, kl_file **out);
/* The same, and create the file empty now (O_CREAT | O_TRUNC, mode 0600, O_NOFOLLOW). */
kl_status kl_file_create(const char *dir_path, const char *name, kl_file **out);
kl_file *kl_file_retain(kl_file *file);
void kl_file_drop(kl_file *file); /* closes with the last reference; NULL is fine */
const char *kl_file_name(const kl_file *file);
const char *kl_file_dir(const kl_file *file); /* the directory given at creation */

/* The descriptor, open until kl_file_unpin; two atomic operations if it is already open.  A
 * reopened file must be the same inode, otherwise KL_E_STALE: a handle never shows another file
 * that took its name. */
kl_status kl_file_pin(kl_file *file, int *fd);
void kl_file_unpin(kl_file *file);
/* Rename it in its directory `dir`: a thread that opens it waits and finds it.  The new name has
 * less than 64 bytes; a result of kl_file_name stays valid until the rename after this. */
kl_status kl_file_rename(kl_file *file, kl_dir *dir, const char *to);

/* Complete transfers: handle EINTR and short counts, and pin the file.  A read's *got < bytes only
 * at the end of the file. */
kl_status kl_file_read(kl_file *file, void *buffer, size_t bytes, int64_t pos, size_t *got);
kl_status kl_file_write(kl_file *file, const void *data, size_t bytes, int64_t pos);
kl_status kl_file_sync(kl_file *file); /* fdatasync; a failure is final */
/* The same.  *tried false: the file could not be opened. */
kl_status kl_file_try_sync(kl_file *file, bool *tried);
/* KL_E_STALE: the file was removed, and is lost once closed. */
kl_status kl_file_check_there(kl_file *file);
kl_status kl_file_truncate(kl_file *file, int64_t bytes);
/* Allocate blocks of [pos, pos + bytes) without changing the size (FALLOC_FL_KEEP_SIZE). KL_OK if
 * unsupported; KL_E_NO_SPACE on a full disk. */
kl_status kl_file_reserve(kl_file *file, int64_t pos, int64_t bytes);
kl_status kl_file_stat(kl_file *file, int64_t *bytes, int64_t *modified_ms);
kl_status kl_file_set_modified(kl_file *file, int64_t modified_ms);

/* An open directory, for a group of operations (log code opens one on demand and closes it:
 * thousands of logs must not hold one each).  Struct of kl_dir. */
struct kl_dir {
    int fd;         /* -1 once closed */
    int lock_fd;    /* -1, or the locked .lock */
    int generation; /* of the opening process: KL_E_FORKED in a child */
    pthread_mutex_t lock;
    char *path;
};
/* Lock dir->lock of an open directory of this process.  Not locked on KL_E_CLOSED and
 * KL_E_FORKED. */
kl_status kl_dir_enter(kl_dir *dir);
/* Release `.lock`, if held.  kl_dir_close does it, too. */
void kl_dir_unlock(kl_dir *dir);
/* The entries, sorted by name; each name is valid until kl_names_free. */
typedef struct {
    char **names;
    size_t count;
} kl_names;
kl_status kl_dir_list(kl_dir *dir, kl_names *out);
void kl_names_free(kl_names *names);
/* *exists: the entry exists; other failures are statuses. */
kl_status kl_dir_exists(kl_dir *dir, const char *name, bool *exists);
/* As kl_dir_replace without the fsync of the directory, for replacing several files.  Two handles
 * must not write the same name at once: they share `name`.tmp. */
kl_status kl_dir_write_file(kl_dir *dir, const char *name, const uint8_t *data,
                            size_t bytes, bool sync);
/* Read a whole file into memory from kl_alloc (free with kl_release); KL_E_CORRUPT above `limit`
 * bytes. */
kl_status kl_dir_slurp(kl_dir *dir, const char *name, size_t limit, uint8_t **data,
                       size_t *bytes);

#endif
