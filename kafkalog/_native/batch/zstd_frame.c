/* zstd_frame.c: finds the end of a zstd frame from its block sizes, without decompressing. Source:
 * RFC 8878, 3.1.1. */
#include "batch.h"

enum {
    MAGIC_BYTES = 4,
    BLOCK_HEADER_BYTES = 3,
    BLOCK_RLE = 1, /* one byte, whatever the block size */
    CHECKSUM_BYTES = 4,
    SIZE_OF_TWO_BYTES = 256, /* added to a content size of two bytes */
};
static const uint32_t FRAME_MAGIC = 0xFD2FB528;

static uint64_t little(const uint8_t *p, size_t bytes) {
    uint64_t number = 0;
    for (size_t i = bytes; i-- > 0;) number = number << 8 | p[i];
    return number;
}

/* Parse the header after the magic; *pos moves after it. */
static bool read_header(const uint8_t *data, size_t bytes, size_t *pos,
                        uint64_t *content_bytes) {
    static const uint8_t dictionary[] = {0, 1, 2, 4}, content[] = {0, 2, 4, 8};
    uint8_t descriptor = data[*pos];
    bool single_segment = descriptor >> 5 & 1;
    size_t size = content[descriptor >> 6];
    if (size == 0 && single_segment) size = 1;
    *pos += (single_segment ? 1U : 2U) + (size_t)dictionary[descriptor & 3];
    if (*pos > bytes || size > bytes - *pos) return false;
    *content_bytes = size == 0 ? UINT64_MAX : little(data + *pos, size);
    if (size == 2) *content_bytes += SIZE_OF_TWO_BYTES;
    *pos += size;
    return true;
}

size_t kl_zstd_frame(const uint8_t *data, size_t bytes, uint64_t *content_bytes) {
    size_t pos = MAGIC_BYTES;
    *content_bytes = UINT64_MAX;
    if (bytes <= MAGIC_BYTES || little(data, MAGIC_BYTES) != FRAME_MAGIC) return 0;
    bool has_checksum = data[pos] >> 2 & 1;
    if (!read_header(data, bytes, &pos, content_bytes)) return 0;
    size_t left = KL_PIECES_FREE + bytes / KL_PIECE_BYTES - 1; /* the frame itself */
    for (bool last = false; !last;) {
        if (left-- == 0) return 0;
        if (bytes - pos < BLOCK_HEADER_BYTES) return 0;
        uint64_t head = little(data + pos, BLOCK_HEADER_BYTES);
        last = head & 1;
        pos += BLOCK_HEADER_BYTES;
        size_t size = (head >> 1 & 3) == BLOCK_RLE ? 1 : (size_t)(head >> 3);
        if (size > bytes - pos) return 0;
        pos += size;
    }
    if (!has_checksum) return pos;
    return bytes - pos < CHECKSUM_BYTES ? 0 : pos + CHECKSUM_BYTES;
}
