/* read.h: what reads and lookups share. */
#ifndef KL_READ_H
#define KL_READ_H

#include "log.h"

enum { KL_STALE_TRIES = 200 }; /* how often a read begins again because segments changed */

/* KL_E_STALE when segments changed since the log was at `generation`, here or, for a reader,
 * by its writer. Takes the lock. */
kl_status kl_log_unchanged(kl_log *log, int64_t generation);

typedef struct {
    int64_t offset; /* from the batch that holds it on */
    kl_batch *batches;
    int32_t room;
    int32_t count;   /* 0: `offset` is the end, or a gap before the next segment */
    bool one_by_one; /* set for the next call: batches are large, so each is a small read */
} kl_headers;
/* The headers of the batches that kl_log_read gives, without their bodies: no CRC is looked at,
 * but those of a sealed segment are held against its side-car.  After a failure ask kl_log_read
 * for the batches: of what is damaged the good ones come first there. */
kl_status kl_log_read_headers(kl_log *log, int64_t stop_offset, int32_t bound,
                              kl_headers *into);

#endif
