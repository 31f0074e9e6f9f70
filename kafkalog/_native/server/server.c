/* server.c: the server's handle: start, stop, counters, fork. */
#include "state.h"

#include "net/crew.h"
#include "net/loop.h"
#include "net/threads.h"

#include <time.h>
#include <unistd.h>

/* ---- fork: a child has none of the threads and must not keep the sockets ------------- */

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER; /* guards servers */
static kl_link servers;

static void each_server(void (*act)(kl_server *)) {
    for (kl_link *link = servers.next; link != &servers; link = link->next)
        act(KL_HOLDER(link, kl_server, registered));
}

static void lock_all(kl_server *server) {
    kl_lock(&server->net.acceptor.lock);
    for (int32_t i = 0; i < server->net.thread_count; i++)
        kl_lock(&server->net.threads[i].lock);
}

static void unlock_all(kl_server *server) {
    for (int32_t i = 0; i < server->net.thread_count; i++)
        kl_unlock(&server->net.threads[i].lock);
    kl_unlock(&server->net.acceptor.lock);
}

/* Otherwise clients would not see the parent end, and its ports would stay in use. */
static void close_all(kl_server *server) {
    for (kl_listening *each = server->net.acceptor.listening; each; each = each->next)
        close(each->fd);
    kl_wake_close(&server->net.peers.wake);
    for (int32_t i = 0; i < server->net.thread_count; i++) {
        kl_thread *thread = &server->net.threads[i];
        for (kl_link *link = thread->conns.next; link != &thread->conns; link = link->next)
            kl_stream_forget(&KL_HOLDER(link, kl_conn, all)->stream);
        kl_poller_forget(&thread->poller);
        kl_wake_close(&thread->post.wake);
    }
    unlock_all(server);
}

