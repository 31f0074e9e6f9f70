"""The hash of keys is SipHash-2-4-128: its authors' vectors, and a second implementation."""

import pytest

from kafkalog._native import ffi, lib

MASK = 2**64 - 1
KEY = bytes(range(16))
# The first of the vectors that come with the reference implementation: inputs 00, 00 01, ...
VECTORS = [
    "a3817f04ba25a8e66df67214c7550293",
    "da87c1d86b99af44347659119b22fc45",
    "8177228da4a45dc7fca38bdef60affe4",
]


def native(key: bytes, data: bytes) -> str:
    out = ffi.new("uint8_t[16]")
    lib.kl_clean_hash(key, data, len(data), out)
    return bytes(ffi.buffer(out)).hex()


def rotate(v: int, bits: int) -> int:
    return (v << bits | v >> (64 - bits)) & MASK


def second(key: bytes, data: bytes) -> str:
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = (v0 + v1) & MASK, (v2 + v3) & MASK
            v1, v3 = rotate(v1, 13) ^ v0, rotate(v3, 16) ^ v2
            v0 = rotate(v0, 32)
            v2, v0 = (v2 + v1) & MASK, (v0 + v3) & MASK
            v1, v3 = rotate(v1, 17) ^ v2, rotate(v3, 21) ^ v0
            v2 = rotate(v2, 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for pos in range(0, len(padded), 8):
        word = int.from_bytes(padded[pos : pos + 8], "little")
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xEE
    rounds(4)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    rounds(4)
    return (first.to_bytes(8, "little") + (v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little")).hex()


@pytest.mark.parametrize("size", range(len(VECTORS)))
def test_the_authors_vectors(size):
    assert native(KEY, bytes(range(size))) == VECTORS[size]
    assert second(KEY, bytes(range(size))) == VECTORS[size]


def test_any_bytes_of_any_length(rng):
    for size in [*range(70), 255, 256, 1000]:
        key, data = rng.randbytes(16), rng.randbytes(size)
        assert native(key, data) == second(key, data)
