/* statepage.h: what the writer tells other processes without a lock or a system call.
 *
 * One page of shared memory per log, on the memory file system /dev/shm: a mapped page of
 * a disk file can stall in write-back, and raises SIGBUS when its file system fails.  Named
 * by device and inode of the partition's folder.  A reader without a valid page (another
 * container, no /dev/shm, a writer that is not us) scans the tail of the log instead. */
#ifndef KL_STATEPAGE_H
#define KL_STATEPAGE_H

#include <sys/stat.h>

#include "base/base.h"

/* A snapshot of the page; also how the writer gives values to it. */
typedef struct {
    int64_t generation; /* odd while segments are being changed */
    int64_t log_start_offset;
    int64_t log_end_offset;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t flushed_offset;
    int64_t active_base_offset;
    int64_t active_bytes; /* valid bytes of the active segment */
} kl_page_values;

typedef struct kl_statepage kl_statepage;

/* Writer: make or take over the page of `folder`.  *out = NULL where there is no memory file
 * system. */
kl_status kl_statepage_create(const struct stat *folder, kl_statepage **out);
/* The generation that the page had when it was taken over; 0 for a new one. */
int64_t kl_statepage_generation(const kl_statepage *page);
void kl_statepage_publish(kl_statepage *page, const kl_page_values *values);
/* Reader: *out = NULL when there is no page of a living writer. */
kl_status kl_statepage_open(const char *dir_path, kl_statepage **out);
/* Reader: a consistent snapshot; false when the writer closed or died. */
bool kl_statepage_read(const kl_statepage *page, kl_page_values *values);
/* Reader: whether the writer's process still lives; a few system calls. */
bool kl_statepage_lives(const kl_statepage *page);
/* Writer: tell readers that no one keeps it up to date any more, and remove it. */
void kl_statepage_close(kl_statepage *page, bool writer);

#endif
