/* append.h: what all kinds of append share. */
#ifndef KL_APPEND_H
#define KL_APPEND_H

#include "batch/check.h"
#include "log.h"

/* Locked.  This log's requirements on batches, at `now_ms`. */
kl_batch_rules kl_log_rules(const kl_log *log, int64_t now_ms, int32_t origin);

/* Locked.  Append finished batches that belong together, consecutive at `run`, none of them a
 * control batch: one write, which leaves nothing if it fails. */
kl_status kl_log_append_run_locked(kl_log *log, kl_span run, int64_t now_ms);

/* A batch that a producer is about to append, as its header says. */
typedef struct {
    int64_t bytes;
    int64_t max_timestamp;
    int64_t offsets;
    int64_t now_ms; /* the caller's wall clock, which its append will be given too */
} kl_upcoming;
/* Whether its append needs no disk work beyond its own write, and need not wait for a writer. */
bool kl_log_is_ready(kl_log *log, const kl_upcoming *next);
/* Do the other work that it needs, such as a roll, or wait for the writer that does it.  A failure
 * here occurs again in the append, which reports it. */
void kl_log_make_ready(kl_log *log, const kl_upcoming *next);

/* A record that the log refuses, and the reason, as text for its producer. */
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

/* Whether a transactional batch continues a transaction that is open in the log; for others, the
 * coordinator must be asked first. */
bool kl_log_is_open(kl_log *log, const kl_batch *batch);

#endif
