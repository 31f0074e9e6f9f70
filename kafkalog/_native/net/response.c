/* response.c: see response.h and request.h. */
#include "response.h"

#include "net.h"

enum { POS_CORRELATION_ID = KL_SIZE_BYTES };

static kl_exchange *exchange_of(kl_request *request) { return (kl_exchange *)request; }

static void drop(kl_exchange *exchange, kl_slice *slice) {
    const kl_net *net = exchange->owner->net;
    net->ops->drop(net->context, slice);
}

/* ---- whole responses ------------------------------------------------------------------- */

void kl_response_clear(kl_exchange *exchange) {
    for (size_t i = exchange->part_index; i < exchange->part_count; i++)
        drop(exchange, &exchange->parts[i].slice);
    exchange->part_index = exchange->part_count = 0;
    exchange->parts_bytes = exchange->part_sent = exchange->warm_end = 0;
    exchange->memory.bytes = exchange->sent = 0;
}

void kl_response_part_sent(kl_exchange *exchange) {
    KL_ASSERT(exchange->part_index < exchange->part_count);
    KL_ASSERT(exchange->part_sent == exchange->parts[exchange->part_index].slice.bytes);
    drop(exchange, &exchange->parts[exchange->part_index].slice);
    exchange->part_index++;
    exchange->part_sent = exchange->warm_end = 0;
}

/* Size field, correlation id and, if flexible, empty tagged fields. */
static size_t fast_header_bytes(const kl_request *request) {
    return KL_RESPONSE_HEADER_BYTES +
           (kl_header_flexible(request->api_key, request->api_version) ? 1 : 0);
}

static uint8_t *reserve(kl_exchange *exchange, size_t bytes) {
    kl_buffer *memory = &exchange->memory;
    size_t capacity = memory->capacity;
    if (KL_UNLIKELY(bytes > capacity - memory->bytes)) {
        if (kl_buffer_reserve(memory, bytes)) return NULL;
        kl_count_add(&exchange->owner->allocations, 1);
    }
    uint8_t *place = memory->data + memory->bytes;
    memory->bytes += bytes;
    return place;
}

bool kl_response_begin(kl_exchange *exchange) {
    kl_response_clear(exchange);
    return reserve(exchange, fast_header_bytes(&exchange->request)) != NULL;
}

bool kl_response_finish(kl_exchange *exchange, int32_t header_version) {
    KL_ASSERT(exchange->memory.bytes >= KL_RESPONSE_HEADER_BYTES);
    size_t bytes = exchange->memory.bytes + exchange->parts_bytes - KL_SIZE_BYTES;
    if (bytes > INT32_MAX) return false;
    kl_put32(exchange->memory.data, (uint32_t)bytes);
    kl_put32(exchange->memory.data + POS_CORRELATION_ID,
             (uint32_t)exchange->request.correlation_id);
    if (header_version > 0) exchange->memory.data[KL_RESPONSE_HEADER_BYTES] = 0;
    return true;
}

/* ---- contents -------------------------------------------------------------------------- */

uint8_t *kl_response_reserve(kl_request *request, size_t bytes) {
    return reserve(exchange_of(request), bytes);
}

size_t kl_response_pos(const kl_request *request) {
    return ((const kl_exchange *)request)->memory.bytes;
}

void kl_response_rewind(kl_request *request, size_t pos) {
    kl_exchange *exchange = exchange_of(request);
    KL_ASSERT(pos >= fast_header_bytes(request) && pos <= exchange->memory.bytes);
    KL_ASSERT(exchange->part_count == 0 ||
              exchange->parts[exchange->part_count - 1].memory_end <= pos);
    exchange->memory.bytes = pos;
}

kl_status kl_response_slice(kl_request *request, kl_slice *slice) {
    kl_exchange *exchange = exchange_of(request);
    if (exchange->part_count == exchange->part_capacity) {
        size_t wanted = exchange->part_count + 1;
        kl_part *parts =
            kl_room_for(exchange->parts, &exchange->part_capacity, wanted, sizeof *parts);
        if (parts == NULL) {
            drop(exchange, slice);
            return kl_fail(KL_E_NO_MEMORY, "no memory for %zu parts of a response", wanted);
        }
        exchange->parts = parts;
        kl_count_add(&exchange->owner->allocations, 1);
    }
    KL_ASSERT(slice->fd >= 0 && slice->bytes > 0);
    exchange->parts[exchange->part_count++] = (kl_part){*slice, exchange->memory.bytes};
    exchange->parts_bytes += slice->bytes;
    *slice = (kl_slice){.fd = -1}; /* owned by the response */
    return KL_OK;
}

void kl_request_release_frame(kl_request *request) {
    kl_exchange *exchange = exchange_of(request);
    kl_pool_give(&exchange->owner->pool, exchange->frame);
    exchange->frame = NULL;
    request->data = NULL;
    request->bytes = request->body_pos = 0;
    request->client_id = (kl_span){0};
}
