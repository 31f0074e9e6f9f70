/* followers.c: see followers.h. */
#include "followers.h"

enum { FOLLOWERS_MAX = 1000 };

void kl_followers_init(kl_followers *followers) { /* zeroed by the caller */
    pthread_mutex_init(&followers->telling, NULL);
    pthread_mutex_init(&followers->lock, NULL);
    atomic_store(&followers->shown, INT64_MIN);
    atomic_store(&followers->in_sync, 1);
    atomic_store(&followers->maximal, 1);
}

void kl_followers_free(kl_followers *followers) {
    pthread_mutex_destroy(&followers->telling);
    pthread_mutex_destroy(&followers->lock);
    kl_release(followers->list);
}

/* Locked. */
static kl_copy *find(const kl_followers *followers, int32_t id) {
    KL_ASSERT_HELD(&followers->lock);
    for (int32_t i = 0; i < followers->count; i++)
        if (followers->list[i].who.id == id) return &followers->list[i];
    return NULL;
}

static kl_status check(const kl_follower *those, int32_t count) {
    if (count < 0 || count > FOLLOWERS_MAX)
        return kl_fail(KL_E_ARGUMENT, "%d followers of a partition, wanted 0 to %d", count,
                       FOLLOWERS_MAX);
    for (int32_t i = 0; i < count; i++) {
        if (those[i].id < 0)
            return kl_fail(KL_E_ARGUMENT, "follower %d, wanted 0 or more", those[i].id);
        if (those[i].in_sync && !those[i].maximal)
            return kl_fail(KL_E_ARGUMENT,
                           "follower %d is in the ISR, but not in the maximal one",
                           those[i].id);
        for (int32_t j = 0; j < i; j++)
            if (those[j].id == those[i].id)
                return kl_fail(KL_E_ARGUMENT, "follower %d is named twice", those[i].id);
    }
    return KL_OK;
}

