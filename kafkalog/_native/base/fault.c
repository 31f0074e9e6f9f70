/* fault.c: named failpoints, in test builds only. */
#include "fault.h"

#ifdef KL_TEST
#include <signal.h>
#include <unistd.h>

/* Bounds of the section that KL_FP_STATUS fills: the linker's names. */
#ifdef __APPLE__
extern kl_failpoint *const listed_from[] __asm("section$start$__DATA$kl_failpoints");
extern kl_failpoint *const listed_until[] __asm("section$end$__DATA$kl_failpoints");
#else
#define listed_from __start_kl_failpoints
#define listed_until __stop_kl_failpoints
extern kl_failpoint *const listed_from[] __attribute__((weak, visibility("hidden")));
extern kl_failpoint *const listed_until[] __attribute__((weak, visibility("hidden")));
#endif

int kl_failpoint_count(void) { return (int)(listed_until - listed_from); }

const char *kl_failpoint_name(int index) {
    if (index < 0 || index >= kl_failpoint_count()) return NULL;
    return listed_from[index]->name;
}

static kl_failpoint *find(const char *name) {
    for (int i = 0; i < kl_failpoint_count(); i++)
        if (strcmp(listed_from[i]->name, name) == 0) return listed_from[i];
    return NULL;
}

int kl_failpoint_set(const char *name, int action, int error_number, int64_t after) {
    kl_failpoint *point = find(name);
    if (!point) return -1;
    atomic_store(&point->action,
                 KL_FP_OFF); /* so that no hit sees a mixture of old and new values */
    atomic_store(&point->error_number, error_number);
    atomic_store(&point->after, after);
    atomic_store(&point->action, action);
    return 0;
}

int64_t kl_failpoint_hits(const char *name) {
    kl_failpoint *point = find(name);
    return point ? atomic_load(&point->hits) : -1;
}

void kl_failpoint_reset(void) {
    for (int i = 0; i < kl_failpoint_count(); i++) {
        atomic_store(&listed_from[i]->action, KL_FP_OFF);
        atomic_store(&listed_from[i]->hits, 0);
    }
}

kl_status kl_failpoint_hit(kl_failpoint *point) {
    atomic_fetch_add(&point->hits, 1);
    int action = atomic_load(&point->action);
    if (action == KL_FP_OFF || atomic_fetch_sub(&point->after, 1) != 1) return KL_OK;
    if (action == KL_FP_KILL) {
        kill(getpid(), SIGKILL);
        for (;;) pause(); /* nothing after the failpoint may happen */
    }
    return kl_fail_errno(atomic_load(&point->error_number), "failpoint %s", point->name);
}
#endif
