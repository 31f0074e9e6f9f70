/* session.h: incremental fetch sessions (KIP-227): they remember what a consumer fetches, so that
 * requests need not repeat it.  A bounded cache. */
#ifndef KL_SESSION_H
#define KL_SESSION_H

#include "fetchset.h"

typedef struct kl_sessions kl_sessions;

/* The fields that each request of a session repeats, and that all its partitions depend on. */
typedef struct {
    int16_t api_version;
    int32_t replica_id;
    int32_t to;
} kl_session_asks;

typedef struct kl_session kl_session;
struct kl_session {
    kl_link use; /* in the cache's order of use; guarded by its lock, as are */
    int64_t created_ms;
    int64_t used_ms;
    size_t counted; /* partitions, as the cache counts them */
    bool busy;      /* a request has it */
    bool closed;    /* goes when that request gives it back */
    int32_t id;     /* set when it is made, never changed */
    bool by_id;     /* topics by id: Fetch 13 and later */

    int64_t all_ms; /* a follower's: when all were looked at last */
    int32_t epoch;  /* of the next request; this and the set are the one's that has it */
    kl_session_asks asks;
    kl_fetch_set set;
};

enum { KL_SESSION_FULL = 0, KL_SESSION_FINAL = -1 }; /* epochs of full fetches */

kl_status kl_sessions_new(int32_t sessions_max, kl_sessions **out);
void kl_sessions_free(kl_sessions *sessions); /* NULL is fine */
/* The session of an incremental fetch, the caller's alone until kl_sessions_give; or the
 * error code (*out NULL).  Nothing is changed yet: see kl_session_advance. */
int16_t kl_sessions_take(kl_sessions *sessions, int32_t id, int32_t epoch, bool by_id,
                         kl_session **out);
/* The request is the session's next. */
void kl_session_advance(kl_session *session);
/* Whether it asks as the one before did; from now on that is so. */
bool kl_session_asks_as_before(kl_session *session, const kl_session_asks *asks);
/* A new one for what `asked` has, taken as above; NULL: none (too many, no memory). */
kl_session *kl_sessions_make(kl_sessions *sessions, const kl_fetch_set *asked, bool by_id,
                             int64_t now_ms);
/* Count what its set has now, while it is used: with what others have it may be too much.  False:
 * it is, and no eviction made room; it must be given back, not to be kept. */
bool kl_sessions_count(kl_sessions *sessions, kl_session *session, int64_t now_ms);
/* End of its use; `keep` false: and of the session. */
void kl_sessions_give(kl_sessions *sessions, kl_session *session, bool keep,
                      int64_t now_ms);
void kl_sessions_close(kl_sessions *sessions, int32_t id); /* where there is one */
/* So many partitions of a session were looked at. */
void kl_sessions_looked(kl_sessions *sessions, int64_t count);
void kl_sessions_stats(kl_sessions *sessions, kl_session_stats *out);

#endif
