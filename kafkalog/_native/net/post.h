/* post.h: a thread's mailbox: messages from other threads, and what ends its sleep. */
#ifndef KL_POST_H
#define KL_POST_H

#include "base/base.h"

/* A message.  It is embedded in its subject, and is in at most one box. */
typedef struct kl_letter kl_letter;
struct kl_letter {
    kl_letter *next;
};

typedef enum {
    KL_POST_ANSWER, /* of Python's */
    KL_POST_WAKE,   /* a parked request may go on */
    KL_POST_WARM,   /* a piece of a file came into memory */
    KL_POST_BOXES
} kl_post_box;

/* Any thread may put and ring; its own thread takes. */
typedef struct {
    int wake_fd;         /* readable by an edge for each ring that is needed; never read */
    _Atomic(bool) awake; /* it will look into the boxes before it sleeps */
    _Atomic(kl_letter *) boxes[KL_POST_BOXES];
} kl_post;

kl_status kl_post_init(kl_post *post);
void kl_post_free(kl_post *post);
/* From now on the letter belongs to its reader: do not touch its subject any more. */
void kl_post_put(kl_post *post, kl_post_box box, kl_letter *letter);
/* All of a box, the oldest first. */
kl_letter *kl_post_take(kl_post *post, kl_post_box box);
bool kl_post_any(kl_post *post);
/* Make sure that the thread wakes, and checks its boxes and flags. */
void kl_post_ring(kl_post *post);

#endif
