/* load.c: loads the files of a folder: which of them count, and where the log ends. */
#include <stdio.h>

#include "log.h"

/* ---- leftovers of a crash ------------------------------------------------------------ */

static bool has_suffix(const char *name, const char *suffix) {
    size_t a = strlen(name), b = strlen(suffix);
    return a > b && strcmp(name + a - b, suffix) == 0;
}

/* Parse "N.log.swap", "N.index.cleaned", ...: the base offset and the name without `suffix`. */
static bool parse_leftover(const char *name, const char *suffix, char inner[KL_NAME_BYTES],
                           int64_t *base_offset) {
    static const char *const kinds[] = {KL_LOG_SUFFIX,     KL_INDEX_SUFFIX,
                                        KL_TIME_SUFFIX,    KL_TXN_SUFFIX,
                                        KL_SIDECAR_SUFFIX, KL_SNAPSHOT_SUFFIX};
    size_t bytes = strlen(name);
    if (!has_suffix(name, suffix) || bytes >= KL_NAME_BYTES) return false;
    snprintf(inner, KL_NAME_BYTES, "%.*s", (int)(bytes - strlen(suffix)), name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kl_segment_name_parse(inner, kinds[i], base_offset)) return true;
    return false;
}

/* The lowest base offset of unfinished compaction output: swap files from there on are not
 * trusted. */
static int64_t lowest_cleaned(const kl_names *names) {
    int64_t lowest = INT64_MAX, base;
    char inner[KL_NAME_BYTES];
    for (size_t i = 0; i < names->count; i++)
        if (parse_leftover(names->names[i], KL_CLEANED_SUFFIX, inner, &base))
            lowest = KL_MIN(lowest, base);
    return lowest;
}

/* Remove untrusted swap files, durably before the unfinished output that marks them: otherwise a
 * crash in between would leave them looking finished. */
static kl_status remove_distrusted(kl_dir *dir, const kl_names *names,
                                   int64_t min_cleaned) {
    bool removed = false;
    for (size_t i = 0; i < names->count; i++) {
        char inner[KL_NAME_BYTES];
        int64_t base;
        if (!parse_leftover(names->names[i], KL_SWAP_SUFFIX, inner, &base)) continue;
        if (base < min_cleaned) continue;
        kl_status status = kl_dir_unlink(dir, names->names[i]);
        if (status && status != KL_E_NOT_FOUND) return status;
        removed = true;
    }
    return removed ? kl_dir_sync(dir) : KL_OK;
}

/* Remove unfinished output and files marked for deletion. */
static kl_status remove_unfinished(kl_dir *dir, const kl_names *names) {
    for (size_t i = 0; i < names->count; i++) {
        char inner[KL_NAME_BYTES];
        int64_t base;
        const char *name = names->names[i];
        if (!parse_leftover(name, KL_CLEANED_SUFFIX, inner, &base) &&
            !parse_leftover(name, KL_DELETED_SUFFIX, inner, &base))
            continue;
        kl_status status = kl_dir_unlink(dir, name);
        if (status && status != KL_E_NOT_FOUND) return status;
    }
    return KL_OK;
}

/* Replace the old segments with a finished swap file. */
static kl_status complete_swap(kl_dir *dir, const kl_names *names, const char *name,
                               const char *inner, int64_t base) {
    int64_t end;
    kl_status status = kl_segment_file_end(dir, name, base, &end);
    for (size_t i = 0; !status && i < names->count; i++) {
        int64_t other;
        if (!kl_segment_name_parse(names->names[i], KL_LOG_SUFFIX, &other)) continue;
        if (other <= base || other >= end) continue; /* the rename replaces `base` itself */
        status = kl_dir_unlink(dir, names->names[i]);
        if (status == KL_E_NOT_FOUND) status = KL_OK;
    }
    /* The old side-car describes deleted bytes; a new one already has its name. */
    if (!status && !kl_segment_is_listed(names, base, KL_SIDECAR_SUFFIX KL_SWAP_SUFFIX))
        status = kl_sidecar_drop(dir, base);
    /* Without this, a power cut could keep the rename, which ends the swap, and lose the unlinks
     * before it: old segments would remain next to the new one. */
    if (!status) status = kl_dir_sync(dir);
    KL_FP("open.swap.before_rename");
    if (!status) status = kl_dir_rename(dir, name, inner);
    return status;
}

