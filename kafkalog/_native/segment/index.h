/* index.h: the sparse offset and time indexes of one segment, in memory and on disk.
 * docs/format.md, "Offset index" and "Time index".
 *
 * The active segment's entries live in memory and are written (kl_index_save) when it is
 * sealed, at a roll or a close; after a crash they are rebuilt.  A sealed segment's file is
 * loaded at first use: mapped, or copied when it is small.  Not thread-safe: the segment's lock
 * guards it. */
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
    /* In memory: entries in the file's own bytes; `saved` entries are on file already. */
    kl_buffer entries;
    size_t saved;
    size_t shown; /* to readers: kl_statepage_share */
    bool on_file; /* the file is there and ends with the saved entries */
    /* Mapped (sealed): NULL when not. */
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
/* Take entries from the file, as many as are usable: strictly increasing in offset
 * (timestamp for time), below `offset_limit` and (offset index) `pos_limit`; the rest is
 * ignored, zero tails too.  `into_memory` (active) or mapped (sealed; a small one may be
 * copied).  *sane: the file is whole: size a multiple, every entry usable. A missing file:
 * *sane false, no entries, KL_OK. */
kl_status kl_index_load(kl_index *index, kl_dir *dir, int64_t offset_limit,
                        int64_t pos_limit, bool into_memory, bool *sane);
/* Add an entry to one that is in memory; only KL_E_NO_MEMORY can fail.  What no index may
 * hold is passed over: an offset or position that does not grow or fit into 31 bits,
 * position 0, a timestamp that does not grow or is negative. */
kl_status kl_index_add_offset(kl_index *index, int64_t offset, int64_t pos);
kl_status kl_index_add_time(kl_index *index, int64_t timestamp, int64_t offset);
/* Write what is not yet on file: pwrite at its place, or all of it to a new file when the
 * old one is missing or holds other bytes behind the saved ones. */
kl_status kl_index_save(kl_index *index, kl_dir *dir, bool sync);
/* Write all entries to a new file and rename it over the old one: for sealed segments,
 * which readers may have mapped. */
kl_status kl_index_rewrite(kl_index *index, kl_dir *dir, bool sync);
/* The same; on a full disk there is no file then, and it is made again when it is needed. */
kl_status kl_index_rewrite_if_room(kl_index *index, kl_dir *dir);
void kl_index_clear(kl_index *index); /* no entries, in memory, nothing saved */
/* Drop entries with offset >= `offset`; in memory only, `saved` adjusted (the caller
 * rewrites the file). */
kl_status kl_index_truncate(kl_index *index, int64_t offset);
void kl_index_unload(kl_index *index); /* unmap or forget a saved one: load it again */
void kl_index_free(kl_index *index);

/* The file that the entries make. */
kl_span kl_index_bytes(const kl_index *index);
kl_offset_entry kl_index_offset_at(const kl_index *index, size_t i);
kl_time_entry kl_index_time_at(const kl_index *index, size_t i);
/* The last entry with offset <= `offset`; {base_offset, 0} when there is none. */
kl_offset_entry kl_index_find_offset(const kl_index *index, int64_t offset);
/* The first entry with offset >= `offset`, that is, whose batch may hold it; false: none. */
bool kl_index_next_offset(const kl_index *index, int64_t offset, kl_offset_entry *out);
/* How many entries have an offset < `offset`. */
size_t kl_index_count_below(const kl_index *index, int64_t offset);
/* The last entry with timestamp <= `timestamp`; {-1, base_offset} when there is none. */
kl_time_entry kl_index_find_time(const kl_index *index, int64_t timestamp);
/* "00000000000000000042.index": 20 digits and the suffix; `out` has KL_NAME_BYTES. */
enum { KL_NAME_BYTES = 64 };
void kl_segment_name(char *out, int64_t base_offset, const char *suffix);
/* The base offset of such a name with exactly this suffix; false when it is another. */
bool kl_segment_name_parse(const char *name, const char *suffix, int64_t *base_offset);

#endif
