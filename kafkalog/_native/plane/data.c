/* data.c: see data.h. */
#include "data.h"

#include <sys/resource.h>

/* Share of the process's descriptors; the rest are the logs' own and sockets. */
enum { PINNED_SHARE = 8, PINNED_MIN = 64 };

static int64_t pinned_max(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > INT32_MAX)
        return INT32_MAX;
    return KL_MAX((int64_t)files.rlim_cur / PINNED_SHARE, (int64_t)PINNED_MIN);
}

kl_status kl_data_new(const kl_server_config *config, kl_clock *clock, int32_t threads,
                      kl_data **out) {
    kl_data *data = *out = kl_alloc(sizeof *data);
    if (data == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a server's partitions");
    data->config = config;
    data->clock = clock;
    data->pinned_max = pinned_max();
    kl_cold_init(&data->cold);
    kl_notices_init(&data->caught_ups, data->caught_ups_kept, sizeof(kl_caught_up),
                    KL_CAUGHT_UPS_MAX);
    kl_racks_init(&data->racks);
    kl_places_init(&data->places);
    data->lane_count = threads;
    data->lanes = kl_alloc((size_t)threads * sizeof *data->lanes);
    kl_status status = KL_OK;
    if (data->lanes == NULL)
        status = kl_fail(KL_E_NO_MEMORY, "no memory for %d network threads", threads);
    if (!status) status = kl_topics_new(&data->topics);
    if (!status) status = kl_admission_new(&data->admission);
    if (!status)
        status = kl_buckets_new(config->client_quota_windows,
                                config->client_quota_window_ms, &data->buckets);
    if (!status)
        status = kl_quota_new(config->quota_windows, config->quota_window_ms, &data->quota);
    if (!status) status = kl_sessions_new(config->fetch_sessions_max, &data->sessions);
    if (status) {
        kl_data_free(data);
        *out = NULL;
    }
    return status;
}

void kl_data_free(kl_data *data) {
    if (data == NULL) return;
    kl_sessions_free(data->sessions);
    kl_topics_free(data->topics);
    kl_admission_free(data->admission);
    kl_buckets_free(data->buckets);
    kl_release(data->lanes);
    kl_cold_free(&data->cold);
    kl_notices_free(&data->caught_ups);
    kl_racks_free(&data->racks);
    kl_places_free(&data->places);
    kl_quota_free(data->quota);
    kl_release(data);
}

kl_status kl_data_set_permit(kl_data *data, int32_t principal, const kl_permit *permit) {
    bool changed;
    kl_status status = kl_admission_set(data->admission, principal, permit, &changed);
    if (changed) kl_topics_touch(data->topics); /* fetch sessions must look again */
    return status;
}

kl_status kl_data_outdate_rules(kl_data *data, const kl_rules *common) {
    kl_status status = kl_admission_outdate(data->admission, common);
    kl_topics_touch(data->topics);
    return status;
}

kl_status kl_data_enter(kl_data *data, const char *name, int32_t partition, bool empty,
                        kl_replica **out) {
    const kl_topic_key key = {{(const uint8_t *)name, strlen(name)}, NULL};
    kl_topics_lock(data->topics);
    const kl_topic *topic = kl_topics_find(data->topics, &key);
    kl_replica *replica = *out = topic ? kl_topic_replica(topic, partition, empty) : NULL;
    kl_topics_unlock(data->topics);
    if (replica && kl_replica_enter(replica)) return KL_OK;
    kl_replica_drop(replica);
    return kl_fail(KL_E_NOT_FOUND, "there is no partition %s-%d", name, partition);
}

void kl_data_leave(kl_replica *replica) {
    kl_replica_leave(replica);
    kl_replica_drop(replica);
}

kl_status kl_data_set_followers(kl_data *data, const char *topic, int32_t partition,
                                const kl_follower *followers, int32_t count) {
    kl_replica *replica;
    kl_status status = kl_data_enter(data, topic, partition, true, &replica);
    if (status) return status;
    int64_t now_ms = kl_clock_now(data->clock);
    status = kl_replica_set_followers(replica, followers, count, now_ms);
    kl_data_leave(replica);
    return status;
}

kl_status kl_data_change_role(kl_data *data, const kl_role_change *change,
                              const kl_follower *followers) {
    kl_status status = kl_topics_put_partition(
        data->topics, change->topic, change->partition, change->log, &change->role);
    if (!status && !change->role.follows)
        status =
            kl_data_set_followers(data, change->topic, change->partition,
                                  followers + change->followers_at, change->follower_count);
    return status;
}

/* ---- slices -------------------------------------------------------------------------------- */

bool kl_data_pin(kl_data *data) {
    if (atomic_fetch_add(&data->pinned, 1) < data->pinned_max) return true;
    kl_data_unpin(data);
    return false;
}

void kl_data_unpin(kl_data *data) {
    int64_t before = atomic_fetch_sub(&data->pinned, 1);
    KL_ASSERT(before > 0);
}

void kl_data_drop_slice(kl_data *data, kl_slice *slice) {
    if (slice->segment == NULL) return;
    kl_slice_drop(slice);
    kl_data_unpin(data);
}
