/* cold.c: data that must come from disk.
 *
 * If a page is not in memory, sendfile(2) waits for the disk, and with it all connections of the
 * network thread.  So each piece is checked first, and a cold reader reads a missing one and
 * discards it: then sendfile finds it.  Cold readers also load the indexes and headers that a read
 * needs, and do an append's work beyond its own write, such as a roll. */
#include "cold.h"

#include <errno.h>
#include <unistd.h>

#include "base/io.h"
#include "base/thread.h"

enum { READ_BYTES = 64 << 10 };

void kl_cold_init(kl_cold *cold) {
    pthread_mutex_init(&cold->lock, NULL);
    pthread_cond_init(&cold->some, NULL);
}

/* On failure sendfile fails, too, and reports it to the client. */
static void read_piece(const kl_warming *warming) {
    uint8_t nowhere[READ_BYTES];
    for (int64_t pos = warming->pos; pos < warming->end;) {
        size_t want = (size_t)KL_MIN(warming->end - pos, (int64_t)sizeof nowhere);
        ssize_t got = kl_io->pread(warming->fd, nowhere, want, (off_t)pos);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        pos += got;
    }
}

/* Does the work of the request and discards the result: a failure occurs again there. */
static void load_item(const kl_load_item *item) {
    kl_log *log = item->replica->log;
    kl_slice slice;
    kl_read where;
    if (!kl_replica_enter(item->replica)) return;
    if (item->append.bytes > 0) {
        kl_log_make_ready(log, &item->append);
        kl_replica_leave(item->replica);
        return;
    }
    kl_status status =
        kl_log_slice(log, item->offset, item->to, item->bytes, true, &slice, &where);
    kl_slice_drop(&slice);
    kl_aborted aborted;
    size_t count = 1;
    if (!status && item->to == KL_COMMITTED)
        (void)kl_log_aborted(log, item->offset, where.next_offset, &aborted, 1, &count);
    kl_replica_leave(item->replica);
}

static void free_load(kl_load *load) {
    for (size_t i = 0; i < load->count; i++) kl_replica_drop(load->items[i].replica);
    kl_release(load);
}

static void append_to(kl_loads *list, kl_load *load) {
    load->before = list->last;
    load->next = NULL;
    *(list->last ? &list->last->next : &list->first) = load;
    list->last = load;
}

static void take_out(kl_loads *list, kl_load *load) {
    KL_ASSERT(load->before ? load->before->next == load : list->first == load);
    KL_ASSERT(load->next ? load->next->before == load : list->last == load);
    *(load->before ? &load->before->next : &list->first) = load->next;
    *(load->next ? &load->next->before : &list->last) = load->before;
}

static bool is_append(const kl_load *load) {
    KL_ASSERT(load->at < load->count);
    return load->items[load->at].append.bytes > 0;
}

/* Locked.  True if its next item may be loaded now: no other item of its log is loading, and a
 * thread remains for reads. */
static bool is_free(const kl_cold *cold, const kl_load *load) {
    int appends = 0;
    KL_ASSERT_HELD(&cold->lock);
    for (const kl_load *other = cold->running_loads.first; other; other = other->next) {
        if (other->items[other->at].replica == load->items[load->at].replica) return false;
        appends += is_append(other);
    }
    KL_ASSERT(appends <= KL_COLD_APPENDS_MAX);
    return !is_append(load) || appends < KL_COLD_APPENDS_MAX;
}

/* Locked.  The oldest that may run, or NULL.  Passes over those whose log is loading: at most one a
 * connection, as a connection has one request in progress; each is compared with those that run. */
static kl_load *next_load(const kl_cold *cold) {
    kl_load *load = cold->waiting_loads.first;
    while (load && !cold->stop && !is_free(cold, load)) load = load->next;
    return load;
}

static void *run(void *argument);

/* Locked.  True if a thread will run pushed work. */
static bool have_thread(kl_cold *cold) {
    KL_ASSERT_HELD(&cold->lock);
    KL_ASSERT(cold->waiting >= 0 && cold->waiting <= cold->count);
    if (cold->stop) return false;
    if (cold->waiting > 0 || cold->count == KL_COLD_THREADS) return true;
    if (kl_thread_spawn(&cold->threads[cold->count], run, cold, "kafkalog-cold"))
        return cold->count > 0;
    cold->count++;
    return true;
}

/* Locked.  After a thread took its work, wake another for the rest. */
static void pass_on(kl_cold *cold) {
    if (cold->stop || (cold->first == NULL && next_load(cold) == NULL)) return;
    if (cold->waiting > 0) pthread_cond_signal(&cold->some);
    else have_thread(cold);
}

