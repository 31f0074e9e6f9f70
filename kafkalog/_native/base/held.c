/* held.c: the mutexes held by each thread, in test builds, to assert comments such as "Locked." */
#include "base.h"

#ifdef KL_TEST

/* Only a fork takes more, those of all servers: these are not tracked. */
enum { HELD_MAX = 32 };
static _Thread_local const pthread_mutex_t *held[HELD_MAX];
static _Thread_local size_t held_count, unknown_count;

static size_t find(const pthread_mutex_t *mutex) {
    size_t i = held_count;
    while (i > 0 && held[i - 1] != mutex) i--;
    return i;
}

bool kl_holds(const pthread_mutex_t *mutex) { return find(mutex) > 0 || unknown_count > 0; }

void kl_note_locked(const pthread_mutex_t *mutex) {
    KL_ASSERT(find(mutex) == 0);
    if (held_count < HELD_MAX) held[held_count++] = mutex;
    else unknown_count++;
}

void kl_note_unlocked(const pthread_mutex_t *mutex) {
    size_t i = find(mutex);
    KL_ASSERT(i > 0 || unknown_count > 0);
    if (i > 0) held[i - 1] = held[--held_count];
    else unknown_count--;
}

#endif
