/* calls.c: calls of server.h that concern one part of a server. */
#include "state.h"

#include "net/threads.h"

/* ---- requests that Python answers ---------------------------------------------------- */

kl_status kl_server_take(kl_server *server, int32_t timeout_ms, kl_request_info *out) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_take(&server->net.up, timeout_ms, out);
}

kl_status kl_server_answer(kl_server *server, uint64_t id, const uint8_t *body,
                           size_t bytes, int32_t header_version) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_answer(&server->net.up, id, body, bytes, header_version);
}

kl_status kl_server_answer_repeatedly(kl_server *server, uint64_t id,
                                      const kl_refusal *answer, uint64_t mark,
                                      kl_repeat **out) {
    *out = NULL;
    kl_status status = kl_server_check(server);
    return status ? status
                  : kl_up_answer_repeatedly(&server->net.up, id, answer, mark, out);
}

void kl_repeat_end(kl_repeat *repeat) { atomic_store(&repeat->ended, true); }

int64_t kl_repeat_silence_ms(kl_repeat *repeat) {
    int64_t heard_ms = atomic_load(&repeat->heard_ms);
    if (heard_ms < 0) return -1;
    return KL_MAX(kl_clock_now(repeat->clock) - heard_ms, (int64_t)0);
}

void kl_repeat_free(kl_repeat *repeat) {
    if (repeat) kl_repeat_end(repeat);
    kl_repeat_drop(repeat);
}

uint64_t kl_server_repeat_mark(kl_server *server) {
    return kl_server_check(server) ? 0 : atomic_load(&server->net.repeat_mark);
}

void kl_server_end_repeats(kl_server *server) {
    if (!kl_server_check(server)) atomic_fetch_add(&server->net.repeat_mark, 1);
}

kl_status kl_server_refuse(kl_server *server, uint64_t id, const kl_refusal *refusal) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_refuse(&server->net.up, id, refusal);
}

kl_status kl_server_set_principal(kl_server *server, uint64_t id, int32_t principal,
                                  int64_t expires_ms) {
    kl_status status = kl_server_check(server);
    if (!status && (principal < KL_UNIDENTIFIED_RAW || principal >= KL_PRINCIPALS_MAX))
        status = kl_fail(KL_E_ARGUMENT, "principal %d is out of range", principal);
    return status ? status : kl_up_identify(&server->net.up, id, principal, expires_ms);
}

kl_status kl_server_authenticate(kl_server *server, int32_t listener) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_acceptor_authenticate(&server->net, listener);
}

kl_status kl_server_again(kl_server *server, uint64_t id, int32_t heard) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_again(&server->net.up, id, heard != 0);
}

kl_status kl_server_intercept(kl_server *server, int32_t api_key, int32_t on) {
    kl_status status = kl_server_check(server);
    if (!status && (api_key < 0 || api_key >= KL_API_KEYS))
        status =
            kl_fail(KL_E_ARGUMENT, "API key %d, wanted 0 to %d", api_key, KL_API_KEYS - 1);
    if (!status)
        atomic_store(&server->net.kinds[api_key],
                     on ? NULL : server->net.ops->kinds[api_key]);
    return status;
}

kl_status kl_server_pause(kl_server *server, int32_t on) {
    kl_status status = kl_server_check(server);
    if (status) return status;
    kl_lock(&server->life);
    if (server->stopped) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else if (!server->started) status = kl_fail(KL_E_ARGUMENT, "the server does not run");
    else kl_net_pause(&server->net, on != 0);
    kl_unlock(&server->life);
    return status;
}

kl_status kl_server_read(kl_server *server, uint64_t id) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_read(&server->net.up, id);
}

kl_status kl_server_drop(kl_server *server, uint64_t id) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_drop(&server->net.up, id);
}

kl_status kl_server_connected(kl_server *server, const uint64_t *connections, size_t count,
                              uint8_t *out) {
    kl_status status = kl_server_check(server);
    if (!status) kl_threads_connected(&server->net, connections, count, out);
    return status;
}

kl_status kl_server_departures(kl_server *server, int64_t *out) {
    kl_status status = kl_server_check(server);
    if (!status) *out = atomic_load(&server->net.departures);
    return status;
}

kl_status kl_server_listen(kl_server *server, const char *host_or_path, int32_t port,
                           int32_t listener, kl_tls *tls, int32_t *bound_port) {
    kl_status status = kl_server_check(server);
    if (status) return status;
    kl_lock(&server->life);
    if (server->stopped) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else
        status =
            kl_acceptor_listen(&server->net, host_or_path, port, listener, tls, bound_port);
    kl_unlock(&server->life);
    return status;
}

kl_status kl_server_set_tls(kl_server *server, int32_t listener, kl_tls *tls) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_acceptor_set_tls(&server->net, listener, tls);
}

