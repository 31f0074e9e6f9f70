/* log.h: the log of one partition, internally.  The contract is in kafkalog.h.
 *
 * Invariants (docs/format.md): I1 log_start <= last_stable <= high_watermark <= log_end,
 * I2 batches of a segment contiguous in position and increasing in offset, I3 the last
 * epoch starts at or below log_end, I4 bytes below flushed_offset are on disk. */
#ifndef KL_LOG_H
#define KL_LOG_H

#include "base/fault.h"
#include "base/sync.h"
#include "segment/epochs.h"
#include "segment/producers.h"
#include "batch/record.h"
#include "segment/statepage.h"
#include "segment/version.h"

enum { KL_READ_HINTS = 4 }; /* readers that go on where they stopped */

/* What a log passes to its listener when one of these moved. */
typedef struct {
    int64_t log_start;
    int64_t last_stable;
    int64_t high_watermark;
    int64_t log_end;
    int64_t flushed;
    int64_t appended_bytes; /* since it was opened: never decreases */
    bool ended;             /* closed, or offline for good */
} kl_log_ends;
/* Called with the log's lock held: it must not call the log, and must be quick. */
typedef void (*kl_log_listener)(void *owner, const kl_log_ends *ends);

/* Where a sequential reader stopped, so that its next read needs no lookup. */
typedef struct {
    int64_t offset;
    int64_t segment_base;
    int64_t pos;
} kl_read_hint;

struct kl_log {
    char *path; /* set at open, never changed, as is what follows */
    bool writable;
    bool end_is_high_watermark;
    int process_generation; /* of the process that opened it: others are refused */
    bool clean;             /* as given to kl_log_open; a reader's reloads use it, too */
    bool loaded;            /* read once: a reader's reload may find an append under way */
    _Atomic size_t loaded_indexes; /* of sealed segments, about */
    int64_t recovery_point;
    int64_t reached; /* it ended there or above when it was last on disk; -1: unknown */
    int64_t first_start;
    int64_t first_high_watermark;
    bool keeps_point;    /* point.c */
    int64_t derived_sum; /* of a clean log, else -1: kl_log_sum_derived */

    pthread_mutex_t lock;   /* guards what follows; held across append, roll, truncate */
    pthread_cond_t changed; /* an end moved, a sync ended, the log closed */
    int waiters;
    kl_marker *marker; /* the caller's; NULL: none, or removed */
    bool touched;      /* changed since it was opened: only then a close writes */
    bool closed;
    bool changing; /* segments are taken away or exchanged, in part without the lock */
    bool busy;     /* a writer works on the disk without the lock: other writers wait */
    kl_segment *
        *left; /* out of `version`, oldest first: a deletion failed at their names */
    size_t left_count; /* the next change of segments goes on with them */
    bool cleaner_open; /* a round of compaction is under way (clean.h), */
    bool cleaner_busy; /* and inside of a call: a close waits for its end */
    kl_status offline; /* KL_OK, or KL_E_STORAGE for good, */
    char *offline_why; /* and by which failure; NULL: no memory to say so */
    kl_log_config config;
    kl_version *version; /* its segments; NULL once it was closed */
    int64_t log_start;
    int64_t log_end;
    int64_t high_watermark;
    int64_t show_until; /* what other copies allow to be shown; INT64_MAX: all */
    int64_t last_stable;
    int64_t generation; /* odd while segments are being changed */
    int32_t leader_epoch;
    kl_producers producers;
    bool producers_known; /* a reader with a state page loads them when asked */
    kl_epochs epochs;
    kl_buffer scratch; /* a batch under construction */
    kl_read_hint hints[KL_READ_HINTS];
    unsigned next_hint;
    kl_statepage *page;     /* NULL: none */
    int64_t page_looked_ms; /* a reader: when it looked last whether its writer lives */
    int64_t seen_folder_ns; /* a reader without a page: when the folder changed last, */
    int64_t seen_bytes;     /* and how long the last .log was when it was looked at */
    uint64_t jitter_state;

    kl_sync_job sync; /* flush.c */
    bool sync_wanted;
    bool syncing;       /* a round is under way: a close waits for its end */
    int64_t round_base; /* the active segment's base and size when the last one began */
    int64_t round_size;
    int64_t round_ns;        /* what the last one took */
    int32_t flushers;        /* callers that wait in a flush, */
    int32_t flushers_wanted; /* and how many are to, before a round begins */
    int64_t counted_rounds;  /* since it was opened, those that counted the flushers */
    pthread_cond_t gathered; /* so many do */
    int64_t flushed;         /* the recovery point, */
    int64_t noted;           /* and what of it a crash leaves; -1: nothing */
    bool noting;             /* it is being written: a cut waits, as for `changing` */
    int64_t failed_rounds;   /* in which no sync was tried: they pass */
    int untried_errno;       /* why the last of them was not; 0: for want of memory */
    bool dir_dirty;          /* names changed since the directory was synced */
    bool texts_dirty; /* so did the epochs, or nobody synced partition.metadata yet */
    bool epoch_owed;  /* there was no room to write the latest epoch down */
    int64_t unflushed_records;

