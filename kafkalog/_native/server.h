/* server.h: the C interface of a server; kafkalog.h includes it, and its rules apply.
 *
 * cffi also reads the text between the two markers, after kafkalog.h's. */
#ifndef KAFKALOG_SERVER_H
#define KAFKALOG_SERVER_H

#include "kafkalog.h"

/* cffi: begin */

/* ---- sockets, frames, requests --------------------------------------------------------- */

/* Accepts connections and reads requests in C threads, which answer Produce and Fetch.  Other
 * requests, and those of the two that need Python, are taken with kl_server_take and answered with
 * kl_server_answer, from any thread. */
typedef struct kl_server kl_server;

typedef struct {
    int32_t network_threads;
    int32_t queued_requests_max; /* waiting for kl_server_take; then reading stops */
    int32_t request_bytes_max;   /* of a frame; a larger one closes the connection */
    int64_t queued_bytes_max;    /* received, of frames above 4 KiB; -1: no limit */
    int32_t connections_max;     /* then none is accepted */
    int32_t connections_per_ip_max;
    int32_t backlog;
    int32_t send_buffer_bytes; /* of a socket; -1: the system's default */
    int32_t receive_buffer_bytes;
    int64_t idle_ms_max;       /* connections without a request are closed; -1: never */
    int64_t half_frame_ms_max; /* for a frame to end, or grow by 64 KiB; -1: forever */
    int32_t fetch_bytes_max;
    int32_t fetch_sessions_max;
    int32_t unidentified_bytes_max; /* of a frame, before its client has authenticated */
    int32_t unidentified_max;       /* connections whose clients have not, */
    int64_t unidentified_ms_max;    /* and how long each may take */
    int32_t produce_waiting_max; /* Produce requests of a connection waiting for the disk */
    int32_t node_id;
    int32_t quota_windows;        /* of kl_server_set_replication_rate: their number, */
    int64_t quota_window_ms;      /* and the length of each */
    int32_t client_quota_windows; /* the same, of clients' quotas and of connection rates */
    int64_t client_quota_window_ms;
    int32_t control_listener; /* number of the listener served first; -1: none */
    int32_t manual_clock;     /* 1: time is set by kl_server_set_time, initially 0 */
} kl_server_config;

/* KL_E_ARGUMENT: a value is out of range.  Nothing runs yet. */
kl_status kl_server_new(const kl_server_config *config, kl_server **out);
/* What a listener needs for TLS; from any thread. */
typedef struct kl_tls kl_tls;
/* Text with PEM blocks. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
} kl_pem;
enum { KL_CLIENT_AUTH_NONE = 0, KL_CLIENT_AUTH_REQUESTED = 1, KL_CLIENT_AUTH_REQUIRED = 2 };
typedef struct {
    kl_pem chain; /* the certificate of the key first */
    kl_pem key;   /* not encrypted */
    kl_pem trust; /* of clients; needed unless client_auth is NONE */
    const char
        *suites; /* cipher suites by their standard names, with ':' between; "": all */
    int32_t client_auth; /* KL_CLIENT_AUTH_* */
    int32_t oldest;      /* versions of TLS: 12 or 13 */
    int32_t newest;
    int32_t kernel; /* 1: let the kernel encrypt, if it can; 0: no; -1: if it has TLS */
} kl_tls_config;
/* The configuration is copied.  OpenSSL 3 is loaded with the first call.  KL_E_NOT_FOUND: it is not
 * installed; KL_E_ARGUMENT: a part cannot be read, or does not fit; no message shows a key. */
kl_status kl_tls_new(const kl_tls_config *config, kl_tls **out);
void kl_tls_free(kl_tls *tls); /* NULL is fine; listeners keep what they use */
/* Seconds until the certificate of its key expires; negative: it has expired; INT64_MAX: its date
 * cannot be read. */
int64_t kl_tls_left_s(const kl_tls *tls);

/* Bind and listen: "127.0.0.1", "::1", a name (its first address, IPv4 before IPv6), "" for all
 * addresses, "unix:/path" (mode 0600; replaces a socket that no process serves).  Port 0: any free
 * one; *bound_port gets it (0 for a unix socket).  `listener` is the caller's number for it,
 * carried by requests.  `tls` NULL: not encrypted.  Before and after kl_server_start.  KL_E_IO. */
kl_status kl_server_listen(kl_server *server, const char *host_or_path, int32_t port,
                           int32_t listener, kl_tls *tls, int32_t *bound_port);
