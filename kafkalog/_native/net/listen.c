/* listen.c: listening sockets and the acceptor thread. */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/io.h"
#include "base/thread.h"
#include "net.h"
#include "threads.h"
#include "tls_stream.h"

enum {
    ACCEPTS_PER_TURN = 64,
    PAUSE_MS = 100, /* without free descriptors */
    RESERVED_FILES = 64,
    PORT_MAX = 65535
};

static const char UNIX_PREFIX[] = "unix:";

/* ---- addresses ----------------------------------------------------------------------- */

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
} address;

/* The first address of a name, IPv4 before IPv6 as in Java; "": all addresses of both. */
static kl_status resolve(const char *host, int32_t port, address *out, socklen_t *bytes) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL, *chosen = NULL;
    int32_t first = *host ? AF_INET : AF_INET6;
    int failed = getaddrinfo(*host ? host : NULL, "0", &hints, &found);
    if (failed)
        return kl_fail(KL_E_NOT_FOUND, "no address of %s: %s", host, gai_strerror(failed));
    for (struct addrinfo *each = found; each != NULL; each = each->ai_next)
        if (chosen == NULL || (each->ai_family == first && chosen->ai_family != first))
            chosen = each;
    memcpy(out, chosen->ai_addr, chosen->ai_addrlen);
    *bytes = chosen->ai_addrlen;
    freeaddrinfo(found);
    if (out->any.sa_family == AF_INET) out->v4.sin_port = htons((uint16_t)port);
    else out->v6.sin6_port = htons((uint16_t)port);
    return KL_OK;
}

static kl_status unix_address(const char *path, address *out, socklen_t *bytes) {
    size_t path_bytes = strlen(path);
    if (path_bytes == 0 || path_bytes >= sizeof out->un.sun_path)
        return kl_fail(KL_E_ARGUMENT,
                       "a unix socket's path has %zu bytes, wanted 1 to %zu: %s",
                       path_bytes, sizeof out->un.sun_path - 1, path);
    *out = (address){.un.sun_family = AF_UNIX};
    memcpy(out->un.sun_path, path, path_bytes);
    *bytes = sizeof out->un;
    return KL_OK;
}

/* Remove the socket of a process that has ended; keep one that is served. */
static void remove_stale(const char *path, const address *at, socklen_t bytes) {
    struct stat found;
    if (lstat(path, &found) != 0 || !S_ISSOCK(found.st_mode)) return;
    int probe = kl_system_socket(AF_UNIX);
    if (probe < 0) return;
    if (connect(probe, &at->any, bytes) != 0 && errno == ECONNREFUSED) unlink(path);
    close(probe);
}

/* As 16 bytes with IPv4 mapped, and as text. */
static void name_peer(kl_conn *conn, const address *from) {
    char text[INET6_ADDRSTRLEN] = "";
    switch (from->any.sa_family) {
    case AF_INET:
        conn->address[10] = conn->address[11] = 0xff;
        memcpy(conn->address + 12, &from->v4.sin_addr, 4);
        inet_ntop(AF_INET, &from->v4.sin_addr, text, sizeof text);
        snprintf(conn->peer, sizeof conn->peer, "%s:%u", text, ntohs(from->v4.sin_port));
        break;
    case AF_INET6:
        memcpy(conn->address, &from->v6.sin6_addr, sizeof conn->address);
        if (IN6_IS_ADDR_V4MAPPED(&from->v6.sin6_addr)) {
            inet_ntop(AF_INET, conn->address + 12, text, sizeof text);
            snprintf(conn->peer, sizeof conn->peer, "%s:%u", text,
                     ntohs(from->v6.sin6_port));
        } else {
            inet_ntop(AF_INET6, &from->v6.sin6_addr, text, sizeof text);
            snprintf(conn->peer, sizeof conn->peer, "[%s]:%u", text,
                     ntohs(from->v6.sin6_port));
        }
        break;
    case AF_UNIX: snprintf(conn->peer, sizeof conn->peer, "unix"); break;
    default: snprintf(conn->peer, sizeof conn->peer, "inside"); /* this process */
    }
}

