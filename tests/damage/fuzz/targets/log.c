/* Target: the life of a log, step by step: changes, calls that fail, crashes, clean closes,
 * and damage to any of its files.  Without damage nothing that was promised is missing. */
#include "log.h"

#include <fcntl.h>
#include <unistd.h>

enum { STEPS_MAX = 60, DAMAGE_BYTES_MAX = 64 };

typedef struct {
    kl_log *log; /* NULL: it could not be opened */
    kl_log_config config;
    int64_t end;    /* the end that the log last reported */
    bool end_known; /* no change of the ends failed since */
    bool damaged;   /* a file was changed behind its back: no promise holds any more */
} life;

static void note_end(life *l) {
    kl_log_state state;
    WANT(kl_log_get(l->log, &state) == KL_OK);
    l->end = state.log_end_offset;
}

static void open_again(life *l, bool clean) {
    kl_recovery recovery;
    kl_open how = fuzz_open_for_writing();
    how.clean = clean;
    fuzz_fail_call(0, 0, false);
    kl_status status =
        kl_log_open(fuzz_dir()->path, &l->config, &how, NULL, &l->log, &recovery);
    WANT(status == KL_OK || l->damaged);
    if (status) return;
    int64_t before = l->end;
    note_end(l);
    if (!l->damaged && l->end_known) WANT(l->end == before);
    l->end_known = true;
}

/* A process that dies leaves the files as they are; a clean one closes. */
static void end_process(life *l, bool clean) {
    kl_log_state state;
    if (l->log == NULL) return;
    fuzz_fail_call(0, 0, false);
    if (kl_log_get(l->log, &state)) state.offline = 1; /* see change() */
    if (clean) clean = kl_log_close(l->log) == KL_OK;
    else kl_log_abandon(l->log);
    kl_log_free(l->log);
    l->log = NULL;
    open_again(l, clean && !state.offline);
}

/* Change some bytes of a file, cut it, remove it, or put it under another name. */
static void damage(life *l, kl_span *input) {
    kl_names names;
    uint8_t what = fuzz_u8(input);
    fuzz_fail_call(0, 0, false);
    WANT(kl_dir_list(fuzz_dir(), &names) == KL_OK);
    if (names.count > 0) {
        const char *name = names.names[fuzz_u8(input) % names.count];
        const char *other = names.names[fuzz_u8(input) % names.count];
        int dir_fd = fuzz_dir()->fd, fd = openat(dir_fd, name, O_RDWR);
        off_t bytes = lseek(fd, 0, SEEK_END);
        off_t at = (off_t)(fuzz_u32(input) % ((uint32_t)bytes + 1));
        kl_span put = fuzz_take(input, fuzz_u8(input) % DAMAGE_BYTES_MAX);
        if (what % 4 == 0) WANT(ftruncate(fd, at) == 0);
        else if (what % 4 == 1) WANT(renameat(dir_fd, name, dir_fd, other) == 0);
        else WANT(pwrite(fd, put.data, put.bytes, at) == (ssize_t)put.bytes);
        close(fd);
        l->damaged = true;
    }
    kl_names_free(&names);
}

static void look_as_reader(life *l, kl_span *input) {
    kl_log *reader;
    kl_recovery recovery;
    kl_open how = fuzz_open_for_writing();
    how.mode = KL_READ;
    fuzz_fail_call(0, 0, false);
    if (kl_log_open(fuzz_dir()->path, &l->config, &how, NULL, &reader, &recovery)) return;
    fuzz_look(reader, input, false);
    kl_log_free(reader);
}

static void change(life *l, kl_span *input) {
    if (l->log == NULL) return;
    kl_log_state state;
    kl_status status = fuzz_change_once(l->log, input);
    kl_status got = kl_log_get(l->log, &state);
    if (got) { /* it could not restart at an offset, and closed itself */
        WANT(got == KL_E_CLOSED && status);
        l->end_known = false;
        end_process(l, false);
        return;
    }
    /* A failure that makes memory and disk differ takes the log offline. */
    if (state.offline) l->end_known = false;
    else if (status) WANT(l->end == state.log_end_offset || state.log_end_offset > l->end);
    l->end = state.log_end_offset;
}

static void fail_calls(kl_span *input) {
    static const int errors[] = {EIO, ENOSPC, EMFILE, ENOMEM, EACCES};
    uint8_t what = fuzz_u8(input);
    if (what & 128) fuzz_fail_call(1 + (what & 31), EINTR, false);
    else fuzz_fail_call(1 + (what & 31), errors[fuzz_u8(input) % 5], what & 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    kl_span input = {data, bytes};
    life l = {.config = fuzz_config(&input), .end_known = true};
    fuzz_empty_dir();
    open_again(&l, false);
    for (int i = 0; i < STEPS_MAX && input.bytes > 0; i++) {
        switch (fuzz_u8(&input) % 16) {
        case 9: end_process(&l, true); break;
        case 10: end_process(&l, false); break;
        case 11: fail_calls(&input); break;
        case 12: fuzz_fail_call(0, 0, false); break;
        case 13: damage(&l, &input); break;
        case 14: look_as_reader(&l, &input); break;
        case 15:
            fuzz_fail_call(0, 0, false);
            if (l.log) fuzz_look(l.log, &input, false);
            break;
        default: change(&l, &input);
        }
    }
    fuzz_fail_call(0, 0, false);
    end_process(&l, false);
    if (l.log) {
        kl_log_abandon(l.log);
        kl_log_free(l.log);
    }
    return 0;
}
