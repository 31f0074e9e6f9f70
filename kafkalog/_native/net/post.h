/* post.h: a thread's mailbox: messages from other threads, and its wake-up. */
#ifndef KL_POST_H
#define KL_POST_H

#include "base/base.h"
#include "base/system.h"

/* A message, embedded in its subject; in at most one box. */
typedef struct kl_letter kl_letter;
struct kl_letter {
    kl_letter *next;
};

typedef enum {
    KL_POST_ANSWER, /* Python answered */
    KL_POST_WAKE,   /* a parked request may continue */
    KL_POST_WARM,   /* a piece of a file is in memory */
    KL_POST_BOXES
} kl_post_box;

/* Any thread may put and ring; only the owner takes. */
typedef struct {
    kl_wake wake;        /* rung once per needed wake-up */
    _Atomic(bool) awake; /* the thread will check the boxes before it sleeps */
    _Atomic(kl_letter *) boxes[KL_POST_BOXES];
} kl_post;

kl_status kl_post_init(kl_post *post);
void kl_post_free(kl_post *post);
/* The letter now belongs to its reader: do not touch its subject. */
void kl_post_put(kl_post *post, kl_post_box box, kl_letter *letter);
/* All letters of a box, oldest first. */
kl_letter *kl_post_take(kl_post *post, kl_post_box box);
bool kl_post_any(kl_post *post);
/* Wake the thread, so that it checks its boxes and flags. */
void kl_post_ring(kl_post *post);

#endif
