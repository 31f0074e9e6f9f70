/* session.h: incremental fetch sessions (KIP-227), which remember a consumer's partitions, so that
 * requests need not repeat them.  A bounded cache. */
#ifndef KL_SESSION_H
#define KL_SESSION_H

#include "fetchset.h"

typedef struct kl_sessions kl_sessions;

/* Fields of each request that all partitions of a session depend on. */
typedef struct {
    int16_t api_version;
    int32_t replica_id;
    int32_t to;
} kl_session_asks;

typedef struct kl_session kl_session;
struct kl_session {
    kl_link use; /* in order of use; guarded by the cache's lock, down to closed */
    int64_t created_ms;
    int64_t used_ms;
    size_t counted; /* partitions counted by the cache */
    bool busy;      /* used by a request */
    bool closed;    /* ends when that request returns it */
    int32_t id;     /* set at creation, immutable */
    bool by_id;     /* topics by id: Fetch 13 and later */

    int64_t all_ms; /* a follower's: time of its last full look */
    int32_t epoch; /* of the next request; with the set, owned by the request in progress */
    kl_session_asks asks;
    kl_fetch_set set;
};

enum { KL_SESSION_FULL = 0, KL_SESSION_FINAL = -1 }; /* epochs of full fetches */

kl_status kl_sessions_new(int32_t sessions_max, kl_sessions **out);
void kl_sessions_free(kl_sessions *sessions); /* NULL is fine */
/* The session of an incremental fetch, exclusive until kl_sessions_give; or the error code (*out
 * NULL).  Changes nothing yet: see kl_session_advance. */
int16_t kl_sessions_take(kl_sessions *sessions, int32_t id, int32_t epoch, bool by_id,
                         kl_session **out);
/* Advance the epoch: this request is the session's next. */
void kl_session_advance(kl_session *session);
/* True if the fields equal the last request's; stores them. */
bool kl_session_asks_as_before(kl_session *session, const kl_session_asks *asks);
/* A new session for `asked`, taken as above; NULL: none (too many, no memory). */
kl_session *kl_sessions_make(kl_sessions *sessions, const kl_fetch_set *asked, bool by_id,
                             int64_t now_ms);
/* Count a session's set while in use.  False: over the limit, and evictions did not help; give it
 * back without keeping it. */
bool kl_sessions_count(kl_sessions *sessions, kl_session *session, int64_t now_ms);
/* Return it; `keep` false: and end it. */
void kl_sessions_give(kl_sessions *sessions, kl_session *session, bool keep,
                      int64_t now_ms);
void kl_sessions_close(kl_sessions *sessions, int32_t id); /* if it exists */
/* Count partitions of a session that were looked at. */
void kl_sessions_looked(kl_sessions *sessions, int64_t count);
void kl_sessions_stats(kl_sessions *sessions, kl_session_stats *out);

#endif
