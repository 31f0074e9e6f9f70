/* kafkalog.h: the whole C surface; that of the server is in server.h.
 *
 * Everything between the two markers is also the text that cffi reads (see build.py), so
 * it stays inside the subset that cffi parses: no #if, no function-like macros.
 *
 * Rules that hold for every function below:
 *   - A kl_status other than KL_OK leaves a sentence in kl_error_message() of the same
 *     thread, which names the thing, what was found and what was wanted.
 *   - No function calls Python, keeps a pointer to the caller's memory after it returns, or
 *     returns memory to be freed, except handles (`kl_x *`), which kl_x_free frees.
 *   - Handles are safe to use from many threads unless the function says otherwise.
 *     kl_x_close releases files; kl_x_free releases memory, and only when no call is left.
 *   - Offsets are log offsets; `_ms` is milliseconds since 1970 UTC; -1 is "none". */
#ifndef KAFKALOG_H
#define KAFKALOG_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */

/* ---- status ------------------------------------------------------------------------ */

typedef enum {
    KL_OK = 0,
    /* the caller's */
    KL_E_ARGUMENT,  /* an argument is out of its range */
    KL_E_CLOSED,    /* the handle was closed */
    KL_E_FORKED,    /* the handle belongs to the parent process */
    KL_E_READ_ONLY, /* the log was opened for reading */
    KL_E_TIMEOUT,   /* not yet: wait again */
    KL_E_BUFFER_TOO_SMALL,
    /* the world's */
    KL_E_NO_MEMORY,
    KL_E_IO,       /* a system call failed; what was begun is taken back, or the log goes
                    * offline, or, of a file that can be made again, its next use mends it */
    KL_E_NO_SPACE, /* the disk is full; nothing was changed; passes when space returns */
    KL_E_STORAGE,  /* the log is offline: an earlier write-back failed, this is final */
    KL_E_LOCKED,   /* another process or handle owns the directory */
    KL_E_NOT_FOUND,
    KL_E_CORRUPT, /* bytes on disk are not what was written */
    KL_E_STALE,   /* the log changed under a reader: start again */
    KL_E_PEER,    /* the other end of a socket went away */
    /* what Kafka refuses, by Kafka's names */
    KL_E_OFFSET_OUT_OF_RANGE,
    KL_E_CORRUPT_MESSAGE,
    KL_E_MESSAGE_TOO_LARGE,
    KL_E_RECORD_LIST_TOO_LARGE,
    KL_E_INVALID_RECORD,
    KL_E_INVALID_TIMESTAMP,
    KL_E_UNSUPPORTED_COMPRESSION_TYPE,
    KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT, /* magic 0 or 1 */
    KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER,
    KL_E_INVALID_PRODUCER_EPOCH,
    KL_E_INVALID_TXN_STATE,
    KL_E_TRANSACTION_COORDINATOR_FENCED,
    KL_E_UNEXPECTED_APPEND_OFFSET,
    KL_E_FENCED_LEADER_EPOCH,
    KL_E_NOT_LEADER_OR_FOLLOWER,
    KL_E_NOT_ENOUGH_REPLICAS /* for acks=all, by min.insync.replicas */
} kl_status;

/* The last failure of this thread: a sentence, valid until the thread's next failure. */
const char *kl_error_message(void);
/* errno of the last failure of this thread, 0 when it was not a system call. */
int kl_error_errno(void);

/* ---- checksum ---------------------------------------------------------------------- */

uint32_t kl_crc32c(const uint8_t *data, size_t bytes);
uint32_t kl_crc32c_portable(const uint8_t *data, size_t bytes);
/* That of two pieces, one behind the other, from those of each; `bytes`: of the second. */
uint32_t kl_crc32c_joined(uint32_t first, uint32_t second, size_t bytes);
/* "sse4.2", "armv8-crc" or "portable": what kl_crc32c runs on this machine. */
const char *kl_crc32c_kind(void);

/* ---- small files of a directory ---------------------------------------------------- */

typedef struct kl_dir kl_dir;

/* A directory held open; names below are single components, links are not followed.
 * `create`: with what is missing above it, mode 0700. */
enum { KL_CREATE_NOT, KL_CREATE, KL_CREATE_UNSYNCED };
kl_status kl_dir_open(const char *path, int create, kl_dir **out);
void kl_dir_close(kl_dir *dir);
void kl_dir_free(kl_dir *dir);
/* The identity of a directory or file: the next one may get the same inode number immediately, and
 * even the same birth, since clocks tick in milliseconds; the version tells them apart. */
typedef struct {
    uint64_t inode;   /* 0: none that can be opened */
    int64_t born_ns;  /* since 1970; 0: the file system does not say */
    uint64_t version; /* drawn for each inode by ext4, XFS and Btrfs; 0: it does not say */
} kl_identity;
/* `of_lock`: the same for its file `.lock`, which stays as long as the log in that directory. */
kl_status kl_dir_identify(kl_dir *dir, kl_identity *self, kl_identity *of_lock);
/* Replace a small file: temporary, fsync, rename, fsync of the directory.  Mode 0600. */
kl_status kl_dir_replace(kl_dir *dir, const char *name, const uint8_t *data, size_t bytes);
/* The same without a sync: a power cut may leave anything under the name, see
 * kl_dir_sync_names. */
