/* fault.h: named failpoints.  In release builds they compile to nothing.
 *
 *   KL_FP("segment.roll.created");            kill -9 here when set to KL_FP_KILL
 *   status = KL_FP_STATUS("append.write");    KL_OK, or a failure when set to KL_FP_ERROR
 *
 * Each name appears once in the sources; kl_failpoint_name lists them all, hit or not. */
#ifndef KL_FAULT_H
#define KL_FAULT_H

#include "base.h"

#ifdef KL_TEST
typedef struct kl_failpoint {
    const char *name;
    _Atomic int64_t hits;
    _Atomic int64_t after; /* hits left; acts at 0 */
    _Atomic int action;
    _Atomic int error_number;
} kl_failpoint;
kl_status kl_failpoint_hit(kl_failpoint *point);

/* A pointer in its own section: the linker collects the complete list. */
#ifdef __APPLE__
#define KL_FP_SECTION "__DATA,kl_failpoints"
#else
#define KL_FP_SECTION "kl_failpoints"
#endif
#define KL_FP_STATUS(fp_name)                                            \
    __extension__({                                                      \
        static kl_failpoint kl_fp_here = {fp_name, 0, 0, 0, 0};          \
        static kl_failpoint *const kl_fp_listed                          \
            __attribute__((section(KL_FP_SECTION), used)) = &kl_fp_here; \
        (void)kl_fp_listed;                                              \
        kl_failpoint_hit(&kl_fp_here);                                   \
    })
#define KL_FP(fp_name) ((void)KL_FP_STATUS(fp_name))
#else
#define KL_FP_STATUS(fp_name) KL_OK
#define KL_FP(fp_name) ((void)0)
#endif

#endif
