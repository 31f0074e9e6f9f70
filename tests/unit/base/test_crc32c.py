"""CRC-32C: the hardware and the portable version agree with another implementation."""

from __future__ import annotations

import platform
import random
from pathlib import Path

import crc32c
import pytest

from kafkalog._native import ffi, lib

BOTH = pytest.mark.parametrize("compute", ["kl_crc32c", "kl_crc32c_portable"])


@BOTH
def test_the_standard_check_value(compute):
    assert getattr(lib, compute)(b"123456789", 9) == 0xE3069283


@BOTH
def test_every_short_length(compute, rng):
    """Lengths of one-record batches, where the streams begin and end."""
    for length in range(1025):
        data = rng.randbytes(length)
        assert getattr(lib, compute)(data, length) == crc32c.crc32c(data), length


@BOTH
def test_every_alignment(compute, rng):
    data = rng.randbytes(512)
    memory = ffi.from_buffer(data)
    for start in range(16):
        for length in (0, 1, 7, 8, 100, 101, 333):
            expected = crc32c.crc32c(data[start : start + length])
            assert getattr(lib, compute)(memory + start, length) == expected, (start, length)


@BOTH
def test_around_the_longest_stream(compute, rng):
    """Three streams of 256 words are joined at once; one more byte starts a new round."""
    for rounds in (1, 2, 5):
        for extra in (-25, -24, -9, -8, -1, 0, 1, 8, 23, 24, 71, 72, 73, 96):
            data = rng.randbytes(rounds * 3 * 8 * 256 + extra)
            assert getattr(lib, compute)(data, len(data)) == crc32c.crc32c(data), len(data)


@BOTH
def test_random_large(compute, rng):
    for _ in range(10):
        data = rng.randbytes(rng.randrange(1 << 21))
        assert getattr(lib, compute)(data, len(data)) == crc32c.crc32c(data), len(data)


@BOTH
@pytest.mark.parametrize("fill", [0x00, 0xFF])
def test_constant_bytes(compute, fill):
    data = bytes([fill]) * 10_000
    assert getattr(lib, compute)(data, len(data)) == crc32c.crc32c(data)


def test_two_pieces_are_joined(rng):
    """The sum is that of the two pieces together."""
    data = rng.randbytes(70_000)
    for begin, end in ((0, 0), (0, 1), (1, 1), (40, 70_000), (61, 4096), (5, 6), (9, 65_545)):
        first, second = data[:begin], data[begin:end]
        sums = [lib.kl_crc32c(piece, len(piece)) for piece in (first, second)]
        assert lib.kl_crc32c_joined(*sums, len(second)) == crc32c.crc32c(data[:end]), (begin, end)


def test_every_single_flipped_bit_is_seen():
    data = bytearray(random.Random(1).randbytes(120))
    before = lib.kl_crc32c(bytes(data), len(data))
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        assert lib.kl_crc32c(bytes(data), len(data)) != before
        data[bit // 8] ^= 1 << bit % 8


def test_the_kind_matches_the_machine():
    kind = ffi.string(lib.kl_crc32c_kind()).decode()
    if platform.machine() != "x86_64":  # an emulator shows the flags of the machine below it
        assert kind == ("armv8-crc" if platform.machine() in ("aarch64", "arm64") else "portable")
        return
    flags = Path("/proc/cpuinfo").read_text()
    assert kind == ("sse4.2" if {"sse4_2", "pclmulqdq"} <= set(flags.split()) else "portable")
