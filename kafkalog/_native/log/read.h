/* read.h: shared by reads and lookups. */
#ifndef KL_READ_H
#define KL_READ_H

#include "log.h"

enum { KL_STALE_TRIES = 200 }; /* restarts of a read because segments changed */

/* KL_E_STALE if segments changed since `generation`, in this process or, for a reader, by its
 * writer.  Takes the lock. */
kl_status kl_log_unchanged(kl_log *log, int64_t generation);

typedef struct {
    int64_t offset; /* start with the batch that contains it */
    kl_batch *batches;
    int32_t room;
    int32_t count;   /* 0: `offset` is the end, or in a gap before the next segment */
    bool one_by_one; /* for the next call: batches are large, read each header separately */
} kl_headers;
/* The headers of the batches that kl_log_read would return.  Does not check CRCs, but compares
 * headers of a sealed segment with its side-car.  After a failure call kl_log_read: it returns the
 * good batches before the damage. */
kl_status kl_log_read_headers(kl_log *log, int64_t stop_offset, int32_t bound,
                              kl_headers *into);

#endif