/* Use another TLS for later connections of a listener that has one.  KL_E_NOT_FOUND. */
kl_status kl_server_set_tls(kl_server *server, int32_t listener, kl_tls *tls);
/* Serve one end of a connected stream socket, as if accepted on `listener`: limits and counters
 * apply, its peer is "inside".  On KL_OK the server owns the descriptor; otherwise the caller does.
 * KL_E_TIMEOUT: too many connections now.  KL_E_CLOSED: the server was stopped.  KL_E_ARGUMENT: it
 * was not started.  KL_E_IO. */
kl_status kl_server_adopt(kl_server *server, int fd, int32_t listener);
/* Connections of a listener (0 to 63) must authenticate, from now on: each begins as
 * KL_UNIDENTIFIED, and all its requests are passed to Python, one at a time.  KL_E_ARGUMENT. */
kl_status kl_server_authenticate(kl_server *server, int32_t listener);
/* Accept and serve. */
kl_status kl_server_start(kl_server *server);
/* Accept no new connections and requests; answer requests in flight for at most timeout_ms; then
 * close everything: kl_server_take returns KL_E_CLOSED, and no log is used.  KL_E_TIMEOUT: some
 * were not answered; everything is closed nevertheless.  Idempotent. */
kl_status kl_server_stop(kl_server *server, int32_t timeout_ms);
/* Stops first.  No call may be in progress, and no kl_request_info in use. */
void kl_server_free(kl_server *server);
/* Change the config's limits; open connections stay.  KL_E_ARGUMENT. */
kl_status kl_server_set_limits(kl_server *server, int32_t connections_max,
                               int32_t connections_per_ip_max);
/* Limits of new connections, per second; INT32_MAX, the initial value: none. */
typedef struct {
    int32_t rate;    /* of all listeners: then none is accepted for a while */
    int32_t ip_rate; /* of an address: then its new ones are closed, after one window */
} kl_arrival_limits;
/* An address with limits of its own. */
typedef struct {
    uint8_t address[16];     /* IPv4 mapped to IPv6 */
    int32_t connections_max; /* at the same time; -1: as other addresses */
    int32_t rate;            /* 0: as other addresses */
} kl_ip_limit;
/* Replace them; and those of a listener (connections at the same time: then none is accepted; and
 * per second).  KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_arrivals(kl_server *server, const kl_arrival_limits *limits,
                                 const kl_ip_limit *of_ips, int32_t count);
kl_status kl_server_set_listener_limits(kl_server *server, int32_t listener,
                                        int32_t connections_max, int32_t rate);
/* Change the number of network threads: new ones start at once; a surplus one passes each
 * connection, when none of its requests is in progress, to the others, and ends.  KL_E_ARGUMENT,
 * KL_E_CLOSED; KL_E_NO_MEMORY, KL_E_IO: not all could start. */
kl_status kl_server_set_threads(kl_server *server, int32_t network_threads);
/* Set a manual clock; otherwise how far the clock is ahead of the system's, initially 0.  Due
 * timers run soon after. */
void kl_server_set_time(kl_server *server, int64_t now_ms);

/* Why a request is passed to Python: C does not answer its API, or not now; this one is not for
 * the fast path; or kl_server_resolve must say first what its client's quotas are. */
enum { KL_UP_API = 0, KL_UP_FAST_PATH = 1, KL_UP_QUOTA = 2 };

/* A taken request.  The memory is valid until it is answered, returned, dropped or kl_server_read,
 * or the server is freed. */
typedef struct {
    uint64_t id;         /* of the request, never used again */
    uint64_t connection; /* never used again */
    int32_t listener;
    int32_t principal; /* of its connection, or KL_UNIDENTIFIED, or KL_REAUTHENTICATES */
    int32_t correlation_id;
    int32_t why; /* KL_UP_* */
    int16_t api_key;
    int16_t api_version;
    const uint8_t *client_id; /* UTF-8 by the protocol, unchecked */
    int32_t client_id_bytes;  /* -1: null */
    const uint8_t *body;      /* after the header and its tagged fields */
    size_t body_bytes;
    int32_t subject_bytes; /* 0: the client showed no certificate */
    uint8_t subject[1024]; /* DER of its certificate's subject */
    char peer[64];         /* "10.0.0.1:40312", "[::1]:40312", "unix", "inside" */
} kl_request_info;