kl_status kl_dir_place(kl_dir *dir, const char *name, const uint8_t *data, size_t bytes);
/* Read a small file whole.  KL_E_NOT_FOUND; KL_E_BUFFER_TOO_SMALL with *bytes wanted. */
kl_status kl_dir_read(kl_dir *dir, const char *name, uint8_t *buffer, size_t buffer_bytes,
                      size_t *bytes);
kl_status kl_dir_unlink(kl_dir *dir, const char *name);
kl_status kl_dir_rename(kl_dir *dir, const char *from, const char *to);
kl_status kl_dir_make(kl_dir *dir, const char *name); /* a sub-directory, mode 0700 */
kl_status kl_dir_sync(kl_dir *dir);
/* Sync files and directories, all concurrently, by their paths relative to this one, which is ".".
 * A failed sync is final. */
kl_status kl_dir_sync_names(kl_dir *dir, const char *const *names, size_t count);
/* Sync everything that any process has written to the directory's file system.  Also KL_E_IO if any
 * write to it failed since the directory was opened; kernels before 5.8 do not report that. */
kl_status kl_dir_sync_all(kl_dir *dir);
/* A new small file in a new sub-directory, mode 0700, unsynced.  KL_E_IO: the name is taken. */
kl_status kl_dir_make_with(kl_dir *dir, const char *folder, const char *name,
                           const uint8_t *data, size_t bytes);
/* Take `.lock` (open-file-description lock, which excludes Java's) for as long as the
 * handle is open and write our pid into it.  KL_E_LOCKED names the owner's pid. */
kl_status kl_dir_lock(kl_dir *dir);
/* 1: some process holds `.lock`, 0: none does, -1: unknown, see kl_error_message. */
int kl_dir_locked(kl_dir *dir);

/* The clean-shutdown marker of a directory, shared by its logs: the first change of any
 * of them removes it durably, once. */
typedef struct kl_marker kl_marker;
kl_status kl_marker_open(const char *dir_path, const char *name, kl_marker **out);
int kl_marker_present(const kl_marker *marker);
kl_status kl_marker_remove(kl_marker *marker);
kl_status kl_marker_write(kl_marker *marker, const uint8_t *data, size_t bytes);
void kl_marker_free(kl_marker *marker);

/* ---- batches ----------------------------------------------------------------------- */

typedef struct { /* the header of a batch, magic 2: docs/format.md, "Record batch" */
    int64_t base_offset;
    int64_t last_offset; /* base_offset + last_offset_delta */
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int64_t pos;         /* of the batch in its file or buffer */
    int64_t batch_bytes; /* whole: 12 + batchLength */
    uint32_t crc;
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t last_sequence;
    int32_t record_count;
    int16_t attributes;
    int16_t producer_epoch;
    int8_t magic;
} kl_batch;

enum {
    KL_BATCH_HEADER_BYTES = 61,
    KL_CODEC_MASK = 7,
    KL_ATTR_LOG_APPEND_TIME = 8,
    KL_ATTR_TRANSACTIONAL = 16,
    KL_ATTR_CONTROL = 32,
    KL_ATTR_DELETE_HORIZON = 64
};
enum { KL_CONTROL_ABORT = 0, KL_CONTROL_COMMIT = 1 };

/* Read and check the header at `data` (at least 61 bytes, or 17 to name an old magic).
 * KL_E_BUFFER_TOO_SMALL: the batch goes on past `bytes`; *out is filled when the 61
 * header bytes were there (out->batch_bytes tells how much is wanted), zeroed otherwise.
 * KL_E_CORRUPT_MESSAGE: the lengths cannot be a batch.
 * KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT: magic 0 or 1. */
kl_status kl_batch_parse(const uint8_t *data, size_t bytes, kl_batch *out);
/* kl_batch_parse of a whole batch, and its CRC.  KL_E_CORRUPT_MESSAGE names both values. */
kl_status kl_batch_check(const uint8_t *data, size_t bytes, kl_batch *out);
/* A compressed body has at most KL_PIECES_FREE members, frames and blocks, and one more for each
 * KL_PIECE_BYTES of its bytes: each costs as much time as a kilobyte, and the smallest has four. */
enum { KL_PIECES_FREE = 32768, KL_PIECE_BYTES = 64 };
/* Bytes of the zstd frame at `data`, by the sizes of its blocks; 0: there is no whole frame, or a
 * body of `bytes` may not have so many.
 * *content_bytes is its stated decompressed size; UINT64_MAX: it states none. */
