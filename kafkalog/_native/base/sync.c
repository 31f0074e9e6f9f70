/* sync.c: a queue of syncs per disk, and the threads that run them. */
#include "sync.h"

#include <fcntl.h>
#include <signal.h>

#include "io.h"

enum { JOB_IDLE, JOB_QUEUED, JOB_RUNNING, JOB_AGAIN };

/* A sync mostly waits: concurrent ones share the file system's commits. */
enum { THREADS_MAX = 16, STACK_BYTES = 512 << 10 };

typedef struct kl_disk kl_disk;
/* One thread of a disk, and the job that it runs, if any. */
typedef struct {
    kl_disk *disk;
    kl_sync_job *running;
} kl_syncer;

/* A disk with syncs so far; never freed, as there are few. */
struct kl_disk {
    kl_disk *next;
    uint64_t device;
    pthread_cond_t work;
    kl_sync_job *first, *last; /* the queue, */
    int queued;                /* its length */
    int idle;                  /* idle threads */
    int thread_count;
    kl_syncer threads[THREADS_MAX];
};

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards all below, and the jobs */
static pthread_cond_t job_done;
static kl_disk *disks;

static void push(kl_disk *disk, kl_sync_job *job) {
    job->state = JOB_QUEUED;
    job->next = NULL;
    if (disk->last) disk->last->next = job;
    else disk->first = job;
    disk->last = job;
    disk->queued++;
}

static kl_sync_job *pop(kl_disk *disk) {
    kl_sync_job *job = disk->first;
    disk->first = job->next;
    if (!disk->first) disk->last = NULL;
    disk->queued--;
    return job;
}

static void *serve(void *argument) {
    kl_syncer *me = argument;
    kl_disk *disk = me->disk;
    kl_lock(&lock);
    for (;;) {
        disk->idle++;
        while (!disk->first) kl_cond_wait_ms(&disk->work, &lock, -1);
        disk->idle--;
        kl_sync_job *job = me->running = pop(disk);
        job->state = JOB_RUNNING;
        kl_unlock(&lock);
        job->run(job->owner);
        kl_lock(&lock);
        me->running = NULL;
        if (job->state == JOB_AGAIN) {
            push(disk, job);
        } else {
            job->state = JOB_IDLE; /* the owner may free it from here on */
            pthread_cond_broadcast(&job_done);
        }
    }
    return NULL;
}

static kl_status start_thread(kl_disk *disk) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int failed = pthread_attr_init(&attributes);
    if (failed) return kl_fail_errno(failed, "cannot start a sync thread");
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    kl_syncer *syncer = &disk->threads[disk->thread_count];
    *syncer = (kl_syncer){.disk = disk};
    /* Signals are for the application's threads; a new thread inherits the mask. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attributes, serve, syncer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed) {
        kl_fail_errno(failed, "cannot start a sync thread");
        return KL_E_NO_MEMORY;
    }
    kl_system_name_thread(thread, "kafkalog-sync");
    disk->thread_count++;
    return KL_OK;
}

/* Before queueing a job: start a thread if none will be free.  One thread is enough to continue;
 * none is not. */
static kl_status staff(kl_disk *disk) {
    if (disk->queued < disk->idle || disk->thread_count == THREADS_MAX) return KL_OK;
    kl_status status = start_thread(disk);
    return disk->thread_count > 0 ? KL_OK : status;
}

static kl_status find_disk(uint64_t device, kl_disk **out) {
    for (kl_disk *disk = disks; disk; disk = disk->next)
        if (disk->device == device) {
            *out = disk;
            return KL_OK;
        }
    kl_disk *disk = kl_alloc(sizeof *disk);
    if (!disk) return kl_fail(KL_E_NO_MEMORY, "no memory for a sync queue");
    disk->device = device;
    kl_cond_init(&disk->work);
    disk->next = disks;
    *out = disks = disk;
    return KL_OK;
}

