"""One bit of any small file after a clean close: answers stay right, or an error says why.

A directory and a lone log, with aborted transactions, deleted records and leader epochs, are
closed cleanly.  Then each bit of each file that an open believes without reading batches is
flipped, and the files are cut and emptied.  A reader and a writer give the same answers as before,
or a clear error; never other records.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.directory.manager import Manager
from kafkalog.inspect.repair import apply, plan
from kafkalog.inspect.verify.files import verify
from tests.support import batches
from tests.support.batches import Row
from tests.support.effort import EXPLORING, LONG

SETTINGS = {"segment.bytes": 4000, "index.interval.bytes": 300, "file.delete.delay.ms": 0}
TEXTS = ("checkpoint", ".kafka_cleanshutdown", "meta.properties", "partition.metadata")
BITS = 200 if EXPLORING else 8
"""A sample of each file; KAFKALOG_LONG=1: every bit."""


class Answers(NamedTuple):
    """The answers of a log."""

    start: int
    end: int
    records: list[tuple[int, int, bytes | None]]
    committed: list[int]
    times: list[int | None]
    epochs: list[Any]


@pytest.fixture
def unwatched() -> Iterator[Path]:
    """A folder in memory, if possible, and no log lines: thousands of opens warn."""
    shm = "/dev/shm"
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
        yield Path(folder)
    logging.disable(logging.NOTSET)


def fill(log: kafkalog.Log) -> None:
    """Write more than three segments; aborted transactions are also in the last one."""
    clock = 1000
    for epoch in range(3):
        log._handle.lead(epoch)
        for number in range(12):
            rows = [Row(b"%d %d %d" % (epoch, number, i), None, clock + i, []) for i in range(5)]
            clock += 10
            producer = 5 + number % 3
            transactional = producer != 5
            log.append_batches(
                batches.batch(
                    rows, producer_id=producer, producer_epoch=epoch,
                    base_sequence=5 * (number // 3),
                    transactional=transactional,
                )
            )  # fmt: skip
            if transactional:
                log.append_marker(producer, epoch, commit=number % 2 == 0, timestamp_ms=clock)
    log.delete_before(log.start_offset + 7)


def ask(log: kafkalog.Log) -> Answers:
    """Query everything that a damaged file could change."""
    return Answers(
        log.start_offset,
        log.end_offset,
        [(r.offset, r.timestamp_ms, r.value) for r in log.read()],
        [r.offset for r in log.read(isolation="read_committed")],
        [log.offset_at(time) for time in range(900, 1500, 7)],
        # A file may also hold the start of an epoch whose batches were deleted.
        [(one.epoch, max(one.start_offset, log.start_offset)) for one in log.epochs],
    )


class Made(NamedTuple):
    """A closed log, how to open it, and its answers."""

    root: Path
    folder: Path
    answers: Answers


def make(root: Path, alone: bool) -> Made:
    """One log with the settings above; `alone`: a lone folder."""
    if alone:
        folder = root / "events-0"
        with kafkalog.Log(folder, config=SETTINGS) as log:
            fill(log)
            return Made(folder, folder, ask(log))
    with Manager(root / "data", topic_config=lambda topic: SETTINGS) as manager:
        manager.create_topic("events", 2)
        fill(manager.get("events", 0))
        manager.get("events", 1).append(b"other")
        answers = ask(manager.get("events", 0))
    return Made(root / "data", root / "data" / "events-0", answers)


def last_stem(folder: Path) -> str:
    return max(folder.glob("*.log")).stem


def believed(made: Made) -> list[Path]:
    """The files that an open believes without reading batches."""
    last = last_stem(made.folder)
    return [
        path
        for path in sorted(made.root.rglob("*"))
        if path.is_file()
        and path.suffix not in (".log", ".chk")
        and (path.name.endswith(TEXTS) or path.suffix == ".snapshot" or path.stem == last)
    ]


def logs(made: Made) -> list[Path]:
    """The `.log` files, each of which may also be missing."""
    return sorted(made.folder.glob("*.log"))


def losses(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """A `.log` that is missing, empty, or lacks its last batch."""
    yield "removed", None
    yield "emptied", b""
    yield "its last batch gone", data[: list(batches.headers(data))[-1].pos]


def damages(data: bytes, rng: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """(description, new bytes): each bit or some, cuts, nothing, zeros."""
    bits = list(range(8 * len(data)))
    if len(bits) > BITS and not LONG:
        bits = rng.sample(bits, BITS)
    for bit in bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8}", bytes(changed)
    for size in sorted({0, 1, len(data) // 2, len(data) - 34, len(data) - 12, len(data) - 1}):
        if 0 <= size < len(data):
            yield f"cut to {size}", data[:size]
    yield "removed", None
    yield "zeros", bytes(len(data))


def judge(made: Made, mode: str, what: str, outcomes: dict[str, int]) -> None:
    """Check that it gives the same answers, or an error of ours; counts both."""
    try:
        with kafkalog.Log(made.folder, mode=mode, config=SETTINGS) as log:
            found = ask(log)
    except (kafkalog.errors.CorruptLog, kafkalog.errors.CorruptMessage):
        outcomes["refused"] = outcomes.get("refused", 0) + 1
        return
    assert found == made.answers, (mode, what)
    outcomes["right"] = outcomes.get("right", 0) + 1


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(600)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "directory"])
def test_damage_after_a_clean_close_gives_no_other_answers(
    unwatched: Path, alone: bool, rng: random.Random
) -> None:
    """For every bit of every file that is believed."""
    made = make(unwatched, alone)
    pristine = unwatched / "pristine"
    shutil.copytree(made.root, pristine)
    names = {path.name for path in believed(made)}
    assert {"log-start-offset-checkpoint", "leader-epoch-checkpoint"} <= names
    assert any(name.endswith(".txnindex") for name in names), names
    outcomes: dict[str, int] = {}
    count = 0
    for path in (*believed(made), *logs(made)):
        data = path.read_bytes()
        for what, changed in losses(data) if path.suffix == ".log" else damages(data, rng):
            if changed is None and path.name == "meta.properties":
                continue  # without it the folder is a lone log
            for mode in ("r", "w"):
                if changed is None:
                    path.unlink(missing_ok=True)
                else:
                    path.write_bytes(changed)
                judge(made, mode, f"{path.name}: {what}", outcomes)
                count += 1
                if mode == "w":
                    restore(made.root, pristine)
            assert path.read_bytes() == data
    print(f"{count} openings: {outcomes}")
    assert outcomes["right"] > 100


def restore(root: Path, pristine: Path) -> None:
    """Restore every file."""
    wanted = {p.relative_to(pristine): p for p in pristine.rglob("*") if p.is_file()}
    for path in [p for p in root.rglob("*") if p.is_file()]:
        if path.relative_to(root) not in wanted:
            path.unlink()
    for name, source in wanted.items():
        target = root / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.write_bytes(source.read_bytes())


def test_a_malformed_log_start_after_a_crash_is_refused(tmp_path: Path) -> None:
    """No other file repeats the start then: the error names the file, and the remedy."""
    made = make(tmp_path, alone=False)
    (made.root / ".kafka_cleanshutdown").unlink()
    path = made.root / "log-start-offset-checkpoint"
    text = path.read_bytes()
    path.write_bytes(text.replace(b"events 0 ", b"events 0x"))
    for mode in ("r", "w"):
        with pytest.raises(kafkalog.errors.CorruptLog, match=r"log-start.*line 3.*deleted.*repair"):
            kafkalog.Log(made.folder, mode=mode)
    apply(plan(verify(made.root)))
    assert (made.root / f"{path.name}.damaged").read_bytes() != text
    with kafkalog.Log(made.folder, mode="r") as log:
        assert log.start_offset == 0  # as repair said: all existing records


def test_the_marker_of_another_program_vouches_for_nothing(tmp_path: Path) -> None:
    """After Kafka's own marker the aborted transactions of the last segment are derived again."""
    made = make(tmp_path, alone=False)
    (made.root / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    [path] = made.folder.glob(f"{last_stem(made.folder)}.txnindex")
    data = bytearray(path.read_bytes())
    data[17] ^= 1  # the start of the first transaction
    path.write_bytes(data)
    for mode in ("r", "w"):
        with kafkalog.Log(made.folder, mode=mode, config=SETTINGS) as log:
            assert ask(log) == made.answers
