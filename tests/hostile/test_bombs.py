"""Batches that decompress to far more than their size, or do not decompress, sent to topics whose
batches are looked into, and to those that store them as they come.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import time
from collections.abc import Callable
from functools import cache

import cramjam
import lz4.frame
import pytest
import zstandard

from tests.hostile.attack import one_record, packed
from tests.hostile.victim import MIB, Victim
from tests.support import batches
from tests.support.batches import Row
from tests.support.effort import LONG
from tests.unit.plane.peer import Peer

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
RECORDS_AT = 61
"""Where a batch's records begin."""
CORRUPT, TOO_LARGE, UNSUPPORTED_CODEC, INVALID_RECORD, INVALID_TIMESTAMP = 2, 10, 76, 87, 32
LIMIT_MIB = 32
"""kafkalog.max.decompressed.bytes of the topics here."""
INSIDE = {
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "lz4"},
    "timed": {"message_timestamp_before_max_ms": "1000"},
}
"""Topics for which a compressed batch must be looked into."""
OUTSIDE = {"plain": {}, "stamped": {"message_timestamp_type": "LogAppendTime"}}
"""Topics that store batches unchanged; LogAppendTime is in the batch's header."""


def connected(victim: Victim) -> contextlib.closing[Peer]:
    return contextlib.closing(victim.peer())


@pytest.fixture(scope="module", autouse=True)
def topics(victim: Victim) -> None:
    for name, config in {**INSIDE, **OUTSIDE}.items():
        limit = {"kafkalog_max_decompressed_bytes": str(LIMIT_MIB << 20)}
        victim.create(name, **limit, **config)
        with connected(victim) as peer:  # its log is opened
            now_ms = int(time.time() * 1000)
            batch = batches.batch([Row(b"v", b"k", now_ms)])
            assert peer.produce_one(batch, (name, 0)).error_code == 0


def zstd(data: bytes, claims: bool = False) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=claims).compress(data)


def runs(blocks: int) -> bytes:
    """A zstd frame of runs of 128 KiB, four bytes each, which decompresses to 32,768 times that."""
    run = struct.pack("<I", (128 << 10) << 3 | 2)[:3] + b"\0"
    last = struct.pack("<I", (128 << 10) << 3 | 3)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00" + bytes([7 << 3]) + run * (blocks - 1) + last


def xerial(blocks: list[bytes]) -> bytes:
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@cache
def large() -> bytes:
    return one_record(80 << 20)


WINDOW_2_GIB = b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + struct.pack("<I", 1 << 3 | 3)[:3] + b"a"
BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(large())),
    "gzip of 40 members": (GZIP, lambda: gzip.compress(bytes(2 << 20)) * 40),
    "snappy, raw": (SNAPPY, lambda: snappy(one_record(20 << 20))),
    "snappy, xerial": (SNAPPY, lambda: xerial([snappy(bytes(2 << 20))] * 10)),
    "lz4": (LZ4, lambda: lz4.frame.compress(large(), block_size=7, store_size=False)),
    "zstd": (ZSTD, lambda: zstd(large())),
    "zstd that says so": (ZSTD, lambda: zstd(large(), claims=True)),
    "zstd of runs": (ZSTD, lambda: runs(20_000)),
}
"""Each decompresses to far more than its topic allows, from less than 1 MB."""


@cache
def bomb_of(name: str) -> bytes:
    codec, make = BOMBS[name]
    return packed(codec, make())