size_t kl_zstd_frame(const uint8_t *data, size_t bytes, uint64_t *content_bytes);
/* 1: a compressed batch whose maxTimestamp is below its first record's time, as -1 is. */
int kl_batch_time_is_lost(const kl_batch *batch);
/* A topic's requirements on records beyond their structure. */
typedef struct {
    int64_t now_ms;
    int64_t before_max_ms; /* how far before now a timestamp may be; INT64_MAX: no limit */
    int64_t after_max_ms;  /* likewise, after now.  A timestamp of -1 is always allowed. */
    int32_t need_keys;     /* compacted topics */
} kl_record_rules;
/* Walk the uncompressed records of a batch: structure, deltas (consecutive from 0 when
 * `strict`), counts; `rules` NULL: only these.  *max_timestamp gets the largest record timestamp
 * (CreateTime), -1 when none is above.
 * KL_E_INVALID_RECORD, also for a key that the rules miss; KL_E_INVALID_TIMESTAMP. */
kl_status kl_records_check(const kl_batch *batch, const uint8_t *records, size_t bytes,
                           int strict, const kl_record_rules *rules,
                           int64_t *max_timestamp);
/* The most bytes of a record, without its length; the walk ends at bytes that are no record. */
int64_t kl_records_longest(const uint8_t *records, size_t bytes);
/* A record that breaks a rule. */
typedef struct {
    int64_t timestamp_ms;
    int32_t index;  /* in its batch */
    int32_t no_key; /* 1: it has no key; 0: its timestamp is out of range */
} kl_refused_record;
typedef struct {
    kl_refused_record *records; /* the caller's, room for `max` */
    int32_t max;
    int32_t count;
} kl_refused_records;
/* Walk the uncompressed records of a batch for those that break the rules: the first
 * out->max of them.  The walk ends where the bytes are no record. */
void kl_records_refused(const kl_batch *batch, const uint8_t *records, size_t bytes,
                        const kl_record_rules *rules, kl_refused_records *out);
/* Why a record is refused, as text for its producer: at most text_bytes - 1 bytes. */
void kl_refused_why(const kl_refused_record *record, const kl_record_rules *rules,
                    char *text, size_t text_bytes);
/* One record, decoded; positions are into `records`. */
typedef struct {
    int64_t offset;
    int64_t timestamp_ms;
    int64_t key_pos;
    int64_t key_bytes; /* -1: null */
    int64_t value_pos;
    int64_t value_bytes; /* -1: null */
    int64_t headers_pos; /* of the first header */
    int64_t record_pos;
    int64_t record_bytes; /* with its length field */
    int32_t header_count;
} kl_record;
/* Decode up to `max_records` records from *pos on; *pos advances.  *count = 0 at the end. */
kl_status kl_records_decode(const kl_batch *batch, const uint8_t *records, size_t bytes,
                            int64_t *pos, kl_record *out, int32_t max_records,
                            int32_t *count);
/* The first record at or after both; out->offset = -1 when there is none. */
kl_status kl_records_find(const kl_batch *batch, const uint8_t *records, size_t bytes,
                          int64_t timestamp_ms, int64_t start_offset, kl_record *out);

/* ---- columns into batches ---------------------------------------------------------- */

typedef enum {
    KL_BYTES_NONE = 0,  /* every value is null */
    KL_BYTES_LENGTHS32, /* data one after another, `index` int32 lengths, -1 null */
    KL_BYTES_OFFSETS32, /* Arrow binary: `index` n + 1 int32 offsets into data */
    KL_BYTES_OFFSETS64, /* Arrow large_binary */
    KL_BYTES_FIXED      /* n times fixed_bytes */
} kl_bytes_kind;

/* A column of byte strings in the caller's memory.  Nothing in it is trusted: lengths and offsets
 * are checked against data_bytes when they are used. */
typedef struct {
    kl_bytes_kind kind;
    const uint8_t *data;
    size_t data_bytes;
    const void *index;
    size_t index_count;      /* entries in `index` */
    const uint8_t *validity; /* Arrow bitmap, or NULL: all valid */
    int64_t validity_shift;  /* bit of the first row */
    int64_t fixed_bytes;
} kl_bytes_column;

typedef struct {
    int64_t count; /* records */
    kl_bytes_column key;
    kl_bytes_column value;
    const int64_t *timestamp_ms; /* count of them, or NULL: default_timestamp_ms */
    int64_t default_timestamp_ms;
    const int32_t *header_count; /* per record, or NULL: no headers at all */
    int64_t header_total;        /* rows of the two columns below */
    kl_bytes_column header_name;
    kl_bytes_column header_value;
} kl_columns;

/* Where an encoder stands in a kl_columns; zeroed at the start. */
typedef struct {
    int64_t row;
    int64_t key_pos;
    int64_t value_pos;
    int64_t header_row;
    int64_t header_name_pos;
    int64_t header_value_pos;
} kl_cursor;

/* A batch under construction, before or after compression. */
typedef struct {
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t record_count;
    size_t records_bytes;
} kl_encoded;

