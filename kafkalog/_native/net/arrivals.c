/* arrivals.c: see arrivals.h. */
#include "arrivals.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"

enum {
    CELL_SETS =
        1024, /* addresses whose rate is measured: the least recently used of a set goes */
    CELL_WAYS = 4,
    HELD_MAX = 1024 /* sockets; more are closed at once */
};

typedef struct {
    uint8_t address[KL_ADDRESS_BYTES];
    kl_rate rate;
} cell;

typedef struct {
    int32_t connections_max;
    int32_t rate_max;
    int64_t ready_ms; /* accepts again then */
    kl_rate *rate;
} of_listener;

typedef struct {
    int fd;
    int64_t due_ms;
} held;

struct kl_arrivals {
    kl_rate_span span;
    kl_arrival_limits limits;
    kl_rate *rate; /* of all listeners */
    of_listener listeners[KL_LISTENERS_MAX];
    kl_ip_limit *of_ips; /* sorted by address */
    size_t ip_count;
    size_t stride;       /* bytes of a cell */
    uint8_t *cells;      /* NULL: no rate was measured yet */
    held held[HELD_MAX]; /* earliest first: all are held for the same time */
    size_t held_count;
};

static kl_rate *new_rate(const kl_rate_span *span) {
    kl_rate *rate = kl_alloc(kl_rate_bytes(span));
    if (rate) kl_rate_clear(rate, span);
    return rate;
}