static kl_status finish_swaps(kl_log *log, kl_dir *dir, const kl_names *names,
                              int64_t min_cleaned) {
    kl_status status = KL_OK;
    for (int pass = 0; pass < 2;
         /* .log files last: their rename ends the swap */
         pass++)
        for (size_t i = 0; !status && i < names->count; i++) {
            char inner[KL_NAME_BYTES];
            int64_t base;
            const char *name = names->names[i];
            if (!parse_leftover(name, KL_SWAP_SUFFIX, inner, &base)) continue;
            bool is_log = has_suffix(inner, KL_LOG_SUFFIX);
            if (is_log != (pass == 1)) continue;
            if (base >= min_cleaned) continue;
            if (is_log) status = complete_swap(dir, names, name, inner, base);
            else status = kl_dir_rename(dir, name, inner);
            log->dir_dirty = true;
            if (status == KL_E_NOT_FOUND) status = KL_OK;
        }
    return status;
}

static bool is_leftover(const char *name) {
    char inner[KL_NAME_BYTES];
    int64_t base;
    return parse_leftover(name, KL_CLEANED_SUFFIX, inner, &base) ||
           parse_leftover(name, KL_DELETED_SUFFIX, inner, &base) ||
           parse_leftover(name, KL_SWAP_SUFFIX, inner, &base);
}

/* `names`: the folder's files, listed again if any were removed. */
static kl_status clear_leftovers(kl_log *log, kl_dir *dir, kl_names *names) {
    bool any = false;
    for (size_t i = 0; i < names->count && !any; i++) any = is_leftover(names->names[i]);
    if (!any || !log->writable) return KL_OK;
    int64_t min_cleaned = lowest_cleaned(names);
    kl_status status = remove_distrusted(dir, names, min_cleaned);
    if (!status) status = remove_unfinished(dir, names);
    if (!status) status = finish_swaps(log, dir, names, min_cleaned);
    kl_names_free(names);
    return status ? status : kl_dir_list(dir, names);
}

/* ---- segments -------------------------------------------------------------------------- */

/* Otherwise a later segment of the same name would use this index or side-car. */
static kl_status remove_orphans(kl_log *log, kl_dir *dir, const kl_names *names) {
    kl_status status = KL_OK;
    for (size_t i = 0; !status && log->writable && i < names->count; i++) {
        int64_t base;
        if (!kl_segment_is_orphan(names, names->names[i], &base)) continue;
        status = kl_dir_unlink(dir, names->names[i]);
        if (status == KL_E_NOT_FOUND) status = KL_OK;
    }
    return status;
}

/* A finished .swap that a crash left in place: it replaces the segments that begin in [base,
 * end). */
typedef struct {
    const char *name; /* of its .log; NULL: no swap */
    int64_t base;
    int64_t end;
} swap_left;

/* A reader sees the outcome of finish_swaps, and leaves the work to the next writer.  Compaction
 * has at most one swap in progress. */
static kl_status find_swap(kl_dir *dir, const kl_names *names, swap_left *out) {
    int64_t min_cleaned = lowest_cleaned(names), base;
    char inner[KL_NAME_BYTES];
    *out = (swap_left){0};
    for (size_t i = 0; i < names->count && out->name == NULL; i++) {
        const char *name = names->names[i];
        if (!parse_leftover(name, KL_SWAP_SUFFIX, inner, &base) ||
            !has_suffix(inner, KL_LOG_SUFFIX) || base >= min_cleaned)
            continue;
        *out = (swap_left){.name = name, .base = base};
        kl_status status = kl_segment_file_end(dir, name, base, &out->end);
        if (status) return status;
    }
    return KL_OK;
}

static bool is_replaced(const swap_left *swap, int64_t base) {
    return swap->name && (base == swap->base || (base > swap->base && base < swap->end));
}

static kl_status vanished(kl_log *log, const char *name) {
    return kl_fail(KL_E_STALE, "log %s: %s went away while the folder was read", log->path,
                   name);
}

/* The sealed segment of `known` with base offset `base`, or NULL. */
static kl_segment *find_known(const kl_version *known, int64_t base) {
    if (known == NULL || known->count == 0) return NULL;
    size_t index = kl_version_find(known, base);
    bool found = index + 1 < known->count && known->segments[index]->base_offset == base;
    return found ? known->segments[index] : NULL;
}

