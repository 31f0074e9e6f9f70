/* kept.h: keeps bytes that a recovery truncates, as `.damaged` files in the log's folder. */
#ifndef KL_KEPT_H
#define KL_KEPT_H

#include "segment.h"

/* With this many in a folder, a recovery truncates nothing more: KL_E_CORRUPT explains. */
enum { KL_KEPT_FILES_MAX = 1000 };

/* KL_E_CORRUPT: there are too many already. */
kl_status kl_kept_check(kl_dir *dir);
/* Durably copy the bytes [pos, end) of `segment` to a new file, after kl_kept_check; no file if
 * they are all zero, so never written.  Stores the file's name in `first` if that is empty.  The
 * segment is unchanged. */
kl_status kl_keep_tail(kl_segment *segment, kl_dir *dir, int64_t pos, int64_t end,
                       char first[KL_NAME_BYTES]);
/* Rename the whole `.log`; its derived files stay. */
kl_status kl_keep_segment(kl_segment *segment, kl_dir *dir, char first[KL_NAME_BYTES]);

#endif