/* Encode records from `cursor` on into `out` until the next would pass `out_bytes` or
 * `max_records`; `cursor` moves.  KL_E_MESSAGE_TOO_LARGE: not even one record fits. */
kl_status kl_encode_records(const kl_columns *columns, kl_cursor *cursor, uint8_t *out,
                            size_t out_bytes, int32_t max_records, kl_encoded *encoded);

/* What a producer stamps on a batch.  producer_id -1: none. */
typedef struct {
    int64_t producer_id;
    int32_t base_sequence;
    int16_t producer_epoch;
    int16_t attributes; /* codec, timestamp type, transactional */
} kl_stamp;

/* Write a 61-byte header for `records` that already lie at out + 61, CRC included; base
 * offset 0, leader epoch -1. */
kl_status kl_batch_seal(uint8_t *out, size_t out_bytes, const kl_encoded *encoded,
                        const kl_stamp *stamp);

/* ---- a file of batches from any writer ---------------------------------------------- */

typedef struct kl_walk kl_walk;

/* Walk a `.log` file in chunks, without an index and without trusting it. */
kl_status kl_walk_open(const char *path, int64_t start_pos, kl_walk **out);
/* Up to `max_batches` headers; *count = 0 at the end of the file.  A batch that fails
 * ends the walk: its reason is the status (KL_E_CORRUPT_MESSAGE, KL_E_BUFFER_TOO_SMALL for a
 * torn tail, KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT), after *count good ones. */
kl_status kl_walk_next(kl_walk *walk, kl_batch *out, int32_t max_batches, int32_t *count,
                       int check_crc);
int64_t kl_walk_pos(const kl_walk *walk); /* of the batch that comes next, or that failed */
int64_t kl_walk_file_bytes(const kl_walk *walk);
/* The whole batch at `pos`. KL_E_BUFFER_TOO_SMALL when batch_bytes > buffer_bytes. */
kl_status kl_walk_read(kl_walk *walk, int64_t pos, uint8_t *buffer, size_t buffer_bytes,
                       size_t *bytes);
void kl_walk_free(kl_walk *walk);

/* ---- a log -------------------------------------------------------------------------- */

typedef struct kl_log kl_log;

/* The data plane's settings; Kafka's names and meanings (docs/settings.md). */
typedef struct {
    int64_t segment_bytes;
    int64_t segment_ms;
    int64_t segment_jitter_ms;
    int64_t timestamp_before_max_ms;
    int64_t timestamp_after_max_ms;
    int64_t flush_messages; /* appended records after which append asks for a sync */
    int32_t segment_index_bytes;
    int32_t index_interval_bytes;
    int32_t max_message_bytes;
    int32_t log_append_time; /* message.timestamp.type */
    int32_t preallocate;
    int32_t compacted; /* cleanup.policy has compact: keys must not be null */
    int32_t
        compressed; /* compression.type is a codec: the caller compresses what it appends */
} kl_log_config;

enum { KL_READ = 0, KL_WRITE = 1 };

typedef struct {
    int32_t mode;             /* KL_READ or KL_WRITE */
    int32_t clean;            /* the directory was closed cleanly: batches are not read */
    int64_t recovery_point;   /* all below is on disk; -1: unknown, check everything */
    int64_t reached;          /* what ends below it has lost records; -1: unknown */
    int64_t log_start_offset; /* -1: base of the first segment */
    int64_t high_watermark;   /* -1: the end */
    int32_t end_is_high_watermark; /* single copy: the high watermark follows the end */
    int32_t leader_epoch;          /* -1: the latest in leader-epoch-checkpoint, or 0 */
    int64_t first_offset;          /* base of the first segment of a new log */
    int64_t derived_sum; /* kl_log_derived_sum when it was closed cleanly; -1: unknown */
    int32_t keeps_point; /* 1: it stands alone, and notes itself how far it is on disk */
} kl_open;

/* What recovery found and did. */
typedef struct {
    int64_t truncated_bytes; /* cut from the tail, or lying in segments dropped after it */
    int64_t truncated_pos;   /* in the segment below; -1: nothing was cut */
    int64_t truncated_segment;  /* base offset */
    int32_t segments_recovered; /* whose batches were read */
    int32_t segments_dropped;
    int32_t indexes_rebuilt;
    char kept[64]; /* the first file that keeps what was cut; empty: nothing, or zeros */
} kl_recovery;

/* Open or (KL_WRITE) create the log of one partition.  The caller holds the directory's lock.
 * `marker` may be NULL; it must outlive the log.
 * KL_READ changes no byte of the directory, whatever state it is in. */
kl_status kl_log_open(const char *path, const kl_log_config *config, const kl_open *how,
                      kl_marker *marker, kl_log **out, kl_recovery *recovery);
