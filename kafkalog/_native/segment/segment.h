/* segment.h: one segment of a log: a `.log` file, its indexes, and its state.
 *
 * The holder of a reference may use `file`, and a sealed segment's size.  The segment's lock guards
 * the indexes and times, and is held while they are loaded, as only threads that need them wait.
 * The log's lock, taken first, guards the rest.  An append changes the active segment's indexes
 * under both locks, as does a rebuild of a sealed segment's aborted transactions. */
#ifndef KL_SEGMENT_H
#define KL_SEGMENT_H

#include "aborts.h"
#include "guard.h"
#include "index.h"
#include "sidecar.h"
#include "statepage.h"
#include "batch/walk.h"

enum {
    KL_CHUNK_LOOKUP_BYTES = 8 << 10, /* a lookup reads about one index interval */
    KL_CHUNK_RECOVER_BYTES = 1 << 20
};

KL_STATIC_ASSERT((int)KL_CHUNK_LOOKUP_BYTES >= (int)KL_BATCH_HEADER_BYTES,
                 "a chunk has room for a header");

#define KL_UNKNOWN INT64_MIN /* a time not read from disk yet */

typedef struct kl_segment {
    _Atomic int refs;
    int64_t base_offset; /* set at creation, never changed */
    kl_file *file;       /* set at creation, never changed */
    int64_t size;        /* valid bytes; of the active segment see kl_look */
    int64_t reserved;    /* blocks are allocated up to here */
    pthread_mutex_t lock;
    kl_index offsets;
    kl_index times;
    kl_aborts aborts;
    kl_sums sums;              /* for the side-car, until the seal */
    bool aborts_checked;       /* the side-car confirms an empty list */
    _Atomic(kl_guard *) guard; /* of a sealed segment; NULL until first used */

    int64_t max_timestamp;        /* -1: no timestamps; KL_UNKNOWN: not loaded */
    int64_t max_timestamp_offset; /* last offset of the batch that has it */
    int64_t first_timestamp; /* maxTimestamp of the first batch; KL_UNKNOWN, -1 as above */
    int64_t created_ms;
    int64_t jitter_ms; /* subtracted from segment.ms */
    int64_t bytes_since_entry;
    bool unshown;           /* may have entries that the state page lacks */
    int64_t covered;        /* a reader's active segment: indexed up to here, */
    bool own_entries;       /* not only by the writer's page */
    bool has_gaps;          /* recovery found missing offsets: compacted */
    int64_t owed_end;       /* end of a tail to be kept and truncated; 0: none */
    bool torn;              /* bytes of a failed append follow `size` */
    bool stale_aborts;      /* `.txnindex` has one entry more than `aborts` */
    bool unsynced;          /* derived files are not synced: kl_segment_sync_derived */
    _Atomic int32_t slices; /* of its file in use: kl_segment_shorten */
} kl_segment;

#define KL_LOG_SUFFIX ".log"
#define KL_INDEX_SUFFIX ".index"
#define KL_TIME_SUFFIX ".timeindex"
#define KL_TXN_SUFFIX ".txnindex"
#define KL_SNAPSHOT_SUFFIX ".snapshot"
#define KL_DELETED_SUFFIX ".deleted"
#define KL_CLEANED_SUFFIX ".cleaned"
#define KL_SWAP_SUFFIX ".swap"
#define KL_PARTITION_METADATA_NAME "partition.metadata"

/* Open an existing file `name`; the segment's size is the file's. */
kl_status kl_segment_open(const char *dir_path, const char *name, int64_t base_offset,
                          bool writable, kl_segment **out);
/* True if the list contains the segment's file with this suffix. */
bool kl_segment_is_listed(const kl_names *names, int64_t base_offset, const char *suffix);
/* True if `name` is an index or side-car whose `.log` is not in the list. */
bool kl_segment_is_orphan(const kl_names *names, const char *name, int64_t *base_offset);
/* The offset after the last batch of the file `name`, or `base`. */
kl_status kl_segment_file_end(kl_dir *dir, const char *name, int64_t base, int64_t *end);
/* Create an empty segment; removes leftovers with its names. */
kl_status kl_segment_create(kl_dir *dir, int64_t base_offset, kl_segment **out);
/* Remove derived files of an earlier segment with this base offset. */
kl_status kl_segment_clear(kl_dir *dir, int64_t base_offset);
/* Remove a created segment that is not used after all. */
kl_status kl_segment_unmake(kl_dir *dir, int64_t base_offset);
/* Create an empty segment under a name that an open removes, until kl_segment_place. */
kl_status kl_segment_create_aside(kl_dir *dir, int64_t base_offset, kl_segment **out);
/* A segment without a file, for a reader of a log that was never written. */
kl_status kl_segment_absent(const char *dir_path, int64_t base_offset, kl_segment **out);
kl_segment *kl_segment_retain(kl_segment *segment);
void kl_segment_drop(kl_segment *segment);

