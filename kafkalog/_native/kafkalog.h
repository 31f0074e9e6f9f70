/* kafkalog.h: the whole C interface, except the server's in server.h.
 *
 * cffi also reads the text between the two markers (see build.py), so it is limited to cffi's
 * subset: no #if, no function-like macros.
 *
 * Rules for every function below:
 *   - A kl_status other than KL_OK leaves a sentence in kl_error_message() of the same
 *     thread, which names the thing, what was found and what was wanted.
 *   - No function calls Python, keeps a pointer to the caller's memory after it returns, or
 *     returns memory to be freed, except handles (`kl_x *`), which kl_x_free frees.
 *   - Handles are thread-safe unless the function says otherwise.  kl_x_close releases files;
 *     kl_x_free releases memory, and only when no call is in progress.
 *   - Offsets are log offsets; `_ms` is milliseconds since 1970 UTC; -1 is "none". */
#ifndef KAFKALOG_H
#define KAFKALOG_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */

/* ---- status ------------------------------------------------------------------------ */

typedef enum {
    KL_OK = 0,
    /* the caller's mistake */
    KL_E_ARGUMENT,  /* an argument is out of range */
    KL_E_CLOSED,    /* the handle is closed */
    KL_E_FORKED,    /* the handle belongs to the parent process */
    KL_E_READ_ONLY, /* the log was opened for reading */
    KL_E_TIMEOUT,   /* not yet: wait again */
    KL_E_BUFFER_TOO_SMALL,
    /* failures of the environment */
    KL_E_NO_MEMORY,
    /* A system call failed.  Its change is undone, or the log goes offline, or, for a file that can
     * be rebuilt, the next use repairs it. */
    KL_E_IO,
    KL_E_NO_SPACE, /* the disk is full; nothing changed; passes when space is free */
    KL_E_STORAGE,  /* the log is offline: an earlier write-back failed, final */
    KL_E_LOCKED,   /* another process or handle owns the directory */
    KL_E_NOT_FOUND,
    KL_E_CORRUPT, /* bytes on disk differ from those written */
    KL_E_STALE,   /* the log changed under a reader: start again */
    KL_E_PEER,    /* the peer of a socket is gone */
    /* Kafka's errors, by Kafka's names */
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

/* This thread's last failure: a sentence, valid until its next failure. */
const char *kl_error_message(void);
/* errno of this thread's last failure; 0: not a system call. */
int kl_error_errno(void);

/* ---- checksum ---------------------------------------------------------------------- */

uint32_t kl_crc32c(const uint8_t *data, size_t bytes);
uint32_t kl_crc32c_portable(const uint8_t *data, size_t bytes);
/* The CRC of two concatenated pieces, from both CRCs; `bytes`: of the second. */
uint32_t kl_crc32c_joined(uint32_t first, uint32_t second, size_t bytes);
/* "sse4.2", "armv8-crc" or "portable": the implementation on this machine. */
const char *kl_crc32c_kind(void);
/* "linux", or "posix": the form of base/system.h that was built. */
const char *kl_system_form(void);

/* ---- small files of a directory ---------------------------------------------------- */

typedef struct kl_dir kl_dir;

/* An open directory; names below are single components, links are not followed.  `create`:
 * including missing parents, mode 0700. */
enum { KL_CREATE_NOT, KL_CREATE, KL_CREATE_UNSYNCED };
kl_status kl_dir_open(const char *path, int create, kl_dir **out);
void kl_dir_close(kl_dir *dir);
void kl_dir_free(kl_dir *dir);
/* The identity of a directory or file: inode numbers are reused at once, even with the same birth
 * time, since clocks tick in milliseconds; the version distinguishes them. */
typedef struct {
    uint64_t inode;   /* 0: cannot be opened */
    int64_t born_ns;  /* since 1970; 0: unknown */
    uint64_t version; /* random per inode in ext4, XFS and Btrfs; 0: unknown */
} kl_identity;
/* `of_lock`: that of its file `.lock`, which stays as long as the log in that directory. */
kl_status kl_dir_identify(kl_dir *dir, kl_identity *self, kl_identity *of_lock);
/* Replace a small file: temporary, fsync, rename, fsync of the directory.  Mode 0600. */
kl_status kl_dir_replace(kl_dir *dir, const char *name, const uint8_t *data, size_t bytes);
/* The same without a sync: a power cut may leave any content, see kl_dir_sync_names. */
kl_status kl_dir_place(kl_dir *dir, const char *name, const uint8_t *data, size_t bytes);
/* Read a small file.  KL_E_NOT_FOUND; KL_E_BUFFER_TOO_SMALL with the needed *bytes. */
kl_status kl_dir_read(kl_dir *dir, const char *name, uint8_t *buffer, size_t buffer_bytes,
                      size_t *bytes);
kl_status kl_dir_unlink(kl_dir *dir, const char *name);
kl_status kl_dir_rename(kl_dir *dir, const char *from, const char *to);
kl_status kl_dir_make(kl_dir *dir, const char *name); /* a sub-directory, mode 0700 */
kl_status kl_dir_sync(kl_dir *dir);
/* Sync files and directories concurrently, by paths relative to this directory, which is ".".  A
 * failed sync is final. */
kl_status kl_dir_sync_names(kl_dir *dir, const char *const *names, size_t count);
/* Sync all writes of all processes to the directory's file system.  Also KL_E_IO if any write to it
 * failed since the directory was opened; kernels before 5.8 do not report that. */
kl_status kl_dir_sync_all(kl_dir *dir);
/* Create a small file in a new subdirectory, mode 0700, unsynced.  KL_E_IO: the name exists. */
kl_status kl_dir_make_with(kl_dir *dir, const char *folder, const char *name,
                           const uint8_t *data, size_t bytes);
/* Lock `.lock` (open-file-description lock, which excludes Java's) while the handle is open, and
 * write our pid into it.  KL_E_LOCKED names the owner's pid. */
kl_status kl_dir_lock(kl_dir *dir);
/* 1: some process holds `.lock`; 0: none; -1: unknown, see kl_error_message. */
int kl_dir_locked(kl_dir *dir);

/* The clean-shutdown marker of a directory, shared by its logs: the first change of any log removes
 * it durably, once. */
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

/* Parse and check the header at `data` (at least 61 bytes, or 17 to report an old magic).
 * KL_E_BUFFER_TOO_SMALL: the batch extends past `bytes`; *out is filled if the 61 header bytes are
 * present (out->batch_bytes is the needed size), otherwise zeroed. KL_E_CORRUPT_MESSAGE: impossible
 * lengths. KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT: magic 0 or 1. */
kl_status kl_batch_parse(const uint8_t *data, size_t bytes, kl_batch *out);
/* kl_batch_parse and a check of the CRC.  KL_E_CORRUPT_MESSAGE names both CRCs. */
kl_status kl_batch_check(const uint8_t *data, size_t bytes, kl_batch *out);
/* Limit of members, frames and blocks in a compressed body: KL_PIECES_FREE, and one more for each
 * KL_PIECE_BYTES of its size: each costs as much time as a kilobyte, and the smallest has four. */
enum { KL_PIECES_FREE = 32768, KL_PIECE_BYTES = 64 };
/* Size of the zstd frame at `data`, from its block sizes; 0: no complete frame, or more pieces than
 * a body of `bytes` may have.  *content_bytes: its stated decompressed size; UINT64_MAX: none. */
size_t kl_zstd_frame(const uint8_t *data, size_t bytes, uint64_t *content_bytes);
/* 1: a compressed batch whose maxTimestamp is below its first record's, such as -1. */
int kl_batch_time_is_lost(const kl_batch *batch);
/* A topic's rules for records, beyond their structure. */
typedef struct {
    int64_t now_ms;
    int64_t before_max_ms; /* maximum age of a timestamp; INT64_MAX: no limit */
    int64_t after_max_ms;  /* maximum time ahead of now; -1 is always allowed */
    int32_t need_keys;     /* compacted topics */
} kl_record_rules;
/* Check the uncompressed records of a batch: structure, deltas (consecutive from 0 if `strict`),
 * counts; `rules` NULL: only these.  *max_timestamp: the largest record timestamp (CreateTime), or
 * -1. KL_E_INVALID_RECORD, also for a key required by the rules; KL_E_INVALID_TIMESTAMP. */
kl_status kl_records_check(const kl_batch *batch, const uint8_t *records, size_t bytes,
                           int strict, const kl_record_rules *rules,
                           int64_t *max_timestamp);
/* Size of the largest record, without its length field; stops at invalid bytes. */
int64_t kl_records_longest(const uint8_t *records, size_t bytes);
/* A record that breaks a rule. */
typedef struct {
    int64_t timestamp_ms;
    int32_t index;  /* in its batch */
    int32_t no_key; /* 1: no key; 0: its timestamp is out of range */
} kl_refused_record;
typedef struct {
    kl_refused_record *records; /* the caller's, with space for `max` */
    int32_t max;
    int32_t count;
} kl_refused_records;
/* Find the uncompressed records that break the rules, at most out->max of them.  Stops at invalid
 * bytes. */
void kl_records_refused(const kl_batch *batch, const uint8_t *records, size_t bytes,
                        const kl_record_rules *rules, kl_refused_records *out);
/* The reason as text for the record's producer: at most text_bytes - 1 bytes. */
void kl_refused_why(const kl_refused_record *record, const kl_record_rules *rules,
                    char *text, size_t text_bytes);
/* A decoded record; positions are in `records`. */
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
/* The first record at or after both; out->offset = -1: none. */
kl_status kl_records_find(const kl_batch *batch, const uint8_t *records, size_t bytes,
                          int64_t timestamp_ms, int64_t start_offset, kl_record *out);

/* ---- encoding columns ---------------------------------------------------------------- */

typedef enum {
    KL_BYTES_NONE = 0,  /* every value is null */
    KL_BYTES_LENGTHS32, /* data one after another, `index` int32 lengths, -1 null */
    KL_BYTES_OFFSETS32, /* Arrow binary: `index` n + 1 int32 offsets into data */
    KL_BYTES_OFFSETS64, /* Arrow large_binary */
    KL_BYTES_FIXED      /* n times fixed_bytes */
} kl_bytes_kind;

/* A column of byte strings in the caller's memory.  It is not trusted: lengths and offsets are
 * checked against data_bytes on use. */
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
    const int64_t *timestamp_ms; /* `count` timestamps, or NULL: default_timestamp_ms */
    int64_t default_timestamp_ms;
    const int32_t *header_count; /* per record, or NULL: no headers */
    int64_t header_total;        /* rows of the two columns below */
    kl_bytes_column header_name;
    kl_bytes_column header_value;
} kl_columns;