/* Clean close: sync, indexes, producer snapshot.  Idempotent.  Waiting calls get KL_E_CLOSED. */
kl_status kl_log_close(kl_log *log);
/* The same without a sync: no marker may vouch for the log before kl_dir_sync_all. */
kl_status kl_log_close_unsynced(kl_log *log);
/* Close files without writing: for a forked child or a failed log. */
void kl_log_abandon(kl_log *log);
void kl_log_free(kl_log *log);
int64_t kl_log_derived_sum(const kl_log *log); /* after a clean close; -1: nothing holds */
kl_status kl_log_husk(const char *path, kl_log **out); /* closed from the start */
kl_status kl_log_configure(kl_log *log, const kl_log_config *config);

typedef struct {
    int64_t log_start_offset;
    int64_t log_end_offset;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t flushed_offset; /* the recovery point: all below is on disk */
    int64_t size_bytes;     /* of all .log files */
    int64_t generation;     /* changes with each truncation, deletion, swap of segments */
    int32_t segment_count;
    int32_t leader_epoch;
    int32_t last_epoch; /* in leader-epoch-checkpoint; -1: none */
    int32_t offline;    /* 1 after a failed write-back */
    int32_t producer_count;
} kl_log_state;

kl_status kl_log_get(kl_log *log, kl_log_state *out);
/* For the log in a folder, the count that its writer shows to all processes: of starts and ends of
 * changes to its files other than appends.  Odd: a change is in progress.  -1: no
 * process shows one. */
int64_t kl_log_changes(const char *path);
/* How many logs of this process have gone offline: unchanged if none did since the last call. */
int64_t kl_logs_failed(void);
/* For many logs; `statuses` has the outcome of each. */
void kl_log_get_each(kl_log **logs, size_t count, kl_log_state *out, kl_status *statuses);
/* Make a reader check the disk (or the writer's state page) again. */
kl_status kl_log_refresh(kl_log *log);

/* Append one record as one batch.  Returns the offset, or minus a kl_status.
 * key_bytes, value_bytes -1: null.  timestamp_ms: at least 0; -1: now.
 * *sync_due 1: flush.messages requires a flush, which the caller does.
 * KL_E_UNSUPPORTED_COMPRESSION_TYPE from a log that is `compressed`. */
int64_t kl_log_append(kl_log *log, const char *key, int64_t key_bytes, const char *value,
                      int64_t value_bytes, int64_t timestamp_ms, int32_t *sync_due);

typedef struct {
    int64_t base_offset; /* -1: nothing was appended */
    int64_t last_offset;
    int64_t log_append_time_ms; /* -1 under CreateTime */
    int64_t log_start_offset;
    int32_t duplicate; /* 1: known already, nothing was written */
    int32_t batch_count;
    int32_t sync_due; /* 1: flush.messages asks for a flush, for which nothing waited */
    int64_t cuts;     /* of a replica, before the append: for kl_server_wait */
} kl_appended;

/* Append rows as uncompressed batches of at most `batch_bytes` (0: 1 MiB; never above
 * max.message.bytes) from `cursor` on.  Returns after about 64 MiB or at the end with the
 * cursor moved, so that the caller can be interrupted: call again until cursor->row ==
 * columns->count.  `now_ms` is the caller's wall clock.  On failure the batches before it stay
 * appended: see *out. */
kl_status kl_log_append_columns(kl_log *log, const kl_columns *columns, kl_cursor *cursor,
                                int64_t batch_bytes, int64_t now_ms, kl_appended *out);

enum { KL_ORIGIN_CLIENT = 0, KL_ORIGIN_COORDINATOR = 1 };

/* How to append whole batches as the leader. */
typedef struct {
    int32_t origin;
    int32_t leader_epoch;    /* expected; -1: whatever it is */
    int32_t one_batch;       /* 1: exactly one batch, as a Produce request */
    int32_t expects;         /* 1: only where the log ends at expected_offset */
    int64_t expected_offset; /* else KL_E_UNEXPECTED_APPEND_OFFSET */
    int64_t now_ms;          /* -1: the clock */
    int32_t continues; /* 1: in a transaction open here; 2: a new producer begins at 0 */
    int32_t
        raised; /* 1: markers of version 2 of transactions, whose ends raise the epoch */
    int32_t in_place; /* 1: `batches` is the caller's alone, stamped without a copy */
    /* 1: the high watermark stays below these records until they are on disk; a sync is asked
     * for, not waited for.  Only where the high watermark follows the end.  2: the same, but
     * that the caller sees to the sync. */
    int32_t durable;
    int32_t
        begin_sync; /* 1: what flush.messages asks for is begun; 0: it is the caller's */
} kl_append_options;

/* Append whole batches as producers sent them, in one write to one segment: all of them are
 * checked, sequences too, before a byte is written, and a failure leaves nothing of them; a
 * crash may leave the first ones.  Offsets, epoch and, under LogAppendTime, times are set in a
 * copy.  Uncompressed bodies are checked record by record; compressed ones are the caller's
 * (kl_records_check).  Control batches come alone. */
