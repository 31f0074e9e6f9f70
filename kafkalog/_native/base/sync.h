/* sync.h: the sync threads, which wait for the disk in place of their callers.
 *
 * One queue per disk (st_dev) and up to sixteen threads, each started when a job finds none
 * free, all restarted after a fork.  A waiting job is queued only once, so that asking again costs
 * nothing; asking while it runs makes it run again (group commit). */
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

/* Queue the job. KL_E_NO_MEMORY when there is no thread and none can start. */
kl_status kl_sync_submit(kl_sync_job *job);
/* Whether the job runs now while other jobs wait for a thread. */
bool kl_sync_is_behind(const kl_sync_job *job);
/* Return when the job is neither queued nor running; the caller must not submit it any more. */
void kl_sync_drain(kl_sync_job *job);

/* A file or directory to be synced together with others: a file system combines concurrent
 * syncs. */
typedef struct {
    int dir_fd;
    const char *name; /* below dir_fd; "." is that directory */
    bool may_lack;    /* one that is not there has nothing to wait for */
    bool opened;      /* the rest is sync.c's */
    int error_number;
    kl_sync_job job;
} kl_sync_name;

/* Start syncing each of them, on the sync threads of that disk. */
void kl_sync_names_begin(kl_sync_name *names, size_t count, uint64_t device);
/* Return when none is under way; those that no thread has begun with are synced here.  One that
 * failed, a sync (`opened`) before what could not be opened; NULL: all are on disk.  It leaves
 * the thread's last failure as it is. */
const kl_sync_name *kl_sync_names_end(kl_sync_name *names, size_t count);
/* Fail for it, in the folder of that path.  KL_E_IO for a sync, which does not pass. */
kl_status kl_sync_name_failed(const kl_sync_name *name, const char *folder);

#endif
