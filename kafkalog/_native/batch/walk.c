/* walk.c: reads the batches of a `.log` in chunks. */
#include "walk.h"

#include <stdio.h>

/* Maximum allocation for an unchecked length. */
static const size_t SMALL_BYTES = 256 << 10;

void kl_walk_init(kl_walk *walk, kl_file *file, int64_t pos, int64_t end_pos,
                  size_t chunk_bytes) {
    KL_ASSERT(pos >= 0 && chunk_bytes >= KL_BATCH_HEADER_BYTES);
    *walk = (kl_walk){
        .file = kl_file_retain(file),
        .pos = pos,
        .end_pos = end_pos,
        .chunk_pos = pos,
        .chunk_bytes = chunk_bytes,
    };
}

void kl_walk_headers(kl_walk *walk, kl_file *file, int64_t pos, int64_t end_pos,
                     uint8_t *scratch, size_t chunk_bytes) {
    kl_walk_init(walk, file, pos, end_pos, chunk_bytes);
    walk->chunk = (kl_buffer){scratch, 0, chunk_bytes};
    walk->borrowed = true;
}

void kl_walk_done(kl_walk *walk) {
    kl_file_drop(walk->file);
    walk->file = NULL;
    if (!walk->borrowed) kl_buffer_free(&walk->chunk);
}

/* Bytes in the chunk from walk->pos on. */
static size_t chunk_left(const kl_walk *walk) {
    if (walk->pos < walk->chunk_pos) return 0;
    int64_t passed = walk->pos - walk->chunk_pos;
    if (passed >= (int64_t)walk->chunk.bytes) return 0;
    return walk->chunk.bytes - (size_t)passed;
}

static kl_status torn(const kl_walk *walk, int64_t wanted, int64_t left) {
    return kl_fail(KL_E_BUFFER_TOO_SMALL,
                   "%s, position %lld: the batch has %s%lld bytes, %lld are left",
                   kl_file_name(walk->file), (long long)walk->pos,
                   wanted == KL_BATCH_HEADER_BYTES ? "at least " : "", (long long)wanted,
                   (long long)left);
}

/* Have `need` bytes from walk->pos on in the chunk, all below end_pos; reads up to `want`.
 * KL_E_BUFFER_TOO_SMALL: the file is shorter. */
static kl_status fill(kl_walk *walk, size_t need, size_t want) {
    size_t have = chunk_left(walk);
    if (KL_LIKELY(have >= need)) return KL_OK;
    want = KL_MAX(want, need);
    want = (size_t)KL_MIN((int64_t)want, walk->end_pos - walk->pos);
    if (want > KL_MAX(walk->chunk_bytes, SMALL_BYTES) && want > walk->chunk.capacity) {
        /* The length comes from outside: check the file's size before allocating. */
        int64_t file_bytes, modified_ms;
        kl_status status = kl_file_stat(walk->file, &file_bytes, &modified_ms);
        if (status) return status;
        if (file_bytes - walk->pos < (int64_t)need)
            return torn(walk, (int64_t)need, file_bytes - walk->pos);
    }
    if (have > 0)
        memmove(walk->chunk.data, walk->chunk.data + (walk->chunk.bytes - have), have);
    walk->chunk.bytes = have;
    walk->chunk_pos = walk->pos;
    KL_ASSERT(!walk->borrowed || want <= walk->chunk.capacity);
    kl_status status = kl_buffer_reserve(&walk->chunk, want - have);
    if (status) return status;
    size_t got = 0;
    status = kl_file_read(walk->file, walk->chunk.data + have, want - have,
                          walk->pos + (int64_t)have, &got);
    if (status) return status;
    walk->chunk.bytes += got;
    if (walk->chunk.bytes < need)
        return torn(walk, (int64_t)need, (int64_t)walk->chunk.bytes);
    return KL_OK;
}

/* Read size for a header: after a batch much larger than the chunk only a header, since another
 * such batch is likely. */
static size_t header_read_bytes(const kl_walk *walk, bool whole) {
    int64_t jumped = walk->pos - walk->chunk_pos - (int64_t)walk->chunk.bytes;
    if (!whole && jumped >= (int64_t)walk->chunk_bytes) return KL_BATCH_HEADER_BYTES;
    return walk->chunk_bytes;
}

static const uint8_t *at_pos(const kl_walk *walk) {
    return walk->chunk.data + (walk->pos - walk->chunk_pos);
}

static kl_status name_place(const kl_walk *walk, kl_status status) {
    return kl_fail_prefix(status, "%s, position %lld", kl_file_name(walk->file),
                          (long long)walk->pos);
}

/* Fewer bytes are left than a header: report corruption or an old format if it shows. */
static kl_status short_tail(kl_walk *walk, kl_batch *batch) {
    size_t left = (size_t)(walk->end_pos - walk->pos);
    kl_status status = fill(walk, left, left);
    if (status) return status;
    return name_place(walk, kl_batch_parse(at_pos(walk), left, batch));
}

kl_status kl_walk_step(kl_walk *walk, bool whole, kl_batch *batch, const uint8_t **data,
                       bool *found) {
    *found = false;
    if (data) *data = NULL;
    int64_t left = walk->end_pos - walk->pos;
    if (left <= 0) return KL_OK;
    if (KL_UNLIKELY(left < KL_BATCH_HEADER_BYTES)) return short_tail(walk, batch);
    kl_status status = fill(walk, KL_BATCH_HEADER_BYTES, header_read_bytes(walk, whole));
    if (KL_UNLIKELY(status)) return status;
    status = kl_batch_header(at_pos(walk), batch);
    if (KL_UNLIKELY(status)) return name_place(walk, status);
    if (KL_UNLIKELY(batch->batch_bytes > left)) return torn(walk, batch->batch_bytes, left);
    if (whole) {
        status = fill(walk, (size_t)batch->batch_bytes, walk->chunk_bytes);
        if (KL_UNLIKELY(status)) return status;
        status = kl_batch_check(at_pos(walk), (size_t)batch->batch_bytes, batch);
        if (KL_UNLIKELY(status)) return name_place(walk, status);
        if (data) *data = at_pos(walk);
    }
    batch->pos = walk->pos;
    walk->pos += batch->batch_bytes;
    *found = true;
    return KL_OK;
}