kl_status kl_log_append_batches(kl_log *log, const uint8_t *batches, size_t bytes,
                                const kl_append_options *options, kl_appended *out);
/* Append batches whose offsets and epochs are given, unchanged. */
kl_status kl_log_append_follower(kl_log *log, const uint8_t *batches, size_t bytes,
                                 kl_appended *out);
/* End a transaction here: KL_CONTROL_ABORT or KL_CONTROL_COMMIT. */
kl_status kl_log_append_marker(kl_log *log, int64_t producer_id, int16_t producer_epoch,
                               int32_t coordinator_epoch, int32_t control_type,
                               int64_t timestamp_ms, kl_appended *out);

/* ---- durability --------------------------------------------------------------------- */

/* Ask the sync thread to sync everything up to the current end; *target is that end. */
kl_status kl_log_flush_start(kl_log *log, int64_t *target);
/* Wait until everything below *target is on disk; *target -1 initially: it becomes the current end.
 * Waits at most timeout_ms, however long the disk takes: KL_E_TIMEOUT, and the sync continues in
 * another thread; call again.  -1: forever; the caller's thread may then do the sync.
 * KL_E_STORAGE: write-back failed; final. */
kl_status kl_log_flush(kl_log *log, int64_t *target, int32_t timeout_ms);

/* ---- reading ------------------------------------------------------------------------ */

enum { KL_UNCOMMITTED = 0, KL_COMMITTED = 1, KL_LOG_END = 2 }; /* which end bounds a read */

typedef struct {
    size_t bytes;  /* put into the buffer, whole batches */
    size_t wanted; /* with KL_E_BUFFER_TOO_SMALL: bytes of the first batch */
    int64_t segment_base_offset;
    int64_t pos;         /* in that segment's .log */
    int64_t next_offset; /* where to go on reading */
    int64_t end_offset;  /* the bound that was applied */
} kl_read;

/* Whole batches from the one that holds `offset` on, from one segment, below the bound
 * and below `stop_offset` (-1: none): as many as fit, at least one.  bytes = 0: `offset`
 * is the end.  KL_E_OFFSET_OUT_OF_RANGE, KL_E_CORRUPT_MESSAGE (`check_crc`),
 * KL_E_BUFFER_TOO_SMALL. */
kl_status kl_log_read(kl_log *log, int64_t offset, int64_t stop_offset, int32_t bound,
                      int32_t check_crc, uint8_t *buffer, size_t buffer_bytes,
                      kl_read *out);
/* [pos, pos + bytes) of a segment's file, held open and safe from deletion until it is
 * dropped. */
typedef struct {
    struct kl_segment *segment; /* NULL: none */
    int fd;                     /* for sendfile(2) and pread(2) */
    int64_t pos;
    size_t bytes;
} kl_slice;
/* Whole batches from the one that holds `offset` on, as kl_log_read, to be sent: at most max_bytes
 * (but at least one if at_least_one).  If there are none: where->bytes = 0. */
kl_status kl_log_slice(kl_log *log, int64_t offset, int32_t bound, size_t max_bytes,
                       int at_least_one, kl_slice *out, kl_read *where);
/* sendfile(2) to a socket from `*done` bytes into the slice on; *done advances, even on
 * failure.  KL_E_TIMEOUT: the socket accepted nothing for timeout_ms; KL_E_PEER. */
kl_status kl_slice_send(const kl_slice *slice, int socket_fd, size_t *done,
                        int32_t timeout_ms);
/* Release a slice, which becomes none; harmless for none. */
void kl_slice_drop(kl_slice *slice);

/* Wait until the bound passes `offset`. KL_E_TIMEOUT: call again. */
kl_status kl_log_wait(kl_log *log, int64_t offset, int32_t bound, int32_t timeout_ms);

typedef struct {
    int64_t offset; /* -1: none */
    int64_t timestamp_ms;
    int32_t leader_epoch;
    int32_t inflate; /* 1: look into the batch at segment, pos (see below) */
    int64_t segment_base_offset;
    int64_t pos;
    int64_t batch_bytes;
    int64_t start_offset; /* records below it do not count */
} kl_found;

/* The first record with a timestamp at or after `timestamp_ms`, as for ListOffsets.
 * The caller decodes a compressed batch: found->inflate = 1, read it with kl_log_read_at, and
 * search with kl_records_find from start_offset on; if that finds none, call again with the same
 * `found` (zeroed initially) to continue after it. */
kl_status kl_log_find_time(kl_log *log, int64_t timestamp_ms, kl_found *found);
/* The first record with the largest timestamp (ListOffsets -3); the same protocol. */
kl_status kl_log_find_largest_time(kl_log *log, kl_found *found);
/* The whole batch at a place that kl_log_find_* or kl_log_read named. */
kl_status kl_log_read_at(kl_log *log, int64_t segment_base_offset, int64_t pos,
                         uint8_t *buffer, size_t buffer_bytes, size_t *bytes);

