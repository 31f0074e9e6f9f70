/* peers.c: see peers.h. */
#include "peers.h"

#include <errno.h>

#include "base/hash.h"

kl_status kl_peers_init(kl_peers *peers) {
    pthread_mutex_init(&peers->lock, NULL);
    if (kl_wake_init(&peers->wake))
        return kl_fail_errno(errno, "no descriptors for a server");
    return KL_OK;
}

void kl_peers_free(kl_peers *peers) {
    size_t at = 0;
    for (kl_peer *one; (one = kl_table_next(&peers->by_address, &at)) != NULL;)
        kl_release(one);
    kl_table_free(&peers->by_address);
    kl_wake_close(&peers->wake);
    pthread_mutex_destroy(&peers->lock);
}

void kl_peers_wake(kl_peers *peers) { kl_wake_ring(&peers->wake); }

bool kl_peers_full(kl_peers *peers) {
    if (atomic_load(&peers->count) < atomic_load(&peers->count_max)) return false;
    atomic_store(&peers->full, true);
    /* A connection may have ended before `full` was set, or the limit was raised. */
    if (atomic_load(&peers->count) >= atomic_load(&peers->count_max)) return true;
    atomic_store(&peers->full, false);
    return false;
}

static bool same_address(const void *entry, const void *key) {
    return memcmp(((const kl_peer *)entry)->address, key, KL_ADDRESS_BYTES) == 0;
}

/* Locked.  NULL: no memory. */
static kl_peer *obtain(kl_peers *peers, const uint8_t *address) {
    uint64_t hash = kl_hash(address, KL_ADDRESS_BYTES);
    kl_peer *peer = kl_table_find(&peers->by_address, hash, address, same_address);
    if (peer) return peer;
    peer = kl_alloc(sizeof *peer);
    if (peer == NULL) return NULL;
    memcpy(peer->address, address, KL_ADDRESS_BYTES);
    if (kl_table_add(&peers->by_address, hash, peer) == KL_OK) return peer;
    kl_release(peer);
    return NULL;
}

/* Locked.  Forget an address without connections. */
static void let_go(kl_peers *peers, kl_peer *peer) {
    if (peer->count > 0) return;
    kl_table_remove(&peers->by_address, kl_hash(peer->address, KL_ADDRESS_BYTES), peer);
    kl_release(peer);
}

bool kl_peers_enter(kl_peers *peers, const uint8_t *address, int32_t per_ip_max,
                    kl_peer **out) {
    bool fine = true;
    *out = NULL;
    if (address) {
        kl_lock(&peers->lock);
        kl_peer *peer = obtain(peers, address);
        if (per_ip_max < 0) per_ip_max = atomic_load(&peers->per_ip_max);
        fine = peer && peer->count < per_ip_max;
        if (fine) peer->count++;
        if (fine) *out = peer;
        else if (peer) let_go(peers, peer);
        kl_unlock(&peers->lock);
    }
    if (fine) atomic_fetch_add(&peers->count, 1);
    return fine;
}

void kl_peers_leave(kl_peers *peers, kl_peer *peer) {
    if (peer) {
        kl_lock(&peers->lock);
        KL_ASSERT(peer->count > 0);
        peer->count--;
        let_go(peers, peer);
        kl_unlock(&peers->lock);
    }
    int64_t before = atomic_fetch_sub(&peers->count, 1);
    KL_ASSERT(before > 0);
    if (atomic_load(&peers->full)) kl_peers_wake(peers);
}

static bool is_counted(int32_t listener) {
    return listener >= 0 && listener < KL_LISTENERS_MAX;
}

void kl_peers_enter_listener(kl_peers *peers, int32_t listener) {
    if (is_counted(listener)) atomic_fetch_add(&peers->of_listener[listener], 1);
}

void kl_peers_leave_listener(kl_peers *peers, int32_t listener) {
    if (!is_counted(listener)) return;
    int32_t before = atomic_fetch_sub(&peers->of_listener[listener], 1);
    KL_ASSERT(before > 0);
}

bool kl_peers_full_at(kl_peers *peers, int32_t listener, int32_t count_max) {
    if (count_max == INT32_MAX || !is_counted(listener)) return false;
    if (atomic_load(&peers->of_listener[listener]) < count_max) return false;
    atomic_store(&peers->full, true);
    /* As above; a needless wake of the acceptor does no harm. */
    return atomic_load(&peers->of_listener[listener]) >= count_max;
}
