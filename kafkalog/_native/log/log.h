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

enum { KL_READ_HINTS = 4 }; /* sequential readers remembered */

/* Passed to a log's listener when any of these changes. */
typedef struct {
    int64_t log_start;
    int64_t last_stable;
    int64_t high_watermark;
    int64_t log_end;
    int64_t flushed;
    int64_t appended_bytes; /* since the open; never decreases */
    bool ended;             /* closed, or offline for good */
} kl_log_ends;
/* Called with the log's lock held: it must be quick and must not call the log. */
typedef void (*kl_log_listener)(void *owner, const kl_log_ends *ends);

/* The position after a sequential read, which saves the next read a lookup. */
typedef struct {
    int64_t offset;
    int64_t segment_base;
    int64_t pos;
} kl_read_hint;

struct kl_log {
    char *path; /* set at open and immutable, down to derived_sum */
    bool writable;
    bool end_is_high_watermark;
    int process_generation; /* of the opening process: others get KL_E_FORKED */
    bool clean;             /* as passed to kl_log_open; used by a reader's reloads, too */
    bool loaded;            /* once: a reader's reload may meet a concurrent append */
    _Atomic size_t loaded_indexes; /* of sealed segments, approximately */
    int64_t recovery_point;
    int64_t reached; /* the log end on disk was at least this; -1: unknown */
    int64_t first_start;
    int64_t first_high_watermark;
    bool keeps_point;    /* point.c */
    int64_t derived_sum; /* kl_log_sum_derived of a clean log; otherwise -1 */

    pthread_mutex_t lock;   /* guards all below; held across append, roll, truncate */
    pthread_cond_t changed; /* an end moved, a sync ended, or the log was closed */
    int waiters;
    kl_marker *marker; /* owned by the caller; NULL: none, or removed */
    bool touched;      /* since the open: only then does a close write */
    bool closed;
    bool changing;     /* segments are being deleted or swapped, partly without the lock */
    bool busy;         /* a writer uses the disk without the lock; other writers wait */
    kl_segment **left; /* removed from `version`, files not deleted yet, oldest first */
    size_t left_count; /* the next change of segments retries */
    bool cleaner_open; /* a compaction round is in progress (clean.h), */
    bool cleaner_busy; /* and is inside a call: a close waits for it */
    kl_status offline; /* KL_OK, or KL_E_STORAGE: final */
    char *offline_why; /* the failure; NULL: no memory for the text */
    kl_log_config config;
    kl_version *version; /* the segments; NULL after a close */
    int64_t log_start;
    int64_t log_end;
    int64_t high_watermark;
    int64_t show_until; /* the replicas' limit of the high watermark; INT64_MAX: none */
    int64_t last_stable;
    int64_t generation; /* odd while segments are changing */
    int32_t leader_epoch;
    kl_producers producers;
    bool producers_known; /* false in a reader with a page, which loads them on demand */
    kl_epochs epochs;
    kl_buffer scratch; /* buffer for a batch under construction */
    kl_read_hint hints[KL_READ_HINTS];
    unsigned next_hint;
    kl_statepage *page;     /* NULL: none */
    int64_t page_looked_ms; /* a reader: time of its last check that the writer lives */
    int64_t seen_folder_ns; /* a reader without a page: the folder's modification time, */
    int64_t seen_bytes;     /* the last .log's size, */
    uint32_t seen_names;    /* and a sum of the names, at the last look; */
    bool seen_tells;        /* the time shows every later change, so they were not summed */
    uint64_t jitter_state;

    kl_sync_job sync; /* flush.c */
    bool sync_wanted;
    bool syncing;       /* a round is in progress; a close waits for it */
    int64_t round_base; /* active segment's base and size at the last round's start */
    int64_t round_size;
    int64_t round_ns;        /* duration of the last round */
    int32_t flushers;        /* callers waiting in a flush */
    int32_t flushers_wanted; /* how many a round waits for before it begins */
    int64_t counted_rounds;  /* rounds since the open that counted the flushers */
    pthread_cond_t gathered; /* flushers reached flushers_wanted */
    int64_t flushed;         /* the recovery point */
    int64_t noted;           /* the recovery point on file (point.c); -1: none */
    bool noting;             /* it is being written; a truncation waits for it */
    int64_t failed_rounds;   /* rounds that failed before any sync: retriable */
    int untried_errno;       /* errno of the last of them; 0: no memory */
    bool dir_dirty;          /* names changed since the last sync of the directory */
    struct timespec purged;  /* its mtime when it last had no .deleted file */
    bool texts_dirty;        /* epochs changed, or partition.metadata was never synced */
    bool epoch_owed;         /* a full disk refused the latest epoch */
    int64_t unflushed_records;