typedef struct {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the abort marker */
    int64_t last_stable_offset;
} kl_aborted;

/* Aborted transactions that touch [start, stop): *count found, at most max_entries
 * written (call again with more room when *count > max_entries). */
kl_status kl_log_aborted(kl_log *log, int64_t start, int64_t stop, kl_aborted *out,
                         size_t max_entries, size_t *count);

/* ---- segments ----------------------------------------------------------------------- */

typedef struct {
    int64_t base_offset;
    int64_t next_offset; /* the next segment's base, or the log end */
    int64_t size_bytes;
    int64_t largest_timestamp_ms; /* -1: none */
    int64_t first_timestamp_ms;   /* of the first batch, -1: none */
    int64_t offset_index_entries;
    int64_t time_index_entries;
    int64_t created_ms; /* or the file's modification time */
    int32_t active;
} kl_segment_info;

/* The segments from the one that holds `from_offset` on: *count there are, at most max_entries
 * written.  Without `whole` no file is read, and times and entry counts are left out. */
kl_status kl_log_segments(kl_log *log, int64_t from_offset, int32_t whole,
                          kl_segment_info *out, size_t max_entries, size_t *count);

enum { KL_FILE_LOG = 0, KL_FILE_OFFSET_INDEX = 1, KL_FILE_TIME_INDEX = 2 };
/* A read-only view of a sealed segment's file, mapped for as long as the handle lives:
 * deletion, truncation and compaction do not touch it (they replace files).  Of the active
 * segment's indexes: a copy of the entries.  KL_E_ARGUMENT: the active .log. */
typedef struct kl_view kl_view;
kl_status kl_log_view(kl_log *log, int64_t base_offset, int32_t file, kl_view **out);
const uint8_t *kl_view_data(const kl_view *view);
size_t kl_view_bytes(const kl_view *view);
void kl_view_free(kl_view *view);

kl_status kl_log_roll(kl_log *log);
/* Remove all records at and above `offset` (whole batches: the end may become lower); if no
 * undeleted record is left, the empty log continues at `offset`. */
kl_status kl_log_truncate(kl_log *log, int64_t offset);
/* Remove everything; the empty log continues at `offset`. */
kl_status kl_log_truncate_fully(kl_log *log, int64_t offset);
/* Raise the log start (DeleteRecords); the next kl_log_delete_segments deletes files. */
kl_status kl_log_set_start(kl_log *log, int64_t offset);
/* Delete the oldest segments whose next base is <= `before_offset`: renamed to .deleted.
 * The active one is rolled first when it holds records and all of it is to go.
 * *deleted counts segments; their base offsets go into `bases` (max_bases of them). */
kl_status kl_log_delete_segments(kl_log *log, int64_t before_offset, int64_t *bases,
                                 size_t max_bases, size_t *deleted);
/* Unlink `.deleted` files that were renamed before `before_ms` (INT64_MAX: all of them). */
kl_status kl_log_purge(kl_log *log, int64_t before_ms, size_t *files);

/* ---- replication and coordination see ------------------------------------------------ */

/* Other replicas allow records below `offset` to be visible (INT64_MAX: all): the high watermark
 * follows the end up to it, and never goes back.  It does not wait for the disk. */
kl_status kl_log_show_until(kl_log *log, int64_t offset);
/* Become leader of `epoch` at the current end.  The first flush puts it on disk; until then only
 * the caller's source has it.  KL_E_FENCED_LEADER_EPOCH if it is older than the log's. */
kl_status kl_log_set_leader_epoch(kl_log *log, int32_t epoch);
typedef struct {
    int64_t start_offset;
    int32_t epoch;
} kl_epoch;
kl_status kl_log_epochs(kl_log *log, kl_epoch *out, size_t max_entries, size_t *count);
/* As OffsetForLeaderEpoch: *found_epoch, *end_offset = -1 when unknown. */
kl_status kl_log_epoch_end(kl_log *log, int32_t epoch, int32_t *found_epoch,
                           int64_t *end_offset);

typedef struct {
    int64_t producer_id;
    int64_t last_offset;
    int64_t last_timestamp_ms;
    int64_t txn_start_offset; /* -1: no open transaction */
    int32_t last_sequence;
    int32_t offset_delta;
    int32_t coordinator_epoch;
    int16_t producer_epoch;
} kl_producer;

kl_status kl_log_producers(kl_log *log, kl_producer *out, size_t max_entries,
                           size_t *count);
/* Forget producers without an open transaction whose last batch is older, by our clock. */
kl_status kl_log_expire_producers(kl_log *log, int64_t before_ms, size_t *expired);
/* Decode a `.snapshot` file's bytes. KL_E_CORRUPT. */
kl_status kl_snapshot_decode(const uint8_t *data, size_t bytes, kl_producer *out,
                             size_t max_entries, size_t *count);

/* ---- limits of the process ----------------------------------------------------------- */

/* How many files of all logs may be open at once (default: half of RLIMIT_NOFILE). */
void kl_set_max_open_files(int64_t max_open);
int64_t kl_open_files(void);

