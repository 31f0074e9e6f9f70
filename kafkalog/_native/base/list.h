/* list.h: doubly linked rings through their elements: constant-time insertion and removal. */
#ifndef KL_LIST_H
#define KL_LIST_H

#include "base.h"

/* A link of an element, or a ring's head.  Zeroed: in no ring. */
typedef struct kl_link kl_link;
struct kl_link {
    kl_link *next, *previous;
};

/* The element that contains this link. */
#define KL_HOLDER(link, type, member) \
    ((type *)(void *)((char *)(link) - offsetof(type, member)))

static inline void kl_ring_init(kl_link *head) { head->next = head->previous = head; }
static inline bool kl_link_in(const kl_link *link) { return link->next != NULL; }
/* The ring's first link, or NULL. */
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
/* Move to the end of the ring. */
static inline void kl_link_last(kl_link *head, kl_link *link) {
    kl_link_remove(link);
    link->previous = head->previous;
    link->next = head;
    head->previous->next = link;
    head->previous = link;
}
/* Move to its start. */
static inline void kl_link_first(kl_link *head, kl_link *link) {
    kl_link_last(head->next, link);
}

#endif
