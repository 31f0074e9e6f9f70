/* snapshot.c: `.snapshot` files: the producer state at an offset, so that a replay is short. */
#include "log.h"

enum { SNAPSHOT_BYTES_MAX = 256 << 20 }; /* five million producers */

kl_status kl_log_write_snapshot(const kl_producers *producers, kl_dir *dir, int64_t offset,
                                bool sync) {
    kl_buffer bytes = {0};
    char name[KL_NAME_BYTES];
    kl_segment_name(name, offset, KL_SNAPSHOT_SUFFIX);
    kl_status status = kl_snapshot_encode(producers, &bytes);
    if (!status) status = kl_dir_write_file(dir, name, bytes.data, bytes.bytes, sync);
    kl_buffer_free(&bytes);
    return status;
}

static kl_status load_one(kl_producers *into, kl_dir *dir, const char *name) {
    uint8_t *data = NULL;
    size_t bytes = 0;
    kl_status status = kl_dir_slurp(dir, name, SNAPSHOT_BYTES_MAX, &data, &bytes);
    if (!status) status = kl_producers_load(into, data, bytes, kl_now_ms());
    kl_release(data);
    return status;
}

kl_status kl_log_load_snapshot(const kl_log *log, kl_producers *into, kl_dir *dir,
                               int64_t first, int64_t from, int64_t *offset) {
    kl_names names = {0};
    char name[KL_NAME_BYTES];
    kl_producers_clear(into);
    *offset = first;
    if (from >= first) { /* a cleanly closed log has one here */
        kl_segment_name(name, from, KL_SNAPSHOT_SUFFIX);
        if (load_one(into, dir, name) == KL_OK) {
            *offset = from;
            return KL_OK;
        }
        kl_producers_clear(into);
    }
    kl_status status = kl_dir_list(dir, &names);
    /* Order by name is order by offset. */
    for (size_t i = names.count; !status && i-- > 0;) {
        int64_t at;
        if (!kl_segment_name_parse(names.names[i], KL_SNAPSHOT_SUFFIX, &at)) continue;
        if (at > from || at < first) continue;
        status = load_one(into, dir, names.names[i]);
        if (!status) {
            *offset = at;
            break;
        }
        if (status != KL_E_CORRUPT) break;
        kl_producers_clear(into);
        status = log->writable ? kl_dir_unlink(dir, names.names[i]) : KL_OK;
    }
    kl_names_free(&names);
    return status;
}

static bool matches_segment(const kl_version *version, int64_t offset) {
    if (version == NULL) return false;
    return version->segments[kl_version_find(version, offset)]->base_offset == offset;
}

kl_status kl_log_trim_snapshots(const kl_version *version, kl_dir *dir,
                                int64_t above_offset, int64_t until_offset) {
    kl_names names = {0};
    bool newest = true;
    kl_status status = kl_dir_list(dir, &names);
    for (size_t i = names.count; !status && i-- > 0;) {
        int64_t at;
        if (!kl_segment_name_parse(names.names[i], KL_SNAPSHOT_SUFFIX, &at)) continue;
        bool later = at >= until_offset;
        if (at <= above_offset && (newest || later || matches_segment(version, at))) {
            newest = false;
            continue;
        }
        status = kl_dir_unlink(dir, names.names[i]);
    }
    kl_names_free(&names);
    return status;
}
