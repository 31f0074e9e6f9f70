/* replica.c: a partition's role on this node, and producers' appends through it. */
#include "replica.h"

#include "watch.h"

/* More than any request waits for; sums of a few do not overflow. */
#define ALL_OF_IT (INT64_MAX / 1024)

/* ---- changes of the log ------------------------------------------------------------------ */

/* Locked.  Subtract `amount` from a request's wait; wake it at zero. */
static void count_off(kl_wait *wait, int64_t amount) {
    if (atomic_load(&wait->state) == KL_WAIT_WOKEN) return;
    if (atomic_fetch_sub(&wait->wanted, amount) - amount > 0) return;
    if (atomic_exchange(&wait->state, KL_WAIT_WOKEN) == KL_WAIT_ARMED)
        wait->wake(wait->owner);
}

static void end_wait(kl_wait *wait) { count_off(wait, ALL_OF_IT); }

static void link_waiter(kl_replica *replica, kl_waiter *waiter) {
    KL_ASSERT_HELD(&replica->lock);
    KL_ASSERT(!waiter->linked);
    waiter->previous = NULL;
    waiter->next = replica->first;
    if (replica->first) replica->first->previous = waiter;
    replica->first = waiter;
    waiter->linked = true;
    atomic_fetch_add(&replica->waiting, 1);
}

static void unlink_waiter(kl_replica *replica, kl_waiter *waiter) {
    KL_ASSERT_HELD(&replica->lock);
    KL_ASSERT(waiter->linked && waiter->replica == replica);
    KL_ASSERT((waiter->previous ? waiter->previous->next : replica->first) == waiter);
    if (waiter->next) waiter->next->previous = waiter->previous;
    if (waiter->previous) waiter->previous->next = waiter->next;
    else replica->first = waiter->next;
    waiter->linked = false;
    int before = atomic_fetch_sub(&replica->waiting, 1);
    KL_ASSERT(before > 0);
}

static bool reached(const kl_replica *replica, kl_wait_kind kind, int64_t offset) {
    if (atomic_load(&replica->high_watermark) < offset) return false;
    return kind != KL_FOR_DISK || atomic_load(&replica->flushed) >= offset;
}

bool kl_replica_kept(const kl_replica *replica, const kl_promise *promise) {
    return reached(replica, promise->kind, promise->offset);
}

/* Locked. */
static void look_at(kl_replica *replica, kl_waiter *waiter) {
    if (!kl_replica_kept(replica, &waiter->promise)) return;
    unlink_waiter(replica, waiter);
    count_off(waiter->wait, 1);
}

/* Locked.  Pending promises will not be kept, and watchers must look again. */
static void end_all(kl_replica *replica) {
    KL_ASSERT_HELD(&replica->lock);
    for (kl_waiter *waiter = replica->first; waiter; waiter = waiter->next)
        end_wait(waiter->wait);
    kl_watchers_told(replica, true);
}

