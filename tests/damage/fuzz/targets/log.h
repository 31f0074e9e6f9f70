/* log.h: shared by the targets that open whole logs. */
#ifndef FUZZ_LOG_H
#define FUZZ_LOG_H

#include "fuzz.h"

enum { FUZZ_READ_BYTES = 1 << 16 };

kl_open fuzz_open_for_writing(void);
kl_log_config fuzz_config(kl_span *input);
/* Every query of a log, with arguments from `input`.  `checked`: each batch was read when the
 * log was opened, so its offsets can be relied on. */
void fuzz_look(kl_log *log, kl_span *input, bool checked);
/* An append, a flush, a roll, a truncation, ... */
kl_status fuzz_change_once(kl_log *log, kl_span *input);
/* Several changes, one after another, until `input` ends; only bad arguments may fail. */
void fuzz_change(kl_log *log, kl_span *input);
/* A clean close, which must succeed, and a free. */
void fuzz_close(kl_log *log);

#endif
