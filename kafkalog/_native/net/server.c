/* server.c: the server's handle. */
#include "request.h"

struct kl_server {
    kl_server_config config;
    kl_data *data;
};

static kl_status closed(void) { return kl_fail(KL_E_CLOSED, "the server does not run"); }

kl_status kl_server_new(const kl_server_config *config, kl_server **out) {
    kl_server *server = *out = kl_alloc(sizeof *server);
    if (server == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for a server");
    server->config = *config;
    kl_status status = kl_data_new(server, config, &server->data);
    if (status) {
        kl_release(server);
        *out = NULL;
    }
    return status;
}

kl_status kl_server_listen(kl_server *server KL_UNUSED, const char *host_or_path KL_UNUSED,
                           int32_t port KL_UNUSED, int32_t listener KL_UNUSED,
                           int32_t *bound_port KL_UNUSED) {
    return closed();
}
kl_status kl_server_start(kl_server *server KL_UNUSED) { return closed(); }
kl_status kl_server_stop(kl_server *server KL_UNUSED, int32_t timeout_ms KL_UNUSED) {
    return KL_OK;
}
void kl_server_free(kl_server *server) {
    if (server == NULL) return;
    kl_data_free(server->data);
    kl_release(server);
}
void kl_server_set_time(kl_server *server KL_UNUSED, int64_t now_ms KL_UNUSED) {}
kl_status kl_server_take(kl_server *server KL_UNUSED, int32_t timeout_ms KL_UNUSED,
                         kl_request_info *out KL_UNUSED) {
    return closed();
}
kl_status kl_server_answer(kl_server *server KL_UNUSED, uint64_t id KL_UNUSED,
                           const uint8_t *body KL_UNUSED, size_t bytes KL_UNUSED,
                           int32_t header_version KL_UNUSED) {
    return closed();
}
kl_status kl_server_again(kl_server *server KL_UNUSED, uint64_t id KL_UNUSED) {
    return closed();
}
kl_status kl_server_drop(kl_server *server KL_UNUSED, uint64_t id KL_UNUSED) {
    return closed();
}
void kl_server_get_stats(kl_server *server KL_UNUSED, kl_server_stats *out) {
    *out = (kl_server_stats){0};
}
int64_t kl_server_now(kl_server *server KL_UNUSED) { return kl_monotonic_ms(); }
kl_data *kl_server_data(kl_server *server) { return server->data; }
const kl_server_config *kl_server_get_config(const kl_server *server) {
    return &server->config;
}
int32_t kl_server_threads(const kl_server *server) {
    return server->config.network_threads;
}
uint8_t *kl_response_reserve(kl_request *request KL_UNUSED, size_t bytes KL_UNUSED) {
    return NULL;
}
size_t kl_response_pos(const kl_request *request KL_UNUSED) { return 0; }
uint8_t *kl_response_at(kl_request *request KL_UNUSED, size_t pos KL_UNUSED) {
    return NULL;
}
void kl_response_rewind(kl_request *request KL_UNUSED, size_t pos KL_UNUSED) {}
kl_status kl_response_slice(kl_request *request KL_UNUSED, kl_slice *slice,
                            int64_t pos KL_UNUSED, size_t bytes KL_UNUSED) {
    kl_slice_free(slice);
    return closed();
}
void kl_request_wake(kl_request *request KL_UNUSED) {}
