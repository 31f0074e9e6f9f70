/* hash.h: SipHash: hashes under a secret, of bytes from outside.
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF". */
#ifndef KL_HASH_H
#define KL_HASH_H

#include "base.h"

/* For tables in memory: SipHash-1-3 under a secret that this process drew at its start, so
 * that no client can choose keys that meet in one place. */
uint64_t kl_hash(const void *data, size_t bytes);
/* The same of `number`'s eight bytes, little-endian, and of the bytes behind them. */
uint64_t kl_hash_pair(uint64_t number, const void *data, size_t bytes);
static inline uint64_t kl_hash_number(uint64_t number) {
    return kl_hash_pair(number, NULL, 0);
}

/* SipHash-1-3, as above, under `secret` (two little-endian words). */
uint64_t kl_hash_13(const uint64_t secret[2], const void *data, size_t bytes);

/* So long that two keys share one with a chance that no disk is as good as. */
typedef struct {
    uint64_t word[2];
} kl_hash_128;
/* SipHash-2-4 with 128 bits under `secret`. */
kl_hash_128 kl_hash_24(const uint64_t secret[2], const void *data, size_t bytes);

#endif
