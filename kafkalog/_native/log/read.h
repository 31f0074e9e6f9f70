/* read.h: what reads and lookups share. */
#ifndef KL_READ_H
#define KL_READ_H

#include "log.h"

enum { KL_STALE_TRIES = 200 }; /* how often a read begins again because segments changed */

/* KL_E_STALE when segments changed since the log was at `generation`, here or, for a reader,
 * by its writer. Takes the lock. */
kl_status kl_log_unchanged(kl_log *log, int64_t generation);

#endif
