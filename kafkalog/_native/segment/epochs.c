/* epochs.c: the leader epochs of a log and their checkpoint. */
#include "epochs.h"

#include "base/bytes.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    FILE_BYTES_MAX = 64 << 20, /* of two million leader changes */
    LINE_BYTES_MAX = 40        /* an epoch, a space, an offset, a newline: 32 */
};
KL_STATIC_ASSERT(LINE_BYTES_MAX >= sizeof "-2147483648 -9223372036854775808\n",
                 "each fits");

/* ---- text --------------------------------------------------------------------------- */

/* The unparsed rest of the text. */
typedef struct {
    const uint8_t *p;
    const uint8_t *end;
} text;

static bool at_digit(const text *t) {
    return t->p < t->end && *t->p >= '0' && *t->p <= '9';
}

static bool take_number(text *t, int64_t max, int64_t *out) {
    if (!at_digit(t)) return false;
    int64_t number = 0;
    for (; at_digit(t); t->p++) {
        int64_t digit = *t->p - '0';
        if (number > (max - digit) / 10) return false;
        number = number * 10 + digit;
    }
    *out = number;
    return true;
}

static bool take_char(text *t, char c) {
    if (t->p == t->end || *t->p != (uint8_t)c) return false;
    t->p++;
    return true;
}

/* The end of a line; the last one may lack its newline. */
static bool take_line_end(text *t) {
    return t->p == t->end || take_char(t, '\n') ||
           (take_char(t, '\r') && take_char(t, '\n'));
}

static kl_status parse(kl_epochs *epochs, text t) {
    int64_t version, count, epoch, start;
    if (!take_number(&t, INT32_MAX, &version) || !take_line_end(&t) || version != 0)
        return kl_fail(KL_E_CORRUPT, "line 1 is not the version 0");
    if (!take_number(&t, INT32_MAX, &count) || !take_line_end(&t))
        return kl_fail(KL_E_CORRUPT, "line 2 is not a number of entries");
    for (int64_t i = 0; i < count; i++) {
        if (!take_number(&t, INT32_MAX, &epoch) || !take_char(&t, ' ') ||
            !take_number(&t, INT64_MAX, &start) || !take_line_end(&t))
            return kl_fail(KL_E_CORRUPT, "line %lld of %lld is not an epoch and an offset",
                           (long long)i + 3, (long long)count + 2);
        if (epochs->count > 0) {
            kl_epoch last = epochs->entries[epochs->count - 1];
            if (epoch <= last.epoch || start <= last.start_offset)
                return kl_fail(KL_E_CORRUPT,
                               "line %lld: epoch %lld from offset %lld after epoch %d from "
                               "offset %lld, wanted both to grow",
                               (long long)i + 3, (long long)epoch, (long long)start,
                               last.epoch, (long long)last.start_offset);
        }
        kl_status status = kl_epochs_assign(epochs, (int32_t)epoch, start);
        if (status) return status;
    }
    if (t.p != t.end)
        return kl_fail(KL_E_CORRUPT, "text follows the %lld entries of line 2",
                       (long long)count);
    return KL_OK;
}

kl_status kl_epochs_load(kl_epochs *epochs, kl_dir *dir) {
    uint8_t *data = NULL;
    size_t bytes = 0;
    epochs->count = 0;
    kl_status status = kl_dir_slurp(dir, KL_EPOCHS_NAME, FILE_BYTES_MAX, &data, &bytes);
    if (status == KL_E_NOT_FOUND) status = KL_OK;
    if (!status && bytes > 0) status = parse(epochs, (text){data, data + bytes});
    kl_release(data);
    if (status) epochs->count = 0;
    epochs->changed = false;
    return status ? kl_fail_prefix(status, KL_EPOCHS_NAME) : KL_OK;
}

kl_status kl_epochs_encode(const kl_epochs *epochs, kl_buffer *out) {
    kl_status status = kl_buffer_reserve(out, (epochs->count + 1) * LINE_BYTES_MAX);
    if (status) return status;
    int n = snprintf((char *)out->data, LINE_BYTES_MAX, "0\n%zu\n", epochs->count);
    out->bytes = (size_t)n;
    for (size_t i = 0; i < epochs->count; i++) {
        n = snprintf((char *)out->data + out->bytes, LINE_BYTES_MAX, "%d %" PRId64 "\n",
                     epochs->entries[i].epoch, epochs->entries[i].start_offset);
        KL_ASSERT(n > 0 && n < LINE_BYTES_MAX);
        out->bytes += (size_t)n;
    }
    KL_ASSERT(out->bytes <= out->capacity);
    return KL_OK;
}

