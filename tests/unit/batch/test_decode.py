"""Records decoded from batches in memory; damage raises an error and never crashes."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.batch.decode import batch_records
from kafkalog.batch.walk import end_of, whole_batches
from kafkalog.log.log import Log
from kafkalog.types import Record

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def decode(data: bytes) -> list[Record]:
    return [r for batch, whole in whole_batches(data) for r in batch_records(batch, whole, "t", 0)]


@pytest.fixture(params=CODECS)
def batches(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bytes, list[Record]]:
    """Bytes of a log, and the records that the log itself reads from them."""
    with Log(tmp_path / "t-0") as log:
        for part in range(5):
            log.append_many(
                [b"value %d" % i * (i % 7) if i % 5 else None for i in range(300)],
                keys=[b"key %d" % i if i % 3 else None for i in range(300)],
                timestamps_ms=[1_700_000_000_000 + part * 1000 + i for i in range(300)],
                headers=[[("a", b"1"), ("ä", None), ("a", b"")][: i % 4] for i in range(300)],
                compression=request.param,
            )
        return log.read_batches(0, 1 << 24), list(log.read())


def test_the_records_are_those_of_the_log(batches: tuple[bytes, list[Record]]) -> None:
    data, wanted = batches
    assert decode(data) == wanted
    assert end_of(data) == (wanted[-1].offset + 1, wanted[-1].leader_epoch)


def test_a_batch_that_is_cut_off_ends_it(batches: tuple[bytes, list[Record]]) -> None:
    data, wanted = batches
    sizes = [batch.batch_bytes for batch, _ in whole_batches(data)]
    for cut in (0, 1, 16, 60, sizes[0] - 1):
        assert decode(data[:cut]) == []
        assert end_of(data[:cut]) is None
    found = decode(data[: sizes[0] + 61])
    assert found == wanted[: len(found)] and len(found) >= 1


def test_damage_fails_and_never_crashes(batches: tuple[bytes, list[Record]], rng: Any) -> None:
    """Wrong bits in headers and bodies, with and without checking the crc."""
    data, wanted = batches
    for _ in range(300):
        bad = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        try:
            assert len(decode(bytes(bad))) <= len(wanted)
        except errors.KafkalogError as problem:
            assert str(problem)
        try:
            for batch, whole in whole_batches(bytes(bad), check_crc=False):
                batch_records(batch, whole, "t", 0)
        except errors.KafkalogError as problem:
            assert str(problem)


def test_a_failure_in_a_cycle_is_collected(batches: tuple[bytes, list[Record]]) -> None:
    """A traceback keeps the frame with the views; the garbage collector must release both."""
    data, _ = batches
    for _ in range(20):
        try:
            end_of(b"\xff" * 200 + data)
        except errors.KafkalogError as problem:
            problem.cycle = problem  # type: ignore[attr-defined]
    gc.collect()


def test_a_body_above_the_limit_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path / "t-0") as log:
        log.append_many([b"x" * 1000] * 100, compression="zstd")
        data = log.read_batches(0, 1 << 20)
    ((batch, whole),) = whole_batches(data)
    with pytest.raises(errors.MessageTooLarge):
        batch_records(batch, whole, "t", 0, limit=50_000)
