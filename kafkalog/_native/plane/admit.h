/* admit.h: a principal's rights on a topic, and its throttle time.
 *
 * Produce and Fetch check here first, and report usage here.  Python sets the table; any thread may
 * read or change it without a lock: a change applies to every lookup that begins after it. */
#ifndef KL_ADMIT_H
#define KL_ADMIT_H

#include "topics.h"

typedef struct kl_admission kl_admission;

kl_status kl_admission_new(kl_admission **out);
void kl_admission_free(kl_admission *admission); /* NULL is fine */

/* As kl_server_set_permit and kl_server_get_usage.  *changed: the rights differ from before. */
kl_status kl_admission_set(kl_admission *admission, int32_t principal,
                           const kl_permit *permit, bool *changed);
kl_status kl_admission_usage(const kl_admission *admission, int32_t principal,
                             kl_usage *out);

/* True if a principal has the right (one of KL_MAY_*) on a topic, which need not exist.  A
 * principal that is not in the table has none. */
bool kl_admits(const kl_admission *admission, int32_t principal, int32_t right,
               const kl_topic_key *topic);
/* Count a request that used the right, and its denied partitions; returns how many milliseconds the
 * principal must wait until its next request. */
int32_t kl_admission_count(kl_admission *admission, int32_t principal, int32_t right,
                           int64_t bytes, int64_t denied);

#endif
