/* read.c: reads a log: into a buffer, into a socket, as a map.
 *
 * A read finds its position under the lock, transfers without it from a segment that it references,
 * then checks the generation.  If segments were truncated or swapped, it starts over; so does a
 * reader in another process. */
#include "read.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

/* Above this distance, read each header by itself: the saved copying is worth a system call. */
enum { HEADER_APART_BYTES = 2 << 10 };

/* A position to read batches from. */
typedef struct {
    kl_look look;
    size_t index;        /* of the segment */
    kl_segment *segment; /* owned by the version; NULL: nothing at or above the offset */
    int64_t pos;
    int64_t end_pos;
    int64_t bound;
    int64_t limit; /* all offsets of the segment are below (I2) */
    bool sealed;
    bool hinted; /* index and pos come from a read hint */
} place;

/* Locked.  Use the position at which a reader of `offset` stopped. */
static void take_hint(const kl_log *log, int64_t offset, place *out) {
    KL_ASSERT_HELD(&log->lock);
    const kl_version *version = log->version;
    for (int i = 0; i < KL_READ_HINTS; i++) {
        const kl_read_hint *hint = &log->hints[i];
        if (hint->offset != offset) continue;
        out->index = kl_version_find(version, hint->segment_base);
        if (version->segments[out->index]->base_offset != hint->segment_base) continue;
        out->pos = hint->pos;
        out->hinted = true;
        return;
    }
}

/* Compare the last headers of a sealed segment with its side-car. */
static kl_status check_end(kl_segment *segment) {
    int64_t size = segment->size, good_pos, last = KL_MAX(size - 1, (int64_t)0);
    return kl_guard_check(segment, size, last, size, (kl_span){0}, 0, &good_pos);
}

/* Take the current view, and the hint for `offset`. */
static kl_status look_for(kl_log *log, int64_t offset, int32_t bound, place *out) {
    *out = (place){0};
    kl_status status = log->writable ? KL_OK : kl_log_refresh(log);
    if (!status) status = kl_log_enter(log);
    if (status) return status;
    out->look = kl_log_see(log);
    kl_version_retain(out->look.version);
    take_hint(log, offset, out);
    kl_log_leave(log);
    out->bound = kl_look_bound(&out->look, bound);
    return KL_OK;
}

/* Find the first batch that ends at or above `offset`. */
static kl_status find_place(kl_log *log, int64_t offset, place *out) {
    const kl_look *look = &out->look;
    const kl_version *version = look->version;
    kl_status status = KL_OK;
    if (offset < look->log_start || offset > look->log_end)
        return kl_fail(KL_E_OFFSET_OUT_OF_RANGE,
                       "log %s: offset %lld, expected one from %lld (start) to %lld (end)",
                       log->path, (long long)offset, (long long)look->log_start,
                       (long long)look->log_end);
    if (offset >= out->bound) return KL_OK;
    if (!out->hinted) {
        out->index = kl_version_find(version, offset);
        status = kl_log_prepare(log, look, out->index);
        if (!status)
            status = kl_segment_locate(version->segments[out->index],
                                       kl_look_bytes(look, out->index), offset, &out->pos);
    }
    while (!status && out->pos >= kl_look_bytes(look, out->index)) {
        if (!kl_look_is_sealed(look, out->index)) return KL_OK;
        /* No batch up to the next segment, or its header is damaged. */
        if (offset < kl_look_next_base(look, out->index))
            status = check_end(version->segments[out->index]);
        out->index++;
        out->pos = 0;
    }
    if (status) return status;
    KL_ASSERT(out->index < version->count);
    out->segment = version->segments[out->index];
    out->end_pos = kl_look_bytes(look, out->index);
    out->limit = kl_look_next_base(look, out->index);
    out->sealed = kl_look_is_sealed(look, out->index);
    return KL_OK;
}

