/* poller_epoll.c: see poller.h. */
#include "poller.h"

#if !KL_POLLER_ASKS
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

kl_status kl_poller_init(kl_poller *poller, const kl_wake *wake) {
    /* Edge-triggered: it is never read, each write is an edge. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    poller->fd = epoll_create1(EPOLL_CLOEXEC);
    if (poller->fd < 0 || epoll_ctl(poller->fd, EPOLL_CTL_ADD, wake->read_fd, &event) != 0)
        return kl_fail_errno(errno, "no epoll for a network thread");
    return KL_OK;
}

void kl_poller_free(kl_poller *poller) {
    if (poller->fd >= 0) close(poller->fd);
}

void kl_poller_forget(kl_poller *poller) { close(poller->fd); }

kl_status kl_poller_add(const kl_poller *poller, int fd, void *data) {
    /* Edge-triggered in both directions: no call per request. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = data};
    if (epoll_ctl(poller->fd, EPOLL_CTL_ADD, fd, &event) == 0) return KL_OK;
    return kl_fail_errno(errno, "a connection's socket");
}

void kl_poller_remove(const kl_poller *poller, int fd) {
    epoll_ctl(poller->fd, EPOLL_CTL_DEL, fd, NULL);
}

void kl_poller_begin(kl_poller *poller) { (void)poller; }

void kl_poller_ask(kl_poller *poller, int fd, void *data, unsigned wanted) {
    (void)poller, (void)fd, (void)data, (void)wanted;
}

static unsigned happened(uint32_t events) {
    unsigned found = 0;
    if (events & EPOLLIN) found |= KL_POLL_IN;
    if (events & EPOLLOUT) found |= KL_POLL_OUT;
    if (events & (EPOLLRDHUP | EPOLLHUP)) found |= KL_POLL_END;
    if (events & EPOLLERR) found |= KL_POLL_END | KL_POLL_FAILED;
    return found;
}

int kl_poller_wait(kl_poller *poller, kl_poll_event events[KL_POLL_EVENTS_MAX],
                   int timeout_ms) {
    struct epoll_event found[KL_POLL_EVENTS_MAX];
    int count = epoll_wait(poller->fd, found, KL_POLL_EVENTS_MAX, timeout_ms);
    KL_ASSERT(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; i++)
        events[i] = (kl_poll_event){found[i].data.ptr, happened(found[i].events)};
    return KL_MAX(count, 0);
}
#endif
