/* finished.h: requests that took long, or all, for the log of requests. */
#ifndef KL_FINISHED_H
#define KL_FINISHED_H

#include "base/notices.h"

typedef struct kl_exchange kl_exchange;

enum { KL_FINISHED_KEPT = 512 }; /* until Python takes them; more are counted */

typedef struct {
    _Atomic int64_t least_ns; /* those that took as long are kept; INT64_MAX: none */
    kl_notices all;
    kl_finished kept[KL_FINISHED_KEPT];
} kl_finished_log;

void kl_finished_init(kl_finished_log *log);
void kl_finished_free(kl_finished_log *log);
/* A request was received: decide if it may be logged, and keep what its frame says. */
void kl_finished_begin(kl_exchange *exchange);
/* The last byte of its answer was sent, or it has none; its times are complete. */
void kl_finished_end(const kl_exchange *exchange);

#endif