/* Locked.  KL_E_STALE if segments changed since `generation`. */
static kl_status unchanged(const kl_log *log, int64_t generation) {
    kl_page_values values;
    KL_ASSERT_HELD(&log->lock);
    bool same = log->generation == generation;
    if (same && !log->writable && log->page)
        same = !kl_statepage_read(log->page, &values) || values.generation == generation;
    return same ? KL_OK
                : kl_fail(KL_E_STALE, "log %s was truncated or cleaned during a read",
                          log->path);
}

kl_status kl_log_unchanged(kl_log *log, int64_t generation) {
    kl_status status = kl_log_enter(log);
    if (status) return status;
    status = unchanged(log, generation);
    kl_log_leave(log);
    return status;
}

/* Errors from files that were truncated, swapped or deleted since are not damage. */
static kl_status stale_or(kl_log *log, const place *from, kl_status status) {
    kl_status changed = kl_log_unchanged(log, from->look.generation);
    return changed ? changed : status;
}

/* Check that the bytes read are still in the log, and store the hint for the next read. */
static kl_status settle(kl_log *log, const place *from, const kl_read *done) {
    kl_status status = kl_log_enter(log);
    if (status) return status;
    status = unchanged(log, from->look.generation);
    if (!status && done->bytes)
        log->hints[log->next_hint++ % KL_READ_HINTS] =
            (kl_read_hint){done->next_offset, from->segment->base_offset,
                           done->pos + (int64_t)done->bytes};
    kl_log_leave(log);
    return status;
}

/* I2: the header's offsets are above the previous batch's and within the segment. */
static kl_status check_offsets(const kl_batch *batch, const place *from,
                               int64_t min_offset) {
    if (KL_LIKELY(batch->base_offset >= min_offset && batch->last_offset < from->limit))
        return KL_OK;
    return kl_fail(KL_E_CORRUPT_MESSAGE,
                   "a batch with the offsets %lld to %lld, wanted some from %lld to %lld",
                   (long long)batch->base_offset, (long long)batch->last_offset,
                   (long long)min_offset, (long long)from->limit - 1);
}

/* Count the whole batches in `data` that may be returned.  A bad batch after good ones is left to
 * the next read.  *ended: the next batch is beyond the bound. */
static kl_status take_batches(const uint8_t *data, size_t bytes, const place *from,
                              int64_t stop_offset, int32_t check_crc, kl_read *out,
                              bool *ended) {
    size_t pos = 0;
    int64_t min_offset = from->segment->base_offset;
    *ended = false;
    while (pos < bytes) {
        kl_batch batch;
        kl_status status = kl_batch_parse(data + pos, bytes - pos, &batch);
        if (!status && check_crc && pos + (size_t)batch.batch_bytes <= bytes)
            status = kl_batch_check(data + pos, (size_t)batch.batch_bytes, &batch);
        if (status == KL_E_BUFFER_TOO_SMALL) {
            int64_t left = from->end_pos - from->pos - (int64_t)pos;
            if (batch.batch_bytes > left)
                status =
                    kl_fail(KL_E_CORRUPT_MESSAGE,
                            "batch of %lld bytes at offset %lld, but the segment has %lld",
                            (long long)batch.batch_bytes, (long long)batch.base_offset,
                            (long long)left);
            else if (pos > 0) break;
            out->wanted = (size_t)batch.batch_bytes;
        }
        if (!status) status = check_offsets(&batch, from, min_offset);
        if (status && pos > 0) break;
        if (status) return status;
        *ended = batch.last_offset >= from->bound ||
                 (stop_offset >= 0 && batch.base_offset >= stop_offset);
        if (*ended) break;
        pos += (size_t)batch.batch_bytes;
        out->next_offset = min_offset = batch.last_offset + 1;
    }
    KL_ASSERT(pos <= bytes);
    out->bytes = pos;
    return KL_OK;
}

/* take_batches; for a sealed segment, also compare headers with the side-car: those of the batches,
 * of the one after them, and, if an offset is missing, of the one before. */