/* The log's listener, called under its lock. */
static void on_move(void *owner, const kl_log_ends *ends) {
    kl_replica *replica = owner;
    KL_ASSERT(ends->log_start <= ends->last_stable &&
              ends->last_stable <= ends->high_watermark &&
              ends->high_watermark <= ends->log_end); /* I1 */
    KL_ASSERT(ends->appended_bytes >= atomic_load(&replica->appended_bytes));
    /* Retention deletes only visible records; invisible ones only go in a truncation.  So a log
     * that starts above the old high watermark was truncated. */
    bool shorter = ends->log_end < atomic_load(&replica->log_end) ||
                   ends->log_start > atomic_load(&replica->high_watermark);
    bool cut = shorter || ends->log_start > atomic_load(&replica->log_start);
    /* First: a thread that sees the ends after a truncation also sees the truncation. */
    if (KL_UNLIKELY(shorter)) {
        atomic_fetch_add(&replica->cuts, 1);
        kl_followers_cut(&replica->followers, ends->log_end);
    }
    atomic_store_explicit(&replica->log_start, ends->log_start, memory_order_relaxed);
    atomic_store_explicit(&replica->last_stable, ends->last_stable, memory_order_relaxed);
    atomic_store_explicit(&replica->log_end, ends->log_end, memory_order_relaxed);
    atomic_store_explicit(&replica->flushed, ends->flushed, memory_order_relaxed);
    atomic_store_explicit(&replica->appended_bytes, ends->appended_bytes,
                          memory_order_release);
    atomic_store_explicit(&replica->ended, ends->ended, memory_order_relaxed);
    /* Last, sequentially consistent with `waiting`: a waiter added later sees this. */
    atomic_store(&replica->high_watermark, ends->high_watermark);
    if (KL_LIKELY(atomic_load(&replica->waiting) == 0)) return;
    kl_lock(&replica->lock);
    kl_waiter *next;
    for (kl_waiter *waiter = replica->first; waiter; waiter = next) {
        next = waiter->next;
        look_at(replica, waiter);
    }
    if (cut || ends->ended) end_all(replica);
    else kl_watchers_told(replica, false);
    pthread_cond_broadcast(&replica->moved);
    kl_unlock(&replica->lock);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* The log gets the epoch before the role accepts producers: no record gets an earlier epoch, and no
 * append decided in an earlier epoch is accepted. */
static kl_status begin_epoch(kl_log *log, int32_t epoch) {
    return log && epoch >= 0 ? kl_log_set_leader_epoch(log, epoch) : KL_OK;
}

kl_status kl_replica_new(kl_log *log, int32_t partition, const kl_role *role,
                         kl_replica **out) {
    kl_replica *replica = *out = kl_alloc(sizeof *replica);
    if (replica == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a partition");
    replica->refs = 1;
    replica->log = log;
    replica->partition = partition;
    kl_followers_init(&replica->followers);
    pthread_mutex_init(&replica->lock, NULL);
    kl_cond_init(&replica->moved);
    kl_status status = role->follows ? KL_OK : begin_epoch(log, role->leader_epoch);
    if (!status) status = kl_replica_set_role(replica, role);
    if (!status && log) status = kl_log_listen(log, on_move, replica);
    atomic_store(&replica->epoch_start, atomic_load(&replica->log_end));
    if (status) {
        kl_replica_drop(replica);
        *out = NULL;
    }
    return status;
}

kl_replica *kl_replica_retain(kl_replica *replica) {
    int64_t before = atomic_fetch_add_explicit(&replica->refs, 1, memory_order_relaxed);
    KL_ASSERT(before > 0);
    return replica;
}

void kl_replica_drop(kl_replica *replica) {
    if (replica == NULL) return;
    int64_t before = atomic_fetch_sub_explicit(&replica->refs, 1, memory_order_acq_rel);
    KL_ASSERT(before > 0);
    if (before > 1) return;
    KL_ASSERT(replica->first == NULL && replica->watchers == NULL);
    pthread_cond_destroy(&replica->moved);
    pthread_mutex_destroy(&replica->lock);
    kl_followers_free(&replica->followers);
    kl_release(replica);
}

kl_status kl_replica_attach(kl_replica *replica, kl_log *log) {
    bool leads = !atomic_load(&replica->follows);
    kl_status status =
        leads ? begin_epoch(log, atomic_load(&replica->leader_epoch)) : KL_OK;
    if (status) return status;
    /* First: a thread that is notified of its ends finds the log. */
    atomic_store(&replica->log, log);
    status = kl_log_listen(log, on_move, replica);
    return !status && leads ? kl_followers_tell(&replica->followers, log) : status;
}

/* Wait for producers' appends in progress. */
static void wait_for_appends(kl_replica *replica) {
    kl_lock(&replica->lock);
    end_all(replica); /* this node can no longer keep the promises */
    while (atomic_load(&replica->appending) > 0)
        kl_cond_wait_ms(&replica->moved, &replica->lock, -1);
    pthread_cond_broadcast(&replica->moved);
    kl_unlock(&replica->lock);
}

/* Wait for appends with acks=1 in progress. */
static void wait_for_acks_1(kl_replica *replica) {
    kl_lock(&replica->lock);
    while (atomic_load(&replica->appending_1) > 0)
        kl_cond_wait_ms(&replica->moved, &replica->lock, -1);
    kl_unlock(&replica->lock);
}

/* True if records with acks=1 could be lost with this leader, although a follower is in sync. */
static bool refuses_acks_1(const kl_replica *replica) {
    return atomic_load(&replica->hands_over) &&
           atomic_load(&replica->followers.maximal) > 1;
}

kl_status kl_replica_set_role(kl_replica *replica, const kl_role *role) {
    bool led = !atomic_load(&replica->follows) &&
               atomic_load(&replica->leader_epoch) == role->leader_epoch;
    kl_status status =
        led || role->follows ? KL_OK : begin_epoch(replica->log, role->leader_epoch);
    if (status) return status;
    atomic_store(&replica->durable, role->durable);
    atomic_store(&replica->leader_id, role->leader_id);
    atomic_store(&replica->followers.minimum, role->min_isr);
    atomic_store(&replica->throttled, role->throttled);
    atomic_store(&replica->tag, role->tag);
    atomic_store(&replica->hands_over, role->hands_over);
    bool ends =
        atomic_exchange(&replica->follows, role->follows != 0) == 0 && role->follows;
    /* Last: no answer names the earlier leader with this epoch. */
    int32_t epoch = atomic_exchange(&replica->leader_epoch, role->leader_epoch);
    if (ends) wait_for_appends(replica);
    else if (refuses_acks_1(replica)) wait_for_acks_1(replica);
    if (epoch == role->leader_epoch) return KL_OK;
    atomic_store(&replica->epoch_start, atomic_load(&replica->log_end));
    atomic_store(&replica->kept_epoch, -1);
    kl_replica_touch(replica);
    return KL_OK;
}

kl_status kl_replica_set_followers(kl_replica *replica, const kl_follower *followers,
                                   int32_t count, int64_t now_ms) {
    int32_t epoch = atomic_load(&replica->leader_epoch);
    bool keep = atomic_load(&replica->kept_epoch) == epoch;
    kl_status status =
        kl_followers_set(&replica->followers, followers, count, keep, now_ms);
    if (status) return status;
    atomic_store(&replica->kept_epoch, epoch);
    if (refuses_acks_1(replica)) wait_for_acks_1(replica);
    kl_log *log = replica->log;
    bool leads = log && !atomic_load(&replica->follows);
    return leads ? kl_followers_tell(&replica->followers, log) : KL_OK;
}

bool kl_replica_fetched(kl_replica *replica, kl_follower_fetch *fetch) {
    fetch->leader_end = atomic_load(&replica->log_end);
    fetch->joins_at =
        KL_MAX(atomic_load(&replica->high_watermark), atomic_load(&replica->epoch_start));
    bool joins = kl_followers_fetched(&replica->followers, fetch);
    kl_log *log = replica->log;
    /* Ignore followers of an earlier epoch.  A failure is fine: a closed or offline log shows
     * nothing. */
    bool known = atomic_load(&replica->kept_epoch) == atomic_load(&replica->leader_epoch);
    if (log && known) (void)kl_followers_tell(&replica->followers, log);
    return joins;
}

void kl_replica_touch(kl_replica *replica) {
    kl_lock(&replica->lock);
    kl_watchers_told(replica, true);
    kl_unlock(&replica->lock);
}

bool kl_replica_enter(kl_replica *replica) {
    if (KL_LIKELY(atomic_fetch_add(&replica->users, 1) < KL_REPLICA_REMOVED)) return true;
    kl_replica_leave(replica);
    return false;
}

void kl_replica_leave(kl_replica *replica) {
    int64_t before = atomic_fetch_sub(&replica->users, 1);
    KL_TEST_ASSERT((before & (KL_REPLICA_REMOVED - 1)) > 0);
    if (KL_LIKELY(before < KL_REPLICA_REMOVED)) return;
    kl_lock(&replica->lock);
    pthread_cond_broadcast(&replica->moved);
    kl_unlock(&replica->lock);
}

void kl_replica_remove(kl_replica *replica) {
    int64_t before = atomic_fetch_add(&replica->users, KL_REPLICA_REMOVED);
    KL_ASSERT(before < KL_REPLICA_REMOVED); /* once */
    kl_lock(&replica->lock);
    end_all(replica);
    pthread_cond_broadcast(&replica->moved);
    while (atomic_load(&replica->users) > KL_REPLICA_REMOVED)
        kl_cond_wait_ms(&replica->moved, &replica->lock, -1);
    kl_unlock(&replica->lock);
    /* Afterwards the log calls no listener; it may be closed already. */
    kl_log *log = replica->log;
    if (log) (void)kl_log_listen(log, NULL, NULL);
}

/* ---- producers ------------------------------------------------------------------------------ */

static void end_append(kl_replica *replica, int32_t acks) {
    if (acks == 1) {
        int64_t those = atomic_fetch_sub(&replica->appending_1, 1);
        KL_ASSERT(those > 0);
    }
    int64_t before = atomic_fetch_sub(&replica->appending, 1);
    KL_ASSERT(before > 0);
    if (KL_LIKELY(!atomic_load(&replica->follows) && !atomic_load(&replica->hands_over)))
        return;
    kl_lock(&replica->lock);
    pthread_cond_broadcast(&replica->moved);
    kl_unlock(&replica->lock);
}

/* On KL_OK the partition stays led until end_append. */
static kl_status begin_append(kl_replica *replica, int32_t acks) {
    kl_status status = KL_OK;
    atomic_fetch_add(&replica->appending, 1);
    if (acks == 1) atomic_fetch_add(&replica->appending_1, 1);
    if (atomic_load(&replica->follows))
        status = kl_fail(KL_E_NOT_LEADER_OR_FOLLOWER, "partition %d is led by node %d",
                         replica->partition, atomic_load(&replica->leader_id));
    else if (acks == 1 && refuses_acks_1(replica))
        status =
            kl_fail(KL_E_NOT_LEADER_OR_FOLLOWER,
                    "partition %d is about to be led by another node", replica->partition);
    else if (acks == -1 && !kl_followers_suffice(&replica->followers))
        status = kl_fail(KL_E_NOT_ENOUGH_REPLICAS,
                         "%d copies are in sync, min.insync.replicas wants %d",
                         atomic_load(&replica->followers.in_sync),
                         atomic_load(&replica->followers.minimum));
    if (status) end_append(replica, acks);
    return status;
}

static void count_append(kl_replica *replica, size_t bytes, kl_status status,
                         const kl_appended *out) {
    if (KL_UNLIKELY(status)) {
        kl_count_share(&replica->traffic[KL_TRAFFIC_PRODUCE_FAILED], 1);
        return;
    }
    kl_count_share(&replica->traffic[KL_TRAFFIC_BYTES_IN], (int64_t)bytes);
    kl_count_share(&replica->traffic[KL_TRAFFIC_MESSAGES_IN],
                   out->last_offset - out->base_offset + 1);
}

kl_status kl_replica_append(kl_replica *replica, kl_span batches,
                            const kl_append_options *options, int32_t acks,
                            kl_appended *out, kl_promise *promise) {
    kl_append_options how = *options;
    kl_status status = begin_append(replica, acks);
    kl_count_share(&replica->traffic[KL_TRAFFIC_PRODUCED], 1);
    if (status) {
        kl_count_share(&replica->traffic[KL_TRAFFIC_PRODUCE_FAILED], 1);
        return status;
    }
    promise->cuts = atomic_load(&replica->cuts);
    how.begin_sync = 1;
    /* Read once: the role may change, and the wait must match the append. */
    how.durable = acks == -1 ? atomic_load(&replica->durable) : 0;
    status = kl_log_append_batches(replica->log, batches.data, batches.bytes, &how, out);
    end_append(replica, acks);
    count_append(replica, batches.bytes, status, out);
    if (KL_UNLIKELY(status == KL_E_FENCED_LEADER_EPOCH))
        status =
            kl_fail_prefix(KL_E_NOT_LEADER_OR_FOLLOWER, "partition %d", replica->partition);
    promise->kind = how.durable || out->sync_due ? KL_FOR_DISK : KL_FOR_OFFSET;
    promise->offset = out->last_offset + 1;
    return status;
}

bool kl_replica_broken(const kl_replica *replica, const kl_promise *promise) {
    return atomic_load(&replica->cuts) != promise->cuts;
}

/* ---- waiting -------------------------------------------------------------------------------- */

void kl_wait_init(kl_wait *wait, void (*wake)(void *), void *owner, int64_t wanted) {
    KL_ASSERT(wanted > 0);
    wait->wake = wake;
    wait->owner = owner;
    atomic_store(&wait->wanted, wanted);
    atomic_store(&wait->state, KL_WAIT_OPEN);
}

void kl_wait_add(kl_wait *wait, kl_waiter *waiter) {
    kl_replica *replica = waiter->replica;
    waiter->wait = wait;
    kl_lock(&replica->lock);
    link_waiter(replica, waiter);
    /* Later changes find it.  Loading the high watermark first makes all earlier stores visible. */
    (void)atomic_load(&replica->high_watermark);
    if (kl_replica_broken(replica, &waiter->promise) || atomic_load(&replica->follows) ||
        atomic_load(&replica->users) >= KL_REPLICA_REMOVED || atomic_load(&replica->ended))
        end_wait(wait);
    else look_at(replica, waiter);
    kl_unlock(&replica->lock);
}

bool kl_wait_arm(kl_wait *wait) {
    int open = KL_WAIT_OPEN;
    return atomic_compare_exchange_strong(&wait->state, &open, KL_WAIT_ARMED);
}

void kl_wait_remove(kl_waiter *waiter) {
    kl_lock(&waiter->replica->lock);
    if (waiter->linked) unlink_waiter(waiter->replica, waiter);
    kl_unlock(&waiter->replica->lock);
}

kl_status kl_replica_sleep(kl_replica *replica, int64_t offset, int64_t cuts, bool on_disk,
                           int32_t timeout_ms) {
    kl_status status = KL_OK;
    bool for_disk = on_disk || atomic_load(&replica->durable);
    kl_wait_kind kind = for_disk ? KL_FOR_DISK : KL_FOR_OFFSET;
    int64_t end_ms = kl_monotonic_ms() + timeout_ms;
    kl_lock(&replica->lock);
    atomic_fetch_add(&replica->waiting, 1);
    for (;;) {
        /* First: a truncated log may have grown again, with other records. */
        bool cut = cuts >= 0 && atomic_load(&replica->cuts) != cuts;
        if (!cut && reached(replica, kind, offset)) break;
        int64_t left_ms = end_ms - kl_monotonic_ms();
        if (atomic_load(&replica->users) >= KL_REPLICA_REMOVED)
            status = kl_fail(KL_E_CLOSED, "partition %d was removed", replica->partition);
        else if (atomic_load(&replica->follows))
            status = kl_fail(KL_E_NOT_LEADER_OR_FOLLOWER,
                             "partition %d is led by another node", replica->partition);
        else if (atomic_load(&replica->ended))
            status = kl_fail(KL_E_STORAGE, "the log of partition %d is offline",
                             replica->partition);
        else if (cut || atomic_load(&replica->log_end) < offset)
            status =
                kl_fail(KL_E_STALE, "the log of partition %d was cut below offset %lld",
                        replica->partition, (long long)offset);
        else if (left_ms <= 0)
            status = kl_fail(KL_E_TIMEOUT, "offset %lld is not committed after %d ms",
                             (long long)offset, timeout_ms);
        if (status) break;
        kl_cond_wait_ms(&replica->moved, &replica->lock, left_ms);
    }
    atomic_fetch_sub(&replica->waiting, 1);
    kl_unlock(&replica->lock);
    return status;
}
