/* fetch.c: a Fetch request: parse, session, read, wait for fetch.min.bytes, answer.  Kafka's
 * ReplicaManager.fetchMessages, DelayedFetch. */
#include "fetch.h"

enum {
    FREE_MAX = 64,          /* free objects per network thread */
    KEEP_ITEMS = 1024,      /* limits of a kept object: items, */
    KEEP_BYTES = 128 << 10, /* copied records */
    /* Fetches without a session keep their frame and partitions while they wait: this limits a
     * network thread's total; those up to the smaller size do not count. */
    PARKED_BYTES_SMALL = 64 << 10,
    PARKED_BYTES_MAX = 64 << 20,
    LOOK_AT_ALL_MS = 1000, /* in a follower's session */
    FOLD_MIN = 64          /* from this number on, look for duplicate partitions */
};
KL_STATIC_ASSERT(PARKED_BYTES_SMALL < PARKED_BYTES_MAX, "one that counts can wait");

/* ---- memory: one kl_fetch per request, kept by its network thread -------------------------- */

static kl_fetch *take(kl_request *request) {
    kl_lane *lane = kl_lane_of(request);
    kl_fetch *fetch = lane->fetches;
    KL_ASSERT((fetch != NULL) == (lane->fetch_count > 0));
    if (fetch) {
        lane->fetches = fetch->next;
        lane->fetch_count--;
    } else {
        fetch = kl_alloc(sizeof *fetch);
        if (fetch == NULL) return NULL;
        kl_fetch_set_init(&fetch->asked);
    }
    KL_ASSERT(fetch->load == NULL && fetch->frame_bytes == 0 && fetch->asked.count == 0);
    fetch->next = NULL;
    fetch->data = kl_data_of(request);
    fetch->set = &fetch->asked;
    fetch->session = NULL;
    fetch->aborted_count = 0;
    fetch->forgotten_topics = 0;
    fetch->code = CODE_NONE;
    fetch->bytes = fetch->denied = 0;
    fetch->incremental = fetch->throttled = fetch->withheld = false;
    fetch->charge = (kl_charge){0};
    fetch->loaded = false;
    return fetch;
}

static void free_one(kl_fetch *fetch) {
    kl_fetch_set_free(&fetch->asked);
    kl_release(fetch->aborted);
    kl_buffer_free(&fetch->copied);
    kl_release(fetch);
}

/* Partitions not loaded by now are left out: the time is up, or the client is gone. */
static void leave_load(kl_fetch *fetch) {
    if (fetch->load) fetch->loaded = kl_cold_leave(&fetch->data->cold, fetch->load);
    fetch->load = NULL;
}

/* ---- the frames of waiting fetches --------------------------------------------------------- */

/* A fetch with a session can release the frame and the request's items.  Others keep theirs within
 * the thread's limit; false: this one cannot wait. */
static bool keep_frame(kl_request *request, kl_fetch *fetch) {
    kl_lane *lane = kl_lane_of(request);
    size_t bytes = request->bytes + fetch->asked.count * sizeof(kl_fetch_item);
    if (fetch->frame_bytes > 0 || bytes <= PARKED_BYTES_SMALL) return true;
    if (fetch->set != &fetch->asked) {
        kl_fetch_set_clear(&fetch->asked); /* its names are in the frame */
        if (fetch->asked.capacity > KEEP_ITEMS) kl_fetch_set_trim(&fetch->asked);
        kl_request_release_frame(request);
        return true;
    }
    if (bytes > PARKED_BYTES_MAX - KL_MIN(lane->parked_bytes, PARKED_BYTES_MAX))
        return false;
    fetch->frame_bytes = bytes;
    lane->parked_bytes += bytes;
    return true;
}

static void let_frame_go(kl_request *request, kl_fetch *fetch) {
    KL_ASSERT(kl_lane_of(request)->parked_bytes >= fetch->frame_bytes);
    kl_lane_of(request)->parked_bytes -= fetch->frame_bytes;
    fetch->frame_bytes = 0;
}

/* Remove it from all lists and keep its memory.  `keep_session` false: the client will not learn
 * the session's state. */
