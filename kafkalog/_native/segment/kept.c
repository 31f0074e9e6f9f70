/* kept.c: see kept.h. */
#include "kept.h"

#include <stdio.h>

#include "base/fault.h"

enum { STEP_BYTES = 1 << 20 };

#define KEPT_SUFFIX KL_LOG_SUFFIX ".damaged"

/* Find a free name, `.log.damaged`, `.log.damaged.1`, ...: keep files of earlier repairs and
 * recoveries. */
static kl_status free_name(const kl_segment *segment, kl_dir *dir,
                           char name[KL_NAME_BYTES]) {
    bool there = true;
    kl_segment_name(name, segment->base_offset, KEPT_SUFFIX);
    kl_status status = kl_dir_exists(dir, name, &there);
    for (int number = 1; !status && there; number++) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, KEPT_SUFFIX ".%d", number);
        kl_segment_name(name, segment->base_offset, suffix);
        status = kl_dir_exists(dir, name, &there);
    }
    return status;
}

kl_status kl_kept_check(kl_dir *dir) {
    kl_names names = {0};
    size_t count = 0;
    const char *first = NULL, *last = NULL;
    kl_status status = kl_dir_list(dir, &names);
    for (size_t i = 0; i < names.count; i++) {
        if (strstr(names.names[i], KEPT_SUFFIX) == NULL) continue;
        last = names.names[i];
        if (count++ == 0) first = last;
    }
    if (!status && count >= KL_KEPT_FILES_MAX)
        status = kl_fail(
            KL_E_CORRUPT,
            "%s needs a recovery, and holds %zu files of what earlier recoveries cut off, "
            "from %s to %s, wanted fewer than %d: nothing was cut; move them elsewhere or "
            "delete them, then open it again",
            dir->path, count, first, last, KL_KEPT_FILES_MAX);
    kl_names_free(&names);
    return status;
}

static void note_name(char first[KL_NAME_BYTES], const char *name) {
    if (first[0] == 0) memcpy(first, name, KL_NAME_BYTES);
}

static bool is_zero(const uint8_t *data, size_t bytes) {
    return bytes == 0 || (data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0);
}

/* Copy [pos, end) to the start of `to`; *zero: all bytes are zero, so never written.  Writes
 * nothing if there is not enough space for all, as every retried append calls this again. */
static kl_status copy_tail(kl_segment *segment, kl_file *to, int64_t pos, int64_t end,
                           bool *zero) {
    const kl_status room = kl_file_reserve(to, 0, end - pos);
    uint8_t *step = kl_alloc(STEP_BYTES);
    if (step == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory to copy %s", kl_file_name(segment->file));
    kl_status status = KL_OK;
    *zero = true;
    for (int64_t at = pos; at < end && !status;) {
        size_t want = (size_t)KL_MIN(end - at, (int64_t)STEP_BYTES), got;
        status = kl_file_read(segment->file, step, want, at, &got);
        if (status || got == 0) break;
        *zero = *zero && is_zero(step, got);
        if (!*zero) status = room; /* zeros need no space */
        if (!*zero && !status) status = kl_file_write(to, step, got, at - pos);
        at += (int64_t)got;
    }
    kl_release(step);
    return status;
}

kl_status kl_keep_tail(kl_segment *segment, kl_dir *dir, int64_t pos, int64_t end,
                       char first[KL_NAME_BYTES]) {
    char name[KL_NAME_BYTES], unfinished[KL_NAME_BYTES];
    kl_file *copy = NULL;
    bool zero = false;
    kl_segment_name(unfinished, segment->base_offset, KL_LOG_SUFFIX KL_CLEANED_SUFFIX);
    kl_status status = free_name(segment, dir, name);
    if (!status) status = kl_file_create(dir->path, unfinished, &copy);
    if (!status) status = copy_tail(segment, copy, pos, end, &zero);
    if (!status && !zero) status = kl_file_sync(copy);
    kl_file_drop(copy);
    if (!status && zero) return kl_dir_unlink(dir, unfinished);
    if (!status) status = kl_kept_check(dir);
    KL_FP("recover.keep.before_rename");
    if (!status) status = kl_dir_rename(dir, unfinished, name);
    if (!status) status = kl_dir_sync(dir);
    if (status) { /* free the space */
        kl_failure first;
        kl_failure_take(&first);
        (void)kl_dir_unlink(dir, unfinished);
        kl_failure_put(&first);
        return kl_fail_prefix(status, "what recovery cuts off cannot be kept");
    }
    note_name(first, name);
    return KL_OK;
}

kl_status kl_keep_segment(kl_segment *segment, kl_dir *dir, char first[KL_NAME_BYTES]) {
    char name[KL_NAME_BYTES], log_name[KL_NAME_BYTES];
    if (segment->size == 0) return KL_OK;
    kl_segment_name(log_name, segment->base_offset, KL_LOG_SUFFIX);
    kl_status status = free_name(segment, dir, name);
    if (!status) status = kl_dir_rename(dir, log_name, name);
    if (!status) note_name(first, name);
    return status;
}