    /* Records that were promised to be on disk before they are shown: the high watermark
     * stays at hold_from until flushed reaches hold_until.  INT64_MAX, -1: none. */
    int64_t hold_from;
    int64_t hold_until;
    int64_t appended_bytes;   /* since it was opened */
    kl_log_listener listener; /* NULL: none */
    void *listener_owner;
};

/* The files of this folder; each calls only those above it:
 *   index, aborts, epochs, producers, statepage; sidecar, guard, segment: parts of a log
 *   state      entering, the list of segments, ends, failures
 *   point      how far it is on disk, noted
 *   flush      group commit
 *   gone       whether records that were on disk are not there
 *   snapshot, recall, derive, recover: what is derived from the bytes, rebuilt from them
 *   append     one batch into the log, rolls
 *   append_batches, truncate: whole requests; what takes records away
 *   load       what is in a folder
 *   follow     a reader follows its writer
 *   read, lookup
 *   open       opening and closing a log */

/* What a call works with after releasing the lock: segments and ends of one moment. */
typedef struct {
    kl_version *version; /* a reference, of kl_log_look */
    int64_t generation;
    int64_t log_start;
    int64_t last_stable;
    int64_t high_watermark;
    int64_t log_end;
    int64_t active_bytes;   /* valid bytes of the last segment, */
    int64_t active_largest; /* its times; KL_UNKNOWN in a reader */
    int64_t active_first;
    int32_t index_interval_bytes;
} kl_look;

static inline bool kl_look_is_sealed(const kl_look *look, size_t index) {
    return index + 1 < look->version->count;
}
static inline int64_t kl_look_bytes(const kl_look *look, size_t index) {
    return kl_look_is_sealed(look, index) ? look->version->segments[index]->size
                                          : look->active_bytes;
}
static inline int64_t kl_look_next_base(const kl_look *look, size_t index) {
    return kl_look_is_sealed(look, index) ? look->version->segments[index + 1]->base_offset
                                          : look->log_end;
}

/* ---- state.c ----------------------------------------------------------------------- */
/* Lock the log for a call: KL_E_FORKED, KL_E_CLOSED (not locked then). */
kl_status kl_log_enter(kl_log *log);
/* The same for a log that is written to here: also KL_E_READ_ONLY, and its final failure. */
kl_status kl_log_enter_writer(kl_log *log);
/* The same for a change: it waits until no other writer is `busy`. */
kl_status kl_log_enter_write(kl_log *log);
/* Locked, and entered for a change: the lock is released until kl_log_end_disk, for calls to the
 * disk.  Readers continue, and other changes wait.  The log may be closed then, but it is not freed
 * before the call is over. */
void kl_log_begin_disk(kl_log *log);
void kl_log_end_disk(kl_log *log);
static inline void kl_log_leave(kl_log *log) { kl_unlock(&log->lock); }
static inline kl_segment *kl_log_active(const kl_log *log) {
    return kl_version_active(log->version);
}
/* Locked: what a call sees, without a reference to the version. */
kl_look kl_log_see(const kl_log *log);
/* Not locked: the same with one; drop it when done.  A reader sees what it saw before. */
kl_status kl_log_peek(kl_log *log, kl_look *out);
void kl_look_drop(kl_look *look);
int64_t kl_log_next_base(const kl_log *log,
                         size_t index); /* of the following, or the end */
/* Recompute high watermark (single copy) and last stable offset, notify waiters and readers. */
void kl_log_publish(kl_log *log);
/* Call `listener` immediately with the current state, and at every move from now on; NULL: call
 * none.  No call is in progress when this returns.  KL_E_CLOSED, KL_E_FORKED. */
kl_status kl_log_listen(kl_log *log, kl_log_listener listener, void *owner);
/* Call the listener, if there is one, with the present state. */
void kl_log_tell(const kl_log *log);
int64_t kl_look_bound(const kl_look *look, int32_t bound);
/* The storage failed so that memory and disk may disagree: offline for good. */
kl_status kl_log_fail_storage(kl_log *log, kl_status status);
/* Locked.  KL_E_STORAGE with `what` it means and the first failure. */
kl_status kl_log_is_offline(const kl_log *log, const char *what);
/* Generation goes odd, readers wait; and even again. */
void kl_log_change_begin(kl_log *log);
void kl_log_change_end(kl_log *log);
/* Enter for a change of segments that releases the lock for the disk: one at a time, and a
 * close waits for its end.  Reads, appends and rolls continue.  Locked, KL_E_* as enter_write. */