/* ---- public functions ---------------------------------------------------------------- */

enum { PUBLIC_CHUNK_BYTES = 256 * 1024 };

/* Split `path` into its directory, to be released, and its last component. */
static kl_status split_path(const char *path, char **dir, const char **name) {
    const char *slash = strrchr(path, '/');
    size_t dir_bytes = slash ? KL_MAX((size_t)(slash - path), (size_t)1) : 1;
    *name = slash ? slash + 1 : path;
    *dir = kl_alloc(dir_bytes + 1);
    if (*dir == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a path");
    memcpy(*dir, slash ? path : ".", dir_bytes);
    return KL_OK;
}

kl_status kl_walk_open(const char *path, int64_t start_pos, kl_walk **out) {
    char *dir = NULL;
    const char *name;
    kl_file *file = NULL;
    kl_walk *walk = NULL;
    int64_t file_bytes, modified_ms;
    *out = NULL;
    kl_status status = split_path(path, &dir, &name);
    if (status) goto out;
    status = kl_file_new(dir, name, false, &file);
    if (status) goto out;
    status = kl_file_stat(file, &file_bytes, &modified_ms);
    if (status) goto out;
    if (start_pos < 0 || start_pos > file_bytes) {
        status =
            kl_fail(KL_E_ARGUMENT, "start_pos is %lld, wanted 0 to the %lld bytes of %s",
                    (long long)start_pos, (long long)file_bytes, path);
        goto out;
    }
    walk = kl_alloc(sizeof *walk);
    if (walk == NULL) {
        status = kl_fail(KL_E_NO_MEMORY, "no memory for a walk");
        goto out;
    }
    kl_walk_init(walk, file, start_pos, file_bytes, PUBLIC_CHUNK_BYTES);
    *out = walk;
out:
    kl_file_drop(file);
    kl_release(dir);
    return status;
}

void kl_walk_free(kl_walk *walk) {
    if (walk == NULL) return;
    kl_walk_done(walk);
    kl_release(walk);
}

kl_status kl_walk_next(kl_walk *walk, kl_batch *out, int32_t max_batches, int32_t *count,
                       int check_crc) {
    *count = 0;
    while (*count < max_batches) {
        bool found;
        kl_batch batch;
        kl_status status = kl_walk_step(walk, check_crc != 0, &batch, NULL, &found);
        if (status) return status;
        if (!found) break;
        out[*count] = batch;
        *count += 1;
    }
    return KL_OK;
}

int64_t kl_walk_pos(const kl_walk *walk) { return walk->pos; }

int64_t kl_walk_file_bytes(const kl_walk *walk) { return walk->end_pos; }

kl_status kl_walk_read(kl_walk *walk, int64_t pos, uint8_t *buffer, size_t buffer_bytes,
                       size_t *bytes) {
    uint8_t header[KL_BATCH_HEADER_BYTES];
    kl_batch batch;
    size_t got = 0;
    *bytes = 0;
    if (pos < 0 || pos > walk->end_pos - KL_BATCH_HEADER_BYTES)
        return kl_fail(KL_E_ARGUMENT, "pos is %lld: no batch header fits before %lld",
                       (long long)pos, (long long)walk->end_pos);
    kl_status status = kl_file_read(walk->file, header, sizeof header, pos, &got);
    if (status) return status;
    status = got < sizeof header ? kl_batch_parse(header, got, &batch)
                                 : kl_batch_header(header, &batch);
    if (status)
        return kl_fail_prefix(status, "%s, position %lld", kl_file_name(walk->file),
                              (long long)pos);
    if (batch.batch_bytes > walk->end_pos - pos)
        return kl_fail(KL_E_CORRUPT_MESSAGE,
                       "%s, position %lld: the batch has %lld bytes, %lld are left",
                       kl_file_name(walk->file), (long long)pos,
                       (long long)batch.batch_bytes, (long long)(walk->end_pos - pos));
    *bytes = (size_t)batch.batch_bytes;
    if (*bytes > buffer_bytes)
        return kl_fail(KL_E_BUFFER_TOO_SMALL, "the batch has %zu bytes, the buffer %zu",
                       *bytes, buffer_bytes);
    status = kl_file_read(walk->file, buffer, *bytes, pos, &got);
    if (!status && got < *bytes)
        status = kl_fail(KL_E_STALE, "%s became shorter than %lld bytes",
                         kl_file_name(walk->file), (long long)(pos + batch.batch_bytes));
    return status;
}

kl_status kl_walk_to_end(kl_file *file, int64_t bytes, int64_t *end) {
    enum { CHUNK_BYTES = 1 << 20 };
    kl_walk walk;
    kl_walk_init(&walk, file, 0, bytes, CHUNK_BYTES);
    for (kl_batch batch; kl_walk_more(&walk, &batch);) *end = batch.last_offset + 1;
    kl_status status = kl_walk_end(&walk);
    return status == KL_E_IO || status == KL_E_NO_MEMORY ? status : KL_OK;
}