/* Reserve memory for kl_segment_note of `count` batches. */
kl_status kl_segment_reserve_notes(kl_segment *segment, size_t count);
/* Record a batch at `pos`, in an append, recovery or rebuild: sparse index entries as in Kafka, the
 * largest timestamp.  The indexes must be in memory. */
kl_status kl_segment_note(kl_segment *segment, const kl_batch *batch, int64_t pos,
                          int64_t index_interval_bytes);
/* Put the active segment's new entries on the page, visible with the next publish. */
void kl_segment_share(kl_segment *segment, kl_statepage *page);
bool kl_segment_has_indexes(kl_segment *segment);
/* The same without waiting: also false while another thread uses or loads them. */
bool kl_segment_indexes_at_hand(kl_segment *segment);
void kl_segment_unload_indexes(kl_segment *segment); /* unless a thread uses them now */
void kl_segment_count_entries(kl_segment *segment, size_t *offsets, size_t *times);

/* The source of a segment's indexes. */
typedef struct {
    kl_dir *dir;
    int64_t next_offset; /* above all entries */
    int64_t end_pos;     /* end of the valid bytes */
    int64_t index_interval_bytes;
    bool active; /* in memory, to be extended */
    bool writable;
} kl_index_source;
/* Load both indexes.  Rebuilds a missing or invalid one from the batches (never truncates the log);
 * *rebuilt counts them. */
kl_status kl_segment_load_indexes(kl_segment *segment, const kl_index_source *source,
                                  int32_t *rebuilt);
/* A reader's active segment: true if its indexes cover almost all below `end_pos`. */
bool kl_segment_is_covered(kl_segment *segment, int64_t end_pos);
/* Take entries from the writer's page; with `if_loaded` only if there are some already. */
kl_status kl_segment_follow(kl_segment *segment, kl_statepage *page,
                            const kl_page_values *values, bool if_loaded);
/* Add missing entries from the batches, and keep them. */
kl_status kl_segment_cover(kl_segment *segment, const kl_index_source *source);
/* Rebuild both from the batches, even if they are valid. */
kl_status kl_segment_renew_indexes(kl_segment *segment, const kl_index_source *source);
/* Set max_timestamp and first_timestamp from the indexes, if loaded, and the file. */
kl_status kl_segment_load_times(kl_segment *segment);
void kl_segment_forget_times(kl_segment *segment); /* after it has grown */
/* Begin to find the times in a walk over its batches from `pos` to the end, each passed to
 * see_times.  False: the walk cannot find them, or they are known. */
bool kl_segment_begin_times(kl_segment *segment, int64_t pos);
void kl_segment_see_times(kl_segment *segment, const kl_batch *batch);
/* The times of a sealed segment; false: not loaded. */
bool kl_segment_get_times(kl_segment *segment, int64_t *largest, int64_t *first);
/* The same for a segment to which another process appends, up to `end_pos`; keeps nothing. */
kl_status kl_segment_find_times(kl_segment *segment, int64_t end_pos, int64_t *largest,
                                int64_t *first);
/* The read size for a walk over headers: if index entries are farther apart than a lookup's chunk,
 * batches are large and headers are read one by one; otherwise `otherwise`. */
size_t kl_segment_header_chunk(kl_segment *segment, int64_t end_pos, size_t otherwise);
/* The position of the first batch below `end_pos` whose last offset is >= `offset`, or end_pos. */
kl_status kl_segment_locate(kl_segment *segment, int64_t end_pos, int64_t offset,
                            int64_t *pos);
/* The position of the last index entry within [pos, limit] and below the offset `bound`, or
 * `pos`. */
int64_t kl_segment_guess_end(kl_segment *segment, int64_t pos, int64_t limit,
                             int64_t bound);
/* Write the last time entry, save the indexes, free blocks beyond the end.  The caller marks the
 * segment `unsynced`. */
kl_status kl_segment_seal(kl_segment *segment, kl_dir *dir);
/* Sync its derived files: indexes, side-car, and the producer snapshot at its end.  A flush
 * includes them, because recovery checks only unflushed segments. */
kl_status kl_segment_sync_derived(const kl_segment *segment, const char *dir_path,
                                  int64_t next_offset, bool *tried);
/* Rename all its files to .deleted.  After a failure, call it again. */
kl_status kl_segment_delete(kl_segment *segment, kl_dir *dir);
/* Truncate the `.log` at `pos`.  In place, if no slice is in use: shorten makes another segment
 * over the same file, trim cuts the file later.  By a copy, so that maps and slices of the old one
 * stay valid: written and synced under another name, then placed. */
kl_status kl_segment_shorten(const kl_segment *segment, int64_t pos, kl_segment **out);
kl_status kl_segment_trim(kl_segment *segment);
kl_status kl_segment_copy(kl_segment *segment, kl_dir *dir, int64_t pos, kl_segment **out);
/* Give a segment created aside its name. */
kl_status kl_segment_place(kl_segment *segment, kl_dir *dir);

#endif
