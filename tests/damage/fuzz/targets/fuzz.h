/* fuzz.h: shared by the fuzz targets.
 *
 * A target is one file with LLVMFuzzerTestOneInput, linked with the C sources of kafkalog.
 * Bytes from outside may be refused or accepted, but a target checks more than that nothing
 * crashes: two functions must agree about the same bytes.  See tests/damage/fuzz/engine.py. */
#ifndef FUZZ_H
#define FUZZ_H

#include "../../../../kafkalog/_native/base/buffer.h"
#include "../../../../kafkalog/_native/base/file.h"
#include "../../../../kafkalog/_native/batch/batch.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Must hold for every input. */
#define WANT(condition) \
    ((condition) ? (void)0 : fuzz_broken(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *condition, const char *file, int line);

/* ---- the input as a row of choices ---------------------------------------------------- */

/* Each takes from the front; past the end everything is zero. */
uint8_t fuzz_u8(kl_span *input);
uint32_t fuzz_u32(kl_span *input);
int64_t fuzz_i64(kl_span *input);
/* 0 to limit - 1; limit > 0. */
uint32_t fuzz_below(kl_span *input, uint32_t limit);
kl_span fuzz_take(kl_span *input, size_t bytes); /* or as many as there are */

/* A copy of exactly these bytes, so that a read beyond them is detected; never NULL. */
uint8_t *fuzz_copy(kl_span span);

/* ---- a folder in memory ----------------------------------------------------------------- */

/* This process's folder, created at first use and removed at the end. */
kl_dir *fuzz_dir(void);
void fuzz_empty_dir(void);
void fuzz_write(const char *name, kl_span bytes);
/* The file's bytes in separate memory; `limit` is more than its size. */
uint8_t *fuzz_read(const char *name, size_t limit, size_t *bytes);

/* The disk's system calls go through a table of the harness (support.c): syncs return at
 * once, a read-only map is a copy on the heap with nothing after it, the clock steps. */

/* The N-th call from now on fails with `error_number`; `sticky`: and all after it; 0: none. */
void fuzz_fail_call(int64_t nth, int error_number, bool sticky);

/* ---- batches ------------------------------------------------------------------------------ */

/* Choices before the batches in an input of targets that have both. */
#ifndef FUZZ_PREFIX_BYTES
#define FUZZ_PREFIX_BYTES 0
#endif
/* Give each batch in a row of them a length that fits the bytes, magic 2, growing base
 * offsets, and the right crc; `draw` selects what stays unchanged. */
void fuzz_fix_batches(uint8_t *data, size_t bytes, uint32_t draw);
/* Records of a batch that was checked: kl_records_check, _decode, _find, the columns' encoder
 * and back must agree. */
void fuzz_records(const kl_batch *batch, const uint8_t *records, size_t bytes);

#endif