/* An answer after which the connection is closed, after delay_ms. */
typedef struct {
    const uint8_t *body;
    size_t bytes;
    int32_t header_version; /* as in kl_server_answer */
    int32_t delay_ms;
} kl_refusal;

/* A failed handshake. */
typedef struct {
    int32_t listener;
    char peer[64]; /* as in kl_request_info */
    char reason[192];
    int64_t lost; /* further failures since the previous one that are not reported */
} kl_handshake_failure;
/* The next failed handshake whose client sent anything.  KL_E_TIMEOUT: none came; KL_E_CLOSED: the
 * server was stopped. */
kl_status kl_server_take_failure(kl_server *server, int32_t timeout_ms,
                                 kl_handshake_failure *out);

/* The next request, control listener first.  KL_E_TIMEOUT: none came, call again; KL_E_CLOSED: none
 * will come. */
kl_status kl_server_take(kl_server *server, int32_t timeout_ms, kl_request_info *out);
/* These end a taken request, once: then KL_E_NOT_FOUND.  They succeed even if its connection is
 * closed.  Answer with a body (copied) after a response header of version 0 or 1; -1: no response
 * (acks=0); KL_HEADER_TOKEN: without a header. */
kl_status kl_server_answer(kl_server *server, uint64_t id, const uint8_t *body,
                           size_t bytes, int32_t header_version);
kl_status kl_server_refuse(kl_server *server, uint64_t id, const kl_refusal *refusal);
/* Together with the request's answer or return, its connection gets a principal: from then on its
 * requests have it.  expires_ms after that, only SaslHandshake is accepted, and another request
 * closes the connection; -1: never.  KL_UNIDENTIFIED: it must authenticate (again).  Does not end
 * the request. */
kl_status kl_server_set_principal(kl_server *server, uint64_t id, int32_t principal,
                                  int64_t expires_ms);
/* Produce and Fetch: return the request to the fast path, which answers unknown partitions with the
 * protocol's errors.  `heard` 0: process it without an answer, and close the connection. */
kl_status kl_server_again(kl_server *server, uint64_t id, int32_t heard);
/* As kl_server_answer.  In addition the same request, if it is the next one of the connection,
 * gets the same answer without Python, and so on; until kl_repeat_end, or until the server's mark
 * is another one than `mark`.  Only heartbeats of KIP-848 (KL_API_CONSUMER_GROUP_HEARTBEAT) are
 * repeated.  `out`: for the next three calls; NULL: it is answered, and not repeated. */
typedef struct kl_repeat kl_repeat;
kl_status kl_server_answer_repeatedly(kl_server *server, uint64_t id,
                                      const kl_refusal *answer, uint64_t mark,
                                      kl_repeat **out);
/* Pass the next request to Python.  An answer that is being sent is from before. */
void kl_repeat_end(kl_repeat *repeat);
/* For how long, by the server's clock, the same request has not come; -1: it never came.  While
 * the server is not freed. */
int64_t kl_repeat_silence_ms(kl_repeat *repeat);
/* It ends, too. */
void kl_repeat_free(kl_repeat *repeat);
/* The mark of what is repeated now; and a new one: all that is repeated ends. */
uint64_t kl_server_repeat_mark(kl_server *server);
void kl_server_end_repeats(kl_server *server);
/* The body was read: its memory no longer counts, and can be reused even if the answer takes long.
 * Does not end the request. */
kl_status kl_server_read(kl_server *server, uint64_t id);
/* Close its connection. */
kl_status kl_server_drop(kl_server *server, uint64_t id);
/* out[i]: 0 if connections[i] is closed, 1 if it is open, 2 if it is open and its peer sends no
 * more; the numbers are in ascending order. */
kl_status kl_server_connected(kl_server *server, const uint64_t *connections, size_t count,
                              uint8_t *out);
/* How many connections were closed, and peers stopped sending, since the start.  Once it was
 * counted, kl_server_connected shows it. */
kl_status kl_server_departures(kl_server *server, int64_t *out);
/* From the next one on, pass all requests of this API to Python, or stop doing so (on: 0).
 * KL_E_ARGUMENT: no API has this key. */
kl_status kl_server_intercept(kl_server *server, int32_t api_key, int32_t on);
/* On return the network threads are paused: connections stay open, nothing is read or sent; or let
 * them continue (on: 0), as does stopping.  KL_E_CLOSED; KL_E_ARGUMENT: not started. */
kl_status kl_server_pause(kl_server *server, int32_t on);

enum { KL_API_KEYS = 100 }; /* requests are counted by key below it, others as the last */

