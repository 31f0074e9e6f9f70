/* marker.c: a file that marks a directory as cleanly closed. */
#include "file.h"

struct kl_marker {
    int generation; /* of the opening process: KL_E_FORKED in a child */
    _Atomic bool present;
    pthread_mutex_t lock; /* held until a removal is on disk; guards the members below */
    bool sync_failed;     /* final: a later sync would prove nothing */
    char *dir_path;
    char *name;
};

kl_status kl_marker_open(const char *dir_path, const char *name, kl_marker **out) {
    kl_dir *dir = NULL;
    bool present = false;
    *out = NULL;
    kl_marker *marker = kl_alloc(sizeof *marker);
    if (!marker) return kl_fail(KL_E_NO_MEMORY, "%s/%s: no memory", dir_path, name);
    KL_ASSERT(pthread_mutex_init(&marker->lock, NULL) == 0);
    marker->generation = kl_process_generation;
    marker->dir_path = kl_alloc(strlen(dir_path) + 1);
    marker->name = kl_alloc(strlen(name) + 1);
    kl_status status = KL_E_NO_MEMORY;
    if (!marker->dir_path || !marker->name) {
        kl_fail(status, "%s/%s: no memory", dir_path, name);
        goto out;
    }
    strcpy(marker->dir_path, dir_path);
    strcpy(marker->name, name);
    status = kl_dir_open(dir_path, 0, &dir);
    if (status) goto out;
    status = kl_dir_exists(dir, name, &present);
    if (status) goto out;
    atomic_store(&marker->present, present);
    *out = marker;
out:
    kl_dir_free(dir);
    if (status) kl_marker_free(marker);
    return status;
}

int kl_marker_present(const kl_marker *marker) { return atomic_load(&marker->present); }

/* Unlink and sync. */
static kl_status remove_now(kl_marker *marker) {
    kl_dir *dir;
    if (marker->sync_failed)
        return kl_fail(KL_E_STORAGE, "%s/%s: its removal could not be synced before",
                       marker->dir_path, marker->name);
    kl_status status = kl_dir_open(marker->dir_path, 0, &dir);
    if (status) return status;
    status = kl_dir_unlink(dir, marker->name);
    if (!status || status == KL_E_NOT_FOUND) {
        status = kl_dir_sync(dir);
        marker->sync_failed = status != KL_OK;
        if (status) status = kl_fail_prefix(KL_E_STORAGE, "%s", marker->name);
    }
    kl_dir_free(dir);
    return status;
}

static kl_status enter(kl_marker *marker) {
    if (marker->generation != kl_process_generation)
        return kl_fail(KL_E_FORKED, "%s/%s: the marker belongs to the parent process",
                       marker->dir_path, marker->name);
    kl_lock(&marker->lock);
    return KL_OK;
}

kl_status kl_marker_remove(kl_marker *marker) {
    if (KL_LIKELY(!atomic_load(&marker->present))) return KL_OK;
    kl_status status = enter(marker);
    if (status) return status;
    if (atomic_load(&marker->present)) status = remove_now(marker);
    if (!status) atomic_store(&marker->present, false);
    kl_unlock(&marker->lock);
    return status;
}

kl_status kl_marker_write(kl_marker *marker, const uint8_t *data, size_t bytes) {
    kl_dir *dir;
    kl_status status = enter(marker);
    if (status) return status;
    status = kl_dir_open(marker->dir_path, 0, &dir);
    if (!status) {
        /* Set first: the call may create the file and fail afterwards. */
        atomic_store(&marker->present, true);
        status = kl_dir_replace(dir, marker->name, data, bytes);
        kl_dir_free(dir);
    }
    kl_unlock(&marker->lock);
    return status;
}

void kl_marker_free(kl_marker *marker) {
    if (!marker) return;
    pthread_mutex_destroy(&marker->lock);
    kl_release(marker->dir_path);
    kl_release(marker->name);
    kl_release(marker);
}
