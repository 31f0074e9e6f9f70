/* statepage.h: state that a writer shares with other processes without locks or system calls.
 *
 * One page of shared memory per log, on the memory file system /dev/shm: a mapped page of a disk
 * file can stall in write-back, and raises SIGBUS when its file system fails.  Named by device and
 * inode of the partition's folder.  A reader without a valid page (another container, no /dev/shm,
 * a foreign writer) scans the tail of the log instead.
 *
 * After the page, the same file has the entries of the active segment's indexes, which are on disk
 * only once it is sealed.  They do not change while generation and active segment are the same, so
 * a reader copies as many as the count says, then checks that both are unchanged. */
#ifndef KL_STATEPAGE_H
#define KL_STATEPAGE_H

#include <sys/stat.h>

#include "index.h"

/* A snapshot of the page; also the values that a writer publishes. */
typedef struct {
    int64_t generation; /* odd while segments are changing */
    int64_t log_start_offset;
    int64_t log_end_offset;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t flushed_offset;
    int64_t active_base_offset;
    int64_t active_bytes; /* valid bytes of the active segment */
    /* Index entries after the page, and whether they are complete. */
    int64_t offset_entries;
    int64_t time_entries;
    int64_t entries_whole;
} kl_page_values;

typedef struct kl_statepage kl_statepage;

/* KL_E_LOCKED: another writer maintains the page of `folder`; it opened the folder by a path with
 * another lock file. */
kl_status kl_statepage_check(const char *path, const struct stat *folder);
/* Writer: create or take over the page of `folder`, with space for `rows` entries.  *out = NULL: no
 * memory file system.  KL_E_LOCKED: as kl_statepage_check. */
kl_status kl_statepage_create(const char *path, const struct stat *folder, size_t rows,
                              kl_statepage **out);
/* The page's generation at takeover; 0 for a new page. */
int64_t kl_statepage_generation(const kl_statepage *page);
/* Publish `values`, except the counts of entries, which kl_statepage_share sets. */
void kl_statepage_publish(kl_statepage *page, const kl_page_values *values);
/* Writer: add the active segment's entries since kl_index.shown, counted by the next publish; not
 * while the generation is odd.  Adds none if the memory file system is short of space. */
void kl_statepage_share(kl_statepage *page, kl_index *offsets, kl_index *times);
/* Reader: *out = NULL: no page of a living writer. */
kl_status kl_statepage_open(const char *dir_path, kl_statepage **out);
/* Reader: a consistent snapshot; false: the writer closed or died. */
bool kl_statepage_read(const kl_statepage *page, kl_page_values *values);
/* Reader: add the new entries that `values` counts, or none if the file is gone.  KL_E_STALE: they
 * are no longer those of `values`, and the indexes are wrong. */
kl_status kl_statepage_take(kl_statepage *page, const kl_page_values *values,
                            kl_index *offsets, kl_index *times);
/* Reader: true if the writer's process lives; a few system calls. */
bool kl_statepage_lives(const kl_statepage *page);
/* Writer: a change of its files, other than an append, begins or ends. */
void kl_statepage_change(kl_statepage *page, bool under_way);
/* Reader: the writer's count of such changes, odd during one; -1: the writer closed or died. */
int64_t kl_statepage_changes(const kl_statepage *page);
/* Writer: tell readers that the page is no longer maintained, and remove it. */
void kl_statepage_close(kl_statepage *page, bool writer);

#endif
