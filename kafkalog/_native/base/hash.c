/* hash.c: SipHash-1-3, and SipHash-2-4 with 128 bits. */
#include "hash.h"

#include "bytes.h" /* asserts that words are little-endian */
#include "system.h"

typedef struct {
    uint64_t v0, v1, v2, v3;
} sip;

static inline uint64_t rotate(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

static inline void mix(sip *s, int rounds) {
    for (int i = 0; i < rounds; i++) {
        s->v0 += s->v1;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

static inline sip begin(const uint64_t secret[2]) {
    return (sip){secret[0] ^ 0x736f6d6570736575ULL, secret[1] ^ 0x646f72616e646f6dULL,
                 secret[0] ^ 0x6c7967656e657261ULL, secret[1] ^ 0x7465646279746573ULL};
}

static inline void absorb(sip *s, uint64_t word, int rounds) {
    s->v3 ^= word;
    mix(s, rounds);
    s->v0 ^= word;
}

/* Absorb all bytes, and their number in the last word, including `before` earlier ones. */
static inline void absorb_all(sip *s, const uint8_t *p, size_t bytes, size_t before,
                              int rounds) {
    uint64_t word;
    for (size_t n = bytes / sizeof word; n > 0; n--, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        absorb(s, word, rounds);
    }
    word = (uint64_t)(before + bytes) << 56;
    size_t left = bytes & 7, i = 0;
    if (left >= 4) {
        uint32_t low;
        memcpy(&low, p, sizeof low);
        word |= low;
        i = sizeof low;
    }
    for (; i < left; i++) word |= (uint64_t)p[i] << (8 * i);
    absorb(s, word, rounds);
}

static inline uint64_t end(sip *s, uint64_t mark, int rounds) {
    s->v2 ^= mark;
    mix(s, rounds);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

uint64_t kl_hash_13(const uint64_t secret[2], const void *data, size_t bytes) {
    sip s = begin(secret);
    absorb_all(&s, data, bytes, 0, 1);
    return end(&s, 0xff, 3);
}

kl_hash_128 kl_hash_24(const uint64_t secret[2], const void *data, size_t bytes) {
    sip s = begin(secret);
    kl_hash_128 out;
    s.v1 ^= 0xee;
    absorb_all(&s, data, bytes, 0, 2);
    out.word[0] = end(&s, 0xee, 4);
    s.v1 ^= 0xdd;
    mix(&s, 4);
    out.word[1] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    return out;
}

/* ---- with the process's secret ------------------------------------------------------- */

static uint64_t own_secret[2]; /* set before any thread starts, immutable */

__attribute__((constructor)) static void draw_secret(void) {
    kl_system_secret(own_secret, sizeof own_secret);
}

uint64_t kl_hash(const void *data, size_t bytes) {
    return kl_hash_13(own_secret, data, bytes);
}

uint64_t kl_hash_pair(uint64_t number, const void *data, size_t bytes) {
    sip s = begin(own_secret);
    absorb(&s, number, 1);
    absorb_all(&s, data, bytes, sizeof number, 1);
    return end(&s, 0xff, 3);
}