kl_status kl_sync_submit(kl_sync_job *job) {
    kl_disk *disk = NULL;
    kl_lock(&lock);
    kl_status status = find_disk(job->device, &disk);
    if (status) goto out;
    if (job->state == JOB_IDLE) {
        status = staff(disk);
        if (status) goto out;
        push(disk, job);
        pthread_cond_signal(&disk->work);
    } else if (job->state == JOB_RUNNING) {
        job->state = JOB_AGAIN;
    }
out:
    kl_unlock(&lock);
    return status;
}

bool kl_sync_is_behind(const kl_sync_job *job) {
    bool behind = false;
    kl_lock(&lock);
    if (job->state == JOB_RUNNING || job->state == JOB_AGAIN)
        for (const kl_disk *disk = disks; disk; disk = disk->next)
            if (disk->device == job->device)
                behind = disk->queued > disk->idle && disk->thread_count == THREADS_MAX;
    kl_unlock(&lock);
    return behind;
}

void kl_sync_drain(kl_sync_job *job) {
    kl_lock(&lock);
    while (job->state != JOB_IDLE) kl_cond_wait_ms(&job_done, &lock, -1);
    kl_unlock(&lock);
}

/* True if the job was queued; removes it. */
static bool take_back(kl_sync_job *job) {
    bool waits = false;
    kl_lock(&lock);
    for (kl_disk *disk = disks; disk && job->state == JOB_QUEUED; disk = disk->next) {
        kl_sync_job *before = NULL, *one = disk->first;
        if (disk->device != job->device) continue;
        for (; one != job; one = one->next) before = one;
        *(before ? &before->next : &disk->first) = job->next;
        if (disk->last == job) disk->last = before;
        disk->queued--;
        job->state = JOB_IDLE;
        waits = true;
    }
    kl_unlock(&lock);
    return waits;
}

/* ---- syncing several names ------------------------------------------------------------- */

static void sync_name(void *owner) {
    kl_sync_name *one = owner;
    int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
    int fd = kl_open_at(one->dir_fd, one->name, flags, 0), result;
    if (fd < 0) {
        one->error_number = one->may_lack && errno == ENOENT ? 0 : errno;
        return;
    }
    one->opened = true;
    do result = kl_io->fsync(fd);
    while (result && errno == EINTR);
    if (result) one->error_number = errno;
    kl_io->close(fd);
}

void kl_sync_names_begin(kl_sync_name *names, size_t count, uint64_t device) {
    for (size_t i = 0; i < count; i++) {
        kl_sync_name *one = &names[i];
        one->job = (kl_sync_job){.run = sync_name, .owner = one, .device = device};
        if (kl_sync_submit(&one->job)) sync_name(one); /* without a thread: sync here */
    }
}

const kl_sync_name *kl_sync_names_end(kl_sync_name *names, size_t count) {
    const kl_sync_name *failed = NULL;
    for (size_t i = count; i-- > 0;) { /* the threads begin at the front */
        kl_sync_name *one = &names[i];
        if (take_back(&one->job)) sync_name(one);
        else kl_sync_drain(&one->job);
        if (one->error_number && !(failed && failed->opened)) failed = one;
    }
    return failed;
}

kl_status kl_sync_name_failed(const kl_sync_name *name, const char *folder) {
    kl_status status = kl_fail_errno(name->error_number, "%s/%s: cannot %s", folder,
                                     name->name, name->opened ? "fsync" : "open");
    return name->opened ? KL_E_IO : status;
}

static void before_fork(void) { kl_lock(&lock); }
static void after_fork_in_parent(void) { kl_unlock(&lock); }
/* The child has no sync threads.  Mark its jobs idle, so that no caller waits for them, and
 * initialise conditions again: the old ones still count the parent's waiting threads. */
static void after_fork_in_child(void) {
    for (kl_disk *disk = disks; disk; disk = disk->next) {
        while (disk->first) pop(disk)->state = JOB_IDLE;
        for (int i = 0; i < disk->thread_count; i++)
            if (disk->threads[i].running) disk->threads[i].running->state = JOB_IDLE;
        disk->thread_count = disk->idle = 0;
        kl_cond_init(&disk->work);
    }
    kl_cond_init(&job_done);
    kl_unlock(&lock);
}

__attribute__((constructor)) static void prepare(void) {
    kl_cond_init(&job_done);
    KL_ASSERT(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
}
