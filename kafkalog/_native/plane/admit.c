/* admit.c: see admit.h. */
#include "admit.h"

enum {
    RIGHTS_ALL = KL_MAY_READ | KL_MAY_WRITE | KL_MAY_REPLICATE,
    DENIALS_KEPT = 16 /* different ones */
};

struct kl_principal {
    _Atomic int32_t rights;   /* KL_MAY_*, on all resources */
    pthread_mutex_t deciding; /* guards the members below, down to own */
    bool ruled;               /* its rights depend on rules, */
    bool current;             /* which are known */
    bool unnamed;             /* what no rule names is allowed */
    kl_ruleset *common[KL_RULES_KINDS];
    kl_ruleset *own[KL_RULES_KINDS];
    _Atomic int32_t throttle_ms;
    _Atomic int64_t produce_requests, produce_bytes;
    _Atomic int64_t fetch_requests, fetch_bytes;
    _Atomic int64_t denied;
};

typedef struct kl_principal entry;

struct kl_admission {
    /* Set once, under the lock.  Entries live as long as the table, so readers need none. */
    _Atomic(entry *) entries[KL_PRINCIPALS_MAX];
    pthread_mutex_t setting; /* taken before an entry's lock; guards the next two */
    int32_t used;            /* entries from here on were never set */
    kl_ruleset *common[KL_RULES_KINDS];
    kl_notices denials;
    kl_denial denials_kept[DENIALS_KEPT];
};

