"""The C core's hash table against a set, its hash against a second implementation, and its
growing arrays."""

from __future__ import annotations

import random
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import cffi
import pytest

from kafkalog._native import lib as built

ROOT = Path(__file__).resolve().parents[3]
BASE = ROOT / "kafkalog/_native/base"
MASK = 2**64 - 1
DECLARATIONS = """
typedef struct { uint64_t hash; void *entry; } kl_table_slot;
typedef struct { kl_table_slot *slots; size_t slot_count; size_t count; } kl_table;
typedef bool kl_table_same(const void *entry, const void *key);
void *kl_table_find(const kl_table *, uint64_t, const void *, kl_table_same *);
int kl_table_reserve(kl_table *, size_t);
int kl_table_add(kl_table *, uint64_t, void *);
void kl_table_remove(kl_table *, uint64_t, const void *);
void *kl_table_next(const kl_table *, size_t *);
void kl_table_clear(kl_table *);
void kl_table_free(kl_table *);
uint64_t kl_hash(const void *, size_t);
void *kl_room_for(void *, size_t *, size_t, size_t);
void kl_release(void *);
uint64_t kl_hash_pair(uint64_t, const void *, size_t);
uint64_t kl_hash_13(const uint64_t *, const void *, size_t);
"""
ffi = cffi.FFI()
ffi.cdef(DECLARATIONS)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base/ as a separate library: the extension exports none of this."""
    out = tmp_path_factory.mktemp("base") / "base.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-g", "-pthread"]
    command += [f"-I{ROOT / 'kafkalog/_native'}", *map(str, sorted(BASE.glob("*.c")))]
    subprocess.run([*command, "-o", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def lib(library: Path) -> Any:
    return ffi.dlopen(str(library))


def second_13(secret: tuple[int, int], data: bytes) -> int:
    """A second implementation of SipHash-1-3."""
    v = [
        secret[0] ^ 0x736F6D6570736575, secret[1] ^ 0x646F72616E646F6D,
        secret[0] ^ 0x6C7967656E657261, secret[1] ^ 0x7465646279746573,
    ]  # fmt: skip

    def left(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & MASK

    def mix() -> None:
        for a, b, bits in ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17)):
            v[a] = (v[a] + v[b]) & MASK
            v[b] = left(v[b], bits) ^ v[a]
            if bits in (13, 17):
                v[a] = left(v[a], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for pos in range(0, len(padded), 8):
        word = int.from_bytes(padded[pos : pos + 8], "little")
        v[3] ^= word
        mix()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        mix()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_the_hash_is_siphash_1_3(lib: Any, rng: random.Random) -> None:
    # The first three of the 64 vectors of the Rust project's library/core/tests/hash/sip.rs.
    secret = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    known = [0xABAC0158050FC4DC, 0xC9F49BF37D57CA93, 0x82CB9B024DC7D44D]
    for size, expected in enumerate(known):
        assert second_13(secret, bytes(range(size))) == expected
        assert lib.kl_hash_13(ffi.new("uint64_t[2]", secret), bytes(range(size)), size) == expected
    for size in [*range(40), 255, 256, 1000]:
        drawn = (rng.getrandbits(64), rng.getrandbits(64))
        data = rng.randbytes(size)
        found = lib.kl_hash_13(ffi.new("uint64_t[2]", drawn), data, size)
        assert found == second_13(drawn, data), size


def test_a_pair_is_its_bytes_one_behind_the_other(lib: Any, rng: random.Random) -> None:
    for size in range(20):
        number, data = rng.getrandbits(64), rng.randbytes(size)
        whole = number.to_bytes(8, "little") + data
        assert lib.kl_hash_pair(number, data, size) == lib.kl_hash(whole, len(whole))


PROGRAM = "import cffi, sys; f = cffi.FFI(); f.cdef('uint64_t kl_hash(const void *, size_t);'); "
PROGRAM += "print(f.dlopen(sys.argv[1]).kl_hash(b'abc', 3))"


def test_each_process_has_a_secret_of_its_own(library: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(library)]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(3)]
    assert len({run.stdout for run in runs}) == 3


class Table:
    """A kl_table whose entries are numbers, and the set that it must equal."""

    def __init__(self, lib: Any, hashes: int) -> None:
        self.lib = lib
        self.hashes = hashes
        self.c = ffi.new("kl_table *")
        self.there: set[int] = set()
        self.same = ffi.callback("kl_table_same", lambda entry, key: entry == key)

    def pointer(self, number: int) -> Any:
        return ffi.cast("void *", number)

    def hash_of(self, number: int) -> int:
        """A few different hashes, far apart or adjacent."""
        return (number * 0x9E3779B97F4A7C15) % self.hashes

    def find(self, number: int) -> bool:
        key = self.pointer(number)
        return self.lib.kl_table_find(self.c, self.hash_of(number), key, self.same) == key

    def add(self, number: int) -> None:
        assert self.lib.kl_table_add(self.c, self.hash_of(number), self.pointer(number)) == 0
        self.there.add(number)

    def remove(self, number: int) -> None:
        self.lib.kl_table_remove(self.c, self.hash_of(number), self.pointer(number))
        self.there.discard(number)

    def check(self) -> None:
        at = ffi.new("size_t *")
        found = []
        while (entry := self.lib.kl_table_next(self.c, at)) != ffi.NULL:
            found.append(int(ffi.cast("uintptr_t", entry)))
        assert sorted(found) == sorted(self.there)
        assert self.c.count == len(found)


@pytest.mark.parametrize("hashes", [1, 7, 30, 2**64])
def test_a_table_behaves_like_a_set(lib: Any, rng: random.Random, hashes: int) -> None:
    table = Table(lib, hashes)
    numbers = range(1, 61 if hashes < 2**64 else 400)
    for step in range(2500):
        number = rng.choice(numbers)
        assert table.find(number) == (number in table.there)
        if number in table.there:
            table.remove(number)
        elif rng.random() < 0.55:
            table.add(number)
        if step % 100 == 0:
            table.check()
    table.check()
    for number in sorted(table.there):
        table.remove(number)
        assert not table.find(number)
    assert table.c.count == 0
    table.add(1)
    lib.kl_table_clear(table.c)
    assert not table.find(1)
    lib.kl_table_free(table.c)
    assert table.c.slots == ffi.NULL


def test_room_that_was_reserved_is_enough(lib: Any) -> None:
    table = Table(lib, 2**64)
    assert lib.kl_table_reserve(table.c, 1000) == 0
    slots = table.c.slot_count
    for number in range(1, 1001):
        table.add(number)
    assert table.c.slot_count == slots
    assert lib.kl_table_reserve(table.c, 2**62) == built.KL_E_NO_MEMORY
    table.check()
    lib.kl_table_free(table.c)


def test_an_array_grows_by_doubling_and_keeps_its_items(lib: Any) -> None:
    """New items are zeroed; while there is room, the array does not move."""
    capacity = ffi.new("size_t *")
    array, capacities = ffi.NULL, set()
    for count in range(1, 101):
        grown = lib.kl_room_for(array, capacity, count, 4)
        if capacity[0] in capacities:
            assert grown == array
        capacities.add(capacity[0])
        array = grown
        items = ffi.cast("uint32_t *", array)
        assert [items[i] for i in range(capacity[0])] == [
            i + 1 if i < count - 1 else 0 for i in range(capacity[0])
        ]
        items[count - 1] = count
    assert capacities == {8, 16, 32, 64, 128}
    lib.kl_release(array)


def test_an_array_grows_to_the_wanted_size_at_once(lib: Any) -> None:
    capacity = ffi.new("size_t *")
    array = lib.kl_room_for(ffi.NULL, capacity, 1000, 8)
    assert (array != ffi.NULL, capacity[0]) == (True, 1000)
    lib.kl_release(array)


def test_an_array_that_no_memory_can_hold_is_refused(lib: Any) -> None:
    """No size wraps around; the old array and its capacity stay."""
    capacity = ffi.new("size_t *")
    array = lib.kl_room_for(ffi.NULL, capacity, 1, 8)
    for wanted in (2**62, 2**64 - 1):
        assert lib.kl_room_for(array, capacity, wanted, 8) == ffi.NULL
        assert capacity[0] == 8
    lib.kl_release(array)
