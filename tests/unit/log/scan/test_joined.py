"""A topic's threads decompress batches together, into reused memory: the same rows and the same
errors as one batch at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import kafkalog
from kafkalog import errors
from kafkalog._native import ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.room import Room
from kafkalog.log.scan.topic import TopicScan
from tests.support import batches

SEED = 20_261_127
KEYS = (None, b"", b"a", b"ab", b"k" * 40)
HEADER = 21
"""Where the bytes under the CRC begin; records begin 40 bytes later."""
UNKNOWN = 2**64 - 1


def frame(data: bytes, kind: int) -> bytes:
    """`data` as zstd: frames as clients write them, and as only careless ones do."""
    how: dict[str, Any] = [
        {},
        {"write_content_size": False},
        {"write_checksum": True},
        {"write_content_size": False, "write_checksum": True},
    ][kind % 4]
    make = zstandard.ZstdCompressor(level=1 + kind, **how)
    if kind == 4:  # two frames
        return make.compress(data[: len(data) // 2]) + make.compress(data[len(data) // 2 :])
    if kind == 5:  # a skippable frame first
        return b"\x50\x2a\x4d\x18\3\0\0\0abc" + make.compress(data)
    return make.compress(data)


def batch(rng: random.Random, kind: int, **how: Any) -> tuple[bytes, int]:
    rows = [
        batches.Row(
            value=rng.choice([None, b"", bytes(rng.randrange(3_000)), rng.randbytes(20)]),
            key=rng.choice(KEYS),
            timestamp_ms=rng.randrange(10_000),
            headers=[("h", rng.choice([None, b"", b"1"]))] * rng.randrange(3),
        )
        for _ in range(rng.randrange(1, 40))
    ]
    plain = batches.batch(rows, **how)[HEADER:]
    attributes = plain[1] | batches.CODECS["zstd"]
    sealed = plain[:1] + bytes([attributes]) + plain[2:40] + frame(plain[40:], kind)
    return batches.seal(sealed), len(rows)


def fill(log: kafkalog.Log, rng: random.Random) -> None:
    """Append runs of one kind of frame, with committed, aborted and open transactions."""
    sequence = 0
    for number in range(90):
        how: dict[str, Any] = {}
        if number % 4 == 3:
            how = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
            how["base_sequence"] = sequence
        data, count = batch(rng, number // 8 % 6, **how)
        log.append_batches(data)
        if how:
            sequence += count
        if how and number < 85:
            log.append_marker(7, 0, rng.random() < 0.5)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[kafkalog.Log]]:
    """Three logs: as written, compacted, with a later start."""
    opened = []
    for number in range(3):
        path = tmp_path_factory.mktemp("joined") / f"t-{number}"
        config = {"index.interval.bytes": 300}
        log = kafkalog.Log(path, config=config)
        fill(log, random.Random(SEED + number))
        if number == 1:
            log.roll()
            log.close()
            log = kafkalog.Log(path, config={**config, "cleanup.policy": "compact"})
            log.compact()
        if number == 2:
            log.delete_before(77)
        opened.append(log)
    yield opened
    for log in opened:
        log.close()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("within", [None, (0, 2**62), (101, 333)])
@pytest.mark.parametrize("given", [{}, {"key": b"a"}, {"key_prefix": b""}, {"batch_bytes": 1}])
def test_the_rows_of_one_batch_after_another(
    logs: list[kafkalog.Log], isolation: str, within: tuple[int, int] | None, given: dict[str, Any]
) -> None:
    found = TopicScan(logs, threads=2, within=within, isolation=isolation, **given)
    rows = []
    for log in logs:
        start, stop = (None, None) if within is None else within
        start = None if start is None else max(start, log.start_offset)
        rows += log.scan(start, stop, isolation=isolation, **given).to_arrow().to_pylist()
    assert found.to_arrow().to_pylist() == rows
    assert found.to_polars().rows(named=True) == rows
    assert found.count() == len(rows) > 0


def said(rows: Any) -> tuple[list[Any], str]:
    """The offsets read, and the error that ended the read."""
    seen: list[Any] = []
    try:
        for some in rows:
            seen += some.numpy("offset").tolist()
    except errors.KafkalogError as problem:
        return seen, f"{type(problem).__name__}: {problem}"
    return seen, ""


@pytest.mark.parametrize("kind", [0, 1, 2, 4])
def test_damage_is_reported_as_by_one_batch_after_another(tmp_path: Path, kind: int) -> None:
    """Damage to the frame, or to records in a valid frame; the CRC is right."""
    rng = random.Random(SEED + kind)
    good = [batch(rng, kind)[0] for _ in range(6)]
    at, failed = 3, 0
    for round_ in range(60):
        broken = bytearray(good[at][HEADER:])
        if round_ % 5 == 0:
            plain = bytearray(zstandard.ZstdDecompressor().stream_reader(bytes(broken[40:])).read())
            plain[rng.randrange(len(plain))] ^= 1 << rng.randrange(8)
            broken[40:] = frame(bytes(plain), kind)
        elif round_ % 5 == 1:
            del broken[rng.randrange(41, len(broken)) :]
        elif round_ % 5 == 2:
            broken += rng.randbytes(rng.randrange(1, 9))
        else:
            broken[rng.randrange(40, min(len(broken), 80))] ^= 1 << rng.randrange(8)
        folder = tmp_path / f"t-{round_}"
        with kafkalog.Log(folder) as log:
            offset = 0
            for number, data in enumerate(good):
                body = bytes(broken) if number == at else data[HEADER:]
                log.append_as_follower(batches.seal(body, offset, 0))
                offset = log.end_offset
            one = said(log.scan(columns=["key", "value", "offset"]))
            many = said(TopicScan([log], threads=2, columns=["key", "value", "offset"]))
            assert many == one, round_
            failed += bool(one[1])
    assert failed > 20


def test_a_body_above_the_limit(tmp_path: Path) -> None:
    """The limit is checked before a body is decompressed, alone or together with others."""
    config = {"kafkalog.max.decompressed.bytes": 1 << 20}
    with kafkalog.Log(tmp_path / "t-0", config={"max.message.bytes": 8 << 20}) as log:
        for size in (100, 2 << 20, 100):
            log.append_many([bytes(size)] * 2, compression="zstd", batch_bytes=8 << 20)
    with kafkalog.Log(tmp_path / "t-0", config=config) as log:
        one = said(log.scan(columns=["value", "offset"]))
        assert said(TopicScan([log], threads=2, columns=["value", "offset"])) == one
        assert "MessageTooLarge" in one[1] and one[0]


def test_the_room_for_bodies_grows_to_its_bound_and_no_further() -> None:
    room = Room(3 << 20)
    for size in (10, 1 << 20, (1 << 20) + 1, 3 << 20, 5 << 20, 10):
        for kind in range(6):
            data = random.Random(size).randbytes(1 << 10) * (size >> 10) or bytes(size)
            assert bytes(room.decompress(codecs.ZSTD, frame(data, kind))) == data
            assert len(room._memory) <= 3 << 20
    with pytest.raises(errors.MessageTooLarge, match="above the limit of 9"):
        room.decompress(codecs.ZSTD, frame(bytes(10), 1), 9)
    assert bytes(room.decompress(codecs.GZIP, codecs.compress(codecs.GZIP, b"gz"))) == b"gz"


def of_bytes(count: int) -> bytes:
    """A frame of `count` stored blocks of one byte each."""
    return frame(b"", 1)[:6] + b"\x08\0\0a" * count + b"\1\0\0"


def outcome(decompress: Any, *args: Any) -> tuple[str, bytes]:
    try:
        return "", bytes(decompress(*args))
    except errors.KafkalogError as problem:
        return f"{type(problem).__name__}: {problem}", b""


@pytest.mark.parametrize("count", [1, 32_767, 34_940, 34_960, 40_000])
def test_the_room_takes_as_many_blocks_as_decompress(count: int) -> None:
    """One rule: so many, and one more for each 64 bytes."""
    body = of_bytes(count)
    found = outcome(Room(3 << 20).decompress, codecs.ZSTD, body)
    assert found == outcome(codecs.decompress, codecs.ZSTD, body)
    most = codecs.PIECES_FREE + len(body) // codecs.PIECE_BYTES
    assert bool(found[0]) == (count + 2 > most), "its blocks, the last of them empty, and the frame"


@pytest.mark.parametrize("damaged", [0, 1])
def test_checksums_of_joined_frames_are_checked(damaged: int) -> None:
    """The last frame's checksum is checked, too."""
    frames = [bytearray(frame(b"some text", 2)) for _ in range(2)]
    assert Room(3 << 20).zstd_frames(b"".join(frames), 18) == b"some text" * 2
    frames[damaged][-1] ^= 1
    assert Room(3 << 20).zstd_frames(b"".join(frames), 18) is None


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("size", [1, 255, 256, 300, 70_000, 300_000])
def test_where_a_frame_ends(size: int, kind: int) -> None:
    rng = random.Random(size)
    whole = frame(rng.randbytes(min(size, 900)) + bytes(max(0, size - 900)), kind)
    content = ffi.new("uint64_t *")
    assert lib.kl_zstd_frame(whole, len(whole), content) == len(whole)
    assert content[0] == (UNKNOWN if kind % 2 else size)
    assert lib.kl_zstd_frame(whole + b"more", len(whole) + 4, content) == len(whole)
    for cut in range(len(whole)):
        data = ffi.from_buffer("uint8_t[]", bytearray(whole[:cut]))  # not a byte more, for ASan
        assert lib.kl_zstd_frame(data, cut, content) == 0
