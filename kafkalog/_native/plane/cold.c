/* cold.c: pieces of files that are on disk only.
 *
 * sendfile(2) waits for the disk where a page is not in memory, and with it all connections
 * of the network thread.  So a piece is looked for first, and one that is not there is read
 * by a thread of its own, into nowhere: then sendfile finds it. */
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

/* A failure is for sendfile to meet, which says so to the client. */
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

static void *run(void *argument) {
    kl_cold *cold = argument;
    kl_lock(&cold->lock);
    for (;;) {
        kl_warming *warming = cold->first;
        if (warming == NULL) {
            if (cold->stop) break;
            cold->waiting++;
            KL_ASSERT(pthread_cond_wait(&cold->some, &cold->lock) == 0);
            cold->waiting--;
            continue;
        }
        cold->first = warming->next;
        if (cold->first == NULL) cold->last = NULL;
        bool stop = cold->stop;
        kl_unlock(&cold->lock);
        if (!stop) read_piece(warming);
        kl_warmed(warming); /* the last look at it: its request may end at once */
        kl_lock(&cold->lock);
    }
    kl_unlock(&cold->lock);
    return NULL;
}

/* Locked.  Whether a thread will take what is pushed. */
static bool have_thread(kl_cold *cold) {
    if (cold->stop) return false;
    if (cold->waiting > 0 || cold->count == KL_COLD_THREADS) return true;
    if (kl_thread_spawn(&cold->threads[cold->count], run, cold, "kafkalog-cold"))
        return cold->count > 0;
    cold->count++;
    return true;
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

void kl_cold_stop(kl_cold *cold) {
    kl_lock(&cold->lock);
    cold->stop = true;
    pthread_cond_broadcast(&cold->some);
    kl_unlock(&cold->lock);
    for (; cold->count > 0; cold->count--)
        KL_ASSERT(pthread_join(cold->threads[cold->count - 1], NULL) == 0);
}

void kl_cold_free(kl_cold *cold) {
    pthread_cond_destroy(&cold->some);
    pthread_mutex_destroy(&cold->lock);
}