static kl_status take_checked(const uint8_t *data, size_t bytes, const place *from,
                              int64_t stop_offset, int32_t check_crc, kl_read *out) {
    bool ended;
    int64_t offset = out->next_offset, good_pos;
    kl_status status = take_batches(data, bytes, from, stop_offset, check_crc, out, &ended);
    if (status || !check_crc || !from->sealed) return status;
    bool gap = bytes >= sizeof(int64_t) && from->pos > 0 &&
               (int64_t)kl_get64(data + POS_BASE_OFFSET) > offset;
    const kl_span span = {data, bytes};
    status =
        kl_guard_check(from->segment, from->end_pos, from->pos - gap,
                       from->pos + (int64_t)out->bytes + ended, span, from->pos, &good_pos);
    if (status != KL_E_CORRUPT_MESSAGE || good_pos <= from->pos) return status;
    /* Return the good batches first. */
    out->next_offset = offset;
    return take_batches(data, (size_t)(good_pos - from->pos), from, stop_offset, check_crc,
                        out, &ended);
}

/* If the file is shorter than its segment, a larger buffer cannot help: another program truncated
 * it. */
static kl_status judge_short(const kl_segment *segment, size_t want, size_t got,
                             int64_t pos, kl_status status) {
    if (KL_LIKELY(got == want) || (status != KL_E_BUFFER_TOO_SMALL && got > 0))
        return status;
    return kl_fail(KL_E_CORRUPT_MESSAGE, "%s ends at byte %lld, wanted %lld",
                   kl_file_name(segment->file), (long long)(pos + (int64_t)got),
                   (long long)segment->size);
}

/* Read the bytes of a place, and count the valid ones. */
static kl_status read_place(kl_log *log, const place *from, int64_t stop_offset,
                            int32_t check_crc, uint8_t *buffer, size_t buffer_bytes,
                            kl_read *out) {
    out->segment_base_offset = from->segment->base_offset;
    size_t want = (size_t)KL_MIN((int64_t)buffer_bytes, from->end_pos - from->pos), got = 0;
    kl_status status = kl_file_read(from->segment->file, buffer, want, from->pos, &got);
    if (!status) {
        status = take_checked(buffer, got, from, stop_offset, check_crc, out);
        status = judge_short(from->segment, want, got, from->pos, status);
    }
    if (!status) return settle(log, from, out);
    status = stale_or(log, from, status);
    return status == KL_E_STALE
               ? status
               : kl_fail_prefix(status, "log %s, %s at byte %lld", log->path,
                                kl_file_name(from->segment->file), (long long)from->pos);
}

static kl_status read_once(kl_log *log, int64_t offset, int64_t stop_offset, int32_t bound,
                           int32_t check_crc, uint8_t *buffer, size_t buffer_bytes,
                           kl_read *out) {
    place from;
    kl_status status = look_for(log, offset, bound, &from);
    if (status) return status;
    status = find_place(log, offset, &from);
    *out = (kl_read){.next_offset = offset, .end_offset = from.bound, .pos = from.pos};
    if (status) status = stale_or(log, &from, status);
    else if (from.segment)
        status = read_place(log, &from, stop_offset, check_crc, buffer, buffer_bytes, out);
    kl_look_drop(&from.look);
    return status;
}

kl_status kl_log_read(kl_log *log, int64_t offset, int64_t stop_offset, int32_t bound,
                      int32_t check_crc, uint8_t *buffer, size_t buffer_bytes,
                      kl_read *out) {
    kl_status status = KL_E_STALE;
    memset(out, 0, sizeof *out);
    if (buffer_bytes < KL_BATCH_HEADER_BYTES) {
        out->wanted = KL_BATCH_HEADER_BYTES;
        return kl_fail(KL_E_BUFFER_TOO_SMALL, "a buffer of %zu bytes, a batch needs %d",
                       buffer_bytes, KL_BATCH_HEADER_BYTES);
    }
    for (int tries = 0; status == KL_E_STALE && tries < KL_STALE_TRIES; tries++)
        status = read_once(log, offset, stop_offset, bound, check_crc, buffer, buffer_bytes,
                           out);
    return status;
}