    /* Records that must be on disk before they are visible: the high watermark stays at hold_from
     * until flushed reaches hold_until.  INT64_MAX, -1: none. */
    int64_t hold_from;
    int64_t hold_until;
    int64_t appended_bytes;   /* since the open */
    kl_log_listener listener; /* NULL: none */
    void *listener_owner;
};

/* Files of this folder; each calls only those above it:
 *   state      entering a log, its segments, ends, failures
 *   point      records the flushed offset in a file
 *   flush      group commit
 *   gone       detects missing records
 *   snapshot, recall, derive, recover: rebuild derived state from batches
 *   append     one batch, rolls
 *   append_batches, follower, truncate: whole requests; removal of records
 *   load       the files of a folder
 *   follow     a reader follows its writer
 *   read, lookup
 *   open       opening and closing a log */

/* A consistent view of the segments and ends, usable without the lock. */
typedef struct {
    kl_version *version; /* a reference, if from kl_log_peek or kl_log_look */
    int64_t generation;
    int64_t log_start;
    int64_t last_stable;
    int64_t high_watermark;
    int64_t log_end;
    int64_t active_bytes;   /* valid bytes of the active segment */
    int64_t active_largest; /* its timestamps; KL_UNKNOWN in a reader */
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
/* Lock the log for a call: KL_E_FORKED, KL_E_CLOSED (then not locked). */
kl_status kl_log_enter(kl_log *log);
/* The same for a writable log: also KL_E_READ_ONLY, KL_E_STORAGE if it is offline. */
kl_status kl_log_enter_writer(kl_log *log);
/* The same for a change: waits until no other writer is `busy`. */
kl_status kl_log_enter_write(kl_log *log);
/* Locked, and entered for a change: release the lock until kl_log_end_disk, for calls to the disk.
 * Readers continue; other changes wait.  The log may be closed in between, but is not freed before
 * the call ends. */
void kl_log_begin_disk(kl_log *log);
void kl_log_end_disk(kl_log *log);
static inline void kl_log_leave(kl_log *log) { kl_unlock(&log->lock); }
static inline kl_segment *kl_log_active(const kl_log *log) {
    return kl_version_active(log->version);
}
/* Locked: the current view, without a reference to the version. */
kl_look kl_log_see(const kl_log *log);
/* Not locked: the same with a reference; drop it when done.  Does not refresh a reader. */
kl_status kl_log_peek(kl_log *log, kl_look *out);
void kl_look_drop(kl_look *look);
int64_t kl_log_next_base(const kl_log *log,
                         size_t index); /* of the segment after `index`, or the log end */
/* Recompute the high watermark (single replica) and last stable offset; notify waiters and
 * readers. */
void kl_log_publish(kl_log *log);
/* Call `listener` with the current state, now and after every change; NULL: remove it.  No call is
 * in progress when this returns.  KL_E_CLOSED, KL_E_FORKED. */
kl_status kl_log_listen(kl_log *log, kl_log_listener listener, void *owner);
/* Call the listener, if any, with the current state. */
void kl_log_tell(const kl_log *log);
int64_t kl_look_bound(const kl_look *look, int32_t bound);
/* A storage failure after which memory and disk may differ: take the log offline for good. */
kl_status kl_log_fail_storage(kl_log *log, kl_status status);
/* Locked.  KL_E_STORAGE with `what` it means and the first failure. */
kl_status kl_log_is_offline(const kl_log *log, const char *what);
/* Begin makes the generation odd, so that readers wait; end makes it even. */
void kl_log_change_begin(kl_log *log);
void kl_log_change_end(kl_log *log);
/* Enter for a change of segments that releases the lock for the disk: one at a time, and a close
 * waits for it.  Reads, appends and rolls continue.  Locked; errors as kl_log_enter_write. */
kl_status kl_log_reserve(kl_log *log);
/* Locked, with no such change in progress: the same without waiting. */
void kl_log_claim(kl_log *log);
/* Locked: wait until no such change is in progress.  The log may be closed afterwards. */
void kl_log_settle_changes(kl_log *log);
void kl_log_release(kl_log *log); /* locked before and after */

/* True if a directory's modification time tells of every later change of its names: it is set, and
 * not of the last `tick_ms`, whose changes may all have one time.  One of the far future, which a
 * clock that was set back or a copy leaves, tells, too: the next change has another time. */
bool kl_log_folder_tells(const struct stat *folder, int64_t tick_ms);

/* ---- read.c ------------------------------------------------------------------------ */
/* True if a writer's read from `offset` needs no index from disk.  Waits only for the lock. */
bool kl_log_is_at_hand(kl_log *log, int64_t offset);

/* ---- append.c ---------------------------------------------------------------------- */
/* Remove the clean marker before the first change. */
kl_status kl_log_make_dirty(kl_log *log);
kl_status kl_log_roll_locked(kl_log *log, int64_t base_offset);
/* Write the leader epoch checkpoint, without holding the lock. */
kl_status kl_log_save_epochs(kl_log *log, bool sync);
/* The same after a change, unsynced; if the disk is full, the next append writes it. */
kl_status kl_log_keep_epochs(kl_log *log);
/* Write whole batches at the end of the active segment; undone on failure. */
kl_status kl_log_write(kl_log *log, const uint8_t *data, size_t bytes);
/* Append one finished batch: roll, write, update the state.  `batch` describes `data` with its
 * final offsets. */
kl_status kl_log_append_one_locked(kl_log *log, const kl_batch *batch, const uint8_t *data,
                                   int64_t now_ms);

/* ---- derive.c ---------------------------------------------------------------------- */
/* Load the indexes of segment `index`.  KL_E_STALE: the log has rolled; look again. */
kl_status kl_log_prepare(kl_log *log, const kl_look *look, size_t index);
/* After a walk of `segment` failed with `status` at `pos`: the final status, which tells an old
 * format from damage that looks like one. */
kl_status kl_log_judge_format(kl_segment *segment, int64_t pos, int64_t end_pos,
                              kl_status status);
/* Check every batch of a segment; rebuild its indexes in memory and add leader epochs to `epochs`
 * (unless NULL).  *valid_bytes and *end_offset (the base if empty) are the end of the good part. */
kl_status kl_log_recover_segment(const kl_log *log, kl_segment *segment, kl_epochs *epochs,
                                 int64_t *valid_bytes, int64_t *end_offset);
/* Check the unchecked tail of a reader's segment, after its known size. */
kl_status kl_log_extend_tail(kl_log *log, kl_segment *segment, int64_t *end_offset);
/* Producer state at the log end: the newest usable snapshot at or below `from`, and a replay.
 * Rebuilds the aborted transactions of segments with base >= rebuild_from. */
kl_status kl_log_load_producers(kl_log *log, kl_dir *dir, int64_t from,
                                int64_t rebuild_from);
/* The same into the caller's set, for any version of the segments; `from` is its end. */
kl_status kl_log_derive_producers(const kl_log *log, const kl_version *version,
                                  kl_producers *into, kl_dir *dir, int64_t from,
                                  int64_t rebuild_from);
/* As kl_log_enter, with segment `index` and its aborted transactions loaded: rebuilds a lost list
 * of a sealed segment.  Call this before using a segment's list. */
kl_status kl_log_enter_aborts(kl_log *log, const kl_look *look, size_t index);
/* Rebuild the last segment's aborted transactions from its batches if its list is empty and
 * unverified. */
kl_status kl_log_search_aborts(kl_log *log, kl_dir *dir);
/* Rebuild leader epochs from batch headers after the checkpoint was lost. */
kl_status kl_log_rebuild_epochs(kl_log *log);

/* ---- gone.c ------------------------------------------------------------------------ */
/* Before any change: KL_E_CORRUPT if `end_offset` is below the log end that was last on disk. */
kl_status kl_log_check_end(const kl_log *log, int64_t end_offset);
/* The same if the folder has no `.log`; also if a cleanly closed log has a segment's derived files
 * without its `.log`. */
kl_status kl_log_check_names(const kl_log *log, kl_dir *dir, const kl_names *names);

/* ---- recover.c --------------------------------------------------------------------- */
/* Check all segments from the one that contains `recovery_point` on; truncate the log at the first
 * bad batch (KL_WRITE: on disk, too, keeping a copy of the bytes).  If that is below `known`, up to
 * which all was on disk: KL_E_CORRUPT, and nothing is truncated. */
kl_status kl_log_recover_tail(kl_log *log, kl_dir *dir, int64_t recovery_point,
                              int64_t known, kl_recovery *recovery);

/* Locked, before the active segment changes: do a truncation that recovery postponed for lack of
 * space for the backup.  KL_E_NO_SPACE: still none; nothing changed. */
kl_status kl_log_settle_tail(kl_log *log);

/* ---- snapshot.c -------------------------------------------------------------------- */
kl_status kl_log_write_snapshot(const kl_producers *producers, kl_dir *dir, int64_t offset,
                                bool sync);
/* Load the newest usable snapshot in [first, from]; *offset is its offset, or `first` without
 * producers.  Removes unusable ones (KL_WRITE). */
kl_status kl_log_load_snapshot(const kl_log *log, kl_producers *into, kl_dir *dir,
                               int64_t first, int64_t from, int64_t *offset);
/* Remove snapshots above `above_offset`, and those that match no segment of `version` (NULL: there
 * is none) and are not the newest.  Keep those from `until_offset` on: concurrent rolls write
 * them. */
kl_status kl_log_trim_snapshots(const kl_version *version, kl_dir *dir,
                                int64_t above_offset, int64_t until_offset);

/* ---- recall.c ---------------------------------------------------------------------- */
/* Add to the producers of a snapshot, just loaded, the recent batches that it omits: those before
 * each producer's last one, of the same epoch and without a gap, from the end of the log below
 * `at`.  If they cannot be found or read, only the last batch is known. */
void kl_log_recall(const kl_log *log, const kl_version *version, kl_dir *dir, int64_t at,
                   kl_producers *producers);

/* ---- load.c ------------------------------------------------------------------------ */
/* List the segments, without reading them.  `with_swap`: as after a pending swap, and KL_E_STALE if
 * one disappears.  `known`: NULL, or a version of the same generation whose sealed segments are
 * reused.  *indexless: the lowest base offset of a segment without an offset index. */
kl_status kl_log_load_segments(kl_log *log, kl_dir *dir, bool with_swap,
                               const kl_version *known, int64_t *indexless);
/* Load each segment's aborted transactions. */
kl_status kl_log_load_aborts(kl_log *log, kl_dir *dir, int64_t *corrupt_from);
/* Load the segments, the log end and all derived state. */
kl_status kl_log_load(kl_log *log, kl_dir *dir, kl_recovery *recovery);
/* A checksum of the derived state that a clean open trusts: CRC of the epochs in the upper 32 bits,
 * of the active segment's indexes and aborted transactions in the lower. */
int64_t kl_log_sum_derived(const kl_log *log);
/* Then set the remaining ends. */
void kl_log_settle(kl_log *log);

/* ---- follow.c ---------------------------------------------------------------------- */
/* kl_log_peek; a reader first follows its writer. */
kl_status kl_log_look(kl_log *log, kl_look *out);

/* ---- truncate.c -------------------------------------------------------------------- */
/* Locked, entered for a change, with no change of segments in progress: empty the log and begin at
 * `offset`. */
kl_status kl_log_restart_at(kl_log *log, int64_t offset);
/* Retry the deletions that failed; no other thread may change segments. */
kl_status kl_log_delete_left(kl_log *log, kl_dir *dir);
/* As kl_log_purge, for a folder whose segments no other thread changes.  *left: how many stay. */
kl_status kl_log_unlink_deleted(kl_dir *dir, int64_t before_ms, size_t *files,
                                size_t *left);

/* ---- point.c ----------------------------------------------------------------------- */
/* Use the recorded offset of a log that was not closed as its recovery point. */
kl_status kl_log_load_point(kl_log *log);
/* Locked, but not while writing: record `flushed` if it is in a later segment. */
void kl_log_note_point(kl_log *log);
/* Durably remove a recorded offset above the log end, as a repair leaves it: it would vouch for
 * future records. */
kl_status kl_log_check_point(kl_log *log, kl_dir *dir);
/* Locked, in a change: durably remove the recorded offset before bytes below it are truncated. */
kl_status kl_log_forget_point(kl_log *log, kl_dir *dir);

/* ---- flush.c ----------------------------------------------------------------------- */
void kl_log_sync_run(void *owner);
kl_status kl_log_request_sync(kl_log *log); /* locked */
kl_status kl_log_flush_all(kl_log *log);    /* not locked: wait until all is on disk */

#endif