kl_status kl_arrivals_new(int32_t windows, int64_t window_ms, kl_arrivals **out) {
    kl_arrivals *arrivals = *out = kl_alloc(sizeof *arrivals);
    if (arrivals == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for rates");
    arrivals->span = (kl_rate_span){windows, window_ms};
    arrivals->limits = (kl_arrival_limits){INT32_MAX, INT32_MAX};
    arrivals->stride = offsetof(cell, rate) + kl_rate_bytes(&arrivals->span);
    bool fine = (arrivals->rate = new_rate(&arrivals->span)) != NULL;
    for (int32_t i = 0; i < KL_LISTENERS_MAX; i++) {
        kl_rate *rate = new_rate(&arrivals->span);
        arrivals->listeners[i] = (of_listener){INT32_MAX, INT32_MAX, INT64_MIN, rate};
        fine = fine && rate;
    }
    if (fine) return KL_OK;
    kl_arrivals_free(arrivals);
    *out = NULL;
    return kl_fail(KL_E_NO_MEMORY, "no memory for rates");
}

void kl_arrivals_free(kl_arrivals *arrivals) {
    if (arrivals == NULL) return;
    for (size_t i = 0; i < arrivals->held_count; i++) close(arrivals->held[i].fd);
    for (int32_t i = 0; i < KL_LISTENERS_MAX; i++) kl_release(arrivals->listeners[i].rate);
    kl_release(arrivals->rate);
    kl_release(arrivals->of_ips);
    kl_release(arrivals->cells);
    kl_release(arrivals);
}

/* ---- limits ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    return memcmp(((const kl_ip_limit *)a)->address, ((const kl_ip_limit *)b)->address,
                  KL_ADDRESS_BYTES);
}

kl_status kl_arrivals_set(kl_arrivals *arrivals, const kl_arrival_limits *limits,
                          const kl_ip_limit *of_ips, int32_t count) {
    if (count < 0 || limits->rate < 1 || limits->ip_rate < 1)
        return kl_fail(KL_E_ARGUMENT,
                       "rates %d and %d of new connections, wanted 1 or more", limits->rate,
                       limits->ip_rate);
    kl_ip_limit *copy = NULL;
    if (count > 0) {
        copy = kl_alloc((size_t)count * sizeof *copy);
        if (copy == NULL) return kl_fail(KL_E_NO_MEMORY, "no memory for %d limits", count);
        memcpy(copy, of_ips, (size_t)count * sizeof *copy);
        qsort(copy, (size_t)count, sizeof *copy, compare);
    }
    kl_release(arrivals->of_ips);
    arrivals->of_ips = copy;
    arrivals->ip_count = (size_t)count;
    arrivals->limits = *limits;
    return KL_OK;
}

static bool is_known(int32_t listener) {
    return listener >= 0 && listener < KL_LISTENERS_MAX;
}

kl_status kl_arrivals_set_listener(kl_arrivals *arrivals, int32_t listener,
                                   int32_t connections_max, int32_t rate) {
    if (!is_known(listener) || connections_max < 0 || rate < 1)
        return kl_fail(KL_E_ARGUMENT, "listener %d: at most %d connections and %d a second",
                       listener, connections_max, rate);
    arrivals->listeners[listener].connections_max = connections_max;
    arrivals->listeners[listener].rate_max = rate;
    return KL_OK;
}

int32_t kl_arrivals_listener_max(const kl_arrivals *arrivals, int32_t listener) {
    return is_known(listener) ? arrivals->listeners[listener].connections_max : INT32_MAX;
}

static const kl_ip_limit *limit_of(const kl_arrivals *arrivals, const uint8_t *address) {
    kl_ip_limit key = {0};
    if (arrivals->ip_count == 0) return NULL;
    memcpy(key.address, address, sizeof key.address);
    return bsearch(&key, arrivals->of_ips, arrivals->ip_count, sizeof key, compare);
}

int32_t kl_arrivals_ip_max(const kl_arrivals *arrivals, const uint8_t *address) {
    const kl_ip_limit *limit = limit_of(arrivals, address);
    return limit ? limit->connections_max : -1;
}

/* ---- rates ------------------------------------------------------------------------------- */

/* The rate of an address; NULL: no memory. */
static kl_rate *rate_of(kl_arrivals *arrivals, const uint8_t *address) {
    if (arrivals->cells == NULL)
        arrivals->cells = kl_alloc((size_t)CELL_SETS * CELL_WAYS * arrivals->stride);
    if (arrivals->cells == NULL) return NULL;
    size_t set = kl_hash(address, KL_ADDRESS_BYTES) % CELL_SETS * CELL_WAYS;
    cell *oldest = (cell *)(void *)(arrivals->cells + set * arrivals->stride);
    for (size_t i = set; i < set + CELL_WAYS; i++) {
        cell *one = (cell *)(void *)(arrivals->cells + i * arrivals->stride);
        if (memcmp(one->address, address, KL_ADDRESS_BYTES) == 0) return &one->rate;
        if (atomic_load(&one->rate.used_ms) < atomic_load(&oldest->rate.used_ms))
            oldest = one;
    }
    memcpy(oldest->address, address, KL_ADDRESS_BYTES);
    kl_rate_clear(&oldest->rate, &arrivals->span);
    return &oldest->rate;
}

/* Count one more; how long the rate is exceeded, at most one window, as in Kafka. */
static int64_t count(const kl_arrivals *arrivals, kl_rate *rate, int32_t limit,
                     int64_t now_ms) {
    if (limit == INT32_MAX) return 0;
    kl_rate_add(rate, &arrivals->span, 1, now_ms);
    int64_t wait_ms = kl_rate_wait_ms(rate, &arrivals->span, limit, now_ms);
    return KL_MIN(wait_ms, arrivals->span.window_ms);
}

static bool ip_exceeds(kl_arrivals *arrivals, const uint8_t *address, int64_t now_ms) {
    const kl_ip_limit *limit = limit_of(arrivals, address);
    int32_t rate_max = limit && limit->rate > 0 ? limit->rate : arrivals->limits.ip_rate;
    kl_rate *rate = rate_max == INT32_MAX ? NULL : rate_of(arrivals, address);
    if (rate == NULL || count(arrivals, rate, rate_max, now_ms) == 0) return false;
    kl_rate_add(rate, &arrivals->span, -1, now_ms);
    return true;
}

bool kl_arrivals_enter(kl_arrivals *arrivals, int32_t listener, const uint8_t *address,
                       int64_t now_ms) {
    if (address && ip_exceeds(arrivals, address, now_ms)) return false;
    int64_t wait_ms = count(arrivals, arrivals->rate, arrivals->limits.rate, now_ms);
    if (!is_known(listener)) return true;
    of_listener *one = &arrivals->listeners[listener];
    int64_t own_ms = count(arrivals, one->rate, one->rate_max, now_ms);
    wait_ms = KL_MAX(wait_ms, own_ms);
    if (wait_ms > 0) one->ready_ms = now_ms + wait_ms;
    return true;
}

bool kl_arrivals_ready(const kl_arrivals *arrivals, int32_t listener, int64_t now_ms) {
    return !is_known(listener) || arrivals->listeners[listener].ready_ms <= now_ms;
}

void kl_arrivals_hold(kl_arrivals *arrivals, int fd, int64_t now_ms) {
    if (arrivals->held_count == HELD_MAX) {
        close(fd);
        return;
    }
    arrivals->held[arrivals->held_count++] = (held){fd, now_ms + arrivals->span.window_ms};
}

int64_t kl_arrivals_next(kl_arrivals *arrivals, int64_t now_ms) {
    size_t due = 0;
    while (due < arrivals->held_count && arrivals->held[due].due_ms <= now_ms)
        close(arrivals->held[due++].fd);
    arrivals->held_count -= due;
    memmove(arrivals->held, arrivals->held + due, arrivals->held_count * sizeof(held));
    int64_t next_ms = arrivals->held_count ? arrivals->held[0].due_ms : INT64_MAX;
    for (int32_t i = 0; i < KL_LISTENERS_MAX; i++) {
        int64_t ready_ms = arrivals->listeners[i].ready_ms;
        if (ready_ms > now_ms) next_ms = KL_MIN(next_ms, ready_ms);
    }
    return next_ms;
}
