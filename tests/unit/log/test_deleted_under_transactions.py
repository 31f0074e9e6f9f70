"""Records are deleted before, within and after the records of an open transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Log
from tests.support import batches, trees
from tests.support.batches import Row

CONFIG = {"file.delete.delay.ms": 0, "segment.bytes": 1 << 20}
ENDS = ["goes on", "closed", "killed"]


def write(log: Log, *values: bytes, sequence: int) -> None:
    rows = [Row(value, b"k", 1_000) for value in values]
    log.append_batches(batches.batch(
        rows, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True,
    ))  # fmt: skip


def filled(path: Path, rolled: bool) -> Log:
    """Offsets 0, 1, 3 and 4 are part of a transaction, 2 and 5 of none."""
    log = Log(path, config=CONFIG)
    write(log, b"t0", b"t1", sequence=0)
    log.append(b"p2", timestamp_ms=1_000)
    if rolled:
        log.roll()
    write(log, b"t3", b"t4", sequence=2)
    log.append(b"p5", timestamp_ms=1_000)
    return log


def again(log: Log, path: Path, end: str) -> Log:
    if end == "goes on":
        return log
    if end == "closed":
        log.close()
        return Log(path, config=CONFIG)
    log.flush()
    left = trees.copy_tree(path, path.with_name("left-0"))
    log.close()
    return Log(left, config=CONFIG)


def committed(log: Log) -> list[bytes | None]:
    return [record.value for record in log.read(isolation="read_committed")]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("rolled", [True, False], ids=["segments go", "one segment"])
@pytest.mark.parametrize("start", [1, 4, 6])
def test_records_of_an_open_transaction_are_deleted(
    tmp_path: Path, start: int, rolled: bool, end: str, commit: bool
) -> None:
    """The remaining records still wait for the end, and get its outcome."""
    log = filled(tmp_path / "log-0", rolled)
    log.delete_before(start)
    assert log.start_offset == start
    log = again(log, tmp_path / "log-0", end)
    assert (log.start_offset, log.end_offset) == (start, 6)
    assert log.last_stable_offset == max(start, 0), "an open transaction began below"
    assert committed(log) == []
    assert log.append_marker(7, 0, commit=commit) == 6
    assert log.last_stable_offset == 7
    left = [value for offset, value in
            enumerate([b"t0", b"t1", b"p2", b"t3", b"t4", b"p5"])
            if offset >= start and (commit or value.startswith(b"p"))]  # fmt: skip
    assert committed(log) == left
    path = log.path
    log.close()
    with Log(path, config=CONFIG) as log:
        assert committed(log) == left
        assert log.verify(deep=True).clean
    with Log(path, mode="r") as reader:
        assert committed(reader) == left


@pytest.mark.parametrize("end", ENDS)
def test_retention_takes_the_begin_of_an_open_transaction(tmp_path: Path, end: str) -> None:
    """The same by age: the segment in which it began is gone; its end still counts."""
    config = {**CONFIG, "retention.ms": 1_000}
    with Log(tmp_path / "log-0", config=config) as log:
        write(log, b"t0", sequence=0)
        log.roll()
        write(log, b"t1", sequence=1)
        log.append(b"p2", timestamp_ms=2_000)
        assert log.apply_retention(now_ms=2_500) is not None
        assert log.start_offset == 1
        log = again(log, tmp_path / "log-0", end)
        assert log.last_stable_offset == 1
        assert log.append_marker(7, 0, commit=False) == 3
        assert committed(log) == [b"p2"]
        log.close()
