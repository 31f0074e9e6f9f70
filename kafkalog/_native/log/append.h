/* append.h: shared by all kinds of append. */
#ifndef KL_APPEND_H
#define KL_APPEND_H

#include "batch/check.h"
#include "log.h"

/* Locked.  The rules that this log's settings impose on batches, at `now_ms`. */
kl_batch_rules kl_log_rules(const kl_log *log, int64_t now_ms, int32_t origin);

/* Locked.  Append finished, consecutive batches, none of them a control batch, in one write: all or
 * nothing. */
kl_status kl_log_append_run_locked(kl_log *log, kl_span run, int64_t now_ms);

/* A batch that a producer is about to append, from its header. */
typedef struct {
    int64_t bytes;
    int64_t max_timestamp;
    int64_t offsets;
    int64_t now_ms; /* the caller's wall clock, also passed to the append */
} kl_upcoming;
/* True if the append needs no disk work beyond its own write, and no wait for another writer. */
bool kl_log_is_ready(kl_log *log, const kl_upcoming *next);
/* Do any other work first, such as a roll, or wait for the writer that does it.  The append repeats
 * and reports a failure. */
void kl_log_make_ready(kl_log *log, const kl_upcoming *next);

/* A refused record, and the reason as text for its producer. */
typedef struct {
    int32_t index; /* in its batch */
    char text[140];
} kl_record_fault;
/* After an append of an uncompressed batch failed with KL_E_INVALID_RECORD or
 * KL_E_INVALID_TIMESTAMP: the records that the log's settings refuse, at most `max`.  None if the
 * batch itself is invalid. */
typedef struct {
    kl_record_fault *faults;
    size_t max;
    size_t count;
} kl_record_faults;
kl_status kl_log_find_faults(kl_log *log, kl_span batch, int64_t now_ms,
                             kl_record_faults *out);

/* True if a transactional batch belongs to a transaction that is open in the log; otherwise the
 * coordinator must be asked first. */
bool kl_log_is_open(kl_log *log, const kl_batch *batch);

#endif