static kl_status take_segments(kl_log *log, kl_dir *dir, const kl_names *names,
                               bool with_swap, const kl_version *known,
                               int64_t *indexless) {
    swap_left swap = {0};
    *indexless = INT64_MAX;
    kl_status status = kl_version_remove(&log->version, 0, log->version->count);
    if (!status && with_swap) status = find_swap(dir, names, &swap);
    for (size_t i = 0; !status && i < names->count; i++) {
        int64_t base;
        kl_segment *segment = NULL, *same;
        bool swapped = names->names[i] == swap.name;
        if (swapped) {
            base = swap.base;
        } else if (!kl_segment_name_parse(names->names[i], KL_LOG_SUFFIX, &base) ||
                   is_replaced(&swap, base)) {
            continue;
        }
        if (!swapped && (same = find_known(known, base)) != NULL) {
            status = kl_version_add(&log->version, kl_segment_retain(same));
            continue;
        }
        status = kl_segment_open(log->path, names->names[i], base, log->writable, &segment);
        if (status == KL_E_NOT_FOUND && !log->writable)
            status = vanished(log, names->names[i]); /* deleted by its owner: list again */
        if (status) break;
        if (swapped) { /* its index files may belong to the old segment */
            kl_index_clear(&segment->offsets);
            kl_index_clear(&segment->times);
        }
        if (swapped ||
            (!kl_segment_is_listed(names, base, KL_INDEX_SUFFIX) && segment->size > 0))
            *indexless = KL_MIN(*indexless, base);
        segment->aborts.loaded = !kl_segment_is_listed(names, base, KL_TXN_SUFFIX);
        status = kl_version_add(&log->version, segment);
    }
    /* A crash between seal and roll: the last segment grows again. */
    if (!status && log->writable && log->version->count &&
        kl_segment_is_listed(names, kl_log_active(log)->base_offset, KL_SIDECAR_SUFFIX))
        status = kl_sidecar_drop(dir, kl_log_active(log)->base_offset);
    return status;
}

kl_status kl_log_load_segments(kl_log *log, kl_dir *dir, bool with_swap,
                               const kl_version *known, int64_t *indexless) {
    kl_names names = {0};
    kl_status status = kl_dir_list(dir, &names);
    if (!status) status = take_segments(log, dir, &names, with_swap, known, indexless);
    kl_names_free(&names);
    return status;
}

kl_status kl_log_load_aborts(kl_log *log, kl_dir *dir, int64_t *corrupt_from) {
    *corrupt_from = INT64_MAX;
    for (size_t i = 0; i < log->version->count; i++) {
        kl_segment *segment = log->version->segments[i];
        if (segment->aborts.loaded) continue;
        kl_status status = kl_aborts_load(&segment->aborts, dir,
                                          KL_MAX(kl_log_next_base(log, i), log->log_end));
        kl_sealed_aborts was = {0};
        if (!status && i + 1 < log->version->count)
            status = kl_guard_sealed_aborts(segment, &was);
        if (status == KL_E_CORRUPT || (!status && !kl_guard_has_aborts(segment, &was)))
            *corrupt_from = KL_MIN(*corrupt_from, segment->base_offset);
        else if (status) return status;
        segment->aborts.loaded = true;
    }
    return KL_OK;
}

/* Refuse messages of old formats at open, not in the middle of a read. */
static kl_status refuse_old_formats(kl_log *log) {
    const size_t last = log->version->count - 1;
    for (size_t i = 0; i <= last; i += KL_MAX(last, (size_t)1)) {
        kl_segment *segment = log->version->segments[i];
        uint8_t head[KL_BATCH_HEADER_BYTES];
        size_t got;
        kl_status status = kl_file_read(
            segment->file, head, KL_MIN(sizeof head, (size_t)segment->size), 0, &got);
        if (status) return status;
        kl_batch batch;
        if (got < MAGIC_BYTES_NEEDED) continue;
        status = kl_log_judge_format(segment, 0, segment->size,
                                     kl_batch_parse(head, got, &batch));
        if (status == KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT)
            return kl_fail_prefix(status, "%s/%s", log->path, kl_file_name(segment->file));
    }
    return KL_OK;
}

/* Find the end of a cleanly closed log by walking headers after the last index entry.  *sane false:
 * the log was not closed cleanly after all. */