/* Locked, but not while reading. */
static void run_warming(kl_cold *cold) {
    KL_ASSERT_HELD(&cold->lock);
    kl_warming *warming = cold->first;
    cold->first = warming->next;
    if (cold->first == NULL) cold->last = NULL;
    pass_on(cold);
    bool stop = cold->stop;
    kl_unlock(&cold->lock);
    if (!stop) read_piece(warming);
    /* The last access to it, and its only signal: a separate flag could be seen first, and the
     * request could end.  The `done` of a load is read only under the lock under which its request
     * is woken. */
    kl_warmed(warming);
    kl_lock(&cold->lock);
}

/* Locked, but not while loading.  One item: then the load queues again behind the others. */
static void run_load(kl_cold *cold, kl_load *load) {
    KL_ASSERT_HELD(&cold->lock);
    KL_ASSERT(!load->running && !load->done && load->at < load->count);
    take_out(&cold->waiting_loads, load);
    append_to(&cold->running_loads, load);
    load->running = true;
    pass_on(cold);
    bool stop = cold->stop;
    kl_unlock(&cold->lock);
    if (!stop) load_item(&load->items[load->at]);
    kl_lock(&cold->lock);
    take_out(&cold->running_loads, load);
    load->running = false;
    load->at++;
    load->done = load->at == load->count;
    if (load->request == NULL) free_load(load);
    else if (load->done) kl_request_wake(load->request); /* and the request leaves it */
    else append_to(&cold->waiting_loads, load);
}

static void *run(void *argument) {
    kl_cold *cold = argument;
    kl_lock(&cold->lock);
    for (;;) {
        kl_load *load = next_load(cold);
        if (cold->first) {
            run_warming(cold);
        } else if (load) {
            run_load(cold, load);
        } else {
            if (cold->stop) break;
            cold->waiting++;
            KL_ASSERT(pthread_cond_wait(&cold->some, &cold->lock) == 0);
            cold->waiting--;
        }
    }
    kl_unlock(&cold->lock);
    return NULL;
}

static bool push(kl_cold *cold, kl_warming *warming) {
    kl_lock(&cold->lock);
    bool taken = have_thread(cold);
    if (taken) {
        warming->next = NULL;
        if (cold->last) cold->last->next = warming;
        else cold->first = warming;
        cold->last = warming;
        pthread_cond_signal(&cold->some);
    }
    kl_unlock(&cold->lock);
    return taken;
}

bool kl_cold_warm(kl_cold *cold, kl_warming *warming) {
    size_t bytes = (size_t)(warming->end - warming->pos);
    return kl_io->cached(warming->fd, (off_t)warming->pos, bytes) || !push(cold, warming);
}

kl_load *kl_load_new(size_t items_max) {
    kl_load *load = NULL;
    if (items_max <= (SIZE_MAX - sizeof *load) / sizeof load->items[0])
        load = kl_alloc(sizeof *load + items_max * sizeof load->items[0]);
    return load;
}

bool kl_cold_load(kl_cold *cold, kl_load *load, kl_request *request) {
    KL_ASSERT(load->count > 0);
    load->request = request;
    kl_lock(&cold->lock);
    bool taken = have_thread(cold);
    if (taken) {
        append_to(&cold->waiting_loads, load);
        pthread_cond_signal(&cold->some);
    }
    kl_unlock(&cold->lock);
    if (!taken) free_load(load);
    return taken;
}

bool kl_cold_loaded(kl_cold *cold, const kl_load *load) {
    kl_lock(&cold->lock);
    bool done = load->done;
    kl_unlock(&cold->lock);
    return done;
}

bool kl_cold_leave(kl_cold *cold, kl_load *load) {
    kl_lock(&cold->lock);
    bool done = load->done, running = load->running;
    load->request = NULL;
    if (!done && !running) take_out(&cold->waiting_loads, load);
    kl_unlock(&cold->lock);
    if (!running) free_load(load);
    return done;
}

void kl_cold_stop(kl_cold *cold) {
    kl_lock(&cold->lock);
    cold->stop = true;
    pthread_cond_broadcast(&cold->some);
    kl_unlock(&cold->lock);
    for (; cold->count > 0; cold->count--)
        KL_ASSERT(pthread_join(cold->threads[cold->count - 1], NULL) == 0);
}

void kl_cold_free(kl_cold *cold) {
    KL_ASSERT(cold->count == 0); /* stopped */
    KL_ASSERT(cold->first == NULL && cold->running_loads.first == NULL);
    pthread_cond_destroy(&cold->some);
    pthread_mutex_destroy(&cold->lock);
}
