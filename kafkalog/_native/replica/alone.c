/* alone.c: a partition's role without a server: see server.h. */
#include "replica.h"
#include "server.h"

kl_status kl_alone_new(kl_log *log, const kl_role *role, kl_replica **out) {
    return kl_replica_new(log, 0, role, out);
}

void kl_alone_free(kl_replica *replica) {
    kl_replica_remove(replica);
    kl_replica_drop(replica);
}

kl_status kl_alone_set_role(kl_replica *replica, const kl_role *role) {
    return kl_replica_set_role(replica, role);
}

kl_status kl_alone_set_followers(kl_replica *replica, const kl_follower *followers,
                                 int32_t count, int64_t now_ms) {
    return kl_replica_set_followers(replica, followers, count, now_ms);
}

void kl_alone_get_followers(kl_replica *replica, int64_t now_ms, kl_follower_state *out,
                            int32_t room, int32_t *count) {
    kl_followers_get(&replica->followers, atomic_load(&replica->log_end), now_ms, out, room,
                     count);
}

int kl_alone_has_follower(kl_replica *replica, int32_t id, int64_t broker_epoch) {
    return kl_followers_have(&replica->followers, id, broker_epoch);
}

int kl_alone_fetched(kl_replica *replica, int32_t id, int64_t broker_epoch, int64_t offset,
                     int64_t log_start, int64_t now_ms) {
    kl_follower_fetch fetch = {.id = id,
                               .broker_epoch = broker_epoch,
                               .offset = offset,
                               .log_start = log_start,
                               .now_ms = now_ms};
    return kl_replica_fetched(replica, &fetch);
}

kl_status kl_alone_append(kl_replica *replica, const uint8_t *batches, size_t bytes,
                          int32_t acks, int64_t now_ms, kl_appended *out) {
    kl_append_options how = {.leader_epoch = atomic_load(&replica->leader_epoch),
                             .one_batch = 1,
                             .now_ms = now_ms};
    kl_promise promise;
    kl_status status =
        kl_replica_append(replica, (kl_span){batches, bytes}, &how, acks, out, &promise);
    out->cuts = promise.cuts;
    return status;
}

int kl_alone_kept(kl_replica *replica, int64_t offset, int64_t cuts) {
    kl_wait_kind kind = atomic_load(&replica->durable) ? KL_FOR_DISK : KL_FOR_OFFSET;
    kl_promise promise = {kind, offset, cuts};
    if (kl_replica_broken(replica, &promise)) return -1;
    if (kl_replica_kept(replica, &promise)) return 1;
    return atomic_load(&replica->follows) ? -1 : 0;
}