static void before_fork(void) {
    kl_lock(&registry);
    each_server(lock_all);
}
static void after_fork_in_parent(void) {
    each_server(unlock_all);
    kl_unlock(&registry);
}
static void after_fork_in_child(void) {
    each_server(close_all);
    kl_ring_init(&servers);
    kl_unlock(&registry);
}
__attribute__((constructor)) static void register_fork_handlers(void) {
    kl_ring_init(&servers);
    KL_ASSERT(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
}

kl_status kl_server_check(const kl_server *server) {
    if (server->generation == atomic_load(&kl_process_generation)) return KL_OK;
    return kl_fail(KL_E_FORKED, "the server belongs to the parent process");
}

/* ---- making -------------------------------------------------------------------------- */

static kl_status want(const char *name, int64_t found, int64_t low, int64_t high) {
    if (found >= low && found <= high) return KL_OK;
    return kl_fail(KL_E_ARGUMENT, "%s: found %lld, wanted %lld to %lld", name,
                   (long long)found, (long long)low, (long long)high);
}

static kl_status check_config(const kl_server_config *config) {
    const struct {
        const char *name;
        int64_t found, low, high;
    } each[] = {
        {"network_threads", config->network_threads, 1, KL_THREADS_MAX},
        {"queued_requests_max", config->queued_requests_max, 1, INT32_MAX},
        {"request_bytes_max", config->request_bytes_max, 1, INT32_MAX},
        {"queued_bytes_max", config->queued_bytes_max, -1, INT64_MAX},
        {"connections_max", config->connections_max, 0, INT32_MAX},
        {"connections_per_ip_max", config->connections_per_ip_max, 0, INT32_MAX},
        {"backlog", config->backlog, 1, INT32_MAX},
        {"send_buffer_bytes", config->send_buffer_bytes, -1, INT32_MAX},
        {"receive_buffer_bytes", config->receive_buffer_bytes, -1, INT32_MAX},
        {"idle_ms_max", config->idle_ms_max, -1, INT64_MAX},
        {"half_frame_ms_max", config->half_frame_ms_max, -1, INT64_MAX},
        {"unidentified_bytes_max", config->unidentified_bytes_max, 1, INT32_MAX},
        {"unidentified_max", config->unidentified_max, 1, INT32_MAX},
        {"unidentified_ms_max", config->unidentified_ms_max, 1, INT64_MAX},
        {"client_quota_windows", config->client_quota_windows, 1, KL_RATE_WINDOWS_MAX},
        {"client_quota_window_ms", config->client_quota_window_ms, 1, INT64_MAX},
        {"produce_waiting_max", config->produce_waiting_max, 0, INT32_MAX},
        {"control_listener", config->control_listener, -1, INT32_MAX},
    };
    kl_status status = KL_OK;
    for (size_t i = 0; !status && i < sizeof each / sizeof each[0]; i++)
        status = want(each[i].name, each[i].found, each[i].low, each[i].high);
    return status;
}

static void free_all(kl_server *server) {
    kl_net *net = &server->net;
    /* Requests still at Python return to their threads' memory before that is freed. */
    for (kl_exchange *left; (left = kl_up_left(&net->up)) != NULL;) kl_exchange_end(left);
    kl_up_free(&net->up);
    kl_crew_free(net);
    kl_peers_free(&net->peers);
    kl_arrivals_free(net->acceptor.arrivals);
    kl_net_free(net);
    pthread_mutex_destroy(&net->acceptor.lock);
    kl_plane_free(server->data);
    pthread_mutex_destroy(&server->life);
    kl_release(net->threads);
    kl_release(server);
}

enum { PLACES = KL_THREADS_MAX + 1 }; /* network threads; use no memory until started */

/* Create the parts; the caller frees them on failure. */
static kl_status make_net(kl_server *server, kl_thread *threads) {
    const kl_server_config *config = &server->config;
    kl_net *net = &server->net;
    net->config = config;
    kl_net_init(net, &kl_plane_ops);
    net->clock.manual = config->manual_clock;
    net->threads = threads;
    net->up.count_max = config->queued_requests_max;
    net->up.threads = threads;
    net->up.thread_count = &net->thread_count;
    net->up.control_listener = config->control_listener;
    kl_up_init(&net->up);
    kl_acceptor_init(&net->acceptor);
    kl_status status = kl_peers_init(&net->peers);
    if (!status)
        status = kl_arrivals_new(config->client_quota_windows,
                                 config->client_quota_window_ms, &net->acceptor.arrivals);
    if (!status) status = kl_crew_init(net, config->network_threads);
    if (!status) status = kl_data_new(config, &net->clock, PLACES, &server->data);
    net->context = server->data;
    if (!status)
        kl_acceptor_limit(net, config->connections_max, config->connections_per_ip_max);
    return status;
}

kl_status kl_server_new(const kl_server_config *config, kl_server **out) {
    *out = NULL;
    kl_status status = check_config(config);
    if (status) return status;
    kl_server *server = kl_alloc(sizeof *server);
    kl_thread *threads = kl_alloc((size_t)PLACES * sizeof *threads);
    if (server == NULL || threads == NULL) {
        kl_release(server);
        kl_release(threads);
        return kl_fail(KL_E_NO_MEMORY, "no memory for a server");
    }
    server->config = *config;
    server->generation = atomic_load(&kl_process_generation);
    pthread_mutex_init(&server->life, NULL);
    status = make_net(server, threads);
    if (status) {
        free_all(server);
        return status;
    }
    kl_lock(&registry);
    kl_link_last(&servers, &server->registered);
    kl_unlock(&registry);
    *out = server;
    return KL_OK;
}

void kl_server_free(kl_server *server) {
    /* In a forked child the memory belongs to threads that do not exist: leave it. */
    if (server == NULL || kl_server_check(server)) return;
    (void)kl_server_stop(server, 0);
    kl_lock(&registry);
    kl_link_remove(&server->registered);
    kl_unlock(&registry);
    free_all(server);
}

/* ---- start and stop ------------------------------------------------------------------ */

kl_status kl_server_start(kl_server *server) {
    kl_status status = kl_server_check(server);
    if (status) return status;
    kl_lock(&server->life);
    if (server->stopped) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else if (server->started) status = kl_fail(KL_E_ARGUMENT, "the server runs already");
    if (!status) status = kl_crew_start(&server->net);
    if (!status) status = kl_acceptor_start(&server->net);
    if (!status) server->started = true;
    kl_unlock(&server->life);
    return status;
}

/* Ask all threads to end after their answers, then at once.  False: some had not answered. */
static bool end_threads(kl_server *server, int32_t timeout_ms) {
    bool answered = true;
    int64_t until_ms = kl_monotonic_ms() + timeout_ms;
    for (int32_t i = 0; i < server->net.thread_count; i++) {
        atomic_store(&server->net.threads[i].stop, true);
        kl_post_ring(&server->net.threads[i].post);
    }
    for (int32_t i = 0; i < server->net.thread_count; i++) {
        kl_thread *thread = &server->net.threads[i];
        if (!thread->runs) continue;
        if (!kl_net_wait_over(thread, until_ms)) {
            atomic_store(&thread->stop_now, true);
            kl_post_ring(&thread->post);
        }
        KL_ASSERT(pthread_join(thread->thread, NULL) == 0);
        thread->runs = false;
        answered = answered && !thread->unanswered;
    }
    return answered;
}

kl_status kl_server_stop(kl_server *server, int32_t timeout_ms) {
    kl_status status = kl_server_check(server);
    if (status) return status;
    kl_lock(&server->life);
    if (!server->stopped) {
        if (server->started) kl_net_pause(&server->net, false);
        kl_acceptor_stop(&server->net);
        if (!end_threads(server, KL_MAX(timeout_ms, 0)))
            status = kl_fail(KL_E_TIMEOUT,
                             "requests were not answered in %d ms when the server stopped",
                             timeout_ms);
        kl_plane_stop_cold(server->data);
        for (int32_t i = 0; i < server->net.thread_count; i++)
            kl_thread_drain(&server->net.threads[i]);
        kl_up_close(&server->net.up);
        kl_notices_close(&server->net.failures);
        kl_notices_close(&server->net.finished.all);
        kl_plane_stop(server->data);
        server->stopped = true;
    }
    kl_unlock(&server->life);
    return status;
}

kl_status kl_server_set_limits(kl_server *server, int32_t connections_max,
                               int32_t connections_per_ip_max) {
    kl_status status = want("connections_max", connections_max, 0, INT32_MAX);
    if (!status)
        status = want("connections_per_ip_max", connections_per_ip_max, 0, INT32_MAX);
    if (!status) kl_acceptor_limit(&server->net, connections_max, connections_per_ip_max);
    return status;
}

kl_status kl_server_set_threads(kl_server *server, int32_t network_threads) {
    kl_status status = kl_server_check(server);
    if (!status) status = want("network_threads", network_threads, 1, KL_THREADS_MAX);
    if (status) return status;
    kl_lock(&server->life);
    if (server->stopped) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else status = kl_crew_resize(&server->net, network_threads, server->started);
    kl_unlock(&server->life);
    return status;
}

void kl_server_set_time(kl_server *server, int64_t now_ms) {
    if (kl_server_check(server)) return;
    atomic_store(&server->net.clock.told_ms, now_ms);
    for (int32_t i = 0; i < server->net.thread_count; i++)
        kl_post_ring(&server->net.threads[i].post);
    kl_peers_wake(&server->net.peers);
}

/* ---- counters ------------------------------------------------------------------------ */

static void add_thread(kl_thread *thread, kl_server_stats *out) {
    out->handshakes += kl_count_get(&thread->handshakes);
    out->handshakes_failed += kl_count_get(&thread->handshakes_failed);
    out->closed_idle += kl_count_get(&thread->closed_idle);
    out->closed_half_frame += kl_count_get(&thread->closed_half_frame);
    out->closed_garbage += kl_count_get(&thread->closed_garbage);
    out->closed_unidentified += kl_count_get(&thread->closed_unidentified);
    out->bytes_in += kl_count_get(&thread->bytes_in);
    out->bytes_out += kl_count_get(&thread->bytes_out);
    for (int i = 0; i < KL_API_KEYS; i++)
        out->requests[i] += kl_count_get(&thread->requests[i]);
    out->fast += kl_count_get(&thread->fast);
    out->repeated += kl_count_get(&thread->repeated);
    out->queue_full += kl_count_get(&thread->queue_full);
    out->parked += kl_count_get(&thread->parked);
    out->cold += kl_count_get(&thread->cold);
    out->allocations += kl_count_get(&thread->allocations);
    out->allocations += kl_count_get(&thread->pool.allocations);
    out->buffer_bytes += kl_count_get(&thread->pool.bytes);
    out->throttled += kl_count_get(&thread->throttled);
    out->throttled_ms += kl_count_get(&thread->throttled_ms);
    out->network_idle_ns += kl_count_get(&thread->idle_ns);
    out->network_ran_ns += kl_count_get(&thread->ran_ns);
    for (int i = 0; i < KL_API_KEYS; i++)
        out->waiting[i] += kl_count_get(&thread->waiting[i]);
}

void kl_server_get_stats(kl_server *server, kl_server_stats *out) {
    *out = (kl_server_stats){0};
    if (kl_server_check(server)) return;
    out->connections = atomic_load(&server->net.peers.count);
    out->accepted = atomic_load(&server->net.acceptor.accepted);
    out->refused_per_ip = atomic_load(&server->net.acceptor.refused_per_ip);
    out->held_per_ip = atomic_load(&server->net.acceptor.held_per_ip);
    out->accept_pauses = atomic_load(&server->net.acceptor.pauses);
    for (int32_t i = 0; i < server->net.thread_count; i++)
        add_thread(&server->net.threads[i], out);
    out->pinned = atomic_load(&server->data->pinned);
    for (int32_t i = 0; i < KL_LISTENERS_MAX; i++)
        out->listening[i] = atomic_load(&server->net.peers.of_listener[i]);
    kl_up_threads(&server->net.up, &out->taking_idle_ns, &out->taking_ran_ns);
    out->queued = kl_up_count(&server->net.up);
    out->network_threads = kl_threads_running(&server->net);
}

kl_status kl_server_get_times(kl_server *server, int32_t api_key, kl_phase_times *out) {
    kl_status status = kl_server_check(server);
    if (!status) status = want("api_key", api_key, 0, KL_API_KEYS - 1);
    if (status) return status;
    memset(out, 0, KL_PHASES * sizeof *out);
    for (int32_t i = 0; i < server->net.thread_count; i++)
        for (int32_t phase = 0; phase < KL_PHASES; phase++)
            kl_histogram_get(&server->net.threads[i].times[api_key][phase], &out[phase]);
    return KL_OK;
}

kl_status kl_server_get_errors(kl_server *server, int32_t api_key, int64_t *out) {
    kl_status status = kl_server_check(server);
    if (!status) status = want("api_key", api_key, 0, KL_FAST_APIS - 1);
    if (status) return status;
    memset(out, 0, KL_ERROR_CODES * sizeof *out);
    for (int32_t i = 0; i < server->net.thread_count; i++)
        for (int32_t at = 0; at < KL_ERROR_CODES; at++)
            out[at] += kl_count_get(&server->data->lanes[i].errors[api_key][at]);
    return KL_OK;
}

void kl_server_get_traffic(kl_server *server, kl_topic_traffic *out, size_t room,
                           size_t *count, int64_t *all) {
    memset(all, 0, KL_TRAFFIC * sizeof *all);
    *count = 0;
    if (!kl_server_check(server))
        kl_topics_traffic(server->data->topics, out, room, count, all);
}
