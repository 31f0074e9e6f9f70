"""XXH3, 64 bits, seed 0: the hash in which Kafka keeps what a group knows about its topics.

Source: the specification of xxHash, XXH3.
"""

from __future__ import annotations

from struct import unpack_from

__all__ = ["xxh3_64"]

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff"
    "7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46"
    "a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581"
    "a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428"
    "afd7fbcabb4b407e"
)
_P32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)  # fmt: skip
_MX = 0x165667919E3779F9, 0x9FB21C651E98DF25
_MASK, _MASK32 = (1 << 64) - 1, (1 << 32) - 1
_STRIPE, _BLOCK_STRIPES = 64, 16
"""Bytes of a stripe, and stripes of a block."""


def _u32(data: bytes, at: int) -> int:
    return int(unpack_from("<I", data, at)[0])


def _u64(data: bytes, at: int) -> int:
    return int(unpack_from("<Q", data, at)[0])


def _fold(a: int, b: int) -> int:
    """Multiply to 128 bits, and fold the halves."""
    product = a * b
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MX[0] & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value = (value ^ value >> 33) * _P64[1] & _MASK
    value = (value ^ value >> 29) * _P64[2] & _MASK
    return value ^ value >> 32


def _short(data: bytes, size: int) -> int:
    """At most 16 bytes."""
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _fold(low, high)) & _MASK)
    if size >= 4:
        both = _u32(data, size - 4) + (_u32(data, 0) << 32)
        value = both ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * _MX[1] & _MASK
        value ^= (value >> 35) + size
        value = value * _MX[1] & _MASK
        return value ^ value >> 28
    if size:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_64(mixed ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche_64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix(data: bytes, at: int, secret: int) -> int:
    return _fold(
        _u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8)
    )


def _middle(data: bytes, size: int) -> int:
    """17 to 240 bytes."""
    value = size * _P64[0] & _MASK
    if size <= 128:
        for i in reversed(range((size - 1) // 32 + 1)):
            value += _mix(data, 16 * i, 32 * i) + _mix(data, size - 16 * (i + 1), 32 * i + 16)
        return _avalanche(value & _MASK)
    for i in range(8):
        value += _mix(data, 16 * i, 16 * i)
    value = _avalanche(value & _MASK)
    for i in range(8, size // 16):
        value += _mix(data, 16 * i, 16 * (i - 8) + 3)
    value += _mix(data, size - 16, 136 - 17)
    return _avalanche(value & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret: int) -> None:
    """Add a stripe."""
    words, keys = unpack_from("<8Q", data, at), unpack_from("<8Q", _SECRET, secret)
    for lane in range(8):
        mixed = words[lane] ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + words[lane]) & _MASK
        lanes[lane] = (lanes[lane] + (mixed & _MASK32) * (mixed >> 32)) & _MASK


def _long(data: bytes, size: int) -> int:
    """More than 240 bytes."""
    lanes = [_P32[2], *_P64[:4], _P32[1], _P64[4], _P32[0]]
    scramble = unpack_from("<8Q", _SECRET, len(_SECRET) - _STRIPE)
    stripes = (size - 1) // _STRIPE
    for stripe in range(stripes):
        place = stripe % _BLOCK_STRIPES
        _accumulate(lanes, data, stripe * _STRIPE, place * 8)
        if place == _BLOCK_STRIPES - 1:
            lanes = [
                (v ^ v >> 47 ^ key) * _P32[0] & _MASK
                for v, key in zip(lanes, scramble, strict=True)
            ]
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    value = size * _P64[0] & _MASK
    for pair in range(4):
        keys = unpack_from("<2Q", _SECRET, 11 + 16 * pair)
        value += _fold(lanes[2 * pair] ^ keys[0], lanes[2 * pair + 1] ^ keys[1])
    return _avalanche(value & _MASK)


def xxh3_64(data: bytes) -> int:
    """The hash of some bytes, unsigned."""
    size = len(data)
    if size <= 16:
        return _short(data, size)
    return _middle(data, size) if size <= 240 else _long(data, size)
