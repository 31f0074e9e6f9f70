/* epochs.h: the leader epochs of a log and `leader-epoch-checkpoint`.  Invariant I3.  The log's
 * lock guards it.  Kafka's rules: docs/format.md, "Leader epochs". */
#ifndef KL_EPOCHS_H
#define KL_EPOCHS_H

#include "base/buffer.h"
#include "base/file.h"

#define KL_EPOCHS_NAME "leader-epoch-checkpoint"

typedef struct {
    kl_epoch *entries; /* ascending in both */
    size_t count;
    size_t capacity;
    bool changed; /* since the last save or load */
} kl_epochs;

/* Parse the checkpoint; missing or empty (a crash can leave 0 bytes): no epochs, KL_OK.
 * KL_E_CORRUPT: invalid; the caller rebuilds from batches. */
kl_status kl_epochs_load(kl_epochs *epochs, kl_dir *dir);
uint32_t kl_epochs_crc(const kl_epochs *epochs); /* of the entries */
/* Encode the checkpoint's text, and write it; `save` does both. */
kl_status kl_epochs_encode(const kl_epochs *epochs, kl_buffer *out);
kl_status kl_epochs_write(const kl_buffer *text, kl_dir *dir, bool sync);
kl_status kl_epochs_save(kl_epochs *epochs, kl_dir *dir, bool sync);
/* Ignored if `epoch` is the latest; otherwise drop entries with an epoch or start at or above the
 * new ones, append it, and set `changed`: a save is due. */
kl_status kl_epochs_assign(kl_epochs *epochs, int32_t epoch, int64_t start_offset);
int32_t kl_epochs_latest(const kl_epochs *epochs); /* -1: none */
void kl_epochs_end(const kl_epochs *epochs, int32_t requested, int64_t log_end,
                   int32_t *found, int64_t *end_offset);
void kl_epochs_truncate_end(kl_epochs *epochs, int64_t offset); /* drop start >= offset */
void kl_epochs_truncate_start(kl_epochs *epochs,
                              int64_t offset); /* the last dropped entry moves up */
void kl_epochs_clear(kl_epochs *epochs);
void kl_epochs_free(kl_epochs *epochs);

#endif
