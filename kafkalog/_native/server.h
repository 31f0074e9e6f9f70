/* server.h: the C surface of a server; kafkalog.h includes it, and its rules hold here.
 *
 * Everything between the two markers is also the text that cffi reads, behind kafkalog.h's. */
#ifndef KAFKALOG_SERVER_H
#define KAFKALOG_SERVER_H

#include "kafkalog.h"

/* cffi: begin */

/* ---- sockets, frames, requests --------------------------------------------------------- */

/* Accepts connections and reads requests in C threads, which answer Produce and Fetch.  All other
 * requests, and those of the two that need Python, are taken with kl_server_take and answered with
 * kl_server_answer, from any threads. */
typedef struct kl_server kl_server;

typedef struct {
    int32_t network_threads;
    int32_t queued_requests_max; /* that wait for kl_server_take; then reading stops */
    int32_t request_bytes_max;   /* of a frame; more closes the connection */
    int64_t queued_bytes_max;    /* received, of frames above 4 KiB: more waits; -1: any */
    int32_t connections_max;     /* then none is accepted */
    int32_t connections_per_ip_max;
    int32_t backlog;
    int32_t send_buffer_bytes; /* of a socket; -1: the system's */
    int32_t receive_buffer_bytes;
    int64_t idle_ms_max;       /* connections without a request are closed; -1: never */
    int64_t half_frame_ms_max; /* for a frame to end, or grow by 64 KiB; -1: forever */
    int32_t fetch_bytes_max;
    int32_t fetch_sessions_max;
    int32_t
        produce_waiting_max; /* Produce requests of a connection that may wait for disk */
    int32_t node_id;
    int32_t quota_windows;    /* by which kl_server_set_replication_rate measures, */
    int64_t quota_window_ms;  /* and how long each is */
    int32_t control_listener; /* number of the listener that is served first; -1: none */
    int32_t manual_clock;     /* 1: time is what kl_server_set_time says, at first 0 */
} kl_server_config;

/* KL_E_ARGUMENT: a number is out of its range.  Nothing runs yet. */
kl_status kl_server_new(const kl_server_config *config, kl_server **out);
/* Bind and listen: "127.0.0.1", "::1", a name (its first address, IPv4 before IPv6), "" for
 * all addresses, "unix:/path" (mode 0600; a socket that no process serves is replaced).
 * Port 0: any free one; *bound_port gets it (0 for a unix socket).  `listener` is the
 * caller's number for it, which requests carry.  Before and after kl_server_start.  KL_E_IO. */
kl_status kl_server_listen(kl_server *server, const char *host_or_path, int32_t port,
                           int32_t listener, int32_t *bound_port);
/* Serve one end of a connected stream socket, as if it had been accepted on `listener`: limits
 * and counters apply, its peer is "inside".  On KL_OK the server owns the descriptor; otherwise the
 * caller still does.  KL_E_TIMEOUT: there are too many connections now.  KL_E_CLOSED: the
 * server was stopped.  KL_E_ARGUMENT: it was not started.  KL_E_IO. */
kl_status kl_server_adopt(kl_server *server, int fd, int32_t listener);
/* Accept and serve. */
kl_status kl_server_start(kl_server *server);
/* Accept no new connections and requests; answer requests in flight for at most timeout_ms;
 * then close everything: kl_server_take gives KL_E_CLOSED and no log is used any more.
 * KL_E_TIMEOUT: requests were left; everything is closed nevertheless.  Idempotent. */
kl_status kl_server_stop(kl_server *server, int32_t timeout_ms);
/* Stops first.  Only if no call is left and no kl_request_info is in use any more. */
void kl_server_free(kl_server *server);
/* Replace the config's limits from now on; open connections stay.  KL_E_ARGUMENT. */
kl_status kl_server_set_limits(kl_server *server, int32_t connections_max,
                               int32_t connections_per_ip_max);
