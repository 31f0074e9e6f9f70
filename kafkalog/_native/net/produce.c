/* produce.c: Produce requests on the network thread. */
#include "request.h"

kl_verdict kl_produce_run(kl_request *request) { return request->no_up ? KL_DROP : KL_UP; }