typedef struct {
    int64_t connections; /* now */
    int64_t accepted;    /* since the start, as are the next ones */
    int64_t refused_per_ip;
    int64_t held_per_ip;   /* an address exceeded its rate */
    int64_t accept_pauses; /* without descriptors or memory, 100 ms each */
    int64_t closed_idle;
    int64_t closed_half_frame;
    int64_t closed_garbage; /* invalid lengths or headers */
    /* too late or too many before they authenticated, or not authenticated again */
    int64_t closed_unidentified;
    int64_t bytes_in;
    int64_t bytes_out;
    int64_t requests[100]; /* by API key */
    int64_t fast;          /* requests answered without Python, */
    int64_t repeated;      /* and those of them by kl_server_answer_repeatedly */
    int64_t queued;        /* now */
    int64_t queue_full;    /* times that a connection waited for the queue */
    int64_t parked;        /* now */
    int64_t pinned;        /* now, slices of files kept open by answers */
    int64_t cold;          /* pieces of files that had to be read from disk */
    int64_t allocations;   /* of buffers and requests: constant after warm-up */
    int64_t buffer_bytes;  /* now, of frames and responses, in use and free */
    int64_t handshakes;    /* TLS, complete */
    int64_t handshakes_failed;
    int64_t network_threads; /* now, including the control listener's and ending ones */
    int64_t waiting[100];    /* parked requests by API key, now */
    int64_t listening[64];   /* connections of each listener, now */
    int64_t throttled;       /* answers after which a connection was muted, */
    int64_t throttled_ms;    /* and for how long, together */
    /* Time without a request, and all time up to the last one: of network threads, and of threads
     * in kl_server_take. */
    int64_t network_idle_ns;
    int64_t network_ran_ns;
    int64_t taking_idle_ns;
    int64_t taking_ran_ns;
} kl_server_stats;

/* The counters since the start. */
void kl_server_get_stats(kl_server *server, kl_server_stats *out);

/* ---- what is counted -------------------------------------------------------------------- */

/* Phases of a request.  QUEUE: it waits for a thread; LOCAL: one works on it; REMOTE: it waits for
 * the disk, replicas, new records or other requests; RESPONSE: its answer waits to be sent; SEND.
 * TOTAL: all of them. */
enum {
    KL_PHASE_QUEUE = 0,
    KL_PHASE_LOCAL = 1,
    KL_PHASE_REMOTE = 2,
    KL_PHASE_RESPONSE = 3,
    KL_PHASE_SEND = 4,
    KL_PHASE_TOTAL = 5,
    KL_PHASES = 6,
    KL_TIME_BUCKETS = 12
};

/* Answered requests of an API by their time in one phase. */
typedef struct {
    int64_t buckets[12]; /* not cumulative */
    int64_t sum_ns;
} kl_phase_times;
/* Of an API (KL_API_KEYS - 1: all others) since the start; `out` has KL_PHASES places.
 * KL_E_ARGUMENT: no such key. */
kl_status kl_server_get_times(kl_server *server, int32_t api_key, kl_phase_times *out);
/* The rounds of syncs of all logs of this process since its start, by their time. */
void kl_log_get_sync_times(kl_phase_times *out);
/* The upper bound of a bucket, inclusive; -1: it has none, or does not exist. */
int64_t kl_server_time_bound_us(int32_t bucket);

/* Produce and Fetch, by their API keys. */
enum { KL_FAST_APIS = 2, KL_ERROR_CODES = 256 };
/* How many partitions, or whole requests, were answered with each error code by C since the start:
 * the code + 1 is the place in `out`, which has KL_ERROR_CODES; the last one is that of all
 * others.  KL_E_ARGUMENT: neither Produce nor Fetch. */
kl_status kl_server_get_errors(kl_server *server, int32_t api_key, int64_t *out);

/* A request whose answer was sent, or that has none. */
typedef struct {
    int64_t spent_ns[6]; /* by KL_PHASE_* */
    int64_t own_ns; /* TOTAL, without the time that a Fetch, JoinGroup, ... asked to wait */
    int64_t lost;   /* further ones since the previous one that are not reported */
    int32_t listener;
    int32_t principal;
    int32_t correlation_id;
    int32_t throttle_ms; /* how long its connection is muted */
    int32_t tenure;      /* of the principal */
    int16_t api_key;
    int16_t api_version;
    int32_t client_id_bytes; /* -1: null */
    uint8_t client_id[128];  /* its beginning */
    char peer[64];           /* as in kl_request_info */
} kl_finished;
/* Report requests whose own_ns is at least this, from the next one received on; INT64_MAX, the
 * initial value: none. */
