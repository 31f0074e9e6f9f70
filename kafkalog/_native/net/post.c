/* post.c: see post.h. */
#include "post.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

kl_status kl_post_init(kl_post *post) {
    post->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (post->wake_fd < 0) return kl_fail_errno(errno, "no eventfd for a network thread");
    return KL_OK;
}

void kl_post_free(kl_post *post) {
    if (post->wake_fd >= 0) close(post->wake_fd);
}

void kl_post_ring(kl_post *post) {
    static const uint64_t one = 1;
    if (atomic_exchange(&post->awake, true)) return;
    while (write(post->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
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