kl_status kl_log_reserve(kl_log *log);
/* Locked, when none is under way: the same without a wait. */
void kl_log_claim(kl_log *log);
/* Locked: wait until no such change is under way.  The log may be closed then. */
void kl_log_settle_changes(kl_log *log);
void kl_log_release(kl_log *log); /* locked, and left locked */

/* ---- read.c ------------------------------------------------------------------------ */
/* Whether a writer's slice from `offset` on is found without the disk, as far as indexes go;
 * itself it waits for nothing but the lock. */
bool kl_log_is_at_hand(kl_log *log, int64_t offset);

/* ---- append.c ---------------------------------------------------------------------- */
/* Remove the clean marker before the first change. */
kl_status kl_log_make_dirty(kl_log *log);
kl_status kl_log_roll_locked(kl_log *log, int64_t base_offset);
/* Write the checkpoint of leader epochs, without holding the lock. */
kl_status kl_log_save_epochs(kl_log *log, bool sync);
/* The same after a change, unsynced; where there is no room before the next batch. */
kl_status kl_log_keep_epochs(kl_log *log);
/* Write whole batches at the end of the active segment; undone if it fails. */
kl_status kl_log_write(kl_log *log, const uint8_t *data, size_t bytes);
/* Append one finished batch: roll, write, note, move the end.  `batch` describes `data`
 * with its final offsets. */
kl_status kl_log_append_one_locked(kl_log *log, const kl_batch *batch, const uint8_t *data,
                                   int64_t now_ms);

/* ---- derive.c ---------------------------------------------------------------------- */
/* The indexes of segment `index`, loaded.  KL_E_STALE: look again, the log has rolled. */
kl_status kl_log_prepare(kl_log *log, const kl_look *look, size_t index);
/* What a step over `segment` that failed with `status` at `pos` means: an old format, or
 * damage that looks like one. */
kl_status kl_log_judge_format(kl_segment *segment, int64_t pos, int64_t end_pos,
                              kl_status status);
/* Read a segment back: checks every batch, rebuilds its indexes in memory, notes leader
 * epochs (NULL: none).  *valid_bytes and *end_offset (its base when empty) tell what is good. */
kl_status kl_log_recover_segment(const kl_log *log, kl_segment *segment, kl_epochs *epochs,
                                 int64_t *valid_bytes, int64_t *end_offset);
/* The batches of segment `index` from `pos` on were not checked yet (a reader's tail). */
kl_status kl_log_extend_tail(kl_log *log, kl_segment *segment, int64_t *end_offset);
/* Producer state at the log end: the newest usable snapshot at or below `from` and a
 * replay.  Aborted transactions of segments with base >= rebuild_from are collected again. */
kl_status kl_log_load_producers(kl_log *log, kl_dir *dir, int64_t from,
                                int64_t rebuild_from);
/* The same into a set of the caller's, by any version of the segments; `from` is its end. */
kl_status kl_log_derive_producers(const kl_log *log, const kl_version *version,
                                  kl_producers *into, kl_dir *dir, int64_t from,
                                  int64_t rebuild_from);
/* As kl_log_enter, with segment `index` of the look and its aborted transactions known: a list
 * that a sealed segment has lost is rebuilt.  Call this before using a segment's list. */
kl_status kl_log_enter_aborts(kl_log *log, const kl_look *look, size_t index);
/* Of the last segment, which lists none and for which nothing vouches: what its batches say. */
kl_status kl_log_search_aborts(kl_log *log, kl_dir *dir);
/* Leader epochs from batch headers, when the checkpoint was lost. */
kl_status kl_log_rebuild_epochs(kl_log *log);

/* ---- gone.c ------------------------------------------------------------------------ */
/* Before anything is changed: KL_E_CORRUPT if a log that ends at `end_offset` reached further
 * when it was on disk. */
kl_status kl_log_check_end(const kl_log *log, int64_t end_offset);
/* The same where no `.log` is among the folder's names; and where a log that was closed cleanly
 * has what belongs to a segment, but not the segment. */
kl_status kl_log_check_names(const kl_log *log, kl_dir *dir, const kl_names *names);