static kl_status find_clean_end(kl_log *log, kl_dir *dir, bool *sane,
                                kl_recovery *recovery) {
    kl_segment *active = kl_log_active(log);
    *sane = false;
    const kl_index_source source = {.dir = dir,
                                    .next_offset = INT64_MAX,
                                    .end_pos = active->size,
                                    .index_interval_bytes =
                                        log->config.index_interval_bytes,
                                    .active = true,
                                    .writable = log->writable};
    kl_status status = kl_segment_load_indexes(active, &source, &recovery->indexes_rebuilt);
    if (status) return status;
    int64_t pos = 0;
    if (active->offsets.count)
        pos = kl_index_offset_at(&active->offsets, active->offsets.count - 1).pos;
    kl_walk walk;
    kl_walk_init(&walk, active->file, pos, active->size, KL_CHUNK_LOOKUP_BYTES);
    log->log_end = active->base_offset;
    bool times = kl_segment_begin_times(active, pos);
    bool grows = true; /* the CRC does not cover base offsets */
    for (kl_batch batch; grows && kl_walk_more(&walk, &batch);) {
        grows = batch.base_offset >= log->log_end;
        log->log_end = batch.last_offset + 1;
        if (times) kl_segment_see_times(active, &batch);
    }
    status = kl_walk_end(&walk);
    if (times && status) kl_segment_forget_times(active);
    *sane = !status && grows;
    /* A damaged header may still parse, with wrong counts: compare with the recorded end. */
    if (!log->loaded && log->recovery_point >= 0 && log->log_end != log->recovery_point)
        *sane = false;
    /* Recovery decides whether this is an old format. */
    return kl_walk_met_damage(status) ? KL_OK : status;
}

/* Only loaded entries count: the file may continue after them. */
static uint32_t sum_index(const kl_index *index, uint32_t crc) {
    kl_span bytes = kl_index_bytes(index);
    return kl_crc32c_more(crc, bytes.data, bytes.bytes);
}

int64_t kl_log_sum_derived(const kl_log *log) {
    const kl_segment *active = kl_log_active(log);
    uint8_t parts[8];
    uint32_t crc = sum_index(&active->times, sum_index(&active->offsets, 0));
    kl_put32(parts, (uint32_t)active->offsets.count);
    kl_put32(parts + 4, kl_aborts_crc(&active->aborts));
    crc = kl_crc32c_more(crc, parts, sizeof parts);
    return (int64_t)(kl_epochs_crc(&log->epochs) & INT32_MAX) << 32 | crc;
}

/* Derived files of a clean log that differ from those at its close. */
typedef struct {
    bool epochs;
    bool active; /* the last segment's indexes or aborted transactions */
    bool aborts; /* the list of aborted transactions is unverified, */
    bool none;   /* or its absence is */
} doubts;

static kl_status find_doubts(kl_log *log, kl_dir *dir, doubts *found) {
    kl_aborts *aborts = &kl_log_active(log)->aborts;
    kl_status status = aborts->loaded ? KL_OK : kl_aborts_load(aborts, dir, log->log_end);
    found->active = status == KL_E_CORRUPT;
    aborts->loaded = true;
    if (status) return found->active ? KL_OK : status;
    int64_t was = log->derived_sum, is = kl_log_sum_derived(log);
    found->aborts = was < 0 && aborts->count > 0;
    found->none = was < 0 && aborts->count == 0;
    found->epochs = was >= 0 && was >> 32 != is >> 32;
    found->active = was >= 0 && (uint32_t)was != (uint32_t)is;
    return KL_OK;
}

/* A crash interrupted a deletion below the log start: finish it, unless only these segments have
 * the state of their producers. */
static kl_status finish_deletion(kl_log *log, kl_dir *dir, int64_t *indexless) {
    size_t first =
        log->version->count ? kl_version_find(log->version, log->first_start) : 0;
    if (first == 0) return KL_OK;
    int64_t known_at;
    int64_t start = log->version->segments[first]->base_offset;
    kl_status status =
        kl_log_load_snapshot(log, &log->producers, dir,
                             log->version->segments[0]->base_offset, start, &known_at);
    if (status || known_at != start) return status;
    for (size_t i = 0; i < first && !status; i++)
        status = kl_segment_delete(log->version->segments[i], dir);
    log->dir_dirty = log->touched = true;
    return status ? status : kl_log_load_segments(log, dir, false, NULL, indexless);
}

/* Rebuild the missing index files of sealed segments from `base_offset` on.  A segment that cannot
 * be read fails when it is read. */
static void restore_indexes(kl_log *log, int64_t base_offset) {
    if (base_offset == INT64_MAX || !log->writable) return;
    const kl_look look = kl_log_see(log);
    for (size_t i = kl_version_find(look.version, base_offset); kl_look_is_sealed(&look, i);
         i++)
        (void)kl_log_prepare(log, &look, i);
}

