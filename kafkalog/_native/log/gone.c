/* gone.c: detects missing records that were on disk.  No crash removes them, so an open reports
 * them before it writes anything. */
#include <stdio.h>

#include "base/io.h"
#include "log.h"

static kl_status refuse(const kl_log *log, const char *found) {
    return kl_fail(
        KL_E_CORRUPT,
        "log %s %s: a .log file was removed, emptied or cut, and nothing was "
        "written; kafkalog verify tells what is wrong, kafkalog repair lets the log "
        "go on without what is gone",
        log->path, found);
}

kl_status kl_log_check_end(const kl_log *log, int64_t end_offset) {
    if (log->loaded || KL_MAX(end_offset, log->first_start) >= log->reached) return KL_OK;
    char found[128];
    snprintf(found, sizeof found, "ends at offset %lld, wanted %lld", (long long)end_offset,
             (long long)log->reached);
    return refuse(log, found);
}

/* The last `.log` below `base` and the first above it; -1: none. */
static void find_neighbours(const kl_names *names, int64_t base, int64_t *below,
                            int64_t *above) {
    int64_t other;
    *below = *above = -1;
    for (size_t i = 0; i < names->count && *above < 0; i++) {
        if (!kl_segment_name_parse(names->names[i], KL_LOG_SUFFIX, &other)) continue;
        if (other < base) *below = other;
        else *above = other;
    }
}

/* *gone: an orphan's segment is missing between two others.  Above the last segment,
 * kl_log_check_end finds it. */
static kl_status look_at_orphan(const kl_log *log, kl_dir *dir, const kl_names *names,
                                const char *name, int64_t base, bool *gone) {
    struct stat file;
    int64_t below, above, end = -1;
    char log_name[KL_NAME_BYTES];
    *gone = false;
    if (kl_io->fstatat(dir->fd, name, &file, 0) != 0 || file.st_size == 0) return KL_OK;
    find_neighbours(names, base, &below, &above);
    if (above < 0 || above <= log->first_start) return KL_OK;
    kl_status status = KL_OK;
    if (below >= 0) {
        kl_segment_name(log_name, below, KL_LOG_SUFFIX);
        status = kl_segment_file_end(dir, log_name, below, &end);
    }
    *gone = !status &&
            end <= base; /* else a stray file: the previous segment has these offsets */
    return status;
}

kl_status kl_log_check_names(const kl_log *log, kl_dir *dir, const kl_names *names) {
    bool any = false, gone = false;
    kl_status status = KL_OK;
    for (size_t i = 0; !status && !gone && i < names->count; i++) {
        int64_t base;
        const char *name = names->names[i];
        any = any || kl_segment_name_parse(name, KL_LOG_SUFFIX, &base);
        /* A crash during a deletion or swap of segments also leaves orphans. */
        if (!log->clean || log->loaded || !kl_segment_is_orphan(names, name, &base))
            continue;
        status = look_at_orphan(log, dir, names, name, base, &gone);
        if (status || !gone) continue;
        char found[128];
        snprintf(found, sizeof found, "has %s and no .log of that offset", name);
        status = refuse(log, found);
    }
    if (status || any) return status;
    return kl_log_check_end(log, KL_MAX(log->first_start, (int64_t)0));
}
