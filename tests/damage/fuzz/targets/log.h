/* log.h: what the targets that open whole logs share. */
#ifndef FUZZ_LOG_H
#define FUZZ_LOG_H

#include "fuzz.h"

enum { FUZZ_READ_BYTES = 1 << 16 };

kl_open fuzz_open_for_writing(void);
kl_log_config fuzz_config(kl_span *input);
/* Every question that a log answers, with whatever `input` chooses.  `checked`: each batch
 * was looked at when the log was opened, so that its offsets can be relied on. */
void fuzz_look(kl_log *log, kl_span *input, bool checked);
/* An append, a flush, a roll, a truncation, ... */
kl_status fuzz_change_once(kl_log *log, kl_span *input);
/* Some of them, one after another, until `input` ends; none may fail but for its arguments. */
void fuzz_change(kl_log *log, kl_span *input);
/* A clean close, which must succeed, and free. */
void fuzz_close(kl_log *log);

#endif