/* Load the segments in `names` and their derived state. */
static kl_status load(kl_log *log, kl_dir *dir, const kl_names *names,
                      kl_recovery *recovery) {
    int64_t indexless, corrupt_from, rebuild_from = INT64_MAX;
    bool sane = false, lost;
    doubts doubt = {0};
    kl_status status = take_segments(log, dir, names, !log->writable, NULL, &indexless);
    if (!status && log->writable) status = finish_deletion(log, dir, &indexless);
    if (status) return status;
    status = kl_epochs_load(&log->epochs, dir);
    if (status == KL_E_CORRUPT) status = KL_OK;
    lost = log->epochs.count == 0;
    if (!status && log->version->count == 0) {
        /* A crash between the deletion of segments and that of their snapshots: the new log has no
         * producers. */
        return log->writable ? kl_log_trim_snapshots(log->version, dir, -1, INT64_MAX)
                             : KL_OK;
    }
    if (!status) status = refuse_old_formats(log);
    if (!status && log->clean) status = find_clean_end(log, dir, &sane, recovery);
    if (!status && sane && !log->loaded) status = find_doubts(log, dir, &doubt);
    sane = sane && !doubt.active;
    if (!status && !sane) {
        int64_t from = log->clean ? kl_log_active(log)->base_offset : log->recovery_point;
        rebuild_from =
            log->version->segments[from < 0 ? 0 : kl_version_find(log->version, from)]
                ->base_offset;
        int64_t known = log->clean ? INT64_MAX : log->recovery_point;
        status = kl_log_recover_tail(log, dir, from, log->loaded ? -1 : known, recovery);
    }
    /* Recovery finds the epochs of what it reads; earlier batches need theirs, too. */
    lost = lost && log->version->count > 0 &&
           log->log_end > log->version->segments[0]->base_offset;
    if (!status && (lost || doubt.epochs)) status = kl_log_rebuild_epochs(log);
    if (!status) status = kl_log_load_aborts(log, dir, &corrupt_from);
    if (status) return status;
    if (doubt.aborts) corrupt_from = KL_MIN(corrupt_from, kl_log_active(log)->base_offset);
    if (!sane || doubt.epochs) log->touched = log->writable; /* for the close */
    if (!sane && log->writable) /* later snapshots may be torn: rebuild them */
        status = kl_log_trim_snapshots(log->version, dir, rebuild_from, INT64_MAX);
    rebuild_from = KL_MIN(rebuild_from, KL_MIN(indexless, corrupt_from));
    if (!status) status = kl_log_load_producers(log, dir, log->log_end, rebuild_from);
    if (!status && doubt.none && sane) status = kl_log_search_aborts(log, dir);
    if (!status) status = kl_segment_load_times(kl_log_active(log));
    if (!status) restore_indexes(log, indexless);
    if (!status && log->clean && !log->loaded) log->derived_sum = kl_log_sum_derived(log);
    return status;
}

kl_status kl_log_load(kl_log *log, kl_dir *dir, kl_recovery *recovery) {
    kl_names names = {0};
    kl_status status = kl_dir_list(dir, &names);
    if (!status) status = clear_leftovers(log, dir, &names);
    if (!status) status = kl_log_check_names(log, dir, &names);
    if (!status) status = load(log, dir, &names, recovery);
    if (!status) status = remove_orphans(log, dir, &names);
    if (!status && log->version->count > 0) log->loaded = true;
    kl_names_free(&names);
    return status;
}

void kl_log_settle(kl_log *log) {
    log->log_start = KL_MAX(log->first_start, log->version->segments[0]->base_offset);
    if (log->log_end < log->log_start)
        log->log_end = log->log_start; /* a reader: all records are gone */
    log->high_watermark = log->log_end;
    if (!log->end_is_high_watermark && log->first_high_watermark >= 0)
        log->high_watermark =
            KL_MAX(log->log_start, KL_MIN(log->first_high_watermark, log->log_end));
    int64_t unstable = kl_producers_first_unstable(&log->producers, log->high_watermark);
    log->last_stable = KL_MIN(KL_MAX(unstable, log->log_start), log->high_watermark);
    log->flushed = log->clean
                       ? log->log_end
                       : KL_MIN(KL_MAX(log->recovery_point, log->log_start), log->log_end);
    KL_ASSERT(log->log_start <= log->last_stable &&
              log->last_stable <= log->high_watermark &&
              log->high_watermark <= log->log_end); /* I1 */
    KL_ASSERT(log->flushed <= log->log_end);        /* I4 */
}