/* An encoder's position in a kl_columns; zeroed initially. */
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

/* Encode records from `cursor` on into `out`, up to `out_bytes` or `max_records`, and advance
 * `cursor`.  KL_E_MESSAGE_TOO_LARGE: not one record fits. */
kl_status kl_encode_records(const kl_columns *columns, kl_cursor *cursor, uint8_t *out,
                            size_t out_bytes, int32_t max_records, kl_encoded *encoded);

/* A producer's stamp on a batch.  producer_id -1: none. */
typedef struct {
    int64_t producer_id;
    int32_t base_sequence;
    int16_t producer_epoch;
    int16_t attributes; /* codec, timestamp type, transactional */
} kl_stamp;

/* Write the 61-byte header, with CRC, of `records` at out + 61; base offset 0, leader epoch -1. */
kl_status kl_batch_seal(uint8_t *out, size_t out_bytes, const kl_encoded *encoded,
                        const kl_stamp *stamp);

/* ---- reading a file of batches ------------------------------------------------------ */

typedef struct kl_walk kl_walk;

/* Walk a `.log` file in chunks, without an index and without trusting it. */
kl_status kl_walk_open(const char *path, int64_t start_pos, kl_walk **out);
/* Up to `max_batches` headers; *count = 0 at the end of the file.  A bad batch ends the walk: its
 * error (KL_E_CORRUPT_MESSAGE, KL_E_BUFFER_TOO_SMALL for a torn tail,
 * KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT) is returned with the *count good ones before it. */
