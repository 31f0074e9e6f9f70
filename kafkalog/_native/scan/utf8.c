/* utf8.c: well-formed UTF-8, as in the Unicode Standard, table 3-7. */
#include "scan.h"

static bool within(uint8_t b, uint8_t low, uint8_t high) { return b >= low && b <= high; }

size_t kl_utf8_next(const uint8_t *p, const uint8_t *end, bool *valid) {
    uint8_t first = *p;
    uint8_t low = 0x80, high = 0xbf; /* range of the second byte */
    size_t wanted;
    *valid = first < 0x80;
    if (first < 0xc2) return 1; /* ASCII, or not a first byte */
    if (first < 0xe0) wanted = 2;
    else if (first < 0xf0) {
        wanted = 3;
        if (first == 0xe0) low = 0xa0;  /* not over-long */
        if (first == 0xed) high = 0x9f; /* no surrogates */
    } else if (first < 0xf5) {
        wanted = 4;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f; /* not above U+10FFFF */
    } else return 1;
    size_t left = (size_t)(end - p);
    if (left < 2 || !within(p[1], low, high)) return 1;
    for (size_t i = 2; i < wanted; i++)
        if (i >= left || !within(p[i], 0x80, 0xbf)) return i;
    *valid = true;
    return wanted;
}

bool kl_utf8_valid(const uint8_t *p, size_t bytes) {
    const uint8_t *end = p + bytes;
    bool valid = true;
    while (p < end && valid) p += kl_utf8_next(p, end, &valid);
    return valid;
}