/* A compressed batch for the caller to decode. The bytes stay valid until the next step of the scan
 * or cleaner that returned it. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
    int64_t base_offset;
    int32_t codec;
    int32_t record_count;
} kl_compressed;

/* ---- compaction ------------------------------------------------------------------------ */

/* One round over a log: the keys of batches from first_dirty_offset on are put into a map, as
 * many as it holds; then every segment below the end of those is rewritten without the records
 * that a later one with their key replaces. */
typedef struct {
    int64_t first_dirty_offset; /* below it every key is there once already */
    int64_t end_offset;         /* only segments that end at or below it are touched */
    int64_t now_ms;             /* for delete horizons */
    int64_t delete_retention_ms;
    int64_t map_bytes;    /* of the map, 24 bytes an entry */
    double map_load;      /* how much of it may be full: above 0, at most 0.95 */
    int64_t pause_bytes;  /* read and written before the caller has a say */
    uint8_t hash_key[16]; /* random; another for each round */
} kl_clean_options;

typedef struct {
    int64_t end_offset; /* of the keys in the map: where the next round begins */
    int64_t map_entries;
    int64_t bytes_read; /* of both passes */
    int64_t bytes_written;
    int64_t records_before; /* in the segments that were looked at */
    int64_t records_after;
    int64_t bytes_before;
    int64_t bytes_after;
    int64_t generation; /* of the log after the last exchange of segments */
    int32_t segments_before;
    int32_t segments_after;
} kl_cleaned;

typedef struct kl_cleaner kl_cleaner;
enum { KL_CLEAN_PAUSE = 0, KL_CLEAN_INFLATE = 1, KL_CLEAN_DEFLATE = 2, KL_CLEAN_END = 3 };

/* Begin a round; nothing is written before the first step.  KL_E_LOCKED: another is in progress.
 * Appends and reads continue during it; one thread at a time may use a cleaner.  It uses the log's
 * handle until kl_clean_free, which leaves unfinished segments unchanged. */
kl_status kl_clean_open(kl_log *log, const kl_clean_options *options, kl_cleaner **out);
/* Continue.  KL_CLEAN_PAUSE: step again.  KL_CLEAN_INFLATE, KL_CLEAN_DEFLATE: `bodies` has
 * *count bodies to decompress or compress; pass each, in order, to kl_clean_give, then step
 * again; they are valid until then.  KL_CLEAN_END: all is done and on disk.
 * KL_E_STALE: the log was truncated or deleted from since; finished steps stay. */
kl_status kl_clean_step(kl_cleaner *cleaner, kl_compressed *bodies, int32_t max_bodies,
                        int32_t *count, int32_t *state);
kl_status kl_clean_give(kl_cleaner *cleaner, int32_t index, const uint8_t *data,
                        size_t bytes);
void kl_clean_get(const kl_cleaner *cleaner, kl_cleaned *out);
void kl_clean_free(kl_cleaner *cleaner);
/* The hash that a round uses for keys: SipHash-2-4 with 128 bits. */
void kl_clean_hash(const uint8_t key[16], const uint8_t *data, size_t bytes,
                   uint8_t out[16]);

/* cffi: end */

#include "columns.h"
#include "server.h"

/* What only the test build (_kl_test) has: docs/architecture.md, "Hooks for tests". */
#ifdef KL_TEST
/* cffi: test begin */
/* Failpoints: a name does `action` on its `after`-th hit from now (1: the next). */
enum { KL_FP_OFF = 0, KL_FP_KILL = 1, KL_FP_ERROR = 2 };
int kl_failpoint_set(const char *name, int action, int error_number, int64_t after);
int kl_failpoint_count(void);
const char *kl_failpoint_name(int index);
int64_t kl_failpoint_hits(const char *name);
void kl_failpoint_reset(void);

/* The I/O table: fail the N-th call of one kind (NULL: any kind) with errno, once or from
 * then on; short_bytes > 0: that many bytes are done instead, for reads and writes. */
int kl_io_fail(const char *call, int64_t nth, int error_number, int sticky,
               int64_t short_bytes);
void kl_io_reset(void);
int64_t kl_io_calls(const char *call); /* since the last reset; NULL: all kinds */
/* Calls of one kind wait: all, those that do already, the nth from now.  -1: no such kind. */
enum { KL_HOLD_NONE = 0, KL_HOLD_ALL = 1, KL_HOLD_WAITING = 2 };
int kl_io_hold(const char *call, int hold);
int kl_io_hold_one(const char *call, int64_t nth);
int64_t kl_io_waiting(const char *call);
/* Each fdatasync seems to take `ms`: the monotonic clock is ahead by it, and no wait is longer. */
void kl_io_stall(int64_t ms);
/* Record every changing call into a file descriptor as lines of JSON; -1: stop. */
int kl_io_record(int fd);
/* cffi: test end */
#endif
#endif
