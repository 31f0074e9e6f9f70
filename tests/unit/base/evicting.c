/* evicting.c: base/file.c, with a write in the very moment in which an eviction closes its file. */
#include <stdatomic.h>

static void in_between(void);
#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong(at, wanted, value)   \
    (in_between(), atomic_compare_exchange_strong_explicit( \
                       at, wanted, value, memory_order_seq_cst, memory_order_seq_cst))
#include "base/file.c"

static kl_file *to_write; /* by the next exchange, once */

static void in_between(void) {
    kl_file *file = to_write;
    to_write = NULL;
    if (file != NULL) KL_ASSERT(kl_file_write(file, "x", 1, 0) == KL_OK);
}

/* Two files are open, and one has to be closed: the first is written as its turn comes.  A bit for
 * each that is still open: 1 the first, 2 the second. */
int open_after_an_eviction(const char *dir_path, int writes) {
    kl_file *first, *second;
    kl_set_max_open_files(8);
    KL_ASSERT(kl_file_create(dir_path, "first", &first) == KL_OK);
    KL_ASSERT(kl_file_create(dir_path, "second", &second) == KL_OK);
    to_write = writes ? first : NULL;
    kl_set_max_open_files(1);
    int open = atomic_load(&first->state) & FILE_OPEN ? 1 : 0;
    open |= atomic_load(&second->state) & FILE_OPEN ? 2 : 0;
    kl_file_drop(first);
    kl_file_drop(second);
    return open;
}

/* A write, a sync, and a look as above at what is closed: the bits. */
int open_after_a_sync(const char *dir_path, int writes_again) {
    kl_file *first, *second;
    kl_set_max_open_files(8);
    KL_ASSERT(kl_file_create(dir_path, "first", &first) == KL_OK);
    KL_ASSERT(kl_file_create(dir_path, "second", &second) == KL_OK);
    KL_ASSERT(kl_file_write(first, "x", 1, 0) == KL_OK);
    KL_ASSERT(kl_file_sync(first) == KL_OK);
    if (writes_again) KL_ASSERT(kl_file_write(first, "y", 1, 0) == KL_OK);
    atomic_store(&first->touched, false);
    kl_set_max_open_files(1);
    int open = atomic_load(&first->state) & FILE_OPEN ? 1 : 0;
    open |= atomic_load(&second->state) & FILE_OPEN ? 2 : 0;
    kl_file_drop(first);
    kl_file_drop(second);
    return open;
}
