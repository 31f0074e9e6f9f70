"""Mutation of bytes in Python, drawn from a seed: for decoders in Python."""

import random
from collections.abc import Callable

NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def _flip(data: bytearray, draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _byte(data: bytearray, draw: random.Random) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.randrange(256)


def _number(data: bytearray, draw: random.Random) -> None:
    if len(data) >= 8:
        width = draw.choice([1, 2, 4, 8])
        at = draw.randrange(len(data) - width + 1)
        value = draw.choice(NUMBERS) & ((1 << 8 * width) - 1)
        data[at : at + width] = value.to_bytes(width, draw.choice(["little", "big"]))


def _insert(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data) + 1)
    data[at:at] = draw.randbytes(draw.randrange(1, 9))


def _remove(data: bytearray, draw: random.Random) -> None:
    if data:
        at = draw.randrange(len(data))
        del data[at : at + draw.randrange(1, 17)]


def _repeat(data: bytearray, draw: random.Random) -> None:
    if data:
        at = draw.randrange(len(data))
        piece = data[at : at + draw.randrange(1, 33)]
        data[at:at] = piece * draw.randrange(1, 5)


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data) + 1) :]


KINDS: list[Callable[[bytearray, random.Random], None]] = [
    _flip, _byte, _number, _insert, _remove, _repeat, _cut,
]  # fmt: skip


def mutated(data: bytes, draw: random.Random) -> bytes:
    """`data` after one to four changes; sometimes unchanged."""
    out = bytearray(data)
    for _ in range(draw.choice([0, 1, 1, 1, 2, 2, 3, 4])):
        draw.choice(KINDS)(out, draw)
    return bytes(out)