void kl_server_report_finished(kl_server *server, int64_t least_ns);
/* The next one.  KL_E_TIMEOUT: none came; KL_E_CLOSED: the server was stopped. */
kl_status kl_server_take_finished(kl_server *server, int32_t timeout_ms, kl_finished *out);

/* What is counted of each partition; REPLICATED_OUT: bytes to followers, which BYTES_OUT and
 * FETCHED lack; PRODUCED: appends, also those of this process; FETCHED: partitions in answers. */
enum {
    KL_TRAFFIC_BYTES_IN = 0,
    KL_TRAFFIC_MESSAGES_IN = 1,
    KL_TRAFFIC_BYTES_OUT = 2,
    KL_TRAFFIC_REPLICATED_OUT = 3,
    KL_TRAFFIC_PRODUCED = 4,
    KL_TRAFFIC_PRODUCE_FAILED = 5,
    KL_TRAFFIC_FETCHED = 6,
    KL_TRAFFIC_FETCH_FAILED = 7,
    KL_TRAFFIC = 8
};
typedef struct {
    int64_t counts[8]; /* by KL_TRAFFIC_* */
    char name[256];    /* UTF-8 */
} kl_topic_traffic;
/* The sums of each topic's partitions, in no order: *count topics, of which at most `room` are
 * written; and of all topics together, also deleted ones: `all`, with KL_TRAFFIC places. */
void kl_server_get_traffic(kl_server *server, kl_topic_traffic *out, size_t room,
                           size_t *count, int64_t *all);

/* ---- rights -------------------------------------------------------------------------- */

/* Principals are the caller's numbers from 0 on. */
enum {
    KL_ANONYMOUS = 0,
    KL_PROCESS = 1, /* connections of this process: those of the listener KL_INSIDE */
    KL_PRINCIPALS_MAX = 65536,
    KL_UNIDENTIFIED = -1,     /* has not authenticated */
    KL_UNIDENTIFIED_RAW = -2, /* and its next frames are tokens without a header */
    KL_REAUTHENTICATES = -3   /* has not authenticated again, after it had */
};
enum { KL_INSIDE = 2147483647 };
enum { KL_HEADER_TOKEN = -2 };
/* Rights needed by Produce, a consumer's Fetch and a follower's Fetch. */
enum { KL_MAY_WRITE = 1, KL_MAY_READ = 2, KL_MAY_REPLICATE = 4 };

typedef struct {
    int32_t rights;      /* KL_MAY_*, on all resources, whatever the ACLs are */
    int32_t throttle_ms; /* reported in its answers */
} kl_permit;

/* Applies from the next request on.  A principal that was never set has no rights: its partitions
 * are answered with TOPIC_AUTHORIZATION_FAILED.  KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_permit(kl_server *server, int32_t principal,
                               const kl_permit *permit);

/* Principals from `first` up to `end` that no connection has, nor will have by a
 * kl_server_set_principal; returns their number.  `out` has room. */
int32_t kl_server_unheld(kl_server *server, int32_t first, int32_t end, int32_t *out);

/* Let a principal that no connection has stand for another client: reports about it (kl_finished,
 * kl_denial) have the next tenure, which is returned, from 1 on.  `principal` is in range. */
int32_t kl_server_next_tenure(kl_server *server, int32_t principal);

/* What ACLs that apply to a principal allow and deny. */
enum {
    KL_RULE_WRITE = 1,
    KL_RULE_READ = 2,
    KL_RULE_NAMED = 4, /* some ACL names the resource, for whatever principal */
    KL_RULE_NO_WRITE = 8,
    KL_RULE_NO_READ = 16
};

/* The rules about resources of a type, by their names in UTF-8, which are sorted by their bytes and
 * all different. */
typedef struct {
    const uint8_t *names; /* one after the other */
    const int32_t *name_bytes;
    const uint8_t
        *bits; /* KL_RULE_*: two of each name, for it alone, and for it as a prefix */
    int32_t count;
    int32_t everywhere; /* KL_RULE_* for all names */
} kl_rules;

enum { KL_RULES_TOPICS = 0, KL_RULES_IDS = 1, KL_RULES_KINDS = 2 }; /* transactional ids */

