/* fetch.c: Fetch requests on the network thread. */
#include "request.h"

kl_verdict kl_fetch_run(kl_request *request) { return request->no_up ? KL_DROP : KL_UP; }