/* ---- listening ----------------------------------------------------------------------- */

static void close_listening(kl_listening *listening) {
    struct stat found;
    if (listening->fd >= 0) close(listening->fd);
    kl_tls_free(listening->tls);
    /* Another process may have the name now. */
    if (listening->path && lstat(listening->path, &found) == 0 &&
        found.st_ino == listening->path_inode)
        unlink(listening->path);
    kl_release(listening->path);
    kl_release(listening);
}

static kl_status open_socket(const kl_server_config *config, const char *name,
                             const address *at, socklen_t bytes, int *fd) {
    static const int on = 1, off = 0;
    bool is_unix = at->any.sa_family == AF_UNIX;
    *fd = kl_system_socket(at->any.sa_family);
    if (*fd < 0) return kl_fail_errno(errno, "no socket for listener %s", name);
    if (!is_unix) setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->any.sa_family == AF_INET6)
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    /* Before listen: it affects the window offered. */
    if (config->receive_buffer_bytes > 0)
        setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &config->receive_buffer_bytes,
                   sizeof config->receive_buffer_bytes);
    if (bind(*fd, &at->any, bytes) != 0)
        return kl_fail_errno(errno, "listener %s: bind", name);
    if (is_unix && chmod(at->un.sun_path, 0600) != 0)
        return kl_fail_errno(errno, "listener %s: chmod", name);
    if (listen(*fd, config->backlog) != 0)
        return kl_fail_errno(errno, "listener %s: listen", name);
    return KL_OK;
}

static kl_status keep_path(const char *path, kl_listening *listening) {
    struct stat made;
    if (lstat(path, &made) != 0) return kl_fail_errno(errno, "listener unix:%s", path);
    listening->path_inode = made.st_ino;
    listening->path = kl_alloc(strlen(path) + 1);
    if (listening->path == NULL) {
        unlink(path);
        return kl_fail(KL_E_NO_MEMORY, "no memory for listener unix:%s", path);
    }
    memcpy(listening->path, path, strlen(path) + 1);
    return KL_OK;
}

static int32_t port_of(int fd) {
    address at;
    socklen_t bytes = sizeof at;
    if (getsockname(fd, &at.any, &bytes) != 0) return 0;
    if (at.any.sa_family == AF_INET) return ntohs(at.v4.sin_port);
    return at.any.sa_family == AF_INET6 ? ntohs(at.v6.sin6_port) : 0;
}

/* Under the lock, so that a fork sees every socket. */
static kl_status add_listening(kl_net *net, const char *name, const address *at,
                               socklen_t bytes, kl_listening *listening) {
    kl_acceptor *acceptor = &net->acceptor;
    int32_t count = 1;
    for (kl_listening *each = acceptor->listening; each; each = each->next) count++;
    if (count > KL_LISTENERS_MAX)
        return kl_fail(KL_E_ARGUMENT, "%d listeners, at most %d", count, KL_LISTENERS_MAX);
    listening->is_unix = at->any.sa_family == AF_UNIX;
    if (listening->is_unix) remove_stale(at->un.sun_path, at, bytes);
    kl_status status = open_socket(net->config, name, at, bytes, &listening->fd);
    if (!status && listening->is_unix) status = keep_path(at->un.sun_path, listening);
    if (status) return status;
    listening->next = acceptor->listening;
    acceptor->listening = listening;
    return KL_OK;
}