static void put_back(kl_request *request, kl_fetch *fetch, bool keep_session) {
    kl_data *data = kl_data_of(request);
    kl_watch_stop(&fetch->set->watch);
    leave_load(fetch);
    let_frame_go(request, fetch);
    kl_fetch_drop_slices(fetch);
    if (fetch->session)
        kl_sessions_give(data->sessions, fetch->session, keep_session, kl_now_of(request));
    kl_fetch_set_let_go(&fetch->asked);
    kl_fetch_set_clear(&fetch->asked);
    request->parked = NULL;
    if (fetch->copied.capacity > KEEP_BYTES) kl_buffer_free(&fetch->copied);
    kl_lane *lane = kl_lane_of(request);
    if (lane->fetch_count >= FREE_MAX || fetch->asked.capacity > KEEP_ITEMS ||
        fetch->aborted_capacity > KEEP_ITEMS) {
        free_one(fetch);
        return;
    }
    fetch->next = lane->fetches;
    lane->fetches = fetch;
    lane->fetch_count++;
}

void kl_fetches_free(kl_fetch *list) {
    for (kl_fetch *next; list; list = next) {
        next = list->next;
        free_one(list);
    }
}

/* ---- before the first read ---------------------------------------------------------------- */

/* Find the due partitions in the table; false: some are missing. */
static bool look_up(const kl_judge *judge, kl_fetch *fetch, kl_fetch_set *set) {
    kl_topics *topics = fetch->data->topics;
    const kl_topic *topic = NULL;
    const kl_fetch_topic *last = NULL;
    bool all = true, denied = false;
    fetch->denied = 0;
    kl_topics_lock(topics);
    for (kl_fetch_item *item = kl_fetch_set_first(set); item;
         item = kl_fetch_set_behind(set, item)) {
        if (item->topic != last) {
            last = item->topic;
            const kl_topic_key key = {last->name, last->by_id ? last->id : NULL};
            topic = kl_topics_find(topics, &key);
            denied = (topic || key.id == NULL) &&
                     !kl_judge_allows(judge, KL_RULES_TOPICS,
                                      topic ? kl_topic_name(topic) : key.name);
        }
        item->denied = denied;
        fetch->denied += denied;
        item->topic_known = topic != NULL;
        item->flags = topic ? kl_topic_flags(topic) : 0;
        bool reads = topic && !denied;
        kl_fetch_item_take(item,
                           reads ? kl_topic_replica(topic, item->partition, true) : NULL);
        item->offline = topic && kl_topic_offline(topic, item->partition);
        all &= item->replica || denied;
    }
    kl_topics_unlock(topics);
    return all;
}

/* Find the session of an incremental fetch.  Changes nothing yet. */
static void find_session(kl_request *request, kl_fetch *fetch) {
    bool full =
        fetch->session_epoch == KL_SESSION_FULL || fetch->session_epoch == KL_SESSION_FINAL;
    if (full) return;
    kl_sessions *sessions = kl_data_of(request)->sessions;
    fetch->code =
        kl_sessions_take(sessions, fetch->session_id, fetch->session_epoch,
                         request->api_version >= KL_FETCH_TOPIC_IDS, &fetch->session);
    fetch->incremental = fetch->code == CODE_NONE;
}

/* Merge the request into the session, and read the session's partitions. */
static void enter_incremental(kl_request *request, kl_fetch *fetch) {
    kl_fetch_set *set = &fetch->session->set;
    const kl_session_asks asks = {request->api_version, fetch->replica_id, fetch->to};
    int64_t now_ms = kl_now_of(request);
    bool anew = !kl_session_asks_as_before(fetch->session, &asks);
    /* A follower's fetch of an idle partition counts as well; otherwise it would seem to lag at the
     * next append. */
    if (anew ||
        (fetch->replica_id >= 0 && now_ms - fetch->session->all_ms >= LOOK_AT_ALL_MS)) {
        kl_fetch_set_all_due(set);
        fetch->session->all_ms = now_ms;
    }
    bool whole = kl_fetch_set_merge(set, &fetch->asked);
    kl_fetch_forget(fetch);
    kl_fetch_set_hear(set);
    kl_sessions *sessions = kl_data_of(request)->sessions;
    bool room = kl_sessions_count(sessions, fetch->session, kl_now_of(request));
    if (!whole || !room) {
        fetch->code = CODE_FETCH_SESSION_ID_NOT_FOUND; /* full: begin a new one */
    } else if (set->count == 0) {
        /* No partition is left: the session ends, and the request is read without one. */
        kl_sessions_give(sessions, fetch->session, false, kl_now_of(request));
        fetch->session = NULL;
        fetch->incremental = false;
    } else {
        kl_session_advance(fetch->session);
        fetch->set = set;
    }
}

