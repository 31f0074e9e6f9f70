/* crc32c.c: CRC-32C (Castagnoli), as in record batches.
 *
 * A value of 32 bits represents a polynomial whose x^0 is the top bit.  One hardware step maps a
 * state c and 8 bytes v to (c + v) * x^32 mod P with both read as 64 bits, so step(c, 0) = c *
 * x^64: a word of zeros.  A carry-less product of two states read as 64 bits is a * b * x, hence
 * step(0, a (x) b) = a * b * x^33, and with b = x^(64 m - 33) a state moves over m words at once.
 * That joins the three streams which hide the latency of the instruction. */
#include "base.h"

enum { SLICES = 8 };
static const uint32_t POLYNOMIAL = 0x82f63b78u; /* reflected */

/* tables[s][b]: the state after byte b and s zero bytes. */
static uint32_t tables[SLICES][256];

static uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t update_portable(uint32_t state, const uint8_t *p, size_t bytes) {
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t v = load64(p) ^ state;
        state = tables[7][v & 255] ^ tables[6][v >> 8 & 255] ^ tables[5][v >> 16 & 255] ^
                tables[4][v >> 24 & 255] ^ tables[3][v >> 32 & 255] ^
                tables[2][v >> 40 & 255] ^ tables[1][v >> 48 & 255] ^ tables[0][v >> 56];
    }
    for (; bytes; bytes--) state = tables[0][(state ^ *p++) & 255] ^ (state >> 8);
    return state;
}

static void fill_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t state = b;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
        tables[0][b] = state;
    }
    for (int s = 1; s < SLICES; s++)
        for (int b = 0; b < 256; b++) {
            uint32_t state = tables[s - 1][b];
            tables[s][b] = tables[0][state & 255] ^ (state >> 8);
        }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define HARDWARE "sse4.2"
#define TARGET __attribute__((target("sse4.2,crc32,pclmul")))

enum { STREAM_WORDS_MIN = 3 }; /* below this the join costs more than it gains */

static bool hardware_present(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

TARGET static inline uint32_t step64(uint32_t state, uint64_t v) {
    return (uint32_t)_mm_crc32_u64(state, v);
}
TARGET static inline uint32_t step32(uint32_t state, uint32_t v) {
    return _mm_crc32_u32(state, v);
}
TARGET static inline uint32_t step8(uint32_t state, uint8_t v) {
    return _mm_crc32_u8(state, v);
}
TARGET static inline uint64_t product(uint32_t a, uint32_t b) {
    __m128i wide =
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint64_t)_mm_cvtsi128_si64(wide);
}

#elif defined(__aarch64__)
#include <arm_acle.h>
#ifndef __APPLE__ /* there, all machines have it */
#include <sys/auxv.h>
#endif

#define HARDWARE "armv8-crc"
#define TARGET __attribute__((target("+crc")))

enum { STREAM_WORDS_MIN = 64 }; /* the product is computed in software */

#ifdef __APPLE__
static bool hardware_present(void) { return true; }
#else
static bool hardware_present(void) { return getauxval(AT_HWCAP) & (1u << 7); /* CRC32 */ }
#endif

TARGET static inline uint32_t step64(uint32_t state, uint64_t v) {
    return __crc32cd(state, v);
}
TARGET static inline uint32_t step32(uint32_t state, uint32_t v) {
    return __crc32cw(state, v);
}
TARGET static inline uint32_t step8(uint32_t state, uint8_t v) {
    return __crc32cb(state, v);
}
static inline uint64_t product(uint32_t a, uint32_t b) {
    uint64_t sum = 0;
    for (int bit = 0; bit < 32; bit++)
        sum ^= (uint64_t)a << bit & -(uint64_t)(b >> bit & 1);
    return sum;
}
#endif

#ifdef HARDWARE
/* Maximum stream: the joins cost less than one percent. */
enum { STREAM_WORDS_MAX = 256 };
/* over_words[m] = x^(64 m - 33) mod P. */
static uint32_t over_words[2 * STREAM_WORDS_MAX + 1];

TARGET static void fill_over_words(void) {
    over_words[1] = 1; /* x^31 */
    for (int m = 2; m <= 2 * STREAM_WORDS_MAX; m++)
        over_words[m] = step64(over_words[m - 1], 0);
}

TARGET static uint32_t update_hardware(uint32_t state, const uint8_t *p, size_t bytes) {
    while (bytes >= 3 * 8 * STREAM_WORDS_MIN) {
        size_t words = KL_MIN(bytes / (3 * 8), (size_t)STREAM_WORDS_MAX);
        const uint8_t *end = p + words * 8;
        uint32_t second = 0, third = 0;
        for (; p < end; p += 8) {
            state = step64(state, load64(p));
            second = step64(second, load64(p + words * 8));
            third = step64(third, load64(p + words * 16));
        }
        uint64_t joined =
            product(state, over_words[2 * words]) ^ product(second, over_words[words]);
        state = step64(0, joined) ^ third;
        p += words * 16;
        bytes -= words * 24;
    }
    for (; bytes >= 8; p += 8, bytes -= 8) state = step64(state, load64(p));
    if (bytes & 4) {
        uint32_t v;
        memcpy(&v, p, sizeof v);
        state = step32(state, v);
        p += 4;
    }
    for (bytes &= 3; bytes; bytes--) state = step8(state, *p++);
    return state;
}
#endif

static uint32_t (*update)(uint32_t state, const uint8_t *p, size_t bytes) = update_portable;
static const char *kind = "portable";

/* a * b mod P. */
static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t sum = 0;
    for (; a; a <<= 1) {
        sum ^= b & -(a >> 31);
        b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
    }
    return sum;
}

/* over_bytes[k]: x^(8 * 2^k) mod P, which moves a state over 2^k bytes. */
static uint32_t over_bytes[sizeof(size_t) * 8];

static void fill_over_bytes(void) {
    uint32_t power = 1u << 23; /* x^8 */
    for (size_t k = 0; k < sizeof over_bytes / sizeof over_bytes[0]; k++) {
        over_bytes[k] = power;
        power = times(power, power);
    }
}

__attribute__((constructor)) static void choose(void) {
    fill_tables();
    fill_over_bytes();
#ifdef HARDWARE
    if (!hardware_present()) return;
    fill_over_words();
    update = update_hardware;
    kind = HARDWARE;
#endif
}

uint32_t kl_crc32c(const uint8_t *data, size_t bytes) { return ~update(~0u, data, bytes); }

uint32_t kl_crc32c_more(uint32_t crc, const uint8_t *data, size_t bytes) {
    return ~update(~crc, data, bytes);
}

uint32_t kl_crc32c_joined(uint32_t first, uint32_t second, size_t bytes) {
    for (size_t k = 0; bytes; k++, bytes >>= 1)
        if (bytes & 1) first = times(first, over_bytes[k]);
    return first ^ second;
}

uint32_t kl_crc32c_portable(const uint8_t *data, size_t bytes) {
    return ~update_portable(~0u, data, bytes);
}

const char *kl_crc32c_kind(void) { return kind; }
