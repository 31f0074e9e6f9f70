/* fetchset.h: the partitions of a Fetch request or session. */
#ifndef KL_FETCHSET_H
#define KL_FETCHSET_H

#include "base/table.h"
#include "replica/watch.h"
#include "topics.h"

/* A topic of a set.  Its name is in the request's frame or, if `owned`, stored after this. */
typedef struct {
    uint32_t uses; /* items */
    bool by_id;
    bool owned;
    uint8_t id[KL_TOPIC_ID_BYTES];
    kl_span name;
} kl_fetch_topic;

/* A partition: its request, its last answer, and the results of a run. */
typedef struct {
    kl_fetch_topic *topic;
    size_t place; /* among the set's items */
    kl_link due;  /* see kl_fetch_set.due */
    int64_t offset;
    int32_t partition;
    int32_t leader_epoch;       /* the client's; -1: any */
    int32_t last_fetched_epoch; /* -1: not reported */
    int32_t max_bytes;
    int64_t follower_start; /* a follower's log start; -1: not reported */

    int64_t told_high_watermark; /* in the session's last answer; -1: none */
    int64_t told_log_start;

    kl_replica *replica; /* retained by the item; NULL: not in the table */
    int32_t flags;       /* KL_TOPIC_* */
    bool topic_known;
    bool offline; /* its log could not be opened */
    bool denied;  /* the principal may not read it */
    bool answered;
    bool cold; /* see kl_fetch.cold_count */
    int16_t code;
    int32_t diverging_epoch; /* if diverging_end >= 0 */
    int64_t diverging_end;   /* -1: does not diverge */
    int32_t seen_epoch;      /* the leader's, at the read */
    int64_t bound;           /* upper bound of the read */
    int64_t high_watermark;
    int64_t last_stable;
    int64_t log_start;
    int32_t read_from;  /* a replica nearer to the consumer; -1: none */
    kl_slice slice;     /* until moved to the response */
    size_t slice_bytes; /* of records, in the slice or copied */
    size_t copied_at;   /* in kl_fetch.copied, */
    bool copied;        /* if true */
    size_t aborted_at;  /* in kl_fetch.aborted */
    size_t aborted_count;
    kl_watcher watcher;
} kl_fetch_item;

typedef struct {
    kl_fetch_topic **topics; /* a request's, for reuse */
    size_t topic_count;
    size_t topic_capacity;
    kl_fetch_item **items; /* unordered after removals; items have their own memory */
    size_t count;
    size_t capacity;
    kl_table index; /* a session's: by topic and partition */
    bool keeps_topics;
    kl_watch watch;
    /* The items to read, in the order of the answer.  A request: all.  A session: new, changed and
     * requested ones; they stay due until read with nothing left to read or report, then they are
     * watched. */
    kl_link due;
} kl_fetch_set;

void kl_fetch_set_init(kl_fetch_set *set); /* zeroed by the caller */
/* Add an item for `partition`; the caller sets the other fields.  Valid until the next add.  NULL:
 * no memory. */
kl_fetch_item *kl_fetch_set_add(kl_fetch_set *set, kl_fetch_topic *topic,
                                int32_t partition);
/* A topic for a request's set; does not copy the name. */
kl_fetch_topic *kl_fetch_set_topic(kl_fetch_set *set, const kl_topic_key *key);
/* Merge duplicate partitions of a request: the first position, the last values.  False: no
 * memory. */
bool kl_fetch_set_fold(kl_fetch_set *set);
void kl_fetch_set_clear(kl_fetch_set *set); /* a request's; keeps the memory */
void kl_fetch_set_trim(kl_fetch_set *set);  /* and frees it */
void kl_fetch_set_free(kl_fetch_set *set);  /* for good */
/* Drop all replicas and watches. */
void kl_fetch_set_let_go(kl_fetch_set *set);
/* Set the item's replica, taking the reference; NULL: none. */
void kl_fetch_item_take(kl_fetch_item *item, kl_replica *replica);
/* Make it due. */
void kl_fetch_set_due(kl_fetch_set *set, kl_fetch_item *item);
/* The due items in order: the first, and the one after `item`; NULL: none. */
kl_fetch_item *kl_fetch_set_first(const kl_fetch_set *set);
kl_fetch_item *kl_fetch_set_behind(const kl_fetch_set *set, const kl_fetch_item *item);
/* Make due what the watch reports. */
void kl_fetch_set_hear(kl_fetch_set *set);
/* Watch the due items; `all` false: only those with nothing to read or report. */
void kl_fetch_set_watch(kl_fetch_set *set, int32_t to, bool all);

/* ---- a session's ------------------------------------------------------------------------- */

/* Merge `asked` into `set`: new partitions, and new values of known ones.  False: no memory, or a
 * name longer than any topic's; `set` is valid but may lack some. */
bool kl_fetch_set_merge(kl_fetch_set *set, const kl_fetch_set *asked);
/* Remove a partition, if present. */
void kl_fetch_set_forget(kl_fetch_set *set, const kl_topic_key *key, int32_t partition);
/* Move items answered with records to the end, so that all get a turn. */
void kl_fetch_set_rotate(kl_fetch_set *set);
/* Make all items due. */
void kl_fetch_set_all_due(kl_fetch_set *set);

#endif
