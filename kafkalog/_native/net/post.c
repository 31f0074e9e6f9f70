/* post.c: see post.h. */
#include "post.h"

#include <errno.h>

kl_status kl_post_init(kl_post *post) {
    if (kl_wake_init(&post->wake))
        return kl_fail_errno(errno, "no descriptors for a network thread");
    return KL_OK;
}

void kl_post_free(kl_post *post) { kl_wake_close(&post->wake); }

void kl_post_ring(kl_post *post) {
    if (!atomic_exchange(&post->awake, true)) kl_wake_ring(&post->wake);
}

void kl_post_put(kl_post *post, kl_post_box box, kl_letter *letter) {
    letter->next = atomic_load_explicit(&post->boxes[box], memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&post->boxes[box], &letter->next, letter))
        continue;
    kl_post_ring(post);
}

kl_letter *kl_post_take(kl_post *post, kl_post_box box) {
    kl_letter *list = NULL, *next;
    /* The list is in reverse order. */
    for (kl_letter *one = atomic_exchange(&post->boxes[box], NULL); one; one = next) {
        next = one->next;
        one->next = list;
        list = one;
    }
    return list;
}

bool kl_post_any(kl_post *post) {
    for (int box = 0; box < KL_POST_BOXES; box++)
        if (atomic_load(&post->boxes[box])) return true;
    return false;
}