kl_status kl_walk_next(kl_walk *walk, kl_batch *out, int32_t max_batches, int32_t *count,
                       int check_crc);
int64_t kl_walk_pos(const kl_walk *walk); /* of the next batch, or the bad one */
int64_t kl_walk_file_bytes(const kl_walk *walk);
/* Read the whole batch at `pos`.  KL_E_BUFFER_TOO_SMALL: batch_bytes > buffer_bytes. */
kl_status kl_walk_read(kl_walk *walk, int64_t pos, uint8_t *buffer, size_t buffer_bytes,
                       size_t *bytes);
void kl_walk_free(kl_walk *walk);

/* ---- a log -------------------------------------------------------------------------- */

typedef struct kl_log kl_log;

/* Settings of the data plane, with Kafka's names and meanings (docs/settings.md). */
typedef struct {
    int64_t segment_bytes;
    int64_t segment_ms;
    int64_t segment_jitter_ms;
    int64_t timestamp_before_max_ms;
    int64_t timestamp_after_max_ms;
    int64_t flush_messages; /* unsynced records after which an append requests a sync */
    int32_t segment_index_bytes;
    int32_t index_interval_bytes;
    int32_t max_message_bytes;
    int32_t log_append_time; /* message.timestamp.type */
    int32_t preallocate;
    int32_t compacted;  /* cleanup.policy has compact: keys must not be null */
    int32_t compressed; /* compression.type is a codec: the caller compresses */
} kl_log_config;

