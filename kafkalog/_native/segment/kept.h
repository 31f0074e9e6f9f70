/* kept.h: what a recovery cuts from a log stays in its folder, in `.damaged` files. */
#ifndef KL_KEPT_H
#define KL_KEPT_H

#include "segment.h"

/* If a folder has this many, a recovery cuts nothing more: KL_E_CORRUPT says what to do with
 * them. */
enum { KL_KEPT_FILES_MAX = 1000 };

/* KL_E_CORRUPT: there are already too many. */
kl_status kl_kept_check(kl_dir *dir);
/* Copy the bytes [pos, end) of `segment` into a new file, on disk on return; no
 * file for bytes that are all zero, so never written, else a kl_kept_check.  `first` gets its
 * name when it is empty.  The segment stays as it is. */
kl_status kl_keep_tail(kl_segment *segment, kl_dir *dir, int64_t pos, int64_t end,
                       char first[KL_NAME_BYTES]);
/* Rename the whole `.log`; what was derived from it stays. */
kl_status kl_keep_segment(kl_segment *segment, kl_dir *dir, char first[KL_NAME_BYTES]);

#endif