/* Change the number of network threads: new ones start immediately; a surplus one passes its
 * connections to the others, each when no request of it is being processed, and ends.
 * KL_E_ARGUMENT, KL_E_CLOSED; KL_E_NO_MEMORY, KL_E_IO: not all could start. */
kl_status kl_server_set_threads(kl_server *server, int32_t network_threads);
/* Set a manual clock; for any other clock, how far it is ahead of the machine's, initially 0.
 * Timers that are due run soon after. */
void kl_server_set_time(kl_server *server, int64_t now_ms);

/* Why a request is passed to Python: it is no Produce or Fetch; or the fast path cannot answer
 * it. */
enum { KL_UP_API = 0, KL_UP_FAST_PATH = 1 };

/* A request that was taken.  The memory is valid until it is answered, handed back, dropped or
 * kl_server_read, or the server is freed. */
typedef struct {
    uint64_t id;         /* of the request, never used again */
    uint64_t connection; /* never used again */
    int32_t listener;
    int32_t principal; /* of its connection: KL_ANONYMOUS until it has authenticated */
    int32_t correlation_id;
    int32_t why; /* KL_UP_* */
    int16_t api_key;
    int16_t api_version;
    const uint8_t *client_id; /* UTF-8 by the protocol, unchecked */
    int32_t client_id_bytes;  /* -1: null */
    const uint8_t *body;      /* behind the header and its tagged fields */
    size_t body_bytes;
    char peer[64]; /* "10.0.0.1:40312", "[::1]:40312", "unix", "inside" */
} kl_request_info;

/* The next request, those of the control listener first.  KL_E_TIMEOUT: none came, call
 * again; KL_E_CLOSED: none will come. */
kl_status kl_server_take(kl_server *server, int32_t timeout_ms, kl_request_info *out);
/* These end a taken request, once: KL_E_NOT_FOUND for one that has ended.  They succeed even if its
 * connection is closed.
 * Answer with a body (copied) after a response header of version 0 or 1; -1: no response
 * (acks=0). */
kl_status kl_server_answer(kl_server *server, uint64_t id, const uint8_t *body,
                           size_t bytes, int32_t header_version);
/* Produce and Fetch: hand back to the fast path, which answers what it does not know with the
 * protocol's errors.  `heard` 0: do all but answer, and close the connection. */
kl_status kl_server_again(kl_server *server, uint64_t id, int32_t heard);
/* The body was read: its memory no longer counts, and can be reused even if the answer takes long.
 * It does not end the request. */
kl_status kl_server_read(kl_server *server, uint64_t id);
/* Close its connection. */
kl_status kl_server_drop(kl_server *server, uint64_t id);
/* From the next one on, pass all requests of this API to Python, or stop doing so (on: 0).
 * KL_E_ARGUMENT: no API has this key. */
kl_status kl_server_intercept(kl_server *server, int32_t api_key, int32_t on);
/* Pause the network threads, on return: connections stay open, nothing is read or sent; or let
 * them continue (on: 0).  Stopping lets them continue.  KL_E_CLOSED; KL_E_ARGUMENT: it was not
 * started. */
kl_status kl_server_pause(kl_server *server, int32_t on);

enum {
    KL_API_KEYS = 100
}; /* requests are counted by key below it, all others as the last */

typedef struct {
    int64_t connections; /* now */
    int64_t accepted;    /* since the start, as all that follow */
    int64_t refused_per_ip;
    int64_t accept_pauses; /* for want of descriptors or memory, 100 ms each */
    int64_t closed_idle;
    int64_t closed_half_frame;
    int64_t closed_garbage; /* lengths and headers that are none */
    int64_t bytes_in;
    int64_t bytes_out;
    int64_t requests[100];   /* by API key */
    int64_t fast;            /* Produce and Fetch that never went up */
    int64_t queued;          /* now */
    int64_t queue_full;      /* times that a connection had to wait for the queue */
    int64_t parked;          /* now */
    int64_t pinned;          /* now, slices of files that answers keep open */
    int64_t cold;            /* pieces of files that had to come from disk first */
    int64_t allocations;     /* of buffers and requests: stands still after warm-up */
    int64_t buffer_bytes;    /* now, of frames and responses, in use and kept for use */
    int64_t network_threads; /* now, that of the control listener and those that end too */
} kl_server_stats;