/* ---- recover.c --------------------------------------------------------------------- */
/* Check all segments from the one that holds `recovery_point` on; cut the log (KL_WRITE: on
 * disk, too, and the cut bytes are kept) at the first bad batch.  If that is below `known`, up to
 * which all was on disk: KL_E_CORRUPT, and nothing is cut. */
kl_status kl_log_recover_tail(kl_log *log, kl_dir *dir, int64_t recovery_point,
                              int64_t known, kl_recovery *recovery);

/* Locked, before the active segment changes: cut now what recovery had no space to back up.
 * KL_E_NO_SPACE: still no space, and nothing is changed. */
kl_status kl_log_settle_tail(kl_log *log);

/* ---- snapshot.c -------------------------------------------------------------------- */
kl_status kl_log_write_snapshot(const kl_producers *producers, kl_dir *dir, int64_t offset,
                                bool sync);
/* Load the newest usable one at or below `from` and at or above `first`; *offset is its place,
 * or `first` with no producers.  Unusable ones are removed (KL_WRITE). */
kl_status kl_log_load_snapshot(const kl_log *log, kl_producers *into, kl_dir *dir,
                               int64_t first, int64_t from, int64_t *offset);
/* Remove snapshots above `above_offset`, and those that match no segment of `version` (NULL:
 * there is none) and are not the newest.  A log that is being written to makes some behind
 * the version's active segment: `until_offset`, those from there on stay. */
kl_status kl_log_trim_snapshots(const kl_version *version, kl_dir *dir,
                                int64_t above_offset, int64_t until_offset);

/* ---- recall.c ---------------------------------------------------------------------- */
/* Give the producers of a snapshot, just loaded, what it leaves out: the batches before the last
 * one of each, of the same epoch and without a gap, as the end of the log below `at` shows them.
 * Of producers that it does not show, or when it cannot be read, the last one is known. */
void kl_log_recall(const kl_log *log, const kl_version *version, kl_dir *dir, int64_t at,
                   kl_producers *producers);

/* ---- load.c ------------------------------------------------------------------------ */
/* The segments of the folder, of which nothing is read yet; `with_swap`: as compaction will
 * have left them, KL_E_STALE when one goes away in the process; `known`: a version of the same
 * generation, or NULL, whose sealed segments are taken instead.  *indexless: the lowest base
 * offset of a segment without an offset index. */
kl_status kl_log_load_segments(kl_log *log, kl_dir *dir, bool with_swap,
                               const kl_version *known, int64_t *indexless);
/* Give each segment's aborted transactions their entries from disk. */
kl_status kl_log_load_aborts(kl_log *log, kl_dir *dir, int64_t *corrupt_from);
/* The segments, the end, and with it everything that is derived from batches. */
kl_status kl_log_load(kl_log *log, kl_dir *dir, kl_recovery *recovery);
/* One number for what a clean open believes without reading batches: the epochs above its
 * lower 32 bits, the active segment's indexes and aborted transactions in them. */
int64_t kl_log_sum_derived(const kl_log *log);
/* After it, set the ends that no other source gives. */
void kl_log_settle(kl_log *log);

/* ---- follow.c ---------------------------------------------------------------------- */
/* kl_log_peek, of a reader after a look at what its writer did. */
kl_status kl_log_look(kl_log *log, kl_look *out);

/* ---- truncate.c -------------------------------------------------------------------- */
/* Locked, entered for a change, and no change of segments is under way: empty, beginning at
 * `offset`. */
kl_status kl_log_restart_at(kl_log *log, int64_t offset);
/* Retry taking away the names that a deletion left; no other thread changes segments. */
kl_status kl_log_delete_left(kl_log *log, kl_dir *dir);
/* As kl_log_purge, in a folder whose segments no other thread changes. */
kl_status kl_log_unlink_deleted(kl_dir *dir, int64_t before_ms, size_t *files);

/* ---- point.c ----------------------------------------------------------------------- */
/* Take the note of a log that was not closed into its recovery point. */
kl_status kl_log_load_point(kl_log *log);
/* Locked, but not while it writes: note `flushed` if it is in a later segment. */
void kl_log_note_point(kl_log *log);
/* A note above the end, as a repair leaves it, would vouch for what comes there: durably none. */
kl_status kl_log_check_point(kl_log *log, kl_dir *dir);
/* Locked, in a change: durably remove the note before the bytes that it vouches for are cut. */
kl_status kl_log_forget_point(kl_log *log, kl_dir *dir);

/* ---- flush.c ----------------------------------------------------------------------- */
void kl_log_sync_run(void *owner);
kl_status kl_log_request_sync(kl_log *log); /* locked */
kl_status kl_log_flush_all(kl_log *log);    /* not locked: wait until all is on disk */

#endif