enum { KL_READ = 0, KL_WRITE = 1 };

typedef struct {
    int32_t mode;             /* KL_READ or KL_WRITE */
    int32_t clean;            /* cleanly closed: batches are not read */
    int64_t recovery_point;   /* all below is on disk; -1: unknown, check everything */
    int64_t reached;          /* a log that ends below it lost records; -1: unknown */
    int64_t log_start_offset; /* -1: base of the first segment */
    int64_t high_watermark;   /* -1: the log end */
    int32_t
        end_is_high_watermark; /* single replica: the high watermark follows the log end */
    int32_t leader_epoch;      /* -1: the latest in leader-epoch-checkpoint, or 0 */
    int64_t first_offset;      /* base of the first segment of a new log */
    int64_t derived_sum;       /* kl_log_derived_sum at the clean close; -1: unknown */
    int32_t keeps_point;       /* 1: a standalone log, which records its flushed offset */
} kl_open;

/* Results of recovery. */
typedef struct {
    int64_t truncated_bytes;    /* truncated from the tail, including dropped segments */
    int64_t truncated_pos;      /* in the segment below; -1: nothing was truncated */
    int64_t truncated_segment;  /* base offset */
    int32_t segments_recovered; /* number of segments read */
    int32_t segments_dropped;
    int32_t indexes_rebuilt;
    char kept[64]; /* first file with the truncated bytes; empty: none, or zeros */
} kl_recovery;

/* Open or (KL_WRITE) create the log of a partition.  The caller holds the directory's lock.
 * `marker` may be NULL; it must outlive the log.  KL_READ never changes the directory. */
kl_status kl_log_open(const char *path, const kl_log_config *config, const kl_open *how,
                      kl_marker *marker, kl_log **out, kl_recovery *recovery);
/* Clean close: sync, indexes, producer snapshot.  Idempotent.  Waiting calls get KL_E_CLOSED. */
kl_status kl_log_close(kl_log *log);
/* The same without a sync: write no marker before kl_dir_sync_all. */
kl_status kl_log_close_unsynced(kl_log *log);
/* Close files without writing: for a forked child or a failed log. */
void kl_log_abandon(kl_log *log);
void kl_log_free(kl_log *log);
int64_t kl_log_derived_sum(const kl_log *log); /* after a clean close; -1: invalid */
kl_status kl_log_husk(const char *path, kl_log **out); /* closed from the start */
kl_status kl_log_configure(kl_log *log, const kl_log_config *config);

typedef struct {
    int64_t log_start_offset;
    int64_t log_end_offset;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t flushed_offset; /* the recovery point: all below is on disk */
    int64_t size_bytes;     /* of all .log files */
    int64_t generation;     /* changes with each truncation, deletion or swap of segments */
    int32_t segment_count;
    int32_t leader_epoch;
    int32_t last_epoch; /* in leader-epoch-checkpoint; -1: none */
    int32_t offline;    /* 1 after a failed write-back */
    int32_t producer_count;
} kl_log_state;