/* As read_place, for headers only. */
static kl_status read_headers(kl_log *log, const place *from, int64_t stop_offset,
                              kl_headers *into, kl_read *out) {
    kl_walk walk;
    kl_batch batch = {0};
    uint8_t scratch[KL_CHUNK_LOOKUP_BYTES];
    int64_t min_offset = from->segment->base_offset, first = -1, good_pos;
    kl_walk_headers(&walk, from->segment->file, from->pos, from->end_pos, scratch,
                    into->one_by_one ? KL_BATCH_HEADER_BYTES : sizeof scratch);
    while (into->count < into->room && kl_walk_more(&walk, &batch)) {
        if (first < 0) first = batch.base_offset;
        walk.status = check_offsets(&batch, from, min_offset);
        if (walk.status || batch.last_offset >= from->bound ||
            (stop_offset >= 0 && batch.base_offset >= stop_offset))
            break;
        into->batches[into->count++] = batch;
        out->bytes = (size_t)(walk.pos - from->pos);
        out->next_offset = min_offset = batch.last_offset + 1;
    }
    kl_status status = kl_walk_end(&walk);
    if (into->count > 0) status = KL_OK; /* the next call reports a bad batch */
    into->one_by_one = out->bytes / HEADER_APART_BYTES >= (size_t)into->count;
    bool gap = from->pos > 0 && first > into->offset;
    if (!status && from->sealed)
        status = kl_guard_check(from->segment, from->end_pos, from->pos - gap, walk.pos,
                                (kl_span){0}, 0, &good_pos);
    return status ? stale_or(log, from, status) : settle(log, from, out);
}

static kl_status read_headers_once(kl_log *log, int64_t stop_offset, int32_t bound,
                                   kl_headers *into) {
    place from;
    kl_status status = look_for(log, into->offset, bound, &from);
    into->count = 0;
    if (status) return status;
    status = find_place(log, into->offset, &from);
    kl_read out = {.next_offset = into->offset, .pos = from.pos};
    if (status) status = stale_or(log, &from, status);
    else if (from.segment) status = read_headers(log, &from, stop_offset, into, &out);
    kl_look_drop(&from.look);
    return status;
}

kl_status kl_log_read_headers(kl_log *log, int64_t stop_offset, int32_t bound,
                              kl_headers *into) {
    kl_status status = KL_E_STALE;
    for (int tries = 0; status == KL_E_STALE && tries < KL_STALE_TRIES; tries++)
        status = read_headers_once(log, stop_offset, bound, into);
    return status;
}

static kl_status read_at(kl_log *log, const kl_look *look, size_t index, int64_t pos,
                         uint8_t *buffer, size_t buffer_bytes, size_t *bytes) {
    kl_segment *segment = look->version->segments[index];
    int64_t end_pos = kl_look_bytes(look, index), good_pos;
    size_t want = (size_t)KL_MIN((int64_t)buffer_bytes, end_pos - pos), got;
    kl_status status = kl_file_read(segment->file, buffer, want, pos, &got);
    kl_batch batch = {0};
    if (!status)
        status = judge_short(segment, want, got, pos, kl_batch_check(buffer, got, &batch));
    if (!status || status == KL_E_BUFFER_TOO_SMALL) *bytes = (size_t)batch.batch_bytes;
    if (!status && kl_look_is_sealed(look, index))
        status = kl_guard_check(segment, end_pos, pos, pos + 1, (kl_span){buffer, got}, pos,
                                &good_pos);
    kl_status changed = kl_log_unchanged(log, look->generation);
    return changed ? changed : status;
}

kl_status kl_log_read_at(kl_log *log, int64_t segment_base_offset, int64_t pos,
                         uint8_t *buffer, size_t buffer_bytes, size_t *bytes) {
    kl_look look;
    *bytes = 0;
    kl_status status = kl_log_peek(log, &look);
    if (status) return status;
    size_t index = kl_version_find(look.version, segment_base_offset);
    if (look.version->segments[index]->base_offset != segment_base_offset || pos < 0 ||
        pos >= kl_look_bytes(&look, index))
        status =
            kl_fail(KL_E_STALE, "log %s has no batch at byte %lld of segment %lld any more",
                    log->path, (long long)pos, (long long)segment_base_offset);
    else status = read_at(log, &look, index, pos, buffer, buffer_bytes, bytes);
    kl_look_drop(&look);
    return status;
}

