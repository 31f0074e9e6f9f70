/* segment.h: one segment of a log: a `.log` file, its indexes, and its state.
 *
 * The holder of a reference uses `file`, and the size of a sealed one.  The segment's own lock
 * guards the indexes and the times: it is held while they are loaded, as only threads that need
 * them wait. The log's lock, which is taken first, guards the rest.  An append changes the indexes
 * of the active segment under both, as does a rebuild of a sealed one's aborted transactions. */
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

#define KL_UNKNOWN INT64_MIN /* a time that was not read from disk yet */

typedef struct kl_segment {
    _Atomic int refs;
    int64_t base_offset; /* set at creation, never changed */
    kl_file *file;       /* set at creation, never changed */
    int64_t size;        /* valid bytes; of the active one see kl_look */
    int64_t reserved;    /* blocks are allocated up to here */
    pthread_mutex_t lock;
    kl_index offsets;
    kl_index times;
    kl_aborts aborts;
    kl_sums sums;              /* for the side-car, until the segment is sealed */
    bool aborts_checked;       /* that there are none agrees with the side-car */
    _Atomic(kl_guard *) guard; /* of a sealed one: NULL until it is first needed */

    int64_t max_timestamp; /* -1: no timestamps, KL_UNKNOWN: see kl_segment_load_times */
    int64_t max_timestamp_offset; /* last offset of the batch that has it */
    int64_t first_timestamp; /* maxTimestamp of the first batch; KL_UNKNOWN, -1 as above */
    int64_t created_ms;
    int64_t jitter_ms; /* taken off segment.ms */
    int64_t bytes_since_entry;
    bool unshown;           /* it may have entries that the log's page does not show */
    int64_t covered;        /* a reader's active one: its indexes know the batches below, */
    bool own_entries;       /* and not only from the writer's page */
    bool has_gaps;          /* recovery found offsets missing inside: it was compacted */
    int64_t owed_end;       /* up to here lies a tail to be kept and cut; 0: none */
    bool torn;              /* bytes of an append that failed lie behind `size` */
    bool stale_aborts;      /* the `.txnindex` has an entry more than `aborts` */
    bool unsynced;          /* its derived files were written: kl_segment_sync_derived */
    _Atomic int32_t slices; /* of its file that are under way: kl_segment_cut */
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

/* A segment over an existing file called `name`; its size is the file's. */
kl_status kl_segment_open(const char *dir_path, const char *name, int64_t base_offset,
                          bool writable, kl_segment **out);
/* Whether a folder's list has its file of that kind. */
bool kl_segment_is_listed(const kl_names *names, int64_t base_offset, const char *suffix);
/* Whether `name` is an index or a side-car whose `.log` is not in the list. */
bool kl_segment_is_orphan(const kl_names *names, const char *name, int64_t *base_offset);
/* The offset behind the last batch of the file called `name`, or `base`. */
kl_status kl_segment_file_end(kl_dir *dir, const char *name, int64_t base, int64_t *end);
/* A new, empty one.  Leftovers with its names are removed. */
kl_status kl_segment_create(kl_dir *dir, int64_t base_offset, kl_segment **out);
/* Remove files that an earlier segment with this base offset may have left under the names of
 * derived files. */
kl_status kl_segment_clear(kl_dir *dir, int64_t base_offset);
/* Remove one that was created and is not used after all. */
kl_status kl_segment_unmake(kl_dir *dir, int64_t base_offset);
/* A new, empty one under a name that an open removes, until kl_segment_place. */
kl_status kl_segment_create_aside(kl_dir *dir, int64_t base_offset, kl_segment **out);
/* One without a file: what a reader has of a log that was never written to. */
kl_status kl_segment_absent(const char *dir_path, int64_t base_offset, kl_segment **out);
kl_segment *kl_segment_retain(kl_segment *segment);
void kl_segment_drop(kl_segment *segment);

/* Room for what kl_segment_note adds for `count` batches. */
kl_status kl_segment_reserve_notes(kl_segment *segment, size_t count);
/* What an append, a recovery or a rebuild notes of each batch at `pos`: sparse entries as
 * Kafka makes them, largest timestamp.  The indexes must be in memory. */
kl_status kl_segment_note(kl_segment *segment, const kl_batch *batch, int64_t pos,
                          int64_t index_interval_bytes);
/* The active one's new entries are shown with the next publish of the page. */
void kl_segment_share(kl_segment *segment, kl_statepage *page);
bool kl_segment_has_indexes(kl_segment *segment);
/* The same without a wait: false, too, while another thread uses them, perhaps to load them. */
bool kl_segment_indexes_at_hand(kl_segment *segment);
void kl_segment_unload_indexes(kl_segment *segment); /* unless a thread uses them now */
void kl_segment_count_entries(kl_segment *segment, size_t *offsets, size_t *times);

/* What a segment's indexes come from. */
typedef struct {
    kl_dir *dir;
    int64_t next_offset; /* entries are below it */
    int64_t end_pos;     /* of the valid bytes */
    int64_t index_interval_bytes;
    bool active; /* into memory, to be added to */
    bool writable;
} kl_index_source;
/* Load both indexes.  An index that is missing or not sane is rebuilt from the batches (never
 * cutting the log); *rebuilt counts them. */
kl_status kl_segment_load_indexes(kl_segment *segment, const kl_index_source *source,
                                  int32_t *rebuilt);
/* A reader's active segment.  Whether its indexes know all but a little below `end_pos`. */
bool kl_segment_is_covered(kl_segment *segment, int64_t end_pos);
/* They take what the writer's page shows; `if_loaded`: unless there is nothing yet. */
kl_status kl_segment_follow(kl_segment *segment, kl_statepage *page,
                            const kl_page_values *values, bool if_loaded);
/* They get what is missing from the batches, and keep it. */
kl_status kl_segment_cover(kl_segment *segment, const kl_index_source *source);
/* Rebuild both from the batches, whatever lies there. */
kl_status kl_segment_renew_indexes(kl_segment *segment, const kl_index_source *source);
/* max_timestamp and first_timestamp from the indexes, if loaded, and the file. */
kl_status kl_segment_load_times(kl_segment *segment);
void kl_segment_forget_times(kl_segment *segment); /* it has grown */
/* Begin to find them in a walk over its batches from `pos` to the end, each of which is given
 * to see_times.  False: such a walk does not show them, or they are known. */
bool kl_segment_begin_times(kl_segment *segment, int64_t pos);
void kl_segment_see_times(kl_segment *segment, const kl_batch *batch);
/* The times of a sealed one; false: they are not loaded. */
bool kl_segment_get_times(kl_segment *segment, int64_t *largest, int64_t *first);
/* The same of a segment that a writer elsewhere appends to, up to `end_pos`: nothing is kept. */
kl_status kl_segment_find_times(kl_segment *segment, int64_t end_pos, int64_t *largest,
                                int64_t *first);
/* How much to read at once to walk over headers: where index entries lie farther apart than
 * a lookup's chunk, batches are about as large and only headers are read, one by one; else
 * `otherwise`. */
size_t kl_segment_header_chunk(kl_segment *segment, int64_t end_pos, size_t otherwise);
/* The first batch below `end_pos` whose last offset is >= `offset`: its place, or end_pos
 * when none is. */
kl_status kl_segment_locate(kl_segment *segment, int64_t end_pos, int64_t offset,
                            int64_t *pos);
/* The last entry's place within [pos, limit] and below the offset `bound`; `pos`: none. */
int64_t kl_segment_guess_end(kl_segment *segment, int64_t pos, int64_t limit,
                             int64_t bound);
/* Seal: write the last time entry, save the indexes, give back blocks beyond the end.  The
 * caller marks it `unsynced`. */
kl_status kl_segment_seal(kl_segment *segment, kl_dir *dir);
/* Make what was derived from it durable: indexes, side-car, and the producer snapshot at its
 * end.  Recovery looks only at segments that were not flushed, so a flush comprises these. */
kl_status kl_segment_sync_derived(const kl_segment *segment, const char *dir_path,
                                  int64_t next_offset, bool *tried);
/* Rename all its files to .deleted.  After a failure: again, and it goes on. */
kl_status kl_segment_delete(kl_segment *segment, kl_dir *dir);
/* What a cut of the `.log` at `pos` is made of.  In place, where no slice of it is under way:
 * another one over the same file, of which the rest is taken off later.  By a copy, so that
 * maps and slices of the old one stay whole: written and synced aside, and put in its place. */
kl_status kl_segment_shorten(const kl_segment *segment, int64_t pos, kl_segment **out);
kl_status kl_segment_trim(kl_segment *segment);
kl_status kl_segment_copy(kl_segment *segment, kl_dir *dir, int64_t pos, kl_segment **out);
/* One that was made aside gets its name. */
kl_status kl_segment_place(kl_segment *segment, kl_dir *dir);

#endif