kl_status kl_followers_set(kl_followers *followers, const kl_follower *those, int32_t count,
                           bool keep, int64_t now_ms) {
    kl_status status = check(those, count);
    if (status) return status;
    kl_copy *list = count ? kl_alloc((size_t)count * sizeof *list) : NULL;
    if (count && list == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for the followers of a partition");
    int32_t in_sync = 1, maximal = 1;
    kl_lock(&followers->lock);
    for (int32_t i = 0; i < count; i++) {
        const kl_copy *known = keep ? find(followers, those[i].id) : NULL;
        int64_t caught_up_ms = those[i].in_sync ? now_ms : -1;
        list[i] = (kl_copy){those[i], -1, -1, -1, -1, caught_up_ms, false};
        if (known && known->who.broker_epoch <= those[i].broker_epoch) list[i] = *known;
        list[i].who = those[i];
        list[i].told = false;
        in_sync += those[i].in_sync != 0;
        maximal += those[i].maximal != 0;
    }
    kl_copy *old = followers->list;
    followers->list = list;
    followers->count = count;
    KL_ASSERT(in_sync >= 1 && in_sync <= 1 + count); /* the leader is */
    atomic_store(&followers->in_sync, in_sync);
    atomic_store(&followers->maximal, maximal);
    if (!keep)
        atomic_store(&followers->shown, INT64_MIN); /* the log may have another end now */
    kl_unlock(&followers->lock);
    kl_release(old);
    return KL_OK;
}

void kl_followers_get(kl_followers *followers, int64_t log_end, int64_t now_ms,
                      kl_follower_state *out, int32_t room, int32_t *count) {
    kl_lock(&followers->lock);
    *count = followers->count;
    for (int32_t i = 0; i < KL_MIN(room, *count); i++) {
        const kl_copy *copy = &followers->list[i];
        int64_t behind_ms = copy->caught_up_ms < 0 ? -1 : now_ms - copy->caught_up_ms;
        if (copy->log_end >= log_end) behind_ms = 0;
        out[i] = (kl_follower_state){copy->who, copy->log_end, copy->log_start, behind_ms};
    }
    kl_unlock(&followers->lock);
}

/* Locked.  The follower, unless `broker_epoch` is older than the known one; NULL: none. */
static kl_copy *known(const kl_followers *followers, int32_t id, int64_t broker_epoch) {
    kl_copy *copy = find(followers, id);
    bool old = copy && broker_epoch >= 0 && broker_epoch < copy->who.broker_epoch;
    return old ? NULL : copy;
}

bool kl_followers_have(kl_followers *followers, int32_t id, int64_t broker_epoch) {
    kl_lock(&followers->lock);
    bool have = known(followers, id, broker_epoch) != NULL;
    kl_unlock(&followers->lock);
    return have;
}

bool kl_followers_in_sync(kl_followers *followers, int32_t id) {
    kl_lock(&followers->lock);
    const kl_copy *copy = find(followers, id);
    bool in_sync = copy && copy->who.in_sync;
    kl_unlock(&followers->lock);
    return in_sync;
}

int32_t kl_followers_nearest(kl_followers *followers, const int32_t *nodes, int32_t count,
                             int64_t offset) {
    const kl_copy *best = NULL;
    kl_lock(&followers->lock);
    for (int32_t i = 0; i < count; i++) {
        const kl_copy *copy = find(followers, nodes[i]);
        if (!copy || !copy->who.in_sync) continue;
        if (copy->log_end < offset || copy->log_start > offset) continue;
        bool further =
            !best || copy->log_end > best->log_end ||
            (copy->log_end == best->log_end && copy->caught_up_ms > best->caught_up_ms);
        if (further) best = copy;
    }
    int32_t id = best ? best->who.id : -1;
    kl_unlock(&followers->lock);
    return id;
}

bool kl_followers_fetched(kl_followers *followers, const kl_follower_fetch *fetch) {
    kl_lock(&followers->lock);
    kl_copy *copy = known(followers, fetch->id, fetch->broker_epoch);
    bool joins = false;
    if (copy) {
        if (fetch->offset >= fetch->leader_end)
            copy->caught_up_ms = KL_MAX(copy->caught_up_ms, fetch->now_ms);
        else if (copy->leader_end >= 0 && fetch->offset >= copy->leader_end)
            copy->caught_up_ms = KL_MAX(copy->caught_up_ms, copy->fetched_ms);
        copy->log_end = fetch->offset;
        copy->log_start = fetch->log_start;
        copy->leader_end = fetch->leader_end;
        copy->fetched_ms = fetch->now_ms;
        joins = !copy->who.maximal && !copy->told && fetch->offset >= fetch->joins_at;
        copy->told |= joins;
    }
    kl_unlock(&followers->lock);
    return joins;
}

void kl_followers_untold(kl_followers *followers, int32_t id) {
    kl_lock(&followers->lock);
    kl_copy *copy = find(followers, id);
    if (copy) copy->told = false;
    kl_unlock(&followers->lock);
}

/* The lowest log end of the followers in the maximal ISR. */
static int64_t least(kl_followers *followers) {
    int64_t end = INT64_MAX;
    kl_lock(&followers->lock);
    for (int32_t i = 0; i < followers->count; i++)
        if (followers->list[i].who.maximal) end = KL_MIN(end, followers->list[i].log_end);
    kl_unlock(&followers->lock);
    return end;
}

kl_status kl_followers_tell(kl_followers *followers, kl_log *log) {
    kl_lock(&followers->telling);
    int64_t end = least(followers);
    /* Stored first: a concurrent truncation resets it. */
    bool news = atomic_exchange(&followers->shown, end) != end;
    kl_status status = news ? kl_log_show_until(log, end) : KL_OK;
    if (status) atomic_store(&followers->shown, INT64_MIN);
    kl_unlock(&followers->telling);
    return status;
}

void kl_followers_cut(kl_followers *followers, int64_t log_end) {
    kl_lock(&followers->lock);
    for (int32_t i = 0; i < followers->count; i++)
        followers->list[i].log_end = KL_MIN(followers->list[i].log_end, log_end);
    kl_unlock(&followers->lock);
    atomic_store(&followers->shown, INT64_MIN);
}

bool kl_followers_suffice(const kl_followers *followers) {
    return atomic_load(&followers->in_sync) >= atomic_load(&followers->minimum);
}
