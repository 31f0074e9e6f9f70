/* data.c: what the fast path knows: the partitions of this server and the fetch sessions. */
#include "request.h"

struct kl_data {
    kl_server *server;
};

kl_status kl_data_new(kl_server *server, const kl_server_config *config, kl_data **out) {
    (void)config;
    *out = kl_alloc(sizeof **out);
    if (*out == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a server's partitions");
    (*out)->server = server;
    return KL_OK;
}

void kl_data_free(kl_data *data) { kl_release(data); }
