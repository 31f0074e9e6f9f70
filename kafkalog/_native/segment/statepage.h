/* statepage.h: what the writer shows other processes without a lock or a system call.
 *
 * One page of shared memory per log, on the memory file system /dev/shm: a mapped page of
 * a disk file can stall in write-back, and raises SIGBUS when its file system fails.  Named
 * by device and inode of the partition's folder.  A reader without a valid page (another
 * container, no /dev/shm, a writer that is not us) scans the tail of the log instead.
 *
 * Behind the page, in the same file, lie the entries of the active segment's indexes, as
 * they are in the writer's memory: on file they are only when it is sealed.  They never move
 * or change while generation and active segment are the same, so that a reader takes those
 * below the count that it read, and then looks whether that was so. */
#ifndef KL_STATEPAGE_H
#define KL_STATEPAGE_H

#include <sys/stat.h>

#include "index.h"

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
    /* Entries of its indexes that lie behind the page, and whether those are all. */
    int64_t offset_entries;
    int64_t time_entries;
    int64_t entries_whole;
} kl_page_values;

typedef struct kl_statepage kl_statepage;

/* KL_E_LOCKED: another writer keeps the page of `folder`, at `path`: it came by another path,
 * where another lock lies. */
kl_status kl_statepage_check(const char *path, const struct stat *folder);
/* Writer: make or take over the page of `folder`, with room for `rows` entries behind it.
 * *out = NULL where there is no memory file system.  KL_E_LOCKED: as kl_statepage_check. */
kl_status kl_statepage_create(const char *path, const struct stat *folder, size_t rows,
                              kl_statepage **out);
/* The generation that the page had when it was taken over; 0 for a new one. */
int64_t kl_statepage_generation(const kl_statepage *page);
/* All of `values` but the counts of entries, which kl_statepage_share makes. */
void kl_statepage_publish(kl_statepage *page, const kl_page_values *values);
/* Writer: put entries behind the page that are new since kl_index.shown, for the next
 * publish to count: those of the active segment, not while the generation is odd.  Where
 * memory files have no room to spare no further ones are shown. */
void kl_statepage_share(kl_statepage *page, kl_index *offsets, kl_index *times);
/* Reader: *out = NULL when there is no page of a living writer. */
kl_status kl_statepage_open(const char *dir_path, kl_statepage **out);
/* Reader: a consistent snapshot; false when the writer closed or died. */
bool kl_statepage_read(const kl_statepage *page, kl_page_values *values);
/* Reader: add the entries that `values` counts to those that were taken before, or none where
 * the file is not to be had any more.
 * KL_E_STALE: they are no longer those of `values`, and what the indexes hold is not right. */
kl_status kl_statepage_take(kl_statepage *page, const kl_page_values *values,
                            kl_index *offsets, kl_index *times);
/* Reader: whether the writer's process still lives; a few system calls. */
bool kl_statepage_lives(const kl_statepage *page);
/* Writer: a change of its files, other than an append, begins or has ended. */
void kl_statepage_change(kl_statepage *page, bool under_way);
/* Reader: how often the writer reported that, odd while a change is under way; -1 when the writer
 * closed or died. */
int64_t kl_statepage_changes(const kl_statepage *page);
/* Writer: tell readers that no one keeps it up to date any more, and remove it. */
void kl_statepage_close(kl_statepage *page, bool writer);

#endif
