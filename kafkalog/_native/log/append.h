/* append.h: checks that the ways of appending share. */
#ifndef KL_APPEND_H
#define KL_APPEND_H

#include "log.h"

/* KL_E_INVALID_TIMESTAMP outside of message.timestamp.before/after.max.ms. */
kl_status kl_append_check_time(const kl_log *log, int64_t timestamp_ms, int64_t now_ms);
/* What this log's settings ask of each record of an uncompressed batch: keys (compacted),
 * the timestamp window.  `deep`: also structure and the batch's own numbers, with
 * *max_timestamp then corrected in `batch`. */
kl_status kl_append_check_records(const kl_log *log, kl_batch *batch,
                                  const uint8_t *records, size_t bytes, int64_t now_ms,
                                  bool deep);

/* A record that the log refuses, and why, in words for its producer. */
typedef struct {
    int32_t index; /* in its batch */
    char text[140];
} kl_record_fault;
/* The records of an uncompressed batch that this log's settings refuse, at most `max` of
 * them, after an append of it failed with KL_E_INVALID_RECORD or KL_E_INVALID_TIMESTAMP.
 * None are found where the batch itself is not sound. */
typedef struct {
    kl_record_fault *faults;
    size_t max;
    size_t count;
} kl_record_faults;
kl_status kl_log_find_faults(kl_log *log, kl_span batch, int64_t now_ms,
                             kl_record_faults *out);

#endif