kl_status kl_acceptor_listen(kl_net *net, const char *host_or_path, int32_t port,
                             int32_t listener, kl_tls *tls, int32_t *bound_port) {
    address at = {0};
    socklen_t bytes = 0;
    bool is_unix = strncmp(host_or_path, UNIX_PREFIX, sizeof UNIX_PREFIX - 1) == 0;
    if (port < 0 || port > PORT_MAX)
        return kl_fail(KL_E_ARGUMENT, "port %d, wanted 0 to %d", port, PORT_MAX);
    kl_status status =
        is_unix ? unix_address(host_or_path + sizeof UNIX_PREFIX - 1, &at, &bytes)
                : resolve(host_or_path, port, &at, &bytes);
    if (status) return status;
    kl_listening *listening = kl_alloc(sizeof *listening);
    if (listening == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a listener");
    listening->fd = -1;
    listening->number = listener;
    listening->tls = kl_tls_hold(tls);
    kl_lock(&net->acceptor.lock);
    status = add_listening(net, host_or_path, &at, bytes, listening);
    if (status) close_listening(listening);
    else *bound_port = port_of(listening->fd);
    kl_unlock(&net->acceptor.lock);
    if (!status) kl_peers_wake(&net->peers);
    return status;
}

kl_status kl_acceptor_set_tls(kl_net *net, int32_t listener, kl_tls *tls) {
    int32_t found = 0;
    kl_lock(&net->acceptor.lock);
    for (kl_listening *each = net->acceptor.listening; each; each = each->next) {
        if (each->number != listener || each->tls == NULL) continue;
        kl_tls_free(each->tls);
        each->tls = kl_tls_hold(tls);
        found++;
    }
    kl_unlock(&net->acceptor.lock);
    if (found > 0) return KL_OK;
    return kl_fail(KL_E_NOT_FOUND, "listener %d does not exist, or has no TLS", listener);
}

/* Under the lock.  NULL: the listener's connections are not encrypted. */
static const kl_tls *tls_of(const kl_acceptor *acceptor, int32_t listener) {
    for (const kl_listening *each = acceptor->listening; each; each = each->next)
        if (each->number == listener) return each->tls;
    return NULL;
}

/* ---- accepting ----------------------------------------------------------------------- */

static bool may_accept(kl_net *net, int32_t listener) {
    const kl_arrivals *arrivals = net->acceptor.arrivals;
    int32_t count_max = kl_arrivals_listener_max(arrivals, listener);
    return !kl_peers_full_at(&net->peers, listener, count_max) &&
           kl_arrivals_ready(arrivals, listener, kl_clock_now(&net->clock));
}

/* Count the connection, or refuse it; KL_E_STALE: it comes too early. */
static kl_status enter(kl_net *net, kl_conn *conn, const address *from) {
    bool counted = from->any.sa_family == AF_INET || from->any.sa_family == AF_INET6;
    const uint8_t *address = counted ? conn->address : NULL;
    kl_arrivals *arrivals = net->acceptor.arrivals;
    if (!kl_arrivals_enter(arrivals, conn->listener, address, kl_clock_now(&net->clock))) {
        atomic_fetch_add(&net->acceptor.held_per_ip, 1);
        return kl_fail(KL_E_STALE, "%s: it connects too often", conn->peer);
    }
    int32_t per_ip_max = counted ? kl_arrivals_ip_max(arrivals, address) : -1;
    if (kl_peers_enter(&net->peers, address, per_ip_max, &conn->from)) return KL_OK;
    atomic_fetch_add(&net->acceptor.refused_per_ip, 1);
    return kl_fail(KL_E_TIMEOUT, "%s: it has too many connections", conn->peer);
}

static bool authenticates(kl_net *net, int32_t listener) {
    if (listener < 0 || listener >= KL_LISTENERS_MAX) return false;
    return atomic_load(&net->authenticating) >> listener & 1;
}

kl_status kl_acceptor_authenticate(kl_net *net, int32_t listener) {
    if (listener < 0 || listener >= KL_LISTENERS_MAX)
        return kl_fail(KL_E_ARGUMENT, "listener %d, wanted 0 to %d", listener,
                       KL_LISTENERS_MAX - 1);
    atomic_fetch_or(&net->authenticating, (uint64_t)1 << listener);
    return KL_OK;
}

/* Under the lock.  Give a socket to a network thread; on failure the caller keeps it. */
static kl_status take_in(kl_net *net, int32_t listener, int fd, const address *from) {
    kl_acceptor *acceptor = &net->acceptor;
    kl_conn *conn = kl_alloc(sizeof *conn);
    if (conn == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a connection");
    conn->net = net;
    conn->listener = listener;
    conn->principal = listener == KL_INSIDE          ? KL_PROCESS
                      : authenticates(net, listener) ? KL_UNIDENTIFIED
                                                     : KL_ANONYMOUS;
    conn->unidentified_ms = -1;
    name_peer(conn, from);
    kl_status status = enter(net, conn, from);
    if (status) {
        kl_release(conn);
        return status;
    }
    kl_thread *thread = conn->thread = kl_threads_next(net, listener);
    conn->id = ++acceptor->last_id;
    bool local = from->any.sa_family != AF_INET && from->any.sa_family != AF_INET6;
    conn->stream = kl_stream_of(fd, local, net->config->send_buffer_bytes);
    atomic_fetch_add(&acceptor->accepted, 1);
    kl_peer *counted = conn->from; /* the thread owns the connection after the put */
    kl_peers_enter_listener(&net->peers, listener);
    const kl_tls *tls = tls_of(acceptor, listener);
    if (tls) status = kl_shake_begin(conn, tls);
    if (!status) status = kl_threads_put(thread, conn);
    if (status) {
        if (conn->stream.ssl) kl_tls_end(&conn->stream);
        kl_peers_leave_listener(&net->peers, listener);
        kl_peers_leave(&net->peers, counted);
        kl_release(conn);
    }
    return status;
}

kl_status kl_acceptor_adopt(kl_net *net, int fd, int32_t listener) {
    static const address inside = {.any.sa_family = AF_UNSPEC};
    bool control = listener == net->config->control_listener;
    if (!control && kl_peers_full(&net->peers))
        return kl_fail(KL_E_TIMEOUT, "%lld connections are there already",
                       (long long)atomic_load(&net->peers.count));
    int status_flags = fcntl(fd, F_GETFL), flags = fcntl(fd, F_GETFD);
    if (status_flags < 0 || flags < 0 ||
        fcntl(fd, F_SETFL, status_flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0)
        return kl_fail_errno(errno, "socket %d", fd);
    kl_lock(&net->acceptor.lock);
    kl_status status = take_in(net, listener, fd, &inside);
    kl_unlock(&net->acceptor.lock);
    return status;
}

/* Under the lock: serve a socket, hold it or close it. */
static void place(kl_net *net, int32_t listener, int fd, const address *from) {
    kl_status status = take_in(net, listener, fd, from);
    if (status == KL_E_STALE)
        kl_arrivals_hold(net->acceptor.arrivals, fd, kl_clock_now(&net->clock));
    else if (status) close(fd);
}

/* False: no descriptors, or no memory. */
static bool accept_some(kl_net *net, const kl_listening *listening) {
    bool control = listening->number == net->config->control_listener;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        address from = {0};
        socklen_t bytes = sizeof from;
        if (!control && kl_peers_full(&net->peers)) return true;
        kl_lock(&net->acceptor.lock);
        if (!may_accept(net, listening->number)) {
            kl_unlock(&net->acceptor.lock);
            return true;
        }
        int fd = kl_io->accept4(listening->fd, &from.any, &bytes);
        int error = fd < 0 ? errno : 0;
        if (fd >= 0) place(net, listening->number, fd, &from);
        kl_unlock(&net->acceptor.lock);
        if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
            atomic_fetch_add(&net->acceptor.pauses, 1);
            return false;
        }
        if (error == EAGAIN) return true;
        /* Otherwise the connection failed before the accept: try the next. */
    }
    return true;
}

/* List the sockets to poll now; returns how many.  *wait_ms: until this may change; -1: never. */
static nfds_t what_to_poll(kl_net *net, struct pollfd *polled, kl_listening **listening,
                           int *wait_ms) {
    kl_acceptor *acceptor = &net->acceptor;
    bool full = kl_peers_full(&net->peers);
    nfds_t count = 0;
    kl_lock(&acceptor->lock);
    for (kl_listening *each = acceptor->listening; each; each = each->next) {
        if (full && each->number != net->config->control_listener) continue;
        if (!may_accept(net, each->number)) continue;
        listening[count] = each;
        polled[count++] = (struct pollfd){.fd = each->fd, .events = POLLIN};
    }
    int64_t now_ms = kl_clock_now(&net->clock);
    int64_t next_ms = kl_arrivals_next(acceptor->arrivals, now_ms);
    bool never = next_ms == INT64_MAX || net->clock.manual; /* that one wakes us */
    *wait_ms = never ? -1 : (int)KL_MIN(next_ms - now_ms, (int64_t)INT32_MAX);
    kl_unlock(&acceptor->lock);
    return count;
}

static void *serve(void *argument) {
    kl_net *net = argument;
    kl_acceptor *acceptor = &net->acceptor;
    struct pollfd polled[KL_LISTENERS_MAX + 1];
    kl_listening *listening[KL_LISTENERS_MAX];
    bool starved = false;
    while (!atomic_load(&acceptor->stop)) {
        int wait_ms = PAUSE_MS;
        nfds_t count = starved ? 0 : what_to_poll(net, polled, listening, &wait_ms);
        polled[count] = (struct pollfd){.fd = net->peers.wake.read_fd, .events = POLLIN};
        int ready = poll(polled, count + 1, wait_ms);
        KL_ASSERT(ready >= 0 || errno == EINTR || errno == ENOMEM);
        starved = false;
        if (ready <= 0) continue;
        if (polled[count].revents) {
            atomic_store(&net->peers.full, false);
            kl_wake_clear(&net->peers.wake);
        }
        for (nfds_t i = 0; i < count; i++)
            if (polled[i].revents && !accept_some(net, listening[i])) starved = true;
    }
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------- */

/* Connections must leave descriptors for the logs, which take all they can get. */
static int32_t connections_max(int32_t wanted) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return wanted;
    rlim_t rest = files.rlim_cur - files.rlim_cur / 4;
    rest = rest > 2 * RESERVED_FILES ? rest - RESERVED_FILES : RESERVED_FILES;
    return (int32_t)KL_MIN((rlim_t)wanted, rest);
}

void kl_acceptor_init(kl_acceptor *acceptor) { pthread_mutex_init(&acceptor->lock, NULL); }

void kl_acceptor_limit(kl_net *net, int32_t wanted, int32_t per_ip_max) {
    atomic_store(&net->peers.count_max, connections_max(wanted));
    atomic_store(&net->peers.per_ip_max, per_ip_max);
    kl_peers_wake(&net->peers);
}

kl_status kl_acceptor_start(kl_net *net) {
    kl_acceptor *acceptor = &net->acceptor;
    kl_status status = kl_thread_spawn(&acceptor->thread, serve, net, "kafkalog-accept");
    acceptor->runs = !status;
    return status;
}

void kl_acceptor_stop(kl_net *net) {
    kl_acceptor *acceptor = &net->acceptor;
    if (acceptor->runs) {
        atomic_store(&acceptor->stop, true);
        kl_peers_wake(&net->peers);
        KL_ASSERT(pthread_join(acceptor->thread, NULL) == 0);
        acceptor->runs = false;
    }
    kl_lock(&acceptor->lock);
    for (kl_listening *each; (each = acceptor->listening) != NULL;) {
        acceptor->listening = each->next;
        close_listening(each);
    }
    kl_unlock(&acceptor->lock);
}
