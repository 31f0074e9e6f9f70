/* batch.h: the record batch, magic 2: header, checks, in-place stamps; docs/format.md, "Record
 * batch". */
#ifndef KL_BATCH_H
#define KL_BATCH_H

#include "base/bytes.h"

/*   pos  bytes  field
 *     0      8  baseOffset            not in the crc: the leader stamps it
 *     8      4  batchLength           bytes after this field
 *    12      4  partitionLeaderEpoch  not in the crc: the leader stamps it
 *    16      1  magic
 *    17      4  crc                   CRC-32C of pos 21 to the end
 *    21      2  attributes
 *    23      4  lastOffsetDelta
 *    27      8  baseTimestamp
 *    35      8  maxTimestamp
 *    43      8  producerId
 *    51      2  producerEpoch
 *    53      4  baseSequence
 *    57      4  recordsCount
 *    61         records */
enum {
    POS_BASE_OFFSET = 0,
    POS_BATCH_LENGTH = 8,
    POS_LEADER_EPOCH = 12,
    POS_MAGIC = 16,
    POS_CRC = 17,
    POS_ATTRIBUTES = 21,
    POS_LAST_OFFSET_DELTA = 23,
    POS_BASE_TIMESTAMP = 27,
    POS_MAX_TIMESTAMP = 35,
    POS_PRODUCER_ID = 43,
    POS_PRODUCER_EPOCH = 51,
    POS_BASE_SEQUENCE = 53,
    POS_RECORD_COUNT = 57,
    POS_RECORDS = 61,
    LENGTH_OVERHEAD = 12,   /* bytes that batchLength excludes */
    MAGIC_BYTES_NEEDED = 17 /* to determine a batch's format */
};
KL_STATIC_ASSERT(POS_ATTRIBUTES == POS_CRC + 4, "the crc covers all that follows it");
KL_STATIC_ASSERT(POS_BATCH_LENGTH == POS_BASE_OFFSET + 8 &&
                     POS_LEADER_EPOCH == POS_BATCH_LENGTH + 4,
                 "as the table says");
KL_STATIC_ASSERT((int)LENGTH_OVERHEAD == (int)POS_LEADER_EPOCH,
                 "batchLength counts what follows it");
KL_STATIC_ASSERT(POS_MAGIC == POS_LEADER_EPOCH + 4 && POS_CRC == POS_MAGIC + 1,
                 "as the table says");
KL_STATIC_ASSERT((int)MAGIC_BYTES_NEEDED == (int)POS_MAGIC + 1, "up to the magic");
KL_STATIC_ASSERT(POS_LAST_OFFSET_DELTA == POS_ATTRIBUTES + 2 &&
                     POS_BASE_TIMESTAMP == POS_LAST_OFFSET_DELTA + 4 &&
                     POS_MAX_TIMESTAMP == POS_BASE_TIMESTAMP + 8,
                 "as the table says");
KL_STATIC_ASSERT(POS_PRODUCER_ID == POS_MAX_TIMESTAMP + 8 &&
                     POS_PRODUCER_EPOCH == POS_PRODUCER_ID + 8 &&
                     POS_BASE_SEQUENCE == POS_PRODUCER_EPOCH + 2,
                 "as the table says");
KL_STATIC_ASSERT(POS_RECORD_COUNT == POS_BASE_SEQUENCE + 4 &&
                     POS_RECORDS == POS_RECORD_COUNT + 4,
                 "as the table says");
KL_STATIC_ASSERT((int)POS_RECORDS == (int)KL_BATCH_HEADER_BYTES,
                 "records follow the header");

static inline int kl_batch_codec(const kl_batch *batch) {
    return batch->attributes & KL_CODEC_MASK;
}
static inline bool kl_batch_is_control(const kl_batch *batch) {
    return batch->attributes & KL_ATTR_CONTROL;
}
static inline bool kl_batch_is_transactional(const kl_batch *batch) {
    return batch->attributes & KL_ATTR_TRANSACTIONAL;
}
/* `sequence` + `increment`, modulo 2^31 as producers count. */
int32_t kl_sequence_add(int32_t sequence, int32_t increment);

/* kl_batch_parse of the 61 readable bytes at `data`; the caller checks that the rest of the batch
 * (out->batch_bytes) is there.  Zeroed on failure. */
kl_status kl_batch_header(const uint8_t *data, kl_batch *out);
/* Write the header of a batch of `batch_bytes` whose records are at out + 61, with its crc. Uses
 * the stored fields of `header`, except crc, magic and batch_bytes. */
void kl_batch_put_header(uint8_t *out, size_t batch_bytes, const kl_batch *header);
/* The same for records with this kl_crc32c, which are not read. */
void kl_batch_put_header_over(uint8_t *out, size_t batch_bytes, const kl_batch *header,
                              uint32_t records_crc);

/* Stamp the fields outside the crc. */
static inline void kl_batch_assign(uint8_t *batch, int64_t base_offset, int32_t epoch) {
    kl_put64(batch + POS_BASE_OFFSET, (uint64_t)base_offset);
    kl_put32(batch + POS_LEADER_EPOCH, (uint32_t)epoch);
}
/* Set maxTimestamp and, with `log_append_time`, the attribute bit; updates the crc. */
void kl_batch_set_time(uint8_t *batch, size_t bytes, int64_t max_timestamp,
                       bool log_append_time);
/* The type of a control batch (KL_CONTROL_*), and the coordinator epoch of a transaction marker,
 * otherwise -1.  Type -1: compaction removed the record.  `data` is the whole batch.
 * KL_E_CORRUPT_MESSAGE: the record does not parse. */
kl_status kl_batch_control(const kl_batch *batch, const uint8_t *data, int32_t *type,
                           int32_t *coordinator_epoch);
enum { KL_MARKER_BYTES_MAX = 96 };
/* Build a marker batch at `out` (KL_MARKER_BYTES_MAX), identical to Kafka's 78 bytes; returns its
 * size. */
size_t kl_batch_build_marker(uint8_t *out, int64_t producer_id, int16_t producer_epoch,
                             int32_t coordinator_epoch, int32_t type, int64_t timestamp_ms);
/* Size limit of a key or a value. */
enum { KL_PART_BYTES_MAX = INT32_MAX };
/* Report an invalid record timestamp; KL_E_ARGUMENT. */
kl_status kl_batch_bad_time(int64_t timestamp_ms);
/* The size of a batch of one record; -1: null, at most KL_PART_BYTES_MAX each. */
size_t kl_batch_one_bytes(int64_t key_bytes, int64_t value_bytes);
/* Write a batch of one record to `out`, which has enough space, at most 2 GiB. */
void kl_batch_build_one(uint8_t *out, const uint8_t *key, int64_t key_bytes,
                        const uint8_t *value, int64_t value_bytes, int64_t timestamp_ms);

#endif