/* ---- slices: sendfile -------------------------------------------------------------------- */

/* Walk headers from `guess` until the next batch would pass `limit` or the bound.  *pos is the end
 * of the slice, *next_offset the offset after it. */
static kl_status walk_to_end(const place *from, int64_t guess, int64_t limit,
                             bool at_least_one, int64_t *pos, int64_t *next_offset) {
    kl_segment *segment = from->segment;
    kl_walk walk;
    uint8_t scratch[KL_CHUNK_LOOKUP_BYTES];
    *pos = guess;
    kl_walk_headers(&walk, segment->file, guess, from->end_pos, scratch,
                    kl_segment_header_chunk(segment, from->end_pos, sizeof scratch));
    for (kl_batch batch; kl_walk_more(&walk, &batch);) {
        /* The part before the guess ends where this batch begins. */
        if (*pos == guess && guess > from->pos) *next_offset = batch.base_offset;
        if (batch.last_offset >= from->bound) break;
        bool first = walk.pos - batch.batch_bytes == from->pos;
        if (walk.pos > limit && !(first && at_least_one)) break;
        *pos = walk.pos;
        *next_offset = batch.last_offset + 1;
        if (walk.pos >= limit) break;
    }
    return kl_walk_end(&walk);
}

/* The end of the last whole batch within `max_bytes` of `from` and below its bound; the sparse
 * index gives a first guess, so that few headers are read. */
static kl_status slice_end(kl_log *log, const place *from, size_t max_bytes,
                           bool at_least_one, kl_read *where) {
    int64_t limit = from->pos + (int64_t)KL_MIN(max_bytes, (size_t)INT64_MAX / 2), pos;
    /* The whole rest of the active segment: its end is known without reading headers. */
    if (log->writable && !from->sealed && from->end_pos <= limit &&
        from->bound == from->look.log_end) {
        where->bytes = (size_t)(from->end_pos - from->pos);
        where->next_offset = from->look.log_end;
        return KL_OK;
    }
    int64_t guess = kl_segment_guess_end(from->segment, from->pos, limit, from->bound);
    kl_status status =
        walk_to_end(from, guess, limit, at_least_one, &pos, &where->next_offset);
    if (status && pos == guess && guess > from->pos) /* bad bytes at the guess */
        status =
            walk_to_end(from, from->pos, limit, at_least_one, &pos, &where->next_offset);
    if (pos > from->pos) status = KL_OK; /* the next call reports a bad batch */
    KL_ASSERT(pos >= from->pos);
    where->bytes = (size_t)(pos - from->pos);
    return status ? kl_fail_prefix(status, "log %s", log->path) : KL_OK;
}

/* Skip a batch without records at a segment's end, left by compaction, if something follows: some
 * clients would fetch it forever. */
static kl_status find_slice(kl_log *log, int64_t offset, size_t max_bytes,
                            bool at_least_one, place *from, kl_read *where) {
    for (;;) {
        kl_status status = find_place(log, offset, from);
        *where =
            (kl_read){.next_offset = offset, .end_offset = from->bound, .pos = from->pos};
        if (status || from->segment == NULL) return status;
        where->segment_base_offset = from->segment->base_offset;
        status = kl_log_prepare(log, &from->look, from->index);
        if (!status) status = slice_end(log, from, max_bytes, at_least_one, where);
        if (status || !from->sealed || where->bytes != KL_BATCH_HEADER_BYTES ||
            where->next_offset >= from->bound)
            return status;
        offset = where->next_offset;
        from->segment = NULL;
        from->hinted = false;
    }
}

/* Pin the slice: a later truncation sees it and leaves its bytes alone; an earlier one has changed
 * the generation. */