/* The counters since the start. */
void kl_server_get_stats(kl_server *server, kl_server_stats *out);

/* ---- who may read and write -------------------------------------------------------------- */

/* Principals are numbers of the caller's.  All connections are anonymous so far. */
enum { KL_ANONYMOUS = 0, KL_PRINCIPALS_MAX = 65536 };
/* The rights that Produce, a consumer's Fetch and a follower's Fetch ask for. */
enum { KL_MAY_WRITE = 1, KL_MAY_READ = 2, KL_MAY_REPLICATE = 4 };

typedef struct {
    int32_t rights;      /* KL_MAY_*, on all topics */
    int32_t throttle_ms; /* reported in its answers */
} kl_permit;

/* From the next request on.  A principal that was never set has no rights: its partitions are
 * answered with TOPIC_AUTHORIZATION_FAILED.  KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_permit(kl_server *server, int32_t principal,
                               const kl_permit *permit);

typedef struct {
    int64_t produce_requests; /* since the start, as is what follows */
    int64_t produce_bytes;    /* of requests */
    int64_t fetch_requests;   /* of consumers and followers */
    int64_t fetch_bytes;      /* of records */
    int64_t denied;           /* partitions */
} kl_usage;

/* What Produce and Fetch of a principal came to.  KL_E_NOT_FOUND: it was never set. */
kl_status kl_server_get_usage(kl_server *server, int32_t principal, kl_usage *out);

/* ---- partitions that Produce and Fetch know ---------------------------------------------- */

enum {
    KL_TOPIC_LOOK_INSIDE = 1, /* compressed batches of producers go up to Python */
    KL_TOPIC_INTERNAL = 2,    /* clients may not write to it (but the admin client) */
    KL_TOPIC_ZSTD = 4,        /* compression.type: Fetch below version 10 is refused */
    KL_TOPIC_COMPRESS = 8,    /* uncompressed batches go up: the topic has its own codec */
    KL_TOPIC_TIMED = 16 /* compressed batches go up whose header is KL_AHEAD_MS ahead */
};

enum { KL_AHEAD_MS = 60000 }; /* clocks of clients that are no further off cost nothing */

/* A partition's role on this node. */
typedef struct {
    int32_t leader_epoch;
    int32_t durable;   /* 1: acks=all means on disk (kafkalog.durability=fsync) */
    int32_t follows;   /* 1: another node leads it: no producer may write to it here */
    int32_t leader_id; /* where `follows`; -1: not known */
    int32_t min_isr;   /* acks=all wants so many copies in the ISR; 0: not set */
    int32_t throttled; /* 1: copies that are not in sync get it at the replication's rate */
    int32_t hands_over; /* 1: another node is about to lead it: acks=1 is refused, unless no
                         * copy may be in sync; when the role is set, no such append is under
                         * way.  Where it leads */
    int64_t tag;        /* the caller's number for it, in kl_caught_up */
} kl_role;

/* Another replica of a partition that is led here. */
typedef struct {
    int32_t id;
    int32_t in_sync; /* 1: in the ISR, as it was agreed upon last */
    int32_t maximal; /* 1: or it may be in it, as that is under way */
    int64_t broker_epoch;
} kl_follower;

typedef struct {
    kl_follower who;
    int64_t log_end; /* -1: it did not fetch yet */
    int64_t log_start;
    int64_t behind_ms; /* since it had all that is here; -1: it never had */
} kl_follower_state;

/* A follower outside the maximal ISR has all committed records. */
typedef struct {
    int64_t tag;
    int64_t broker_epoch;
    int32_t id;
    int32_t leader_epoch;
} kl_caught_up;

