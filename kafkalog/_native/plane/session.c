/* session.c: the cache of fetch sessions.  KIP-227, Kafka's FetchSession.scala. */
#include "session.h"

#include "base/hash.h"
#include "codes.h"

enum {
    EVICT_MS = 120000,      /* minimum idle time, or age next to a larger newcomer */
    PARTITIONS_MAX = 200000 /* of all sessions: about 80 MB, and 50 of names */
};

struct kl_sessions {
    pthread_mutex_t lock; /* guards the members below */
    kl_table by_id;
    kl_link by_use; /* least recently used first */
    kl_link gone;   /* closed and not in use: freed without the lock */
    int64_t count_max;
    kl_session_stats stats;
    _Atomic int64_t looks; /* not under the lock */
};

kl_status kl_sessions_new(int32_t sessions_max, kl_sessions **out) {
    kl_sessions *sessions = *out = kl_alloc(sizeof *sessions);
    if (sessions == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for fetch sessions");
    pthread_mutex_init(&sessions->lock, NULL);
    kl_ring_init(&sessions->by_use);
    kl_ring_init(&sessions->gone);
    sessions->count_max = sessions_max;
    return KL_OK;
}

static void free_session(kl_session *session) {
    kl_fetch_set_free(&session->set);
    kl_release(session);
}

void kl_sessions_free(kl_sessions *sessions) {
    if (sessions == NULL) return;
    size_t at = 0;
    for (kl_session *one; (one = kl_table_next(&sessions->by_id, &at)) != NULL;)
        free_session(one);
    kl_table_free(&sessions->by_id);
    pthread_mutex_destroy(&sessions->lock);
    kl_release(sessions);
}

static bool same_id(const void *entry, const void *key) {
    return ((const kl_session *)entry)->id == *(const int32_t *)key;
}

static uint64_t hash_of(int32_t id) { return kl_hash_number((uint32_t)id); }

static kl_session *find(kl_sessions *sessions, int32_t id) {
    return kl_table_find(&sessions->by_id, hash_of(id), &id, same_id);
}

/* Locked.  Stop counting it, and queue it to be freed. */
static void end_session(kl_sessions *sessions, kl_session *session) {
    KL_ASSERT_HELD(&sessions->lock);
    KL_ASSERT(session->closed && !session->busy);
    sessions->stats.session_partitions -= (int64_t)session->counted;
    KL_ASSERT(sessions->stats.session_partitions >= 0);
    kl_link_last(&sessions->gone, &session->use);
}

/* Unlock, then free closed sessions, which ends the watch of each of their partitions. */
static void unlock(kl_sessions *sessions) {
    kl_link gone;
    kl_ring_init(&gone);
    for (kl_link *link; (link = kl_ring_first(&sessions->gone)) != NULL;)
        kl_link_last(&gone, link);
    kl_unlock(&sessions->lock);
    for (kl_link *link; (link = kl_ring_first(&gone)) != NULL;) {
        kl_link_remove(link);
        free_session(KL_HOLDER(link, kl_session, use));
    }
}

/* Locked.  Hide it from requests.  A request that uses it ends it; otherwise this does. */
static void close_session(kl_sessions *sessions, kl_session *session) {
    KL_ASSERT_HELD(&sessions->lock);
    KL_ASSERT(!session->closed);
    kl_table_remove(&sessions->by_id, hash_of(session->id), session);
    kl_link_remove(&session->use);
    sessions->stats.sessions--;
    KL_ASSERT(sessions->stats.sessions == (int64_t)sessions->by_id.count);
    session->closed = true;
    if (!session->busy) end_session(sessions, session);
}

int16_t kl_sessions_take(kl_sessions *sessions, int32_t id, int32_t epoch, bool by_id,
                         kl_session **out) {
    int16_t code = CODE_NONE;
    *out = NULL;
    kl_lock(&sessions->lock);
    kl_session *session = find(sessions, id);
    if (session == NULL) code = CODE_FETCH_SESSION_ID_NOT_FOUND;
    else if (session->busy || session->epoch != epoch)
        code = CODE_INVALID_FETCH_SESSION_EPOCH;
    else if (session->by_id != by_id) code = CODE_FETCH_SESSION_TOPIC_ID_ERROR;
    if (code == CODE_NONE) {
        session->busy = true;
        *out = session;
    }
    unlock(sessions);
    return code;
}

void kl_session_advance(kl_session *session) {
    session->epoch = session->epoch == INT32_MAX ? 1 : session->epoch + 1;
}

bool kl_session_asks_as_before(kl_session *session, const kl_session_asks *asks) {
    const kl_session_asks before = session->asks;
    session->asks = *asks;
    return before.api_version == asks->api_version &&
           before.replica_id == asks->replica_id && before.to == asks->to;
}

/* True if a newcomer with `partitions` may evict it: long unused, or old and smaller. */
static bool may_go(const kl_session *one, size_t partitions, int64_t now_ms) {
    if (one->busy) return false;
    if (now_ms - one->used_ms > EVICT_MS) return true;
    return now_ms - one->created_ms > EVICT_MS && one->counted < partitions;
}

/* Locked.  The best one to evict: the longest unused, or the smallest; NULL: none. */
static kl_session *victim_for(kl_sessions *sessions, size_t partitions, int64_t now_ms) {
    kl_session *smallest = NULL;
    for (kl_link *link = sessions->by_use.next; link != &sessions->by_use;
         link = link->next) {
        kl_session *one = KL_HOLDER(link, kl_session, use);
        if (!may_go(one, partitions, now_ms)) continue;
        if (now_ms - one->used_ms > EVICT_MS) return one; /* none is longer unused */
        if (smallest == NULL || one->counted < smallest->counted) smallest = one;
    }
    return smallest;
}

/* Locked.  True if this fits after evicting `gone`. */
static bool fits(const kl_sessions *sessions, const kl_session_stats *gone,
                 int64_t partitions, int64_t more) {
    const kl_session_stats *now = &sessions->stats;
    return now->session_partitions - gone->session_partitions <=
               PARTITIONS_MAX - partitions &&
           now->sessions - gone->sessions <= sessions->count_max - more;
}

/* Locked.  True if `more` sessions with `partitions` fit, perhaps after evictions. */
static bool could_fit(const kl_sessions *sessions, size_t partitions, int64_t more,
                      int64_t now_ms) {
    kl_session_stats gone = {0};
    if (partitions > PARTITIONS_MAX || sessions->count_max < more) return false;
    int64_t wanted = (int64_t)partitions;
    if (fits(sessions, &gone, wanted, more)) return true;
    for (kl_link *link = sessions->by_use.next; link != &sessions->by_use;
         link = link->next) {
        const kl_session *one = KL_HOLDER(link, kl_session, use);
        bool goes = may_go(one, partitions, now_ms);
        gone.sessions += goes;
        gone.session_partitions += goes ? (int64_t)one->counted : 0;
    }
    return fits(sessions, &gone, wanted, more);
}

/* Locked.  The same, doing the evictions; none if they would not suffice. */
static bool make_room(kl_sessions *sessions, size_t partitions, int64_t more,
                      int64_t now_ms) {
    const kl_session_stats gone = {0};
    if (!could_fit(sessions, partitions, more, now_ms)) return false;
    while (!fits(sessions, &gone, (int64_t)partitions, more)) {
        kl_session *victim = victim_for(sessions, partitions, now_ms);
        KL_ASSERT(victim != NULL); /* could_fit promised it */
        close_session(sessions, victim);
        sessions->stats.sessions_evicted++;
    }
    return true;
}

/* Locked.  Random, so that a client does not use another's session by mistake. */
static int32_t free_id(kl_sessions *sessions) {
    uint32_t id = 0;
    do {
        if (!kl_system_random(&id, sizeof id)) return 0;
        id &= INT32_MAX;
    } while (id == 0 || find(sessions, (int32_t)id));
    return (int32_t)id;
}

/* A new session for `asked`, not visible to requests yet.  Not locked, as this may be a hundred
 * thousand partitions. */
static kl_session *new_session(const kl_fetch_set *asked) {
    kl_session *session = kl_alloc(sizeof *session);
    if (session == NULL) return NULL;
    kl_fetch_set_init(&session->set);
    if (kl_fetch_set_merge(&session->set, asked)) return session;
    free_session(session);
    return NULL;
}

/* Locked.  False: not added. */
static bool take_in(kl_sessions *sessions, kl_session *session, int64_t now_ms) {
    KL_ASSERT_HELD(&sessions->lock);
    if (!make_room(sessions, session->set.count, 1, now_ms)) return false;
    session->id = free_id(sessions);
    if (session->id == 0 || kl_table_add(&sessions->by_id, hash_of(session->id), session))
        return false;
    session->counted = session->set.count;
    kl_link_last(&sessions->by_use, &session->use);
    sessions->stats.sessions++;
    sessions->stats.session_partitions += (int64_t)session->counted;
    return true;
}

kl_session *kl_sessions_make(kl_sessions *sessions, const kl_fetch_set *asked, bool by_id,
                             int64_t now_ms) {
    if (asked->count == 0) return NULL;
    kl_lock(&sessions->lock);
    bool room = could_fit(sessions, asked->count, 1, now_ms);
    kl_unlock(&sessions->lock);
    kl_session *session = room ? new_session(asked) : NULL;
    if (session == NULL) return NULL;
    session->epoch = 1;
    session->by_id = by_id;
    session->busy = true;
    session->created_ms = session->used_ms = now_ms;
    kl_lock(&sessions->lock);
    bool taken = take_in(sessions, session, now_ms);
    unlock(sessions);
    if (taken) return session;
    free_session(session);
    return NULL;
}

bool kl_sessions_count(kl_sessions *sessions, kl_session *session, int64_t now_ms) {
    size_t count = session->set.count;
    kl_lock(&sessions->lock);
    KL_ASSERT(session->busy);
    bool room = count <= session->counted ||
                make_room(sessions, count - session->counted, 0, now_ms);
    sessions->stats.session_partitions += (int64_t)count - (int64_t)session->counted;
    session->counted = count;
    unlock(sessions);
    return room;
}

void kl_sessions_give(kl_sessions *sessions, kl_session *session, bool keep,
                      int64_t now_ms) {
    kl_lock(&sessions->lock);
    KL_ASSERT(session->busy);
    session->busy = false;
    session->used_ms = now_ms;
    if (session->closed) end_session(sessions, session);
    else if (!keep) close_session(sessions, session);
    else kl_link_last(&sessions->by_use, &session->use);
    unlock(sessions);
}

void kl_sessions_close(kl_sessions *sessions, int32_t id) {
    kl_lock(&sessions->lock);
    kl_session *session = find(sessions, id);
    if (session) close_session(sessions, session);
    unlock(sessions);
}

void kl_sessions_stats(kl_sessions *sessions, kl_session_stats *out) {
    kl_lock(&sessions->lock);
    *out = sessions->stats;
    out->session_looks = atomic_load(&sessions->looks);
    unlock(sessions);
}

void kl_sessions_looked(kl_sessions *sessions, int64_t count) {
    atomic_fetch_add_explicit(&sessions->looks, count, memory_order_relaxed);
}
