/* list.h: rings through what they hold: in and out without a search. */
#ifndef KL_LIST_H
#define KL_LIST_H

#include "base.h"

/* A place in a ring, or the ring's head.  Zeroed: in no ring. */
typedef struct kl_link kl_link;
struct kl_link {
    kl_link *next, *previous;
};

/* What holds this link. */
#define KL_HOLDER(link, type, member) \
    ((type *)(void *)((char *)(link) - offsetof(type, member)))

static inline void kl_ring_init(kl_link *head) { head->next = head->previous = head; }
static inline bool kl_link_in(const kl_link *link) { return link->next != NULL; }
/* The first of the ring, NULL when there is none. */
static inline kl_link *kl_ring_first(const kl_link *head) {
    return head->next == head ? NULL : head->next;
}
static inline void kl_link_remove(kl_link *link) {
    if (!kl_link_in(link)) return;
    KL_ASSERT(link->next->previous == link && link->previous->next == link);
    link->next->previous = link->previous;
    link->previous->next = link->next;
    link->next = link->previous = NULL;
}
/* To the end of the ring, wherever it was. */
static inline void kl_link_last(kl_link *head, kl_link *link) {
    kl_link_remove(link);
    link->previous = head->previous;
    link->next = head;
    head->previous->next = link;
    head->previous = link;
}
/* To its beginning. */
static inline void kl_link_first(kl_link *head, kl_link *link) {
    kl_link_last(head->next, link);
}

#endif