static kl_status hold_slice(kl_log *log, const place *from, kl_read *where, kl_slice *out) {
    int fd;
    kl_status status = kl_file_pin(from->segment->file, &fd);
    if (status) return stale_or(log, from, status);
    atomic_fetch_add(&from->segment->slices, 1);
    *out = (kl_slice){.segment = kl_segment_retain(from->segment),
                      .fd = fd,
                      .pos = from->pos,
                      .bytes = where->bytes};
    status = settle(log, from, where);
    if (status) kl_slice_drop(out);
    return status;
}

static kl_status slice_once(kl_log *log, int64_t offset, int32_t bound, size_t max_bytes,
                            bool at_least_one, kl_slice *out, kl_read *where) {
    place from;
    kl_status status = look_for(log, offset, bound, &from);
    if (status) return status;
    status = find_slice(log, offset, max_bytes, at_least_one, &from, where);
    if (status) status = stale_or(log, &from, status);
    else if (from.segment && where->bytes) status = hold_slice(log, &from, where, out);
    kl_look_drop(&from.look);
    return status;
}

bool kl_log_is_at_hand(kl_log *log, int64_t offset) {
    place from;
    if (look_for(log, offset, KL_LOG_END, &from)) return true; /* the read reports it */
    const kl_version *version = from.look.version;
    size_t index = from.hinted ? from.index : kl_version_find(version, offset);
    bool passed = from.hinted && from.pos >= kl_look_bytes(&from.look, index);
    if (passed && kl_look_is_sealed(&from.look, index)) index++;
    bool at_hand = offset < from.look.log_start || /* an error, which needs no disk */
                   !kl_look_is_sealed(&from.look, index) ||
                   kl_segment_indexes_at_hand(version->segments[index]);
    kl_look_drop(&from.look);
    return at_hand;
}

kl_status kl_log_slice(kl_log *log, int64_t offset, int32_t bound, size_t max_bytes,
                       int at_least_one, kl_slice *out, kl_read *where) {
    kl_status status = KL_E_STALE;
    *out = (kl_slice){.fd = -1};
    for (int tries = 0; status == KL_E_STALE && tries < KL_STALE_TRIES; tries++)
        status = slice_once(log, offset, bound, max_bytes, at_least_one, out, where);
    return status;
}