typedef struct {
    int32_t rights;  /* KL_MAY_* on all resources: of super users, and KL_MAY_REPLICATE */
    int32_t unnamed; /* 1: a resource that no ACL names is allowed */
    kl_rules own[2]; /* by KL_RULES_* */
} kl_judgement;

/* The rules that apply to all principals, from the next kl_server_set_rules on; the rules of all
 * principals are outdated: their requests are passed to Python until they are set again.  Those of
 * kl_server_set_permit stay.  On return no request uses the rules from before.  `common`: by
 * KL_RULES_*.  KL_E_ARGUMENT, KL_E_NO_MEMORY: then they are outdated nevertheless. */
kl_status kl_server_outdate_rules(kl_server *server, const kl_rules *common);
/* A principal's rights from the next request on, by the current common rules and its own.
 * KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_rules(kl_server *server, int32_t principal,
                              const kl_judgement *judgement);

typedef struct {
    int64_t produce_requests; /* since the start, as are the next ones */
    int64_t produce_bytes;    /* of requests */
    int64_t fetch_requests;   /* of consumers and followers */
    int64_t fetch_bytes;      /* of records */
    int64_t denied;           /* partitions */
} kl_usage;

/* A principal's use of Produce and Fetch.  KL_E_NOT_FOUND: it was never set. */
kl_status kl_server_get_usage(kl_server *server, int32_t principal, kl_usage *out);

/* Partitions or a transactional id that Produce or Fetch denied. */
typedef struct {
    int32_t principal;
    int32_t right; /* KL_MAY_*; of KL_MAY_REPLICATE, the resource is the cluster */
    int32_t kind;  /* of the resource: KL_RULES_* */
    int32_t name_bytes;
    uint8_t name[256]; /* its beginning; UTF-8 by the protocol, unchecked */
    int64_t tenure;    /* of the principal */
    int64_t lost;      /* further denials since the previous one that are not reported */
} kl_denial;
/* The next denial; one that is repeated before it is taken is reported once.  KL_E_TIMEOUT: none
 * came; KL_E_CLOSED: the server was stopped. */
kl_status kl_server_take_denial(kl_server *server, int32_t timeout_ms, kl_denial *out);

/* ---- quotas of clients ------------------------------------------------------------------ */

/* Bytes of Produce requests, bytes of fetched records, nanoseconds of threads. */
enum { KL_QUOTA_PRODUCE = 0, KL_QUOTA_FETCH = 1, KL_QUOTA_REQUEST = 2, KL_QUOTAS = 3 };

/* What a client's requests are charged to, by KL_QUOTA_*: buckets; 0: no limit. */
typedef struct {
    uint32_t version; /* of the quotas when they were looked up */
    uint64_t buckets[3];
} kl_client_quotas;

/* The quotas have changed: the next request of each connection is passed to Python with
 * KL_UP_QUOTA.  0: no client has a quota. */
void kl_server_set_quota_version(kl_server *server, uint32_t version);
/* Set the limit per second of the bucket at a place, counted from 0.  `renew` 1: its owner is
 * another one, whose use is 0; references to the previous one are void.  *bucket: the reference.
 * KL_E_ARGUMENT: there are no more places, or the limit is not positive.  KL_E_NO_MEMORY. */
kl_status kl_server_set_bucket(kl_server *server, int32_t place, double limit,
                               int32_t renew, uint64_t *bucket);
/* Charge a bucket; returns how long its client must wait, in ms; a void one: 0. */
int32_t kl_server_charge(kl_server *server, uint64_t bucket, int64_t amount);
/* When it was last charged, by the server's clock; -1: the reference is void. */
int64_t kl_server_bucket_used_ms(kl_server *server, uint64_t bucket);
/* Return a request with KL_UP_QUOTA to the fast path.  KL_E_NOT_FOUND. */
kl_status kl_server_resolve(kl_server *server, uint64_t id, const kl_client_quotas *quotas);
/* When this taken request is answered, mute its connection: read nothing from it for that time.
 * KL_E_NOT_FOUND. */
kl_status kl_server_throttle(kl_server *server, uint64_t id, int32_t ms);

/* ---- partitions of Produce and Fetch ---------------------------------------------------- */

enum {
    KL_TOPIC_LOOK_INSIDE = 1, /* producers' compressed batches go to Python */
    KL_TOPIC_INTERNAL = 2,    /* clients other than the admin client may not write */
    KL_TOPIC_ZSTD = 4,        /* compression.type is zstd: requires Fetch v10 */
    KL_TOPIC_COMPRESS = 8,    /* uncompressed batches go to Python: own codec */
    KL_TOPIC_TIMED = 16       /* compressed batches KL_AHEAD_MS ahead go to Python */
};

