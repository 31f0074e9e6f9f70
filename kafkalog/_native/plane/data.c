/* data.c: the fast path's memory, and what Python puts into it. */
#include "data.h"

#include <stdio.h>

kl_status kl_data_new(kl_server *server, const kl_server_config *config, kl_data **out) {
    kl_data *data = *out = kl_alloc(sizeof *data);
    if (data == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a server's partitions");
    data->server = server;
    pthread_mutex_init(&data->lock, NULL);
    data->lane_count = kl_server_threads(server);
    data->lanes = kl_alloc((size_t)data->lane_count * sizeof *data->lanes);
    kl_status status = KL_OK;
    if (data->lanes == NULL)
        status =
            kl_fail(KL_E_NO_MEMORY, "no memory for %d network threads", data->lane_count);
    if (!status) status = kl_topics_new(&data->topics);
    if (!status) status = kl_sessions_new(config->fetch_sessions_max, &data->sessions);
    if (status) {
        kl_data_free(data);
        *out = NULL;
    }
    return status;
}

void kl_data_stop(kl_data *data) { kl_topics_clear(data->topics); }

void kl_data_free(kl_data *data) {
    if (data == NULL) return;
    for (int32_t i = 0; data->lanes && i < data->lane_count; i++) {
        kl_produces_free(data->lanes[i].produces);
        kl_fetches_free(data->lanes[i].fetches);
    }
    kl_sessions_free(data->sessions);
    kl_topics_free(data->topics);
    for (kl_endpoint *endpoint = data->endpoints, *next; endpoint; endpoint = next) {
        next = endpoint->next;
        kl_release(endpoint);
    }
    kl_release(data->lanes);
    pthread_mutex_destroy(&data->lock);
    kl_release(data);
}

kl_status kl_server_put_topic(kl_server *server, const char *name, const uint8_t *id,
                              int32_t flags) {
    return kl_topics_put_topic(kl_server_data(server)->topics, name, id, flags);
}

kl_status kl_server_put_partition(kl_server *server, const char *topic, int32_t partition,
                                  kl_log *log, const kl_role *role) {
    return kl_topics_put_partition(kl_server_data(server)->topics, topic, partition, log,
                                   role);
}

kl_status kl_server_put_offline(kl_server *server, const char *topic, int32_t partition,
                                int32_t offline) {
    return kl_topics_put_offline(kl_server_data(server)->topics, topic, partition,
                                 offline != 0);
}

kl_status kl_server_remove_topic(kl_server *server, const char *name) {
    return kl_topics_remove(kl_server_data(server)->topics, name, -1);
}

kl_status kl_server_remove_partition(kl_server *server, const char *topic,
                                     int32_t partition) {
    if (partition < 0)
        return kl_fail(KL_E_ARGUMENT, "partition %d, wanted 0 or more", partition);
    return kl_topics_remove(kl_server_data(server)->topics, topic, partition);
}

/* The partition, retained and entered. */
static kl_status enter(kl_server *server, const char *name, int32_t partition,
                       kl_replica **out) {
    kl_topics *topics = kl_server_data(server)->topics;
    const kl_topic_key key = {{(const uint8_t *)name, strlen(name)}, NULL};
    kl_topics_lock(topics);
    const kl_topic *topic = kl_topics_find(topics, &key);
    kl_replica *replica = *out = topic ? kl_topic_replica(topic, partition) : NULL;
    kl_topics_unlock(topics);
    if (replica && kl_replica_enter(replica)) return KL_OK;
    kl_replica_drop(replica);
    return kl_fail(KL_E_NOT_FOUND, "there is no partition %s-%d", name, partition);
}

static void leave(kl_replica *replica) {
    kl_replica_leave(replica);
    kl_replica_drop(replica);
}

kl_status kl_server_append(kl_server *server, const char *topic, int32_t partition,
                           const kl_server_batches *what, kl_appended *out) {
    *out = (kl_appended){-1, -1, -1, -1, 0, 0, 0};
    kl_replica *replica;
    kl_status status = enter(server, topic, partition, &replica);
    if (status) return status;
    kl_append_options options = what->options;
    options.in_place = 0; /* Python's memory is not to be written to */
    status = kl_replica_append(replica, (kl_span){what->batches, what->bytes}, &options,
                               what->acks, out);
    leave(replica);
    return status;
}

kl_status kl_server_wait(kl_server *server, const char *topic, int32_t partition,
                         int64_t offset, int32_t on_disk, int32_t timeout_ms) {
    kl_replica *replica;
    kl_status status = enter(server, topic, partition, &replica);
    if (status) return status;
    status = kl_replica_sleep(replica, offset, on_disk != 0, timeout_ms);
    leave(replica);
    return status;
}

/* ---- endpoints ---------------------------------------------------------------------------- */

kl_status kl_server_set_endpoint(kl_server *server, int32_t listener, const char *host,
                                 int32_t port, const char *rack) {
    kl_data *data = kl_server_data(server);
    if (strlen(host) >= sizeof data->endpoints->host ||
        (rack && strlen(rack) >= sizeof data->endpoints->rack))
        return kl_fail(KL_E_ARGUMENT, "an advertised host and rack have at most 255 bytes");
    kl_status status = KL_OK;
    kl_lock(&data->lock);
    kl_endpoint *endpoint = data->endpoints;
    while (endpoint && endpoint->listener != listener) endpoint = endpoint->next;
    if (endpoint == NULL) {
        endpoint = kl_alloc(sizeof *endpoint);
        if (endpoint == NULL) {
            status = kl_fail(KL_E_NO_MEMORY, "no memory for an endpoint");
            goto out;
        }
        endpoint->next = data->endpoints;
        data->endpoints = endpoint;
    }
    endpoint->listener = listener;
    endpoint->port = port;
    endpoint->has_rack = rack != NULL;
    snprintf(endpoint->host, sizeof endpoint->host, "%s", host);
    snprintf(endpoint->rack, sizeof endpoint->rack, "%s", rack ? rack : "");
out:
    kl_unlock(&data->lock);
    return status;
}

bool kl_data_endpoint(kl_data *data, int32_t listener, kl_endpoint *out) {
    kl_lock(&data->lock);
    const kl_endpoint *endpoint = data->endpoints;
    while (endpoint && endpoint->listener != listener) endpoint = endpoint->next;
    if (endpoint) *out = *endpoint;
    kl_unlock(&data->lock);
    return endpoint != NULL;
}

void kl_server_get_sessions(kl_server *server, kl_session_stats *out) {
    kl_sessions_stats(kl_server_data(server)->sessions, out);
}
