/* check.h: a topic's rules for batches appended to its log (Kafka's LogValidator).  Pure: needs no
 * log and no lock. */
#ifndef KL_CHECK_H
#define KL_CHECK_H

#include "record.h"

typedef struct {
    kl_record_rules records; /* with LogAppendTime, without time limits */
    int64_t batch_bytes_max; /* max.message.bytes */
    int64_t segment_bytes;
    bool log_append_time;
    bool from_client; /* not from a coordinator */
} kl_batch_rules;

/* KL_E_MESSAGE_TOO_LARGE above max.message.bytes, KL_E_RECORD_LIST_TOO_LARGE above
 * segment.bytes. */
kl_status kl_check_size(const kl_batch_rules *rules, int64_t bytes);
/* KL_E_INVALID_TIMESTAMP beyond message.timestamp.before/after.max.ms. */
kl_status kl_check_time(const kl_batch_rules *rules, int64_t timestamp_ms);
/* True if the settings impose rules on records that we built ourselves. */
bool kl_check_is_needed(const kl_batch_rules *rules);
/* Check a producer's batch: header, crc, and every record if it is not compressed.  `data` is our
 * copy: maxTimestamp is set to the records' maximum or, with LogAppendTime, to now.
 * KL_E_BUFFER_TOO_SMALL: the batch extends beyond `bytes`. */
kl_status kl_check_batch(const kl_batch_rules *rules, uint8_t *data, size_t bytes,
                         kl_batch *out);

#endif