kl_status kl_log_get(kl_log *log, kl_log_state *out);
/* The counter that the writer of a folder's log shares with all processes: starts and ends of
 * changes to its files, except appends.  Odd: a change is in progress.  -1: no process shares
 * one. */
int64_t kl_log_changes(const char *path);
/* Number of this process's logs that have gone offline; unchanged: none since the last call. */
int64_t kl_logs_failed(void);
/* The states of many logs; `statuses` has each result. */
void kl_log_get_each(kl_log **logs, size_t count, kl_log_state *out, kl_status *statuses);
/* Make a reader check the disk (or the writer's state page) again. */
kl_status kl_log_refresh(kl_log *log);

/* Append one record as one batch.  Returns the offset, or minus a kl_status.  key_bytes,
 * value_bytes -1: null.  timestamp_ms: at least 0; -1: now.  *sync_due 1: flush.messages requires a
 * flush by the caller.  KL_E_UNSUPPORTED_COMPRESSION_TYPE: the log is `compressed`. */
int64_t kl_log_append(kl_log *log, const char *key, int64_t key_bytes, const char *value,
                      int64_t value_bytes, int64_t timestamp_ms, int32_t *sync_due);

typedef struct {
    int64_t base_offset; /* -1: nothing appended */
    int64_t last_offset;
    int64_t log_append_time_ms; /* -1 with CreateTime */
    int64_t log_start_offset;
    int32_t duplicate; /* 1: a duplicate, nothing was written */
    int32_t batch_count;
    int32_t sync_due; /* 1: flush.messages requires a flush; nothing waited for it */
    int64_t cuts;     /* of a replica, before the append: for kl_server_wait */
} kl_appended;

/* Append rows as uncompressed batches of at most `batch_bytes` (0: 1 MiB; never above
 * max.message.bytes) from `cursor` on.  Returns after about 64 MiB or at the end, with the cursor
 * advanced, so that the caller can be interrupted: repeat until cursor->row == columns->count.
 * `now_ms` is the caller's wall clock.  After a failure earlier batches stay appended: see *out. */
kl_status kl_log_append_columns(kl_log *log, const kl_columns *columns, kl_cursor *cursor,
                                int64_t batch_bytes, int64_t now_ms, kl_appended *out);

enum { KL_ORIGIN_CLIENT = 0, KL_ORIGIN_COORDINATOR = 1 };

/* How to append whole batches as the leader. */
typedef struct {
    int32_t origin;
    int32_t leader_epoch;    /* expected; -1: any */
    int32_t one_batch;       /* 1: exactly one batch, as in a Produce request */
    int32_t expects;         /* 1: only if the log ends at expected_offset, */
    int64_t expected_offset; /* otherwise KL_E_UNEXPECTED_APPEND_OFFSET */
    int64_t now_ms;          /* -1: the clock */
    int32_t continues;       /* 1: only in an open transaction; 2: or sequence 0 */
    int32_t raised;   /* 1: markers of transaction version 2, which raise the epoch */
    int32_t in_place; /* 1: `batches` is owned by the caller, stamped without a copy */
    /* 1: the high watermark stays below these records until they are on disk; a sync is requested,
     * but not awaited.  Only if the high watermark follows the end.  2: the same, but the caller
     * syncs. */
    int32_t durable;
    int32_t
        begin_sync; /* 1: start the sync that flush.messages requires; 0: the caller does */
} kl_append_options;

/* Append producers' batches in one write to one segment: all are checked, with sequences, before a
 * byte is written, and a failure leaves none of them; a crash may leave the first ones.  Offsets,
 * epoch and, with LogAppendTime, times are set in a copy.  Uncompressed bodies are checked record
 * by record; the caller checks compressed ones (kl_records_check).  Control batches come alone. */
kl_status kl_log_append_batches(kl_log *log, const uint8_t *batches, size_t bytes,
                                const kl_append_options *options, kl_appended *out);
/* Append batches with their given offsets and epochs, unchanged. */
kl_status kl_log_append_follower(kl_log *log, const uint8_t *batches, size_t bytes,
                                 kl_appended *out);
/* End a transaction in this log: KL_CONTROL_ABORT or KL_CONTROL_COMMIT. */
kl_status kl_log_append_marker(kl_log *log, int64_t producer_id, int16_t producer_epoch,
                               int32_t coordinator_epoch, int32_t control_type,
                               int64_t timestamp_ms, kl_appended *out);

