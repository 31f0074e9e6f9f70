/* aborts.h: the aborted-transaction index of one segment; docs/format.md, "Aborted transactions".
 * Small, so always in memory.  The log's lock guards it. */
#ifndef KL_ABORTS_H
#define KL_ABORTS_H

#include "base/buffer.h"
#include "base/file.h"

enum { ABORT_ENTRY_BYTES = 34 };

typedef struct {
    int64_t base_offset;
    kl_aborted *entries;
    size_t count;
    size_t capacity;
    size_t saved; /* entries on file */
    bool loaded;
} kl_aborts;

void kl_aborts_init(kl_aborts *aborts, int64_t base_offset);
/* Read the file; missing: no entries.  KL_E_CORRUPT: a version above 0, an odd size, offsets that
 * decrease or are outside [base_offset, offset_limit).  The caller then rebuilds from the log. */
kl_status kl_aborts_load(kl_aborts *aborts, kl_dir *dir, int64_t offset_limit);
kl_status kl_aborts_add(kl_aborts *aborts, const kl_aborted *entry);
/* Write the entries that are not on file yet; the first entry creates the file. */
kl_status kl_aborts_save(kl_aborts *aborts, kl_dir *dir, bool sync);
/* Write all entries to a new file and rename it; without entries, unlink the file. */
kl_status kl_aborts_rewrite(kl_aborts *aborts, kl_dir *dir, bool sync);
/* CRC-32C of the encoded entries. */
uint32_t kl_aborts_crc(const kl_aborts *aborts);
/* The bytes of entries from `first` on; free with kl_release. */
kl_status kl_aborts_encode(const kl_aborts *aborts, size_t first, uint8_t **data,
                           size_t *bytes);
void kl_aborts_truncate(kl_aborts *aborts, int64_t offset); /* drop last_offset >= offset */
/* After a truncate that undid the last add: shorten the file, too, which needs no disk space. */
kl_status kl_aborts_cut(kl_aborts *aborts, kl_dir *dir);
void kl_aborts_clear(kl_aborts *aborts);
void kl_aborts_free(kl_aborts *aborts);
/* Entries that overlap [start, stop), to `out` from *count on (counted, but not written, past
 * max_entries); true if the search can end: an entry's last_stable_offset >= stop. */
bool kl_aborts_find(const kl_aborts *aborts, int64_t start, int64_t stop, kl_aborted *out,
                    size_t max_entries, size_t *count);

#endif