/* A full fetch ends the session that it names, and may begin another. */
static void enter_full(kl_request *request, kl_fetch *fetch) {
    kl_sessions *sessions = kl_data_of(request)->sessions;
    if (fetch->session_id) kl_sessions_close(sessions, fetch->session_id);
    if (fetch->session_epoch == KL_SESSION_FINAL) return;
    fetch->session =
        kl_sessions_make(sessions, &fetch->asked,
                         request->api_version >= KL_FETCH_TOPIC_IDS, kl_now_of(request));
    if (fetch->session == NULL) return;
    fetch->session->asks =
        (kl_session_asks){request->api_version, fetch->replica_id, fetch->to};
    fetch->set = &fetch->session->set;
}

/* ---- waiting ------------------------------------------------------------------------------ */

static void wake(void *owner) { kl_request_wake(owner); }

void kl_fetch_cancel(kl_request *request) { put_back(request, request->parked, false); }

/* Wait for `missing` more bytes; false: they may be available already. */
static bool park(kl_request *request, kl_fetch *fetch, int64_t missing) {
    kl_fetch_set_watch(fetch->set, fetch->to, true);
    if (!kl_watch_wait(&fetch->set->watch, wake, request, missing)) return false;
    request->parked = fetch;
    request->yields = fetch->replica_id >= 0; /* it may fetch others */
    return true;
}

/* Have a cold reader load the indexes; false: impossible. */
static bool park_cold(kl_request *request, kl_fetch *fetch) {
    kl_load *load = kl_load_new(fetch->cold_count);
    if (load == NULL) return false;
    for (kl_fetch_item *item = kl_fetch_set_first(fetch->set); item;
         item = kl_fetch_set_behind(fetch->set, item)) {
        if (!item->cold) continue;
        size_t bytes = (size_t)KL_MAX(KL_MIN(item->max_bytes, fetch->max_bytes), 0);
        load->items[load->count++] =
            (kl_load_item){.replica = kl_replica_retain(item->replica),
                           .offset = item->offset,
                           .bytes = bytes,
                           .to = fetch->to};
    }
    KL_ASSERT(load->count == fetch->cold_count); /* the load has space for all */
    KL_ASSERT(fetch->load == NULL && request->parked == NULL);
    fetch->load = load;
    request->parked = fetch;
    request->deadline_ms = INT64_MAX; /* its deadline is for new records */
    if (kl_cold_load(&fetch->data->cold, load, request)) return true;
    fetch->load = NULL;
    request->parked = NULL;
    return false;
}

/* ---- runs --------------------------------------------------------------------------------- */

static kl_verdict finish(kl_request *request, kl_fetch *fetch) {
    KL_ASSERT(fetch->load == NULL); /* no other thread uses it */
    kl_fetch_count(request, fetch);
    bool put = kl_fetch_answer(request, fetch);
    bool keep =
        put && fetch->code == CODE_NONE && fetch->set->count > 0 && kl_fetch_goes_on(fetch);
    if (fetch->session && keep && !fetch->withheld) { /* otherwise all stay due */
        kl_fetch_set_rotate(fetch->set);
        kl_fetch_set_watch(fetch->set, fetch->to, false);
    }
    put_back(request, fetch, keep);
    return put ? KL_DONE : KL_DROP;
}

