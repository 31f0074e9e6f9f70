/* Target: a connection of a client that need not authenticate: see connection.h. */
#define FUZZ_LOGIN 0
#include "connection.h"
