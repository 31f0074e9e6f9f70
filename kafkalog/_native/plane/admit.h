/* admit.h: a principal's rights on a topic, and its throttle time.
 *
 * Produce and Fetch check here first, and report usage here.  Python sets the table.  Rights on all
 * resources are read without a lock; rules about single ones under the lock of their principal, so
 * that no request uses outdated ones. */
#ifndef KL_ADMIT_H
#define KL_ADMIT_H

#include "base/notices.h"
#include "rules.h"
#include "topics.h"

typedef struct kl_admission kl_admission;

kl_status kl_admission_new(kl_admission **out);
void kl_admission_free(kl_admission *admission); /* NULL is fine */

/* As kl_server_set_permit and kl_server_get_usage.  *changed: the rights differ from before. */
kl_status kl_admission_set(kl_admission *admission, int32_t principal,
                           const kl_permit *permit, bool *changed);
kl_status kl_admission_usage(const kl_admission *admission, int32_t principal,
                             kl_usage *out);

/* As kl_server_outdate_rules and kl_server_set_rules. */
kl_status kl_admission_outdate(kl_admission *admission, const kl_rules *common);
kl_status kl_admission_set_rules(kl_admission *admission, int32_t principal,
                                 const kl_judgement *judgement);

/* The latest denials, until they are taken: kl_denial. */
kl_notices *kl_admission_denials(kl_admission *admission);

/* The decisions about one request. */
typedef struct kl_principal kl_principal;
typedef struct {
    kl_admission *admission;
    kl_principal *principal; /* locked; NULL: `all` decides */
    int32_t number;          /* of the principal */
    int32_t tenure;          /* of the principal; the caller sets it */
    int32_t right;
    bool all;   /* it has the right on everything */
    bool quiet; /* the caller sets it: denials are not kept, as Python has logged them */
} kl_judge;

/* Begin to decide about a right, one of KL_MAY_*.  False: the principal's rules are outdated, and
 * Python must set them first.  Else its rules stay as they are until the end; only the locks of
 * topics and sessions may be taken before that.  A principal that is not in the table has no
 * right. */
bool kl_judge_begin(kl_admission *admission, int32_t principal, int32_t right,
                    kl_judge *out);
void kl_judge_end(kl_judge *judge);
/* True if it has the right on a resource, which need not exist, of a type (KL_RULES_*).  A denial
 * is kept for kl_server_take_denial. */
bool kl_judge_allows(const kl_judge *judge, int32_t kind, kl_span name);

/* Count a request that used the right, and its denied partitions; returns how many milliseconds the
 * principal must wait until its next request. */
int32_t kl_admission_count(kl_admission *admission, int32_t principal, int32_t right,
                           int64_t bytes, int64_t denied);

#endif
