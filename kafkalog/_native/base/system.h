/* system.h: what each system names or does in its own way, behind one header.
 *
 * It has two forms: system_linux.c for Linux, and system_posix.c for all others, which takes what
 * POSIX has, and macOS's own calls where POSIX has none.  KAFKALOG_PORTABLE builds the second form
 * on Linux, too, so that it can be tested there.  base/poller.h is the same for waiting. */
#ifndef KL_SYSTEM_H
#define KL_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#if defined(__linux__) && !defined(KAFKALOG_PORTABLE)
#define KL_LINUX 1
#else
#define KL_LINUX 0
#endif

#ifdef __APPLE__
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif
/* Without these the network threads block SIGPIPE, and small packets are sent on their own. */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif
#ifndef MSG_MORE
#define MSG_MORE 0
#endif

/* ---- files ---------------------------------------------------------------------------- */

/* All that is known of an open file by one call. */
typedef struct {
    uint64_t device;
    uint64_t inode;
    int64_t born_ns; /* since 1970; 0: unknown to the file system */
    int64_t bytes;
    int64_t modified_ms; /* since 1970; rounded towards it */
    uint32_t mode;
} kl_facts;

int kl_system_facts(int fd, kl_facts *out);
/* What differs between files that reuse an inode, if the file system counts it. */
int kl_system_version(int fd, uint64_t *out);
/* Through the caches of the operating system; on macOS through the disk's, too. */
int kl_system_sync_data(int fd);
int kl_system_sync_all(int fd); /* and what names it */
/* All of the file system of `fd`. */
int kl_system_sync_disk(int fd);
/* Space for `bytes` at `pos`.  KL_KEEP_SIZE: the file's size stays; ENOSYS: it cannot be had. */
enum { KL_KEEP_SIZE = 1 };
int kl_system_reserve(int fd, int mode, off_t pos, off_t bytes);
ssize_t kl_system_send_file(int out_fd, int in_fd, off_t *pos, size_t bytes);
ssize_t kl_system_copy(int in_fd, off_t *in_pos, int out_fd, off_t *out_pos, size_t bytes,
                       unsigned flags);
/* True if these bytes can be read without the disk, or if that is unknown. */
bool kl_system_cached(int fd, off_t pos, size_t bytes);
/* Each name in an open directory, "." and ".." among them, until `take` returns non-zero.  Returns
 * that, or -1 with errno. */
int kl_system_list(int dir_fd, int (*take)(void *holder, const char *name), void *holder);

/* A lock for writing on all of a file.  0: taken; -1 with errno, EAGAIN or EACCES: another has it.
 *
 * In the second form it is the process's, not the descriptor's: closing any descriptor of the file
 * ends it, a second lock of this process always succeeds, and a forked child does not share it. */
#define KL_LOCK_IS_OF_PROCESS (!KL_LINUX)
int kl_system_lock(int fd);
void kl_system_unlock(int fd);
/* The holder that is not this descriptor: 1: there is one, and *pid, if known (else 0); 0: none; -1
 * with errno. */
int kl_system_lock_holder(int fd, int64_t *pid);

/* ---- sockets -------------------------------------------------------------------------- */

/* Both are closed by exec and never wait. */
int kl_system_socket(int family);
int kl_system_accept(int fd, struct sockaddr *from, socklen_t *bytes);
/* Take SIGPIPE, if this thread's call has raised it, from its blocked signals. */
void kl_system_take_sigpipe(void);

/* Wakes a thread that polls `read_fd`. */
typedef struct {
    int read_fd;
    int write_fd; /* the same on Linux */
} kl_wake;
int kl_wake_init(
    kl_wake *wake); /* 0, or -1 with errno; also then kl_wake_close may follow */
void kl_wake_ring(const kl_wake *wake);
void kl_wake_clear(const kl_wake *wake); /* it has rung */
void kl_wake_close(kl_wake *wake);

/* ---- processes and memory --------------------------------------------------------------- */

/* When a process started, in a unit of its own; 0: unknown; -1: it is not alive. */
int64_t kl_system_process_start(int64_t pid);
/* The start of its command line, printable; empty if unknown. */
void kl_system_program(int64_t pid, char *text, size_t bytes);
/* What distinguishes this boot, as text; empty if unknown. */
void kl_system_boot_id(char *text, size_t bytes);
/* What distinguishes this process's namespace of pids; 0: there is one. */
uint64_t kl_system_pid_namespace(void);
/* A folder that any user may write to, in memory if there is one. */
const char *kl_system_memory_folder(void);
/* Another size for a shared mapping of the file `fd`, maybe elsewhere; NULL: it is as before. */
void *kl_system_remap(void *old, size_t old_bytes, size_t bytes, int protection, int fd);
/* Unpredictable bytes, 256 at most; false: there are none. */
bool kl_system_random(void *out, size_t bytes);
/* The same for a secret that lives as long as the process; it always succeeds. */
void kl_system_secret(void *out, size_t bytes);
void kl_system_name_thread(pthread_t thread, const char *name);

#endif
