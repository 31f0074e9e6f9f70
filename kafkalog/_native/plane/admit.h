/* admit.h: may this principal do this with this topic, and how long must it wait?
 *
 * Produce and Fetch ask here before they do anything, and report here what they did.  The
 * answers are in a table that Python sets, which any thread may read and change without a lock: a
 * change holds for every look-up that begins after it. */
#ifndef KL_ADMIT_H
#define KL_ADMIT_H

#include "topics.h"

typedef struct kl_admission kl_admission;

kl_status kl_admission_new(kl_admission **out);
void kl_admission_free(kl_admission *admission); /* NULL is fine */

/* As kl_server_set_permit and kl_server_get_usage.  *changed: it had other rights before. */
kl_status kl_admission_set(kl_admission *admission, int32_t principal,
                           const kl_permit *permit, bool *changed);
kl_status kl_admission_usage(const kl_admission *admission, int32_t principal,
                             kl_usage *out);

/* Whether a principal has the right (one of KL_MAY_*) on a topic, which need not exist.  One
 * that is not in the table has none. */
bool kl_admits(const kl_admission *admission, int32_t principal, int32_t right,
               const kl_topic_key *topic);
/* Count a request that exercised the right, and partitions that were denied; returns for how many
 * milliseconds the principal must wait until its next request. */
int32_t kl_admission_count(kl_admission *admission, int32_t principal, int32_t right,
                           int64_t bytes, int64_t denied);

#endif