/* ---- durability --------------------------------------------------------------------- */

/* Request a sync of everything up to the current end; *target is that end. */
kl_status kl_log_flush_start(kl_log *log, int64_t *target);
/* Wait until everything below *target is on disk; *target -1: set to the current end.  At most
 * timeout_ms, however long the disk takes: KL_E_TIMEOUT, and the sync continues in another thread;
 * call again.  -1: forever; the calling thread may then run the sync.  KL_E_STORAGE: write-back
 * failed; final. */
kl_status kl_log_flush(kl_log *log, int64_t *target, int32_t timeout_ms);

/* ---- reading ------------------------------------------------------------------------ */

enum { KL_UNCOMMITTED = 0, KL_COMMITTED = 1, KL_LOG_END = 2 }; /* the bound of a read */

typedef struct {
    size_t bytes;  /* whole batches in the buffer */
    size_t wanted; /* with KL_E_BUFFER_TOO_SMALL: size of the first batch */
    int64_t segment_base_offset;
    int64_t pos;         /* in that segment's .log */
    int64_t next_offset; /* offset of the next read */
    int64_t end_offset;  /* the bound applied */
} kl_read;

/* Read whole batches from the one that contains `offset` on, from one segment, below the bound and
 * below `stop_offset` (-1: none): as many as fit, at least one.  bytes = 0: `offset` is the end.
 * KL_E_OFFSET_OUT_OF_RANGE, KL_E_CORRUPT_MESSAGE (`check_crc`), KL_E_BUFFER_TOO_SMALL. */
kl_status kl_log_read(kl_log *log, int64_t offset, int64_t stop_offset, int32_t bound,
                      int32_t check_crc, uint8_t *buffer, size_t buffer_bytes,
                      kl_read *out);
/* [pos, pos + bytes) of a segment's file, kept open and protected from deletion until dropped. */
typedef struct {
    struct kl_segment *segment; /* NULL: none */
    int fd;                     /* for sendfile(2) and pread(2) */
    int64_t pos;
    size_t bytes;
} kl_slice;
/* Whole batches from the one that contains `offset` on, as kl_log_read, for sending: at most
 * max_bytes (but at least one if at_least_one).  None: where->bytes = 0. */
kl_status kl_log_slice(kl_log *log, int64_t offset, int32_t bound, size_t max_bytes,
                       int at_least_one, kl_slice *out, kl_read *where);
/* sendfile(2) to a socket, from `*done` bytes in the slice on; *done advances, even on failure.
 * KL_E_TIMEOUT: the socket accepted nothing for timeout_ms; KL_E_PEER. */
kl_status kl_slice_send(const kl_slice *slice, int socket_fd, size_t *done,
                        int32_t timeout_ms);
/* Release a slice and make it empty; harmless for an empty one. */
void kl_slice_drop(kl_slice *slice);

/* Wait until the bound passes `offset`. KL_E_TIMEOUT: call again. */
kl_status kl_log_wait(kl_log *log, int64_t offset, int32_t bound, int32_t timeout_ms);

typedef struct {
    int64_t offset; /* -1: none */
    int64_t timestamp_ms;
    int32_t leader_epoch;
    int32_t inflate; /* 1: decode the batch at segment, pos (see below) */
    int64_t segment_base_offset;
    int64_t pos;
    int64_t batch_bytes;
    int64_t start_offset; /* ignore records below it */
} kl_found;

/* The first record with a timestamp at or after `timestamp_ms`, as for ListOffsets.  The caller
 * decodes a compressed batch: if found->inflate = 1, read it with kl_log_read_at and search it with
 * kl_records_find from start_offset on; if that finds none, call again with the same `found`
 * (zeroed initially) to continue after it. */
kl_status kl_log_find_time(kl_log *log, int64_t timestamp_ms, kl_found *found);
/* The first record with the largest timestamp (ListOffsets -3); the same protocol. */
kl_status kl_log_find_largest_time(kl_log *log, kl_found *found);
/* Read the whole batch at a position from kl_log_find_* or kl_log_read. */
kl_status kl_log_read_at(kl_log *log, int64_t segment_base_offset, int64_t pos,
                         uint8_t *buffer, size_t buffer_bytes, size_t *bytes);

