/* point.c: records the flushed offset of a log outside a data directory, so that recovery reads
 * only unflushed records.  In a data directory a job writes checkpoints. */
#include "log.h"

/* The file: magic, offset, CRC-32C of both.  Absent: nothing is recorded. */
static const char NAME[] = "flushed-offset";
enum { AT_OFFSET = 4, AT_CRC = 12, NOTE_BYTES = 16, MAGIC = 0x4b4c4631 /* KLF1 */ };
KL_STATIC_ASSERT(AT_CRC == AT_OFFSET + 8 && NOTE_BYTES == AT_CRC + 4, "all of it, no gap");

static bool parse(const uint8_t *data, size_t bytes, int64_t *offset) {
    if (bytes != NOTE_BYTES || kl_get32(data) != MAGIC ||
        kl_get32(data + AT_CRC) != kl_crc32c(data, AT_CRC))
        return false;
    *offset = (int64_t)kl_get64(data + AT_OFFSET);
    return true;
}

/* -1: absent or invalid, which costs a longer recovery. */
static kl_status read_note(kl_dir *dir, int64_t *offset) {
    uint8_t data[NOTE_BYTES + 1];
    size_t bytes;
    *offset = -1;
    kl_status status = kl_dir_read(dir, NAME, data, sizeof data, &bytes);
    if (!status && !parse(data, bytes, offset)) *offset = -1;
    return status == KL_E_NOT_FOUND || status == KL_E_BUFFER_TOO_SMALL ||
                   status == KL_E_CORRUPT
               ? KL_OK
               : status;
}

kl_status kl_log_load_point(kl_log *log) {
    kl_dir *dir = NULL;
    int64_t offset = -1;
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = read_note(dir, &offset);
    log->recovery_point = KL_MAX(log->recovery_point, offset);
    log->reached = KL_MAX(log->reached, offset);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status == KL_E_NOT_FOUND ? KL_OK : status;
}

kl_status kl_log_check_point(kl_log *log, kl_dir *dir) {
    int64_t offset = -1;
    kl_status status = log->keeps_point ? read_note(dir, &offset) : KL_OK;
    return !status && offset > log->log_end ? kl_log_forget_point(log, dir) : status;
}

static kl_status write_note(const kl_log *log, int64_t offset) {
    kl_dir *dir = NULL;
    uint8_t data[NOTE_BYTES];
    kl_put32(data, MAGIC);
    kl_put64(data + AT_OFFSET, (uint64_t)offset);
    kl_put32(data + AT_CRC, kl_crc32c(data, AT_CRC));
    kl_status status = kl_dir_open(log->path, 0, &dir);
    if (!status) status = kl_dir_replace(dir, NAME, data, sizeof data);
    kl_dir_close(dir);
    kl_dir_free(dir);
    return status;
}

void kl_log_note_point(kl_log *log) {
    KL_ASSERT_HELD(&log->lock);
    KL_ASSERT(log->syncing && !log->noting); /* the end of a round */
    if (!log->keeps_point || log->closed || log->offline || log->changing) return;
    /* Recovery reads the whole segment that contains the point, so a later point in the same
     * segment, or one in the first, saves nothing. */
    size_t index = kl_version_find(log->version, log->flushed);
    if (index == 0 || log->version->segments[index]->base_offset <= log->noted) return;
    int64_t offset = log->flushed;
    log->noting = true;
    kl_unlock(&log->lock);
    kl_status status = write_note(log, offset);
    kl_lock(&log->lock);
    log->noting = false;
    if (!status) log->noted = offset; /* else the next round tries */
    pthread_cond_broadcast(&log->changed);
}

kl_status kl_log_forget_point(kl_log *log, kl_dir *dir) {
    KL_ASSERT(!log->noting);
    log->noted = -1;
    kl_status status = kl_dir_unlink(dir, NAME);
    if (status == KL_E_NOT_FOUND) return KL_OK;
    return status ? status : kl_dir_sync(dir);
}