SNAPPY_CODES = {
    **{(topic, "snappy, raw"): 0 for topic in ("compacted", "recompressed")},
    **{(topic, "snappy, xerial"): INVALID_RECORD for topic in INSIDE},
    ("timed", "snappy, raw"): INVALID_TIMESTAMP,
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_for_checks_is_limited(victim: Victim, name: str) -> None:
    """MESSAGE_TOO_LARGE, and never more memory than three times the limit: the pieces, in two
    libraries, and the whole."""
    codec, bomb = BOMBS[name][0], bomb_of(name)
    assert len(bomb) < 1_048_588
    for topic in INSIDE:
        grows = (3 * LIMIT_MIB + 16) * MIB
        with victim.attacked(f"{name} to {topic}", grows), connected(victim) as peer:
            found = peer.produce_one(bomb, (topic, 0))
        # Snappy packs by 21 at most: 1 MB of it decompresses to less than the limit, and is read.
        assert found.error_code == (SNAPPY_CODES[topic, name] if codec == SNAPPY else TOO_LARGE)


@pytest.mark.parametrize("name", BOMBS)
def test_unchecked_batches_are_not_decompressed(victim: Victim, name: str) -> None:
    """It is stored unchanged: the consumer decompresses it, within its own limit."""
    for topic in OUTSIDE:
        bomb = bomb_of(name)
        with victim.attacked(f"{name} to {topic}", 16 * MIB), connected(victim) as peer:
            found = peer.produce_one(bomb, (topic, 0))
            assert found.error_code == 0
            stored = peer.fetch_one(found.base_offset, (topic, 0)).records
        (header,) = batches.headers(stored)
        assert header.base_offset == found.base_offset
        assert stored[RECORDS_AT:] == bomb[RECORDS_AT:], "its records, as they were sent"


def test_bombs_at_once_take_memory_once(victim: Victim) -> None:
    """Twelve clients, eight I/O threads: large batches are looked into one at a time."""
    bomb = packed(ZSTD, zstd(large()))
    clients = []
    with victim.attacked("12 bombs at once", (3 * LIMIT_MIB + 8 * 16 + 32) * MIB):
        for _ in range(12):
            clients.append(victim.peer())
            clients[-1].send_produce({("compacted", 0): bomb})
        for client in clients:
            (topic,) = client.receive().responses
            assert topic.partition_responses[0].error_code == TOO_LARGE
            client.close()


def test_a_batch_above_the_limit_is_not_decompressed(victim: Victim) -> None:
    """max.message.bytes is checked first, as in Kafka."""
    bomb = packed(GZIP, gzip.compress(bytes(1 << 20)) * 1_200)
    assert len(bomb) > 1_048_588
    for topic in INSIDE:
        with victim.attacked(f"1.2 MB to {topic}", 24 * MIB), connected(victim) as peer:
            assert peer.produce_one(bomb, (topic, 0)).error_code == TOO_LARGE


NOT_BODIES: dict[str, tuple[int, bytes, int]] = {
    "gzip, cut off": (GZIP, gzip.compress(one_record(9_000))[:-9], CORRUPT),
    "gzip in gzip": (GZIP, gzip.compress(gzip.compress(one_record(9_000))), INVALID_RECORD),
    "a batch in a batch": (ZSTD, zstd(packed(ZSTD, zstd(one_record(9)))), INVALID_RECORD),
    "snappy, raw, cut off": (SNAPPY, snappy(one_record(9_000))[:-9], CORRUPT),
    "snappy, xerial, cut off": (SNAPPY, xerial([snappy(one_record(9_000))])[:-9], CORRUPT),
    "snappy that claims 4 GiB": (SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), CORRUPT),
    "lz4, cut off": (LZ4, lz4.frame.compress(one_record(9_000))[:-9], CORRUPT),
    "zstd, cut off": (ZSTD, zstd(one_record(9_000))[:-3], CORRUPT),
    "zstd, a window of 2 GiB": (ZSTD, WINDOW_2_GIB, CORRUPT),
    "no codec at all": (ZSTD, b"garbage", CORRUPT),
}


@pytest.mark.parametrize("name", NOT_BODIES)
def test_bodies_that_are_none(victim: Victim, name: str) -> None:
    codec, body, code = NOT_BODIES[name]
    for topic in INSIDE:
        with victim.attacked(f"{name} to {topic}", 24 * MIB), connected(victim) as peer:
            assert peer.produce_one(packed(codec, body), (topic, 0)).error_code == code


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_nobody_knows(victim: Victim, codec: int) -> None:
    for topic in (*INSIDE, *OUTSIDE):
        with victim.attacked(f"codec {codec} to {topic}", 16 * MIB), connected(victim) as peer:
            found = peer.produce_one(packed(codec, bytes(100)), (topic, 0))
        assert found.error_code == UNSUPPORTED_CODEC


def test_both_forms_of_snappy_are_taken(victim: Victim) -> None:
    body = batches.record(Row(b"value", b"key"), 0, 0)
    with connected(victim) as peer:
        for form in (snappy(body), xerial([snappy(body)])):
            assert peer.produce_one(packed(SNAPPY, form), ("compacted", 0)).error_code == 0


def test_many_records_out_of_time_are_found_in_c(victim: Victim) -> None:
    """No Python runs for each record: the answer lists a thousand of them."""
    count = 1_000_000 if LONG else 100_000
    records = b"".join(batches.record(Row(b"", b"k"), i, 0) for i in range(count))
    bomb = packed(ZSTD, zstd(records), count)
    with victim.attacked("old records", 64 * MIB), connected(victim) as peer:
        found = peer.produce_one(bomb, ("timed", 0))
    assert found.error_code == INVALID_TIMESTAMP
    assert len(found.record_errors) == 1_000


@pytest.mark.parametrize("timestamp", [-(2**63), -(2**63) + 1, 2**63 - 1, 0, -2])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_times_as_far_away_as_numbers_go(victim: Victim, timestamp: int, codec: str) -> None:
    """In both directions, in C and in Python: no difference overflows into an allowed one."""
    batch = batches.batch([Row(b"v", b"k", timestamp)], codec=codec)
    with connected(victim) as peer:
        found = peer.produce_one(batch, ("timed", 0))
    assert found.error_code == INVALID_TIMESTAMP
