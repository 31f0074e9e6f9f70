/* racks.c: see racks.h. */
#include "racks.h"

#include <string.h>

enum { NODES_MAX = 10000 };

void kl_racks_init(kl_racks *racks) { pthread_mutex_init(&racks->lock, NULL); }

void kl_racks_free(kl_racks *racks) {
    pthread_mutex_destroy(&racks->lock);
    kl_release(racks->list);
}

kl_status kl_racks_set(kl_racks *racks, const kl_rack *places, int32_t count) {
    if (count < 0 || count > NODES_MAX)
        return kl_fail(KL_E_ARGUMENT, "%d nodes with a rack, wanted 0 to %d", count,
                       NODES_MAX);
    for (int32_t i = 0; i < count; i++)
        if (memchr(places[i].rack, 0, sizeof places[i].rack) == NULL)
            return kl_fail(KL_E_ARGUMENT, "a rack has at most %zu bytes",
                           sizeof places[i].rack - 1);
    kl_rack *list = count ? kl_alloc((size_t)count * sizeof *list) : NULL;
    if (count && list == NULL)
        return kl_fail(KL_E_NO_MEMORY, "no memory for the racks of %d nodes", count);
    if (list) memcpy(list, places, (size_t)count * sizeof *list);
    kl_lock(&racks->lock);
    kl_rack *old = racks->list;
    racks->list = list;
    atomic_store(&racks->count, count);
    kl_unlock(&racks->lock);
    kl_release(old);
    return KL_OK;
}

int32_t kl_racks_find(kl_racks *racks, kl_span rack, int32_t self, int32_t *out,
                      int32_t room) {
    if (rack.bytes == 0 || atomic_load(&racks->count) == 0) return 0;
    int32_t found = 0;
    kl_lock(&racks->lock);
    KL_ASSERT((racks->list != NULL) == (atomic_load(&racks->count) > 0));
    for (int32_t i = 0; i < atomic_load(&racks->count); i++) {
        const kl_rack *place = &racks->list[i];
        if (strlen(place->rack) != rack.bytes || memcmp(place->rack, rack.data, rack.bytes))
            continue;
        if (place->node == self) {
            found = 0;
            break;
        }
        if (found < room) out[found++] = place->node;
    }
    kl_unlock(&racks->lock);
    return found;
}
