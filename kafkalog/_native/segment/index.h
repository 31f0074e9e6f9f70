/* index.h: the sparse offset and time indexes of one segment, in memory and on disk;
 * docs/format.md, "Offset index" and "Time index".
 *
 * The active segment's entries are in memory and written (kl_index_save) when it is sealed, at a
 * roll or a close; after a crash they are rebuilt.  A sealed segment's file is loaded on first use:
 * mapped, or copied if small.  Not thread-safe: the segment's lock guards it. */
#ifndef KL_INDEX_H
#define KL_INDEX_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/file.h"

enum { OFFSET_ENTRY_BYTES = 8, TIME_ENTRY_BYTES = 12 };

KL_STATIC_ASSERT(OFFSET_ENTRY_BYTES == sizeof(int32_t) + sizeof(int32_t),
                 "an offset less the base, a position");
KL_STATIC_ASSERT(TIME_ENTRY_BYTES == sizeof(int64_t) + sizeof(int32_t),
                 "a timestamp, an offset less the base");

typedef enum { KL_OFFSET_INDEX, KL_TIME_INDEX } kl_index_kind;

typedef struct {
    kl_index_kind kind;
    int64_t base_offset;
    /* In memory: entries in the file's format; the first `saved` of them are on file. */
    kl_buffer entries;
    size_t saved;
    size_t shown; /* visible to readers: kl_statepage_share */
    bool on_file; /* the file exists and ends with the saved entries */
    /* Mapped (sealed); NULL if in memory. */
    const uint8_t *map;
    size_t map_bytes;
    size_t count; /* of usable entries, in memory or mapped */
    bool loaded;
} kl_index;

typedef struct {
    int64_t offset;
    int64_t pos;
} kl_offset_entry;
typedef struct {
    int64_t timestamp;
    int64_t offset;
} kl_time_entry;

void kl_index_init(kl_index *index, kl_index_kind kind, int64_t base_offset);
/* Load the usable entries of the file: strictly increasing in offset (timestamp for time), below
 * `offset_limit` and (offset index) `pos_limit`; ignore the rest, including zero tails.
 * `into_memory` (active) or mapped (sealed; a small one may be copied).  *sane: the size is a
 * multiple and every entry usable.  A missing file: *sane false, no entries, KL_OK. */
kl_status kl_index_load(kl_index *index, kl_dir *dir, int64_t offset_limit,
                        int64_t pos_limit, bool into_memory, bool *sane);
/* Add an entry in memory; fails only with KL_E_NO_MEMORY.  Ignores invalid entries: an offset or
 * position that does not grow or fit 31 bits, position 0, a timestamp that does not grow or is
 * negative. */
kl_status kl_index_add_offset(kl_index *index, int64_t offset, int64_t pos);
kl_status kl_index_add_time(kl_index *index, int64_t timestamp, int64_t offset);
/* Write unsaved entries: pwrite at their position, or all entries to a new file if the old one is
 * missing or has other bytes after the saved ones. */
kl_status kl_index_save(kl_index *index, kl_dir *dir, bool sync);
/* Write all entries to a new file and rename it over the old one: for sealed segments, which
 * readers may have mapped. */
kl_status kl_index_rewrite(kl_index *index, kl_dir *dir, bool sync);
/* The same; on a full disk it leaves no file, and the index is rebuilt when it is needed. */
kl_status kl_index_rewrite_if_room(kl_index *index, kl_dir *dir);
void kl_index_clear(kl_index *index); /* no entries, in memory, nothing saved */
/* Drop entries with offset >= `offset`, in memory only; adjusts `saved` (the caller rewrites the
 * file). */
kl_status kl_index_truncate(kl_index *index, int64_t offset);
void kl_index_unload(kl_index *index); /* unmap or free a saved index, to be loaded again */
void kl_index_free(kl_index *index);

/* The entries in the file's format. */
kl_span kl_index_bytes(const kl_index *index);
kl_offset_entry kl_index_offset_at(const kl_index *index, size_t i);
kl_time_entry kl_index_time_at(const kl_index *index, size_t i);
/* The last entry with offset <= `offset`, or {base_offset, 0}. */
kl_offset_entry kl_index_find_offset(const kl_index *index, int64_t offset);
/* The first entry with offset >= `offset`, whose batch may contain it; false: none. */
bool kl_index_next_offset(const kl_index *index, int64_t offset, kl_offset_entry *out);
/* The number of entries with an offset < `offset`. */
size_t kl_index_count_below(const kl_index *index, int64_t offset);
/* The last entry with timestamp <= `timestamp`, or {-1, base_offset}. */
kl_time_entry kl_index_find_time(const kl_index *index, int64_t timestamp);
/* "00000000000000000042.index": 20 digits and the suffix; `out` has KL_NAME_BYTES. */
enum { KL_NAME_BYTES = 64 };
void kl_segment_name(char *out, int64_t base_offset, const char *suffix);
/* Parse the base offset of a name with exactly this suffix; false: another name. */
bool kl_segment_name_parse(const char *name, const char *suffix, int64_t *base_offset);

#endif