enum { KL_AHEAD_MS = 60000 }; /* clients' clocks within this cost nothing */

/* A partition's role on this node. */
typedef struct {
    int32_t leader_epoch;
    int32_t durable;   /* 1: acks=all means on disk (kafkalog.durability=fsync) */
    int32_t follows;   /* 1: another node is the leader: producers may not write */
    int32_t leader_id; /* if `follows`; -1: unknown */
    int32_t min_isr;   /* replicas that acks=all needs in the ISR; 0: not set */
    int32_t throttled; /* 1: out-of-sync replicas are throttled */
    /* 1, for a leader: another node is about to lead.  acks=1 is refused, unless no other replica
     * may be in sync; once the role is set, no such append is in progress. */
    int32_t hands_over;
    int64_t tag; /* the caller's number, returned in kl_caught_up */
} kl_role;

/* Another replica of a partition led by this node. */
typedef struct {
    int32_t id;
    int32_t in_sync; /* 1: in the committed ISR */
    int32_t maximal; /* 1: or about to be added to it */
    int64_t broker_epoch;
} kl_follower;

typedef struct {
    kl_follower who;
    int64_t log_end; /* -1: no fetch yet */
    int64_t log_start;
    int64_t behind_ms; /* since it had all records of the leader; -1: never */
} kl_follower_state;

/* A follower outside the maximal ISR that has all committed records. */
typedef struct {
    int64_t tag;
    int64_t broker_epoch;
    int32_t id;
    int32_t leader_epoch;
} kl_caught_up;

/* Add a topic, or change its id (16 bytes, all zero: none) and flags (KL_TOPIC_*). */
kl_status kl_server_put_topic(kl_server *server, const char *name, const uint8_t *id,
                              int32_t flags);
/* Serve a partition from an open log, or change its role.  The log must stay open until the
 * partition or its topic was removed, or the server freed.  NULL: never written to; it is read as
 * empty, and its Produce requests go to Python until a second call sets its log; a partition with a
 * log keeps it. As leader, its log is first set to the role's epoch, and then accepts only appends
 * of that epoch. KL_E_NOT_FOUND: no such topic.  KL_E_ARGUMENT: it has another log.
 * KL_E_FENCED_LEADER_EPOCH, and others of kl_log_set_leader_epoch: the role is unchanged. */
kl_status kl_server_put_partition(kl_server *server, const char *topic, int32_t partition,
                                  kl_log *log, const kl_role *role);
/* Mark a partition whose log cannot be opened (1), or can be again (0): without a log it is
 * answered with KAFKA_STORAGE_ERROR.  KL_E_NOT_FOUND: no such topic. */
kl_status kl_server_put_offline(kl_server *server, const char *topic, int32_t partition,
                                int32_t offline);
/* On return no call uses the logs; requests that wait for them are being answered.
 * KL_E_NOT_FOUND. */
kl_status kl_server_remove_topic(kl_server *server, const char *name);
kl_status kl_server_remove_partition(kl_server *server, const char *topic,
                                     int32_t partition);
/* Set the followers of a partition led by this node: records are visible once every member of the
 * maximal ISR has them.  No followers: at once.  Followers already known in this leader epoch keep
 * their state.  KL_E_NOT_FOUND, KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_followers(kl_server *server, const char *topic, int32_t partition,
                                  const kl_follower *followers, int32_t count);
/* A change of a partition's role, with all that it needs. */
typedef struct {
    const char *topic;
    kl_log *log;
    int32_t partition;
    int32_t follower_count; /* as leader: number of its followers, */
    int32_t followers_at;   /* and index of the first */
    kl_status status;       /* the result */
    kl_role role;
} kl_role_change;
/* For each: kl_server_put_partition, then kl_server_set_followers if it is led here.  A failure
 * does not affect the others. */
void kl_server_change_roles(kl_server *server, kl_role_change *changes, int32_t count,
                            const kl_follower *followers);
/* Progress of the followers; *count of them, at most `room` copied.  KL_E_NOT_FOUND. */
kl_status kl_server_get_followers(kl_server *server, const char *topic, int32_t partition,
                                  kl_follower_state *out, int32_t room, int32_t *count);
/* The next follower that may join the ISR; reported once, and again after kl_server_set_followers.
 * KL_E_TIMEOUT: none.  KL_E_CLOSED: the server was stopped. */
