/* plane.h: Produce and Fetch, as registered with a server's network side. */
#ifndef KL_PLANE_H
#define KL_PLANE_H

#include "data.h"

/* Handlers of requests whose context is a kl_data. */
extern const kl_ops kl_plane_ops;

/* After the network threads have ended: returns pending pieces of files. */
void kl_plane_stop_cold(kl_data *data);
/* On return no log is used any more. */
void kl_plane_stop(kl_data *data);
/* After all requests have ended.  NULL is fine. */
void kl_plane_free(kl_data *data);

#endif