typedef struct {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the abort marker */
    int64_t last_stable_offset;
} kl_aborted;

/* Aborted transactions that overlap [start, stop): *count found, at most max_entries written (call
 * again with more space if *count > max_entries). */
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

/* The segments from the one that contains `from_offset` on: *count of them, at most max_entries
 * written.  Without `whole` no file is read, and times and entry counts are omitted. */
kl_status kl_log_segments(kl_log *log, int64_t from_offset, int32_t whole,
                          kl_segment_info *out, size_t max_entries, size_t *count);

enum { KL_FILE_LOG = 0, KL_FILE_OFFSET_INDEX = 1, KL_FILE_TIME_INDEX = 2 };
/* A read-only view of a sealed segment's file, mapped while the handle lives: deletion, truncation
 * and compaction replace files and do not change it.  For the active segment's indexes a copy of
 * the entries.  KL_E_ARGUMENT: the active .log. */
typedef struct kl_view kl_view;
kl_status kl_log_view(kl_log *log, int64_t base_offset, int32_t file, kl_view **out);
const uint8_t *kl_view_data(const kl_view *view);
size_t kl_view_bytes(const kl_view *view);
void kl_view_free(kl_view *view);

kl_status kl_log_roll(kl_log *log);
/* Remove all records at and above `offset` (whole batches: the end may become lower); if no
 * undeleted record remains, the empty log continues at `offset`. */
kl_status kl_log_truncate(kl_log *log, int64_t offset);
/* Remove everything; the empty log continues at `offset`. */
kl_status kl_log_truncate_fully(kl_log *log, int64_t offset);
/* Raise the log start (DeleteRecords); the next kl_log_delete_segments deletes files. */
kl_status kl_log_set_start(kl_log *log, int64_t offset);
/* Delete the oldest segments whose next base is <= `before_offset`, by renaming to .deleted.  Rolls
 * the active one first if it has records and all are to go.  *deleted counts segments; their base
 * offsets are written to `bases` (max_bases of them). */
kl_status kl_log_delete_segments(kl_log *log, int64_t before_offset, int64_t *bases,
                                 size_t max_bases, size_t *deleted);
/* Unlink `.deleted` files that were renamed before `before_ms` (INT64_MAX: all of them); *left: how
 * many stay. */
kl_status kl_log_purge(kl_log *log, int64_t before_ms, size_t *files, size_t *left);
/* Another number than before if any log of this process has renamed files to `.deleted` since. */
uint64_t kl_deletions(void);

/* ---- replication and coordination see ------------------------------------------------ */

/* The other replicas allow records below `offset` to be visible (INT64_MAX: all): the high
 * watermark follows the end up to it, and never decreases.  Does not wait for the disk. */
kl_status kl_log_show_until(kl_log *log, int64_t offset);
/* Become leader of `epoch` at the current end.  The first flush writes it to disk; until then only
 * the caller's source has it.  KL_E_FENCED_LEADER_EPOCH: older than the log's. */
kl_status kl_log_set_leader_epoch(kl_log *log, int32_t epoch);
typedef struct {
    int64_t start_offset;
    int32_t epoch;
} kl_epoch;
kl_status kl_log_epochs(kl_log *log, kl_epoch *out, size_t max_entries, size_t *count);
/* As OffsetForLeaderEpoch: *found_epoch, *end_offset = -1: unknown. */
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

/* Limit of open files of all logs (default: half of RLIMIT_NOFILE). */
void kl_set_max_open_files(int64_t max_open);
int64_t kl_open_files(void);

/* A compressed batch for the caller to decode.  The bytes are valid until the next step of the scan
 * or cleaner that returned it. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
    int64_t base_offset;
    int32_t codec;
    int32_t record_count;
} kl_compressed;

/* ---- compaction ------------------------------------------------------------------------ */

/* One round over a log: collect the keys of batches from first_dirty_offset on, as many as the map
 * holds; then rewrite every segment below their end without the records replaced by a later one of
 * their key. */
