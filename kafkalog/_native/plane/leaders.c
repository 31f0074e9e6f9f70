/* leaders.c: see leaders.h. */
#include "leaders.h"

#include "codes.h"
#include "net/codec.h"
#include "net/response.h"

enum { NODES_MAX = 10000 };

struct kl_listener_places {
    kl_listener_places *next;
    kl_endpoint *list;
    int32_t count;
    int32_t listener;
};

/* ---- endpoints --------------------------------------------------------------------------- */

void kl_places_init(kl_places *places) { pthread_mutex_init(&places->lock, NULL); }

void kl_places_free(kl_places *places) {
    for (kl_listener_places *one = places->first, *next; one; one = next) {
        next = one->next;
        kl_release(one->list);
        kl_release(one);
    }
    pthread_mutex_destroy(&places->lock);
}

/* Locked. */
static kl_listener_places *find_listener(const kl_places *places, int32_t listener) {
    KL_ASSERT_HELD(&places->lock);
    kl_listener_places *one = places->first;
    while (one && one->listener != listener) one = one->next;
    return one;
}

/* Locked.  NULL: no memory. */
static kl_listener_places *add_listener(kl_places *places, int32_t listener) {
    kl_listener_places *one = find_listener(places, listener);
    if (one) return one;
    one = kl_alloc(sizeof *one);
    if (one == NULL) return NULL;
    one->listener = listener;
    one->next = places->first;
    return places->first = one;
}

kl_status kl_places_set(kl_places *places, int32_t listener, const kl_endpoint *endpoints,
                        int32_t count) {
    if (count < 0 || count > NODES_MAX)
        return kl_fail(KL_E_ARGUMENT, "endpoints of %d nodes, wanted 0 to %d", count,
                       NODES_MAX);
    for (int32_t i = 0; i < count; i++)
        if (memchr(endpoints[i].host, 0, sizeof endpoints[i].host) == NULL ||
            memchr(endpoints[i].rack, 0, sizeof endpoints[i].rack) == NULL)
            return kl_fail(KL_E_ARGUMENT, "a host and a rack have at most %zu bytes",
                           sizeof endpoints[i].host - 1);
    kl_endpoint *list = count ? kl_alloc((size_t)count * sizeof *list) : NULL, *old = list;
    if (list) memcpy(list, endpoints, (size_t)count * sizeof *list);
    kl_lock(&places->lock);
    kl_listener_places *one = count && list == NULL ? NULL : add_listener(places, listener);
    if (one) {
        old = one->list;
        one->list = list;
        one->count = count;
    }
    kl_unlock(&places->lock);
    kl_release(old);
    return one ? KL_OK
               : kl_fail(KL_E_NO_MEMORY, "no memory for the endpoints of %d nodes", count);
}

/* Locked. */
static const kl_endpoint *find_node(const kl_listener_places *one, int32_t node) {
    for (int32_t i = 0; i < one->count; i++)
        if (one->list[i].node == node) return &one->list[i];
    return NULL;
}

/* ---- fields of answers -------------------------------------------------------------------- */

bool kl_leader_is_told(int16_t code) {
    return code == CODE_NOT_LEADER_OR_FOLLOWER || code == CODE_FENCED_LEADER_EPOCH;
}

kl_leader kl_leader_of(const kl_replica *replica, int32_t self) {
    /* First: kl_replica_set_role sets it last, so an earlier leader never appears with a new
     * epoch. */
    int32_t epoch = atomic_load(&replica->leader_epoch);
    bool follows = atomic_load(&replica->follows);
    return (kl_leader){follows ? atomic_load(&replica->leader_id) : self, epoch};
}

uint8_t *kl_leaders_put(kl_leaders *leaders, kl_leader leader, uint32_t tag, uint8_t *p) {
    enum { VALUE_BYTES = 9 };
    KL_STATIC_ASSERT(VALUE_BYTES == 2 * sizeof(int32_t) + 1, "a node, an epoch, no tags");
    KL_STATIC_ASSERT(KL_LEADER_BYTES == 1 + 1 + VALUE_BYTES,
                     "a tag and a length before it");
    KL_ASSERT(leaders->count >= 0 && leaders->count <= KL_LEADERS_MAX);
    int32_t known = 0;
    while (known < leaders->count && leaders->nodes[known] != leader.node) known++;
    if (known == leaders->count && known < KL_LEADERS_MAX)
        leaders->nodes[leaders->count++] = leader.node;
    p = kl_out_uvarint(p, tag);
    p = kl_out_uvarint(p, VALUE_BYTES);
    p = kl_out_i32(p, leader.node);
    p = kl_out_i32(p, leader.epoch);
    return kl_out_no_tags(p, true);
}

static uint8_t *put_endpoint(uint8_t *p, const kl_endpoint *endpoint) {
    const kl_span host = {(const uint8_t *)endpoint->host, strlen(endpoint->host)};
    const kl_span rack = {endpoint->has_rack ? (const uint8_t *)endpoint->rack : NULL,
                          strlen(endpoint->rack)};
    p = kl_out_i32(p, endpoint->node);
    p = kl_out_string(p, true, host);
    p = kl_out_i32(p, endpoint->port);
    p = kl_out_string(p, true, rack);
    return kl_out_no_tags(p, true);
}

/* Write the array of the leaders' endpoints on the listener; returns how many. */
static int32_t put_endpoints(const kl_leaders *leaders, kl_places *places, int32_t listener,
                             uint8_t **p) {
    uint8_t *length = (*p)++;
    int32_t found = 0;
    kl_lock(&places->lock);
    const kl_listener_places *one = find_listener(places, listener);
    for (int32_t i = 0; one && i < leaders->count; i++) {
        const kl_endpoint *endpoint = find_node(one, leaders->nodes[i]);
        if (endpoint == NULL) continue;
        *p = put_endpoint(*p, endpoint);
        found++;
    }
    kl_unlock(&places->lock);
    *length = (uint8_t)(found + 1);
    return found;
}
KL_STATIC_ASSERT(KL_LEADERS_MAX + 1 < 0x80, "their number is one byte");

bool kl_leaders_end(const kl_leaders *leaders, kl_places *places, kl_request *request) {
    enum { TAG_ENDPOINTS = 0, HEAD_BYTES_MAX = 2 + KL_UVARINT_BYTES_MAX + 1 };
    size_t room = HEAD_BYTES_MAX + (size_t)leaders->count * (sizeof(kl_endpoint) + 16);
    uint8_t *start = kl_response_reserve(request, room);
    if (start == NULL) return false;
    uint8_t *value = start + HEAD_BYTES_MAX - 1, *end = value, *p = start;
    bool any =
        leaders->count > 0 && put_endpoints(leaders, places, request->listener, &end) > 0;
    p = kl_out_uvarint(p, any);
    if (any) {
        size_t bytes = (size_t)(end - value);
        p = kl_out_uvarint(p, TAG_ENDPOINTS);
        p = kl_out_uvarint(p, (uint32_t)bytes);
        memmove(p, value, bytes);
        p += bytes;
    }
    KL_ASSERT((size_t)(p - start) <= room);
    kl_response_rewind(request, kl_response_pos(request) - (room - (size_t)(p - start)));
    return true;
}