/* Add a topic, or change the id (16 bytes, all zero: none) and flags (KL_TOPIC_*) of one. */
kl_status kl_server_put_topic(kl_server *server, const char *name, const uint8_t *id,
                              int32_t flags);
/* Serve a partition from an open log, or change its role.  The log must stay open until the
 * partition or its topic was removed, or the server freed.  NULL: it was never written to; it is
 * read as empty, and its Produce requests go to Python until a second call sets its log; a
 * partition with a log keeps it.  If it is led here, its log is first set to the role's epoch, and
 * then accepts appends of that epoch only.  KL_E_NOT_FOUND: no such topic.  KL_E_ARGUMENT: it has
 * another log.  KL_E_FENCED_LEADER_EPOCH, and others of kl_log_set_leader_epoch: it keeps its role.
 * */
kl_status kl_server_put_partition(kl_server *server, const char *topic, int32_t partition,
                                  kl_log *log, const kl_role *role);
/* A partition whose log cannot be opened (1), or can be again (0): it is answered with
 * KAFKA_STORAGE_ERROR as long as it has no log.  KL_E_NOT_FOUND: no such
 * topic. */
kl_status kl_server_put_offline(kl_server *server, const char *topic, int32_t partition,
                                int32_t offline);
/* When these return, no call uses the logs any more; requests that wait for them are being
 * answered.  KL_E_NOT_FOUND. */
kl_status kl_server_remove_topic(kl_server *server, const char *name);
kl_status kl_server_remove_partition(kl_server *server, const char *topic,
                                     int32_t partition);
/* Set the followers of a partition that is led here: records are visible once every member of the
 * maximal ISR has them.  None: all are.  Followers from before in this leader epoch keep their
 * state. KL_E_NOT_FOUND, KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_followers(kl_server *server, const char *topic, int32_t partition,
                                  const kl_follower *followers, int32_t count);
/* Another role of a partition, with everything that a change of role needs. */
typedef struct {
    const char *topic;
    kl_log *log;
    int32_t partition;
    int32_t follower_count; /* where it is led here: so many of the followers, */
    int32_t followers_at;   /* from this one on */
    kl_status status;       /* what became of it */
    kl_role role;
} kl_role_change;
/* For each: kl_server_put_partition, then kl_server_set_followers if it is led here.  A failure
 * does not affect the others. */
void kl_server_change_roles(kl_server *server, kl_role_change *changes, int32_t count,
                            const kl_follower *followers);
/* How far they are; *count of them, of which `room` are copied.  KL_E_NOT_FOUND. */
kl_status kl_server_get_followers(kl_server *server, const char *topic, int32_t partition,
                                  kl_follower_state *out, int32_t room, int32_t *count);
/* The next follower that may join the ISR; reported once, and again after kl_server_set_followers.
 * KL_E_TIMEOUT: none.  KL_E_CLOSED: the server was stopped. */
kl_status kl_server_take_caught_up(kl_server *server, int32_t timeout_ms,
                                   kl_caught_up *out);
/* The bytes per second of throttled partitions that replicas out of sync may get; in-sync replicas
 * count, but are not delayed.  INT64_MAX: no limit, the initial value. */
void kl_server_set_replication_rate(kl_server *server, int64_t rate);
/* Bytes of the last `windows` windows compared with a rate, in the caller's time; over less than
 * one window no rate is measured.  From any threads.  KL_E_ARGUMENT, KL_E_NO_MEMORY. */
typedef struct kl_quota kl_quota;
kl_status kl_quota_new(int32_t windows, int64_t window_ms, kl_quota **out);
void kl_quota_free(kl_quota *quota);                   /* NULL is fine */
void kl_quota_set_rate(kl_quota *quota, int64_t rate); /* bytes a second; INT64_MAX: any */
void kl_quota_count(kl_quota *quota, int64_t bytes, int64_t now_ms);
int kl_quota_exceeded(kl_quota *quota,
                      int64_t now_ms); /* 1: more than the rate were there */