kl_status kl_server_take_failure(kl_server *server, int32_t timeout_ms,
                                 kl_handshake_failure *out) {
    kl_status status = kl_server_check(server);
    return status ? status
                  : kl_notices_take(&server->net.failures, timeout_ms, out, &out->lost);
}

void kl_server_report_finished(kl_server *server, int64_t least_ns) {
    atomic_store(&server->net.finished.least_ns, least_ns);
}

kl_status kl_server_take_finished(kl_server *server, int32_t timeout_ms, kl_finished *out) {
    kl_status status = kl_server_check(server);
    return status ? status
                  : kl_notices_take(&server->net.finished.all, timeout_ms, out, &out->lost);
}

kl_status kl_server_adopt(kl_server *server, int fd, int32_t listener) {
    kl_status status = kl_server_check(server);
    if (status) return status;
    kl_lock(&server->life);
    if (server->stopped) status = kl_fail(KL_E_CLOSED, "the server was stopped");
    else if (!server->started) status = kl_fail(KL_E_ARGUMENT, "the server does not run");
    else status = kl_acceptor_adopt(&server->net, fd, listener);
    kl_unlock(&server->life);
    return status;
}

/* ---- limits of connections ----------------------------------------------------------- */

kl_status kl_server_set_arrivals(kl_server *server, const kl_arrival_limits *limits,
                                 const kl_ip_limit *of_ips, int32_t count) {
    kl_acceptor *acceptor = &server->net.acceptor;
    kl_lock(&acceptor->lock);
    kl_status status = kl_arrivals_set(acceptor->arrivals, limits, of_ips, count);
    kl_unlock(&acceptor->lock);
    return status;
}

kl_status kl_server_set_listener_limits(kl_server *server, int32_t listener,
                                        int32_t connections_max, int32_t rate) {
    kl_acceptor *acceptor = &server->net.acceptor;
    kl_lock(&acceptor->lock);
    kl_status status =
        kl_arrivals_set_listener(acceptor->arrivals, listener, connections_max, rate);
    kl_unlock(&acceptor->lock);
    if (!status) kl_peers_wake(&server->net.peers);
    return status;
}

/* ---- principals ---------------------------------------------------------------------- */

kl_status kl_server_set_permit(kl_server *server, int32_t principal,
                               const kl_permit *permit) {
    return kl_data_set_permit(server->data, principal, permit);
}

int32_t kl_server_unheld(kl_server *server, int32_t first, int32_t end, int32_t *out) {
    int32_t count = 0;
    for (int32_t i = KL_MAX(first, 0); i < KL_MIN(end, (int32_t)KL_PRINCIPALS_MAX); i++)
        if (atomic_load(&server->net.holds[i]) == 0) out[count++] = i;
    return count;
}

int32_t kl_server_next_tenure(kl_server *server, int32_t principal) {
    KL_ASSERT(principal >= 0 && principal < KL_PRINCIPALS_MAX);
    return atomic_fetch_add(&server->net.tenures[principal], 1) + 1;
}

kl_status kl_server_outdate_rules(kl_server *server, const kl_rules *common) {
    return kl_data_outdate_rules(server->data, common);
}

kl_status kl_server_set_rules(kl_server *server, int32_t principal,
                              const kl_judgement *judgement) {
    return kl_admission_set_rules(server->data->admission, principal, judgement);
}

kl_status kl_server_get_usage(kl_server *server, int32_t principal, kl_usage *out) {
    return kl_admission_usage(server->data->admission, principal, out);
}

kl_status kl_server_take_denial(kl_server *server, int32_t timeout_ms, kl_denial *out) {
    kl_status status = kl_server_check(server);
    kl_notices *denials = kl_admission_denials(server->data->admission);
    return status ? status : kl_notices_take(denials, timeout_ms, out, &out->lost);
}

/* ---- quotas of clients --------------------------------------------------------------- */

void kl_server_set_quota_version(kl_server *server, uint32_t version) {
    kl_buckets_set_version(server->data->buckets, version);
}

kl_status kl_server_set_bucket(kl_server *server, int32_t place, double limit,
                               int32_t renew, uint64_t *bucket) {
    return kl_buckets_set(server->data->buckets, place, limit, renew != 0, bucket);
}

int32_t kl_server_charge(kl_server *server, uint64_t bucket, int64_t amount) {
    int64_t now_ms = kl_clock_now(server->data->clock);
    return kl_buckets_charge(server->data->buckets, bucket, amount, now_ms);
}

int64_t kl_server_bucket_used_ms(kl_server *server, uint64_t bucket) {
    return kl_buckets_used_ms(server->data->buckets, bucket);
}