/* Read, then answer or wait. */
static kl_verdict read_or_park(kl_request *request, kl_fetch *fetch) {
    const kl_server_config *config = kl_data_of(request)->config;
    int64_t min_bytes = KL_MIN(fetch->min_bytes, fetch->max_bytes);
    min_bytes = KL_MIN(min_bytes, config->fetch_bytes_max);
    for (;;) {
        int64_t bytes;
        bool at_once = kl_fetch_read(request, fetch, &bytes);
        if (fetch->cold_count > 0 && !request->expired) {
            kl_fetch_drop_slices(fetch);
            fetch->loaded = true;
            if (keep_frame(request, fetch) && park_cold(request, fetch)) return KL_PARKED;
            continue;
        }
        if (at_once || bytes >= min_bytes || request->expired || fetch->max_wait_ms <= 0 ||
            !keep_frame(request, fetch))
            return finish(request, fetch);
        kl_fetch_drop_slices(fetch);
        fetch->loaded = false;
        if (park(request, fetch, min_bytes - bytes)) {
            request->deadline_ms = fetch->until_ms;
            return KL_PARKED;
        }
    }
}

/* The partitions to read; KL_DONE: they are known. */
static kl_verdict enter(kl_request *request, kl_fetch *fetch, kl_judge *judge) {
    if (!look_up(judge, fetch, &fetch->asked) && !request->no_up) {
        put_back(request, fetch, true);
        return KL_UP;
    }
    if (fetch->incremental) enter_incremental(request, fetch);
    else enter_full(request, fetch);
    if (fetch->code) return KL_DONE;
    if (fetch->set == &fetch->asked && fetch->asked.count >= FOLD_MIN &&
        !kl_fetch_set_fold(&fetch->asked)) {
        put_back(request, fetch, false);
        return KL_DROP;
    }
    if (fetch->set != &fetch->asked) {
        kl_fetch_set_let_go(&fetch->asked); /* looked up with the session's others */
        judge->quiet = judge->quiet && !fetch->incremental; /* Python does not know them */
        look_up(judge, fetch, fetch->set);
    }
    return KL_DONE;
}

static kl_verdict run_first(kl_request *request, kl_fetch *fetch) {
    if (!kl_fetch_parse(request, fetch)) {
        put_back(request, fetch, false);
        return KL_DROP;
    }
    if (fetch->replica_id < 0) {
        const kl_buckets *buckets = kl_data_of(request)->buckets;
        if (!kl_charge_find(buckets, request, &fetch->charge)) {
            put_back(request, fetch, true);
            return KL_UP;
        }
        /* More than that could never be sent without a wait. */
        int64_t most = kl_buckets_most(buckets, fetch->charge.buckets[KL_QUOTA_FETCH]);
        fetch->max_bytes = (int32_t)KL_MIN((int64_t)fetch->max_bytes, most);
    }
    find_session(request, fetch);
    if (fetch->code) return finish(request, fetch);
    kl_judge judge;
    if (!kl_judge_begin(fetch->data->admission, request->principal,
                        fetch->replica_id >= 0 ? KL_MAY_REPLICATE : KL_MAY_READ, &judge)) {
        put_back(request, fetch, true);
        request->no_up = false;
        return KL_UP;
    }
    /* Of followers Python checks nothing. */
    judge.quiet = request->no_up && fetch->replica_id < 0;
    judge.tenure = request->tenure;
    kl_verdict verdict = enter(request, fetch, &judge);
    kl_judge_end(&judge);
    if (verdict != KL_DONE) return verdict;
    if (fetch->code) return finish(request, fetch);
    fetch->until_ms = kl_now_of(request) + fetch->max_wait_ms;
    return read_or_park(request, fetch);
}

static kl_verdict run(kl_request *request) {
    kl_fetch *fetch = request->parked;
    request->yields = false;
    if (fetch) {
        kl_charge_begin(&fetch->charge);
        kl_watch_stop(&fetch->set->watch);
        leave_load(fetch);
        return read_or_park(request, fetch);
    }
    if (request->api_version < KL_FETCH_MIN || request->api_version > KL_FETCH_MAX)
        return KL_DROP;
    fetch = take(request);
    return fetch ? run_first(request, fetch) : KL_DROP;
}

kl_verdict kl_fetch_run(kl_request *request) {
    kl_verdict verdict = run(request);
    if (request->parked) kl_charge_pause(&((kl_fetch *)request->parked)->charge);
    return verdict;
}
