/* buffer.c: memory allocation. */
#include "buffer.h"

#include <sys/mman.h>

#ifdef KL_TEST
#include "io.h"
#define ALLOC_FAILS() kl_io_alloc_fails()
#else
#define ALLOC_FAILS() false
#endif

enum { BUFFER_BYTES_MIN = 256, ITEMS_MIN = 8 };

void *kl_alloc(size_t bytes) { return ALLOC_FAILS() ? NULL : calloc(1, bytes ? bytes : 1); }

void *kl_resize(void *old, size_t bytes) {
    return ALLOC_FAILS() ? NULL : realloc(old, bytes ? bytes : 1);
}

void *kl_room_for(void *old, size_t *capacity, size_t wanted, size_t item_bytes) {
    if (wanted <= *capacity && old != NULL) return old;
    if (wanted > SIZE_MAX / 4 / item_bytes) return NULL;
    size_t count = KL_MAX(wanted, KL_MAX((size_t)ITEMS_MIN, *capacity * 2));
    uint8_t *items = kl_resize(old, count * item_bytes);
    if (items == NULL) return NULL;
    memset(items + *capacity * item_bytes, 0, (count - *capacity) * item_bytes);
    *capacity = count;
    return items;
}

void kl_release(void *memory) { free(memory); }

void *kl_pages_new(size_t bytes) {
    if (ALLOC_FAILS()) return NULL;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

void kl_pages_free(void *pages, size_t bytes) {
    /* With too many mappings in the process munmap may fail: then release only the pages. */
    if (munmap(pages, bytes)) KL_ASSERT(madvise(pages, bytes, MADV_DONTNEED) == 0);
}

kl_status kl_buffer_reserve(kl_buffer *buffer, size_t bytes) {
    KL_ASSERT(buffer->bytes <= buffer->capacity);
    if (bytes <= buffer->capacity - buffer->bytes) return KL_OK;
    if (bytes > SIZE_MAX / 4 - buffer->bytes)
        return kl_fail(KL_E_NO_MEMORY, "a buffer of %zu bytes cannot grow by %zu",
                       buffer->bytes, bytes);
    size_t wanted = buffer->bytes + bytes;
    size_t capacity = KL_MAX(KL_MAX(wanted, buffer->capacity * 2), BUFFER_BYTES_MIN);
    uint8_t *data = kl_resize(buffer->data, capacity);
    if (!data)
        return kl_fail(KL_E_NO_MEMORY, "no memory for a buffer of %zu bytes", capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    return KL_OK;
}

void kl_buffer_free(kl_buffer *buffer) {
    kl_release(buffer->data);
    *buffer = (kl_buffer){0};
}