kl_status kl_epochs_write(const kl_buffer *text, kl_dir *dir, bool sync) {
    kl_status status = KL_FP_STATUS("epochs.save.before");
    if (status) return status;
    if (sync) return kl_dir_replace(dir, KL_EPOCHS_NAME, text->data, text->bytes);
    return kl_dir_write_file(dir, KL_EPOCHS_NAME, text->data, text->bytes, false);
}

kl_status kl_epochs_save(kl_epochs *epochs, kl_dir *dir, bool sync) {
    kl_buffer text = {0};
    kl_status status = kl_epochs_encode(epochs, &text);
    if (!status) status = kl_epochs_write(&text, dir, sync);
    if (!status) epochs->changed = false;
    kl_buffer_free(&text);
    return status;
}

uint32_t kl_epochs_crc(const kl_epochs *epochs) {
    uint32_t crc = 0;
    for (size_t i = 0; i < epochs->count; i++) {
        uint8_t entry[12];
        kl_put32(entry, (uint32_t)epochs->entries[i].epoch);
        kl_put64(entry + 4, (uint64_t)epochs->entries[i].start_offset);
        crc = kl_crc32c_more(crc, entry, sizeof entry);
    }
    return crc;
}

/* ---- history ------------------------------------------------------------------------ */

int32_t kl_epochs_latest(const kl_epochs *epochs) {
    return epochs->count ? epochs->entries[epochs->count - 1].epoch : -1;
}

kl_status kl_epochs_assign(kl_epochs *epochs, int32_t epoch, int64_t start_offset) {
    if (epoch < 0 || epoch == kl_epochs_latest(epochs)) return KL_OK;
    size_t keep = epochs->count;
    while (keep > 0 && (epochs->entries[keep - 1].epoch >= epoch ||
                        epochs->entries[keep - 1].start_offset >= start_offset))
        keep--;
    kl_epoch *entries =
        kl_room_for(epochs->entries, &epochs->capacity, keep + 1, sizeof *entries);
    if (entries == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for %zu leader epochs", keep + 1);
    epochs->entries = entries;
    KL_ASSERT(keep < epochs->capacity);
    epochs->entries[keep] = (kl_epoch){.start_offset = start_offset, .epoch = epoch};
    epochs->count = keep + 1;
    epochs->changed = true;
    return KL_OK;
}

void kl_epochs_end(const kl_epochs *epochs, int32_t requested, int64_t log_end,
                   int32_t *found, int64_t *end_offset) {
    *found = -1;
    *end_offset = -1;
    if (requested < 0 || requested > kl_epochs_latest(epochs)) return;
    if (requested == kl_epochs_latest(epochs)) {
        *found = requested;
        *end_offset = log_end;
        return;
    }
    size_t next = 0; /* the first entry above `requested`; the latest is above it */
    while (epochs->entries[next].epoch <= requested) next++;
    KL_ASSERT(next < epochs->count);
    *found = next ? epochs->entries[next - 1].epoch : requested;
    *end_offset = epochs->entries[next].start_offset;
}

void kl_epochs_truncate_end(kl_epochs *epochs, int64_t offset) {
    while (epochs->count > 0 && epochs->entries[epochs->count - 1].start_offset >= offset) {
        epochs->count--;
        epochs->changed = true;
    }
}

void kl_epochs_truncate_start(kl_epochs *epochs, int64_t offset) {
    size_t covering = 0; /* entries that start at or below `offset` */
    while (covering < epochs->count && epochs->entries[covering].start_offset <= offset)
        covering++;
    if (covering == 0 || epochs->entries[0].start_offset == offset) return;
    size_t dropped = covering - 1;
    KL_ASSERT(dropped < epochs->count);
    memmove(epochs->entries, epochs->entries + dropped,
            (epochs->count - dropped) * sizeof *epochs->entries);
    epochs->count -= dropped;
    epochs->entries[0].start_offset = offset;
    epochs->changed = true;
}

void kl_epochs_clear(kl_epochs *epochs) {
    epochs->changed = epochs->changed || epochs->count > 0;
    epochs->count = 0;
}

void kl_epochs_free(kl_epochs *epochs) {
    kl_release(epochs->entries);
    *epochs = (kl_epochs){0};
}
