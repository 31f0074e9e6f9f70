/* Target: a connection whose client must authenticate: Python lets it take any step, with tokens
 * without headers, sessions that end, and refusals.  No request of a client that has not
 * authenticated is answered in C; one at a time is passed to Python; each principal is let go. */
#define FUZZ_LOGIN 1
#include "connection.h"
