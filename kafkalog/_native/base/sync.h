/* sync.h: sync threads, which wait for the disk on behalf of callers.
 *
 * One queue per disk (st_dev) and up to sixteen threads, each started when a job finds none free,
 * and restarted after a fork.  A waiting job is queued once, however often it is submitted;
 * submitting it while it runs makes it run again (group commit). */
#ifndef KL_SYNC_H
#define KL_SYNC_H

#include "base.h"

typedef struct kl_sync_job kl_sync_job;
struct kl_sync_job {
    void (*run)(void *owner); /* on the sync thread */
    void *owner;
    uint64_t device;   /* st_dev of the files */
    kl_sync_job *next; /* the rest is sync.c's, under its lock */
    int state;
};

/* Queue the job. KL_E_NO_MEMORY: there is no thread and none can start. */
kl_status kl_sync_submit(kl_sync_job *job);
/* True if the job runs while other jobs wait for a thread. */
bool kl_sync_is_behind(const kl_sync_job *job);
/* Return when the job is neither queued nor running; do not submit it afterwards. */
void kl_sync_drain(kl_sync_job *job);

/* A file or directory to sync together with others: a file system combines concurrent syncs. */
typedef struct {
    int dir_fd;
    const char *name; /* below dir_fd; "." is the directory */
    bool may_lack;    /* ignore a missing file */
    bool opened;      /* the rest is sync.c's */
    int error_number;
    kl_sync_job job;
} kl_sync_name;

/* Start syncing all names on the sync threads of their disk. */
void kl_sync_names_begin(kl_sync_name *names, size_t count, uint64_t device);
/* Return when all are done; syncs in this thread those that no thread has begun.  Returns one that
 * failed, preferably a sync (`opened`), or NULL: all are on disk.  Does not change the thread's
 * last failure. */
const kl_sync_name *kl_sync_names_end(kl_sync_name *names, size_t count);
/* Report its failure, in the folder of that path.  KL_E_IO for a sync, which is final. */
kl_status kl_sync_name_failed(const kl_sync_name *name, const char *folder);

#endif
