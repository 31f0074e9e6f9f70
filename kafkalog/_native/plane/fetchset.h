/* fetchset.h: the partitions that a Fetch asks for: those of one request, or those that a
 * session remembers. */
#ifndef KL_FETCHSET_H
#define KL_FETCHSET_H

#include "base/table.h"
#include "replica/watch.h"
#include "topics.h"

/* A topic of a set.  Its name is in the request's frame or, if `owned`, after it. */
typedef struct {
    uint32_t uses; /* items */
    bool by_id;
    bool owned;
    uint8_t id[KL_TOPIC_ID_BYTES];
    kl_span name;
} kl_fetch_topic;

/* A partition: what is asked for, what was answered last, and a run's findings. */
typedef struct {
    kl_fetch_topic *topic;
    size_t place; /* among the set's items */
    kl_link due;  /* see kl_fetch_set.due */
    int64_t offset;
    int32_t partition;
    int32_t leader_epoch;       /* that the client knows; -1: any */
    int32_t last_fetched_epoch; /* -1: not reported */
    int32_t max_bytes;
    int64_t follower_start; /* a follower's log start; -1: not reported */

    int64_t told_high_watermark; /* in the session's last answer; -1: none */
    int64_t told_log_start;

    kl_replica *replica; /* retained as long as the item has it; NULL: not in the table */
    int32_t flags;       /* KL_TOPIC_* */
    bool topic_known;
    bool offline; /* its log could not be opened */
    bool denied;  /* its principal may not read it */
    bool answered;
    bool cold; /* see kl_fetch.cold_count */
    int16_t code;
    int32_t diverging_epoch; /* of diverging_end >= 0 */
    int64_t diverging_end;   /* -1: it does not diverge */
    int32_t seen_epoch;      /* of the leader, when it was read, */
    int64_t bound;           /* below this */
    int64_t high_watermark;
    int64_t last_stable;
    int64_t log_start;
    int32_t read_from;  /* a copy that is nearer to the consumer; -1: none */
    kl_slice slice;     /* until the response takes it */
    size_t slice_bytes; /* of records, in the slice or copied */
    size_t copied_at;   /* in the fetch's memory; */
    bool copied;        /* of those that are there */
    size_t aborted_at;  /* in the fetch's list */
    size_t aborted_count;
    kl_watcher watcher;
} kl_fetch_item;

typedef struct {
    kl_fetch_topic **topics; /* of a request's set alone: to be used again */
    size_t topic_count;
    size_t topic_capacity;
    kl_fetch_item **items; /* in no order, once some went; an item's memory stays its own */
    size_t count;
    size_t capacity;
    kl_table index; /* a session's: by topic and partition */
    bool keeps_topics;
    kl_watch watch;
    /* The items to look at, in the order of the answer: all of a request's set.  Of a session's,
     * those that are new, were asked for or had news; they stay due until they were looked at, have
     * nothing to read, and their client knows everything about them: then they are watched. */
    kl_link due;
} kl_fetch_set;

void kl_fetch_set_init(kl_fetch_set *set); /* zeroed before */
/* An item for `partition` of a topic; the other fields are the caller's to fill, and valid
 * until the next add.  NULL: no memory. */
kl_fetch_item *kl_fetch_set_add(kl_fetch_set *set, kl_fetch_topic *topic,
                                int32_t partition);
/* A topic for a request's set: no copy is made of the name. */
kl_fetch_topic *kl_fetch_set_topic(kl_fetch_set *set, const kl_topic_key *key);
/* Each partition of a request once, in the place where it was named first and with what was
 * said last.  False: no memory. */
bool kl_fetch_set_fold(kl_fetch_set *set);
void kl_fetch_set_clear(kl_fetch_set *set); /* of a request: keeps the memory */
void kl_fetch_set_trim(kl_fetch_set *set);  /* and lets it go */
void kl_fetch_set_free(kl_fetch_set *set);  /* for good */
/* No replica is kept, nothing watched. */
void kl_fetch_set_let_go(kl_fetch_set *set);
/* The partition's replica, whose reference it takes; NULL: there is none. */
void kl_fetch_item_take(kl_fetch_item *item, kl_replica *replica);
/* Let it be looked at next time. */
void kl_fetch_set_due(kl_fetch_set *set, kl_fetch_item *item);
/* Those due, in order: the first, and the one behind another; NULL: none. */
kl_fetch_item *kl_fetch_set_first(const kl_fetch_set *set);
kl_fetch_item *kl_fetch_set_behind(const kl_fetch_set *set, const kl_fetch_item *item);
/* What the watch reports becomes due. */
void kl_fetch_set_hear(kl_fetch_set *set);
/* Watch what is due; `all` false: only those of which there is nothing to read or report. */
void kl_fetch_set_watch(kl_fetch_set *set, int32_t to, bool all);

/* ---- a session's ------------------------------------------------------------------------- */

/* Take what `asked` has into `set`: partitions that are new, new numbers of those that are
 * not.  False: no memory, or a name longer than any topic's; `set` is whole but may lack
 * some. */
bool kl_fetch_set_merge(kl_fetch_set *set, const kl_fetch_set *asked);
/* Drop a partition, where it is there. */
void kl_fetch_set_forget(kl_fetch_set *set, const kl_topic_key *key, int32_t partition);
/* Those that were answered with records go to the end, so that each has its turn. */
void kl_fetch_set_rotate(kl_fetch_set *set);
/* Let all be looked at next time. */
void kl_fetch_set_all_due(kl_fetch_set *set);

#endif