/* On Linux, sendfile to a closed socket raises SIGPIPE whatever the flags: block it. */
static ssize_t send_quietly(int socket_fd, int fd, off_t *pos, size_t bytes) {
    sigset_t pipe, old, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    ssize_t sent = kl_io->sendfile(socket_fd, fd, pos, bytes);
    int error = errno;
    if (sent < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        kl_system_take_sigpipe();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = error;
    return sent;
}

kl_status kl_slice_send(const kl_slice *slice, int socket_fd, size_t *done,
                        int32_t timeout_ms) {
    while (*done < slice->bytes) {
        off_t pos = (off_t)(slice->pos + (int64_t)*done);
        ssize_t sent = send_quietly(socket_fd, slice->fd, &pos, slice->bytes - *done);
        if (sent > 0) {
            *done += (size_t)sent;
            continue;
        }
        if (sent == 0)
            return kl_fail(KL_E_STALE, "%s was cut while it was sent",
                           kl_file_name(slice->segment->file));
        if (errno == EINTR) return kl_fail(KL_E_TIMEOUT, "a signal came during sendfile");
        if (errno == EPIPE || errno == ECONNRESET)
            return kl_fail(KL_E_PEER, "the socket's other end closed it");
        if (errno != EAGAIN)
            return kl_fail_errno(errno, "sendfile to descriptor %d", socket_fd);
        struct pollfd ready = {.fd = socket_fd, .events = POLLOUT};
        if (poll(&ready, 1, timeout_ms) <= 0)
            return kl_fail(KL_E_TIMEOUT, "the socket took nothing for %d ms", timeout_ms);
    }
    return KL_OK;
}

void kl_slice_drop(kl_slice *slice) {
    if (slice->segment == NULL) return;
    int32_t before = atomic_fetch_sub(&slice->segment->slices, 1);
    KL_ASSERT(before > 0);
    kl_file_unpin(slice->segment->file);
    kl_segment_drop(slice->segment);
    *slice = (kl_slice){.fd = -1};
}

/* ---- views --------------------------------------------------------------------------------- */

struct kl_view {
    void *map;     /* or NULL */
    uint8_t *copy; /* or NULL */
    size_t bytes;
};

static kl_status view_index(kl_segment *segment, const kl_index *index, kl_view *view) {
    kl_lock(&segment->lock);
    kl_span entries = kl_index_bytes(index);
    kl_status status = KL_OK;
    if (entries.bytes) view->copy = kl_alloc(entries.bytes);
    if (view->copy) memcpy(view->copy, entries.data, entries.bytes);
    else if (entries.bytes) status = kl_fail(KL_E_NO_MEMORY, "no memory for a view");
    view->bytes = entries.bytes;
    kl_unlock(&segment->lock);
    return status;
}

static kl_status view_log(const kl_segment *segment, kl_view *view) {
    view->bytes = (size_t)segment->size;
    if (view->bytes == 0) return KL_OK;
    int fd;
    int64_t file_bytes, modified_ms;
    kl_status status = kl_file_stat(segment->file, &file_bytes, &modified_ms);
    if (status) return status;
    /* Accessing a map beyond the end of its file raises SIGBUS. */
    if (file_bytes < segment->size)
        return kl_fail(KL_E_CORRUPT, "%s has %lld bytes, wanted the %lld that it had",
                       kl_file_name(segment->file), (long long)file_bytes,
                       (long long)segment->size);
    status = kl_file_pin(segment->file, &fd);
    if (status) return status;
    void *map = kl_io->mmap(NULL, view->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        status = kl_fail_errno(errno, "map of %s", kl_file_name(segment->file));
    else view->map = map;
    kl_file_unpin(segment->file);
    return status;
}

static kl_status view_file(kl_log *log, const kl_look *look, int64_t base_offset,
                           int32_t file, kl_view *view) {
    size_t index = kl_version_find(look->version, base_offset);
    kl_segment *segment = look->version->segments[index];
    if (segment->base_offset != base_offset || file < 0 || file > KL_FILE_TIME_INDEX)
        return kl_fail(KL_E_ARGUMENT, "log %s has no file %d of a segment %lld", log->path,
                       file, (long long)base_offset);
    if (file == KL_FILE_LOG && !kl_look_is_sealed(look, index))
        return kl_fail(
            KL_E_ARGUMENT,
            "segment %lld of %s is still written to: only sealed ones are mapped",
            (long long)base_offset, log->path);
    if (file == KL_FILE_LOG) return view_log(segment, view);
    kl_status status = kl_log_prepare(log, look, index);
    if (status) return status;
    return view_index(
        segment, file == KL_FILE_OFFSET_INDEX ? &segment->offsets : &segment->times, view);
}

kl_status kl_log_view(kl_log *log, int64_t base_offset, int32_t file, kl_view **out) {
    kl_look look;
    *out = NULL;
    kl_view *view = kl_alloc(sizeof *view);
    if (view == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a view of %s", log->path);
    kl_status status = KL_E_STALE;
    for (int tries = 0; status == KL_E_STALE && tries < KL_STALE_TRIES; tries++) {
        status = kl_log_peek(log, &look);
        if (status) break;
        status = view_file(log, &look, base_offset, file, view);
        kl_look_drop(&look);
    }
    if (status) kl_view_free(view);
    else *out = view;
    return status;
}

const uint8_t *kl_view_data(const kl_view *view) {
    return view->map ? view->map : view->copy;
}

size_t kl_view_bytes(const kl_view *view) { return view->bytes; }

void kl_view_free(kl_view *view) {
    if (view == NULL) return;
    if (view->map) kl_io->munmap(view->map, view->bytes);
    kl_release(view->copy);
    kl_release(view);
}
