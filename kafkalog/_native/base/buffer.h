/* buffer.h: memory that grows and is kept, so that nothing is allocated after warm-up. */
#ifndef KL_BUFFER_H
#define KL_BUFFER_H

#include "base.h"

typedef struct {
    uint8_t *data;
    size_t bytes; /* in use */
    size_t capacity;
} kl_buffer;

/* Make room for `bytes` more after those in use; capacity doubles. */
kl_status kl_buffer_reserve(kl_buffer *buffer, size_t bytes);
void kl_buffer_free(kl_buffer *buffer); /* and zero it */

/* Memory straight from the system, and back to it: what is freed to the allocator stays resident as
 * long as something behind it is in use.  Zeroed; NULL when out of memory. */
void *kl_pages_new(size_t bytes);
void kl_pages_free(void *pages, size_t bytes); /* as many as were asked for */

static inline kl_status kl_buffer_append(kl_buffer *buffer, const void *data,
                                         size_t bytes) {
    if (KL_UNLIKELY(bytes > buffer->capacity - buffer->bytes)) {
        kl_status status = kl_buffer_reserve(buffer, bytes);
        if (status) return status;
    }
    if (bytes) memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return KL_OK;
}

#endif
