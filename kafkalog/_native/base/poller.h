/* poller.h: one thread waits for many sockets: by epoll, or in the second form (see system.h) by
 * poll.
 *
 * Both report edges: a socket that became readable or writable is reported once, until a call has
 * found it not so.  epoll does so by itself.  For poll, each wait gets a list of the sockets with
 * what their owner does not know to be so: KL_POLLER_ASKS. */
#ifndef KL_POLLER_H
#define KL_POLLER_H

#include "base.h"
#include "system.h"

#define KL_POLLER_ASKS (!KL_LINUX)

enum {
    KL_POLL_IN = 1,  /* readable */
    KL_POLL_OUT = 2, /* writable */
    KL_POLL_END = 4, /* the peer sends no more; by poll only once all before it was read */
    KL_POLL_FAILED = 8 /* nor can it receive */
};

enum { KL_POLL_EVENTS_MAX = 256 };

typedef struct {
    void *data; /* NULL: the wake-up */
    unsigned happened;
} kl_poll_event;

#if KL_POLLER_ASKS
typedef struct {
    struct pollfd *polled; /* the first is the wake-up */
    void **data;
    size_t count, polled_max, data_max;
    size_t next; /* where the last report ended, so that each has its turn */
    const kl_wake *wake;
} kl_poller;
#define KL_POLLER_NONE ((kl_poller){.wake = NULL})
#else
typedef struct {
    int fd; /* of epoll */
} kl_poller;
#define KL_POLLER_NONE ((kl_poller){.fd = -1})
#endif

/* Ringing `wake` ends a wait.  Before it, and after a failure, a poller is KL_POLLER_NONE. */
kl_status kl_poller_init(kl_poller *poller, const kl_wake *wake);
void kl_poller_free(kl_poller *poller);
/* In a forked child: close what it has open, and touch nothing else. */
void kl_poller_forget(kl_poller *poller);
/* Report events of a socket from now on.  KL_E_IO. */
kl_status kl_poller_add(const kl_poller *poller, int fd, void *data);
void kl_poller_remove(const kl_poller *poller, int fd);
/* Only if it asks: before each wait begin the list, and then name every socket with what it waits
 * for. */
void kl_poller_begin(kl_poller *poller);
void kl_poller_ask(kl_poller *poller, int fd, void *data, unsigned wanted);
/* The number of events; 0 after `timeout_ms` (-1: never) or a signal. */
int kl_poller_wait(kl_poller *poller, kl_poll_event events[KL_POLL_EVENTS_MAX],
                   int timeout_ms);

#endif
