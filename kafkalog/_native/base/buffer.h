/* buffer.h: growing buffers that are kept, so that nothing is allocated after warm-up. */
#ifndef KL_BUFFER_H
#define KL_BUFFER_H

#include "base.h"

typedef struct {
    uint8_t *data;
    size_t bytes; /* in use */
    size_t capacity;
} kl_buffer;

/* Make space for `bytes` more; capacity doubles. */
kl_status kl_buffer_reserve(kl_buffer *buffer, size_t bytes);
void kl_buffer_free(kl_buffer *buffer); /* zeroes it */

/* Memory directly from the system: memory freed to the allocator stays resident while anything
 * after it is in use.  Zeroed; NULL: no memory. */
void *kl_pages_new(size_t bytes);
void kl_pages_free(void *pages, size_t bytes); /* `bytes` as allocated */

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
