/* rules.h: what some ACLs allow and deny, by the name of a resource.
 *
 * Immutable once it is made, and counted: principals share what applies to all of them. */
#ifndef KL_RULES_H
#define KL_RULES_H

#include "base/bytes.h"
#include "server.h"

typedef struct kl_ruleset kl_ruleset;

/* A copy of `rules`.  KL_E_ARGUMENT: the names are not sorted, or bits are unknown.
 * KL_E_NO_MEMORY. */
kl_status kl_ruleset_new(const kl_rules *rules, kl_ruleset **out);
kl_ruleset *kl_ruleset_retain(kl_ruleset *set); /* NULL is fine, as below */
void kl_ruleset_drop(kl_ruleset *set);
/* KL_RULE_* of all rules that apply to this name. */
int32_t kl_ruleset_find(const kl_ruleset *set, kl_span name);

#endif