kl_status kl_server_resolve(kl_server *server, uint64_t id,
                            const kl_client_quotas *quotas) {
    kl_client client = {.version = quotas->version};
    KL_STATIC_ASSERT(sizeof client.buckets == sizeof quotas->buckets, "the same kinds");
    memcpy(client.buckets, quotas->buckets, sizeof client.buckets);
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_resolved(&server->net.up, id, &client);
}

kl_status kl_server_throttle(kl_server *server, uint64_t id, int32_t ms) {
    kl_status status = kl_server_check(server);
    return status ? status : kl_up_throttle(&server->net.up, id, ms);
}

/* ---- partitions ---------------------------------------------------------------------- */

kl_status kl_server_put_topic(kl_server *server, const char *name, const uint8_t *id,
                              int32_t flags) {
    return kl_topics_put_topic(server->data->topics, name, id, flags);
}

kl_status kl_server_put_partition(kl_server *server, const char *topic, int32_t partition,
                                  kl_log *log, const kl_role *role) {
    return kl_topics_put_partition(server->data->topics, topic, partition, log, role);
}

kl_status kl_server_put_offline(kl_server *server, const char *topic, int32_t partition,
                                int32_t offline) {
    return kl_topics_put_offline(server->data->topics, topic, partition, offline != 0);
}

kl_status kl_server_remove_topic(kl_server *server, const char *name) {
    return kl_topics_remove(server->data->topics, name, -1);
}

kl_status kl_server_remove_partition(kl_server *server, const char *topic,
                                     int32_t partition) {
    if (partition < 0)
        return kl_fail(KL_E_ARGUMENT, "partition %d, wanted 0 or more", partition);
    return kl_topics_remove(server->data->topics, topic, partition);
}

kl_status kl_server_set_followers(kl_server *server, const char *topic, int32_t partition,
                                  const kl_follower *followers, int32_t count) {
    return kl_data_set_followers(server->data, topic, partition, followers, count);
}

void kl_server_change_roles(kl_server *server, kl_role_change *changes, int32_t count,
                            const kl_follower *followers) {
    for (int32_t i = 0; i < count; i++)
        changes[i].status = kl_data_change_role(server->data, &changes[i], followers);
}

kl_status kl_server_get_followers(kl_server *server, const char *topic, int32_t partition,
                                  kl_follower_state *out, int32_t room, int32_t *count) {
    *count = 0;
    kl_replica *replica;
    kl_status status = kl_data_enter(server->data, topic, partition, true, &replica);
    if (status) return status;
    kl_followers_get(&replica->followers, atomic_load(&replica->log_end),
                     kl_clock_now(server->data->clock), out, room, count);
    kl_data_leave(replica);
    return KL_OK;
}

kl_status kl_server_take_caught_up(kl_server *server, int32_t timeout_ms,
                                   kl_caught_up *out) {
    return kl_notices_take(&server->data->caught_ups, timeout_ms, out, NULL);
}

kl_status kl_server_append(kl_server *server, const char *topic, int32_t partition,
                           const kl_server_batches *what, kl_appended *out) {
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0, 0};
    kl_replica *replica;
    kl_status status = kl_data_enter(server->data, topic, partition, false, &replica);
    if (status) return status;
    kl_append_options options = what->options;
    kl_promise promise;   /* Python waits by the offset: kl_server_wait */
    options.in_place = 0; /* Python's memory is read-only */
    status = kl_replica_append(replica, (kl_span){what->batches, what->bytes}, &options,
                               what->acks, out, &promise);
    out->cuts = promise.cuts;
    kl_data_leave(replica);
    return status;
}

kl_status kl_server_wait(kl_server *server, const char *topic, int32_t partition,
                         int64_t offset, int64_t cuts, int32_t on_disk,
                         int32_t timeout_ms) {
    kl_replica *replica;
    kl_status status = kl_data_enter(server->data, topic, partition, false, &replica);
    if (status) return status;
    status = kl_replica_sleep(replica, offset, cuts, on_disk != 0, timeout_ms);
    kl_data_leave(replica);
    return status;
}

/* ---- endpoints, racks, rates, sessions ----------------------------------------------- */

kl_status kl_server_set_endpoints(kl_server *server, int32_t listener,
                                  const kl_endpoint *endpoints, int32_t count) {
    return kl_places_set(&server->data->places, listener, endpoints, count);
}

kl_status kl_server_set_racks(kl_server *server, const kl_rack *places, int32_t count) {
    return kl_racks_set(&server->data->racks, places, count);
}

void kl_server_set_replication_rate(kl_server *server, int64_t rate) {
    kl_quota_set_rate(server->data->quota, rate);
}

void kl_server_get_sessions(kl_server *server, kl_session_stats *out) {
    kl_sessions_stats(server->data->sessions, out);
}