/* A partition's role without a server, in the caller's time: what a simulation drives.  One
 * thread; freed before its log is closed.  As the functions of kl_server above, and: a role's
 * `durable` may be 2; see kl_append_options. */
typedef struct kl_replica kl_replica;
kl_status kl_alone_new(kl_log *log, const kl_role *role, kl_replica **out);
void kl_alone_free(kl_replica *replica);
kl_status kl_alone_set_role(kl_replica *replica, const kl_role *role);
kl_status kl_alone_set_followers(kl_replica *replica, const kl_follower *followers,
                                 int32_t count, int64_t now_ms);
void kl_alone_get_followers(kl_replica *replica, int64_t now_ms, kl_follower_state *out,
                            int32_t room, int32_t *count);
int kl_alone_has_follower(kl_replica *replica, int32_t id, int64_t broker_epoch);
/* A follower fetches from `offset` on.  1: it may join the ISR; reported once, as kl_caught_up. */
int kl_alone_fetched(kl_replica *replica, int32_t id, int64_t broker_epoch, int64_t offset,
                     int64_t log_start, int64_t now_ms);
/* One batch of a producer.  KL_E_NOT_LEADER_OR_FOLLOWER, KL_E_NOT_ENOUGH_REPLICAS, and those
 * of kl_log_append_batches. */
kl_status kl_alone_append(kl_replica *replica, const uint8_t *batches, size_t bytes,
                          int32_t acks, int64_t now_ms, kl_appended *out);
/* Whether all records below `offset`, appended when the log had been cut `cuts` times, are
 * committed: 1; 0: not yet; -1: they never will be here. */
int kl_alone_kept(kl_replica *replica, int64_t offset, int64_t cuts);
/* Append for Python as the leader: kl_log_append_batches, without waiting.
 * acks -1: it is committed when kl_server_wait for out->last_offset + 1 returns.
 * KL_E_NOT_FOUND: no such partition. */
typedef struct {
    const uint8_t *batches;
    size_t bytes;
    int32_t acks; /* -1, 0, 1 */
    kl_append_options options;
} kl_server_batches;
kl_status kl_server_append(kl_server *server, const char *topic, int32_t partition,
                           const kl_server_batches *what, kl_appended *out);
/* Wait until the high watermark reaches `offset` and, where acks=all means on disk or
 * `on_disk` (the append said sync_due), all below it is there.  KL_E_TIMEOUT: call again.
 * KL_E_STORAGE: it never will.  KL_E_STALE: it was cut off; `cuts`, as the append
 * says, shows it also where the log has grown again; -1: unknown.  KL_E_CLOSED: removed since.
 * KL_E_NOT_FOUND. */
kl_status kl_server_wait(kl_server *server, const char *topic, int32_t partition,
                         int64_t offset, int64_t cuts, int32_t on_disk, int32_t timeout_ms);
/* Kafka's error code for a status. */
int16_t kl_code_of(kl_status status);
/* Where clients of a listener reach a node. */
typedef struct {
    int32_t node;
    int32_t port;
    int32_t has_rack;
    char host[256];
    char rack[256];
} kl_endpoint;
/* Set all nodes that clients of a listener reach, in place of those set before, for answers that
 * name a leader.  KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_endpoints(kl_server *server, int32_t listener,
                                  const kl_endpoint *endpoints, int32_t count);

/* A node's rack. */
typedef struct {
    int32_t node;
    char rack[256];
} kl_rack;

/* The live nodes that have a rack: a leader sends a consumer in one of these racks to the replica
 * there, if it has what the consumer asks for (KIP-392).  None: every consumer stays.
 * KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_racks(kl_server *server, const kl_rack *places, int32_t count);

typedef struct {
    int64_t sessions;           /* fetch sessions, now */
    int64_t session_partitions; /* of all of them, now */
    int64_t sessions_evicted;   /* since the start, as is */
    int64_t session_looks;      /* at a session's partition: for each that may have news */
} kl_session_stats;
void kl_server_get_sessions(kl_server *server, kl_session_stats *out);

/* cffi: end */

#endif