kl_status kl_admission_new(kl_admission **out) {
    kl_admission *admission = *out = kl_alloc(sizeof *admission);
    if (admission == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a table of principals");
    pthread_mutex_init(&admission->setting, NULL);
    kl_notices_init(&admission->denials, admission->denials_kept, sizeof(kl_denial),
                    DENIALS_KEPT);
    return KL_OK;
}

static void drop_all(kl_ruleset **sets) {
    for (int kind = 0; kind < KL_RULES_KINDS; kind++) {
        kl_ruleset_drop(sets[kind]);
        sets[kind] = NULL;
    }
}

/* Its rules, which are outdated. */
static void forget(entry *one) {
    drop_all(one->common);
    drop_all(one->own);
    one->current = false;
}

void kl_admission_free(kl_admission *admission) {
    if (admission == NULL) return;
    for (int32_t i = 0; i < admission->used; i++) {
        entry *one = atomic_load(&admission->entries[i]);
        if (one == NULL) continue;
        forget(one);
        pthread_mutex_destroy(&one->deciding);
        kl_release(one);
    }
    drop_all(admission->common);
    kl_notices_free(&admission->denials);
    pthread_mutex_destroy(&admission->setting);
    kl_release(admission);
}

static entry *find(const kl_admission *admission, int32_t principal) {
    if (principal < 0 || principal >= KL_PRINCIPALS_MAX) return NULL;
    return atomic_load_explicit(&admission->entries[principal], memory_order_acquire);
}

/* Locked.  NULL: no memory. */
static entry *obtain(kl_admission *admission, int32_t principal) {
    KL_ASSERT_HELD(&admission->setting);
    entry *one = find(admission, principal);
    if (one == NULL) {
        one = kl_alloc(sizeof *one);
        if (one == NULL) return NULL;
        pthread_mutex_init(&one->deciding, NULL);
        admission->used = KL_MAX(admission->used, principal + 1);
        atomic_store_explicit(&admission->entries[principal], one, memory_order_release);
    }
    return one;
}

static kl_status check_number(int32_t principal) {
    if (principal >= 0 && principal < KL_PRINCIPALS_MAX) return KL_OK;
    return kl_fail(KL_E_ARGUMENT, "principal %d is out of range: 0 to %d are accepted",
                   principal, KL_PRINCIPALS_MAX - 1);
}

kl_status kl_admission_set(kl_admission *admission, int32_t principal,
                           const kl_permit *permit, bool *changed) {
    *changed = false;
    kl_status status = check_number(principal);
    if (status) return status;
    if (permit->rights & ~RIGHTS_ALL || permit->throttle_ms < 0)
        return kl_fail(KL_E_ARGUMENT, "rights %#x or a throttle time of %d ms is invalid",
                       (unsigned)permit->rights, permit->throttle_ms);
    kl_lock(&admission->setting);
    entry *one = obtain(admission, principal);
    if (one) {
        kl_lock(&one->deciding);
        *changed =
            atomic_exchange(&one->rights, permit->rights) != permit->rights || one->ruled;
        one->ruled = false;
        forget(one);
        kl_unlock(&one->deciding);
        atomic_store(&one->throttle_ms, permit->throttle_ms);
    }
    kl_unlock(&admission->setting);
    return one ? KL_OK : kl_fail(KL_E_NO_MEMORY, "no memory for a principal");
}

kl_status kl_admission_usage(const kl_admission *admission, int32_t principal,
                             kl_usage *out) {
    entry *one = find(admission, principal);
    if (one == NULL) return kl_fail(KL_E_NOT_FOUND, "there is no principal %d", principal);
    *out = (kl_usage){
        .produce_requests = atomic_load(&one->produce_requests),
        .produce_bytes = atomic_load(&one->produce_bytes),
        .fetch_requests = atomic_load(&one->fetch_requests),
        .fetch_bytes = atomic_load(&one->fetch_bytes),
        .denied = atomic_load(&one->denied),
    };
    return KL_OK;
}

/* Copies of the rules of each kind; on failure there are none. */
static kl_status copy_rules(const kl_rules *rules, kl_ruleset **out) {
    kl_status status = KL_OK;
    for (int kind = 0; kind < KL_RULES_KINDS; kind++) out[kind] = NULL;
    for (int kind = 0; !status && kind < KL_RULES_KINDS; kind++)
        status = kl_ruleset_new(&rules[kind], &out[kind]);
    if (status) drop_all(out);
    return status;
}

kl_status kl_admission_outdate(kl_admission *admission, const kl_rules *common) {
    kl_ruleset *fresh[KL_RULES_KINDS];
    kl_status status = copy_rules(common, fresh);
    kl_lock(&admission->setting);
    drop_all(admission->common);
    memcpy(admission->common, fresh, sizeof fresh);
    for (int32_t i = 0; i < admission->used; i++) {
        entry *one = find(admission, i);
        if (one == NULL) continue;
        kl_lock(&one->deciding);
        if (one->ruled) {
            atomic_store(&one->rights, 0);
            forget(one);
        }
        kl_unlock(&one->deciding);
    }
    kl_unlock(&admission->setting);
    return status;
}

kl_status kl_admission_set_rules(kl_admission *admission, int32_t principal,
                                 const kl_judgement *judgement) {
    kl_ruleset *fresh[KL_RULES_KINDS];
    kl_status status = check_number(principal);
    if (!status && judgement->rights & ~RIGHTS_ALL)
        status =
            kl_fail(KL_E_ARGUMENT, "rights %#x are invalid", (unsigned)judgement->rights);
    if (!status) status = copy_rules(judgement->own, fresh);
    if (status) return status;
    kl_lock(&admission->setting);
    entry *one = obtain(admission, principal);
    if (one) {
        kl_lock(&one->deciding);
        forget(one);
        atomic_store(&one->rights, judgement->rights);
        memcpy(one->own, fresh, sizeof fresh);
        for (int kind = 0; kind < KL_RULES_KINDS; kind++)
            one->common[kind] = kl_ruleset_retain(admission->common[kind]);
        one->unnamed = judgement->unnamed != 0;
        one->ruled = one->current = true;
        kl_unlock(&one->deciding);
    } else {
        drop_all(fresh);
    }
    kl_unlock(&admission->setting);
    return one ? KL_OK : kl_fail(KL_E_NO_MEMORY, "no memory for a principal");
}

bool kl_judge_begin(kl_admission *admission, int32_t principal, int32_t right,
                    kl_judge *out) {
    entry *one = find(admission, principal);
    bool all = one && atomic_load_explicit(&one->rights, memory_order_relaxed) & right;
    *out =
        (kl_judge){.admission = admission, .number = principal, .right = right, .all = all};
    if (one == NULL || all) return true;
    kl_lock(&one->deciding);
    if (!one->ruled || one->current) {
        out->principal = one;
        return true;
    }
    kl_unlock(&one->deciding);
    return false;
}

void kl_judge_end(kl_judge *judge) {
    if (judge->principal) kl_unlock(&judge->principal->deciding);
    judge->principal = NULL;
    judge->all = false;
}

static bool decide(const kl_judge *judge, int32_t kind, kl_span name) {
    const entry *one = judge->principal;
    if (one == NULL || !one->ruled || judge->right == KL_MAY_REPLICATE) return judge->all;
    bool writes = judge->right == KL_MAY_WRITE;
    int32_t found =
        kl_ruleset_find(one->common[kind], name) | kl_ruleset_find(one->own[kind], name);
    if (found & (writes ? KL_RULE_NO_WRITE : KL_RULE_NO_READ)) return false;
    if (found & (writes ? KL_RULE_WRITE : KL_RULE_READ)) return true;
    return one->unnamed && !(found & KL_RULE_NAMED);
}

kl_notices *kl_admission_denials(kl_admission *admission) { return &admission->denials; }

/* A follower's right is on the cluster, whatever it reads. */
static void keep(const kl_judge *judge, int32_t kind, kl_span name) {
    kl_denial one = {.principal = judge->number,
                     .right = judge->right,
                     .kind = kind,
                     .tenure = judge->tenure};
    size_t bytes = judge->right == KL_MAY_REPLICATE ? 0 : name.bytes;
    KL_STATIC_ASSERT(sizeof one == 4 * sizeof(int32_t) + sizeof one.name +
                                       sizeof one.tenure + sizeof one.lost,
                     "no padding: denials are compared by their bytes");
    bytes = KL_MIN(bytes, sizeof one.name);
    if (bytes > 0) memcpy(one.name, name.data, bytes);
    one.name_bytes = (int32_t)bytes;
    (void)kl_notices_put_once(&judge->admission->denials, &one);
}

bool kl_judge_allows(const kl_judge *judge, int32_t kind, kl_span name) {
    bool allowed = decide(judge, kind, name);
    if (KL_UNLIKELY(!allowed) && !judge->quiet) keep(judge, kind, name);
    return allowed;
}

static void add(_Atomic int64_t *to, int64_t more) {
    atomic_fetch_add_explicit(to, more, memory_order_relaxed);
}

int32_t kl_admission_count(kl_admission *admission, int32_t principal, int32_t right,
                           int64_t bytes, int64_t denied) {
    entry *one = find(admission, principal);
    if (one == NULL) return 0;
    bool writes = right == KL_MAY_WRITE;
    add(writes ? &one->produce_requests : &one->fetch_requests, 1);
    add(writes ? &one->produce_bytes : &one->fetch_bytes, bytes);
    if (KL_UNLIKELY(denied > 0)) add(&one->denied, denied);
    return atomic_load_explicit(&one->throttle_ms, memory_order_relaxed);
}
