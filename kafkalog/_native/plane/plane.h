/* plane.h: Produce and Fetch, as a server registers them with its network side. */
#ifndef KL_PLANE_H
#define KL_PLANE_H

#include "data.h"

/* The handlers of requests whose context is a kl_data. */
extern const kl_ops kl_plane_ops;

/* The network threads have ended.  Pieces of files that were to be read are returned, */
void kl_plane_stop_cold(kl_data *data);
/* and no log is used when this returns, or later. */
void kl_plane_stop(kl_data *data);
/* All requests have ended.  NULL is fine. */
void kl_plane_free(kl_data *data);

#endif
