/* poller_poll.c: see poller.h. */
#include "poller.h"

#if KL_POLLER_ASKS
#include <errno.h>
#include <poll.h>

enum { NO_MEMORY_MS = 10 }; /* then some sockets wait for the next round */

kl_status kl_poller_init(kl_poller *poller, const kl_wake *wake) {
    *poller = (kl_poller){.wake = wake};
    return KL_OK;
}

void kl_poller_free(kl_poller *poller) {
    kl_release(poller->polled);
    kl_release(poller->data);
    *poller = (kl_poller){0};
}

void kl_poller_forget(kl_poller *poller) { (void)poller; }

/* Its thread may be waiting, without the new socket. */
kl_status kl_poller_add(const kl_poller *poller, int fd, void *data) {
    struct stat found;
    (void)data;
    if (fstat(fd, &found)) return kl_fail_errno(errno, "a connection's socket");
    if (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))
        return kl_fail_errno(EPERM, "a connection's socket");
    kl_wake_ring(poller->wake);
    return KL_OK;
}

void kl_poller_remove(const kl_poller *poller, int fd) { (void)poller, (void)fd; }

static bool has_room(kl_poller *poller) {
    struct pollfd *polled =
        kl_room_for(poller->polled, &poller->polled_max, poller->count + 1, sizeof *polled);
    if (polled == NULL) return false;
    poller->polled = polled;
    void **data =
        kl_room_for(poller->data, &poller->data_max, poller->count + 1, sizeof *data);
    if (data == NULL) return false;
    poller->data = data;
    return true;
}

void kl_poller_begin(kl_poller *poller) {
    poller->count = 0;
    if (!has_room(poller)) return;
    poller->polled[0] = (struct pollfd){.fd = poller->wake->read_fd, .events = POLLIN};
    poller->data[0] = NULL;
    poller->count = 1;
}

/* Nothing wanted: not even its end, which poll would report again and again. */
void kl_poller_ask(kl_poller *poller, int fd, void *data, unsigned wanted) {
    short events =
        (short)((wanted & KL_POLL_IN ? POLLIN : 0) | (wanted & KL_POLL_OUT ? POLLOUT : 0));
    if (!wanted || poller->count == 0 || !has_room(poller)) return;
    poller->polled[poller->count] = (struct pollfd){.fd = fd, .events = events};
    poller->data[poller->count++] = data;
}

/* True if the peer has sent all, and it was read: poll reports that as readable. */
static bool at_end(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

static unsigned happened(int fd, short events) {
    unsigned found = 0;
    if (events & POLLIN) found |= KL_POLL_IN | (at_end(fd) ? KL_POLL_END : 0);
    if (events & POLLOUT) found |= KL_POLL_OUT;
    if (events & POLLHUP) found |= KL_POLL_END;
    if (events & (POLLERR | POLLNVAL)) found |= KL_POLL_END | KL_POLL_FAILED;
    return found;
}

int kl_poller_wait(kl_poller *poller, kl_poll_event events[KL_POLL_EVENTS_MAX],
                   int timeout_ms) {
    bool none = poller->count == 0;
    if (none) timeout_ms = NO_MEMORY_MS;
    int ready = poll(poller->polled, (nfds_t)poller->count, timeout_ms);
    KL_ASSERT(ready >= 0 || errno == EINTR || errno == ENOMEM);
    if (ready <= 0) return 0;
    int count = 0;
    for (size_t i = 0; i < poller->count && count < KL_POLL_EVENTS_MAX; i++) {
        size_t at = (poller->next + i) % poller->count;
        short found = poller->polled[at].revents;
        if (!found) continue;
        if (at == 0) kl_wake_clear(poller->wake);
        events[count++] =
            (kl_poll_event){poller->data[at], happened(poller->polled[at].fd, found)};
        if (count == KL_POLL_EVENTS_MAX) poller->next = at + 1;
    }
    if (count < KL_POLL_EVENTS_MAX) poller->next = 0;
    return count;
}
#endif