typedef struct {
    int64_t first_dirty_offset; /* below it each key occurs once */
    int64_t end_offset;         /* only segments that end at or below it are rewritten */
    int64_t now_ms;             /* for delete horizons */
    int64_t delete_retention_ms;
    int64_t map_bytes;    /* size of the map, 24 bytes per entry */
    double map_load;      /* maximum load of the map: above 0, at most 0.95 */
    int64_t pause_bytes;  /* bytes read and written between returns to the caller */
    uint8_t hash_key[16]; /* random; another one per round */
} kl_clean_options;

typedef struct {
    int64_t end_offset; /* end of the keys in the map: start of the next round */
    int64_t map_entries;
    int64_t bytes_read; /* of both passes */
    int64_t bytes_written;
    int64_t records_before; /* in the rewritten segments */
    int64_t records_after;
    int64_t bytes_before;
    int64_t bytes_after;
    int64_t generation; /* of the log after the last swap of segments */
    int32_t segments_before;
    int32_t segments_after;
} kl_cleaned;

typedef struct kl_cleaner kl_cleaner;
enum { KL_CLEAN_PAUSE = 0, KL_CLEAN_INFLATE = 1, KL_CLEAN_DEFLATE = 2, KL_CLEAN_END = 3 };

/* Begin a round; nothing is written before the first step.  KL_E_LOCKED: another is in progress.
 * Appends and reads continue; one thread at a time may use a cleaner.  It uses the log's handle
 * until kl_clean_free, which leaves unfinished segments unchanged. */
kl_status kl_clean_open(kl_log *log, const kl_clean_options *options, kl_cleaner **out);
/* Continue.  KL_CLEAN_PAUSE: step again.  KL_CLEAN_INFLATE, KL_CLEAN_DEFLATE: `bodies` has *count
 * bodies to decompress or compress, valid until the next step; pass each, in order, to
 * kl_clean_give, then step again.  KL_CLEAN_END: everything is on disk.  KL_E_STALE: the log was
 * truncated or deleted from since; finished steps stay. */
kl_status kl_clean_step(kl_cleaner *cleaner, kl_compressed *bodies, int32_t max_bodies,
                        int32_t *count, int32_t *state);
kl_status kl_clean_give(kl_cleaner *cleaner, int32_t index, const uint8_t *data,
                        size_t bytes);
void kl_clean_get(const kl_cleaner *cleaner, kl_cleaned *out);
void kl_clean_free(kl_cleaner *cleaner);
/* The hash of keys in a round: SipHash-2-4 with 128 bits. */
void kl_clean_hash(const uint8_t key[16], const uint8_t *data, size_t bytes,
                   uint8_t out[16]);

/* cffi: end */

#include "columns.h"
#include "server.h"

/* Only in the test build (_kl_test): docs/architecture.md, "Hooks for tests". */
#ifdef KL_TEST
/* cffi: test begin */
/* Failpoints: a name does `action` on its `after`-th hit from now (1: the next). */
enum { KL_FP_OFF = 0, KL_FP_KILL = 1, KL_FP_ERROR = 2 };
int kl_failpoint_set(const char *name, int action, int error_number, int64_t after);
int kl_failpoint_count(void);
const char *kl_failpoint_name(int index);
int64_t kl_failpoint_hits(const char *name);
void kl_failpoint_reset(void);

/* The I/O table: fail the N-th call of one kind (NULL: any kind) with errno, once or from then on;
 * short_bytes > 0: reads and writes transfer this much instead. */
int kl_io_fail(const char *call, int64_t nth, int error_number, int sticky,
               int64_t short_bytes);
void kl_io_reset(void);
int64_t kl_io_calls(const char *call); /* since the last reset; NULL: all kinds */
/* Calls of one kind wait: all, those waiting already, the nth from now.  -1: no such kind. */
enum { KL_HOLD_NONE = 0, KL_HOLD_ALL = 1, KL_HOLD_WAITING = 2 };
int kl_io_hold(const char *call, int hold);
int kl_io_hold_one(const char *call, int64_t nth);
int64_t kl_io_waiting(const char *call);
/* Make each fdatasync appear to take `ms`: the monotonic clock advances by it, without a wait. */
void kl_io_stall(int64_t ms);
/* Record every changing call into a file descriptor as lines of JSON; -1: stop. */
int kl_io_record(int fd);
/* cffi: test end */
#endif
#endif
