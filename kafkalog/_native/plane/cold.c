/* cold.c: pieces of files that are on disk only.
 *
 * sendfile(2) waits for the disk where a page is not in memory, and with it all connections
 * of the network thread.  So a piece is looked for first, and one that is not there is read
 * by a thread of its own, into nowhere: then sendfile finds it. */
#include <errno.h>
#include <unistd.h>

#include "base/io.h"
#include "net/net.h"

enum { LOOK_BYTES = 4 << 20, READ_BYTES = 64 << 10 };

void kl_cold_init(kl_cold *cold) {
    pthread_mutex_init(&cold->lock, NULL);
    pthread_cond_init(&cold->some, NULL);
}

/* A failure is for sendfile to meet, which says so to the client. */
static void read_part(const kl_exchange *exchange) {
    uint8_t nowhere[READ_BYTES];
    const kl_part *part = &exchange->parts[exchange->part_index];
    int64_t pos = part->slice.pos + (int64_t)exchange->part_sent;
    int64_t end = part->slice.pos + (int64_t)exchange->warm_end;
    while (pos < end) {
        size_t want = (size_t)KL_MIN(end - pos, (int64_t)sizeof nowhere);
        ssize_t got = kl_io->pread(part->slice.fd, nowhere, want, (off_t)pos);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        pos += got;
    }
}

static void *run(void *argument) {
    kl_cold *cold = argument;
    kl_lock(&cold->lock);
    for (;;) {
        kl_exchange *exchange = cold->first;
        if (exchange == NULL) {
            if (cold->stop) break;
            cold->waiting++;
            KL_ASSERT(pthread_cond_wait(&cold->some, &cold->lock) == 0);
            cold->waiting--;
            continue;
        }
        cold->first = exchange->cold_next;
        if (cold->first == NULL) cold->last = NULL;
        bool stop = cold->stop;
        kl_unlock(&cold->lock);
        if (!stop) read_part(exchange);
        atomic_store(&exchange->warmed, true);
        kl_request_wake(&exchange->request);
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

static bool push(kl_cold *cold, kl_exchange *exchange) {
    kl_lock(&cold->lock);
    bool taken = have_thread(cold);
    if (taken) {
        exchange->cold = true;
        exchange->cold_next = NULL;
        if (cold->last) cold->last->cold_next = exchange;
        else cold->first = exchange;
        cold->last = exchange;
        pthread_cond_signal(&cold->some);
    }
    kl_unlock(&cold->lock);
    return taken;
}

bool kl_cold_ready(kl_exchange *exchange, size_t bytes) {
    if (exchange->part_sent + bytes <= exchange->warm_end) return true;
    const kl_part *part = &exchange->parts[exchange->part_index];
    size_t look = KL_MIN(part->slice.bytes - exchange->part_sent, (size_t)LOOK_BYTES);
    int64_t pos = part->slice.pos + (int64_t)exchange->part_sent;
    exchange->warm_end = exchange->part_sent + look;
    if (kl_io->cached(part->slice.fd, (off_t)pos, look)) return true;
    if (!push(&exchange->owner->server->cold, exchange)) return true;
    kl_count_add(&exchange->owner->cold, 1);
    return false;
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