kl_status kl_server_take_caught_up(kl_server *server, int32_t timeout_ms,
                                   kl_caught_up *out);
/* Limit, in bytes per second, of throttled partitions sent to out-of-sync replicas; in-sync
 * replicas count, but are not delayed.  INT64_MAX: no limit, the initial value. */
void kl_server_set_replication_rate(kl_server *server, int64_t rate);
/* A rate limit over the last `windows` windows, in the caller's time; over less than one window no
 * rate is measured.  From any thread.  KL_E_ARGUMENT, KL_E_NO_MEMORY. */
typedef struct kl_quota kl_quota;
kl_status kl_quota_new(int32_t windows, int64_t window_ms, kl_quota **out);
void kl_quota_free(kl_quota *quota);                   /* NULL is fine */
void kl_quota_set_rate(kl_quota *quota, int64_t rate); /* bytes/s; INT64_MAX: no limit */
void kl_quota_count(kl_quota *quota, int64_t bytes, int64_t now_ms);
int kl_quota_exceeded(kl_quota *quota, int64_t now_ms); /* 1: the rate is exceeded */
/* A partition's role without a server, in the caller's time, for simulations.  One thread; free it
 * before its log is closed.  As the functions of kl_server above, except that a role's `durable`
 * may be 2; see kl_append_options. */
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
/* Append one batch of a producer.  KL_E_NOT_LEADER_OR_FOLLOWER, KL_E_NOT_ENOUGH_REPLICAS, and those
 * of kl_log_append_batches. */
kl_status kl_alone_append(kl_replica *replica, const uint8_t *batches, size_t bytes,
                          int32_t acks, int64_t now_ms, kl_appended *out);
/* 1: all records below `offset`, appended after `cuts` truncations, are committed; 0: not yet; -1:
 * they never will be on this node. */
int kl_alone_kept(kl_replica *replica, int64_t offset, int64_t cuts);
/* Append for Python as the leader: kl_log_append_batches, without waiting.  acks -1: committed when
 * kl_server_wait for out->last_offset + 1 returns.  KL_E_NOT_FOUND: no such partition. */
typedef struct {
    const uint8_t *batches;
    size_t bytes;
    int32_t acks; /* -1, 0, 1 */
    kl_append_options options;
} kl_server_batches;
kl_status kl_server_append(kl_server *server, const char *topic, int32_t partition,
                           const kl_server_batches *what, kl_appended *out);
/* Wait until the high watermark reaches `offset` and, if acks=all means on disk or with `on_disk`
 * (the append said sync_due), all below it is on disk.  KL_E_TIMEOUT: call again.  KL_E_STORAGE:
 * impossible.  KL_E_STALE: it was truncated; with the append's `cuts` this is detected even after
 * the log has grown again; -1: unknown.  KL_E_CLOSED: removed since.  KL_E_NOT_FOUND. */
kl_status kl_server_wait(kl_server *server, const char *topic, int32_t partition,
                         int64_t offset, int64_t cuts, int32_t on_disk, int32_t timeout_ms);
/* Kafka's error code for a status. */
int16_t kl_code_of(kl_status status);
/* The address of a node for clients of a listener. */
typedef struct {
    int32_t node;
    int32_t port;
    int32_t has_rack;
    char host[256];
    char rack[256];
} kl_endpoint;
/* Replace the addresses of all nodes for clients of a listener, used in answers that name a leader.
 * KL_E_ARGUMENT, KL_E_NO_MEMORY. */
kl_status kl_server_set_endpoints(kl_server *server, int32_t listener,
                                  const kl_endpoint *endpoints, int32_t count);

/* A node's rack. */
typedef struct {
    int32_t node;
    char rack[256];
} kl_rack;

/* The live nodes with a rack: a leader sends a consumer in one of these racks to the replica there,
 * if it has the requested records (KIP-392).  None: every consumer stays.  KL_E_ARGUMENT,
 * KL_E_NO_MEMORY. */
kl_status kl_server_set_racks(kl_server *server, const kl_rack *places, int32_t count);

typedef struct {
    int64_t sessions;           /* fetch sessions, now */
    int64_t session_partitions; /* of all sessions, now */
    int64_t sessions_evicted;   /* since the start, as are looks */
    int64_t session_looks; /* partitions of sessions looked at, as they may have changed */
} kl_session_stats;
void kl_server_get_sessions(kl_server *server, kl_session_stats *out);

/* cffi: end */

#endif
