/* hash.h: SipHash: keyed hashes of untrusted bytes. Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF". */
#ifndef KL_HASH_H
#define KL_HASH_H

#include "base.h"

/* For tables in memory: SipHash-1-3 with a random secret per process, so that clients cannot choose
 * colliding keys. */
uint64_t kl_hash(const void *data, size_t bytes);
/* The same of `number`'s eight bytes, little-endian, followed by `data`. */
uint64_t kl_hash_pair(uint64_t number, const void *data, size_t bytes);
static inline uint64_t kl_hash_number(uint64_t number) {
    return kl_hash_pair(number, NULL, 0);
}

/* SipHash-1-3 with `secret` (two little-endian words). */
uint64_t kl_hash_13(const uint64_t secret[2], const void *data, size_t bytes);

/* Long enough that a collision is less likely than a disk error. */
typedef struct {
    uint64_t word[2];
} kl_hash_128;
/* SipHash-2-4 with 128 bits and `secret`. */
kl_hash_128 kl_hash_24(const uint64_t secret[2], const void *data, size_t bytes);

#endif
