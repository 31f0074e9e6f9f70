"""Damage after a clean close: no crash explains it, so nothing is truncated and an open reports it.

Each test flips bits of a log that was closed cleanly.  Opening it for writing either shows every
record or refuses, with the position and the remedy; the remedy loses nothing.
"""

import contextlib
import io
import logging
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.directory.manager import Manager
from kafkalog.errors import CorruptLog
from tests.support import batches, trees
from tests.support.effort import LONG

pytestmark = pytest.mark.slow

COUNT = 20
NAME = "00000000000000000000.log"


def values(log: kafkalog.Log) -> list[bytes | None]:
    return [record.value for record in log.read()]


def wanted(count: int = COUNT) -> list[bytes]:
    return [b"value %d" % number for number in range(count)]


@pytest.fixture
def path(memory_path: Path) -> Path:
    """A log of 20 batches without an index entry, closed."""
    path = memory_path / "log-0"
    with kafkalog.Log(path) as log:
        for value in wanted():
            log.append(value, timestamp_ms=1)
    return path


def flip(file: Path, position: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def start_of(file: Path, number: int) -> int:
    return list(batches.headers(file.read_bytes()))[number].pos


def repair(folder: Path, *options: str) -> str:
    """The command's output; it runs in this process, a hundred times."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["repair", str(folder), "--execute", *options])
    assert status == 0, out.getvalue() + err.getvalue()
    return out.getvalue()


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("number", [0, 4, 19])
def test_a_flipped_length_is_refused_and_named(path, number, mode):
    """The error names the file, the byte, the offset and the command that repairs it."""
    start = start_of(path / NAME, number)
    flip(path / NAME, start + 10, 3)
    before = trees.fingerprint(path)
    with pytest.raises(CorruptLog) as caught:
        kafkalog.Log(path, mode=mode)
    for part in (NAME, f"byte {start}", f"offset {number} ", "closed cleanly", "kafkalog repair"):
        assert part in str(caught.value)
    left = trees.fingerprint(path)
    assert {name: left[name] for name in before} == before, "a byte was changed"


@pytest.mark.parametrize("byte", [*range(8), *range(8, 12), 16])
def test_repair_loses_nothing(path, byte):
    """For any bit of a base offset, a length or a magic: all records are there again."""
    for bit in range(8):
        data = (path / NAME).read_bytes()
        flip(path / NAME, start_of(path / NAME, 4) + byte, bit)
        try:
            with kafkalog.Log(path, mode="w") as log:
                assert values(log) == wanted(), f"bit {bit}"
        except CorruptLog:
            repair(path)
        assert (path / NAME).read_bytes() == data, f"bit {bit}"
        with kafkalog.Log(path) as log:
            assert values(log) == wanted(), f"bit {bit}"


def test_every_header_bit_of_a_batch_shows_all_or_refuses(path):
    """The first batch, one in the middle and the last (long: all 20): none of 61 x 8 flips of each
    makes a log that is silently shorter, or different."""
    data = (path / NAME).read_bytes()
    quiet, those = 0, range(COUNT) if LONG else (0, 4, 19)
    for start in (start_of(path / NAME, number) for number in those):
        for position in range(start, start + 61):
            for bit in range(8):
                changed = bytearray(data)
                changed[position] ^= 1 << bit
                (path / NAME).write_bytes(changed)
                try:
                    with kafkalog.Log(path, mode="r") as log:
                        assert log.end_offset >= COUNT, (position, bit)
                        assert values(log) == wanted(), (position, bit)
                        quiet += 1
                except (CorruptLog, kafkalog.errors.CorruptMessage):
                    continue
    assert quiet < len(those) * 200  # epochs, and base offsets that leave a gap


def test_in_a_data_directory(memory_path):
    """The directory's marker vouches for it as a log's own does; other partitions work."""
    with Manager(memory_path / "data") as manager:
        manager.create_topic("events", 2)
        for partition in (0, 1):
            for value in wanted():
                manager.get("events", partition).append(value, timestamp_ms=1)
    file = memory_path / "data" / "events-0" / NAME
    data = file.read_bytes()
    flip(file, start_of(file, 4) + 9, 0)
    for _ in range(2):  # also if another partition was written in between
        with Manager(memory_path / "data") as manager:
            with pytest.raises(CorruptLog, match="repair"):
                manager.get("events", 0)
            assert values(manager.get("events", 1))[:COUNT] == wanted()
            manager.get("events", 1).append(b"more")
    reader = Manager(memory_path / "data", mode="r")
    with reader, pytest.raises(CorruptLog, match="repair"):
        reader.get("events", 0)
    repair(memory_path / "data")
    assert file.read_bytes() == data
    with Manager(memory_path / "data") as manager:
        assert values(manager.get("events", 0)) == wanted()


def test_flushed_records_are_not_cut_after_a_crash_either(memory_path):
    """The checkpoint says that they were on disk, so no crash removed them."""
    manager = Manager(memory_path / "data")
    manager.create_topic("events", 1)
    log = manager.get("events", 0)
    for value in wanted():
        log.append(value, timestamp_ms=1)
    log.flush()
    manager.upkeep.checkpoints.recovery_points()
    log.append(b"not flushed", timestamp_ms=1)
    killed = trees.copy_tree(memory_path / "data", memory_path / "killed")
    manager.close()
    file = killed / "events-0" / NAME
    flip(file, start_of(file, 4) + 10, 0)
    refused = pytest.raises(CorruptLog, match=r"offset 4 .*flushed to disk.*repair")
    with Manager(killed) as other, refused:
        other.get("events", 0)
    repair(killed)
    with Manager(killed) as other:
        assert values(other.get("events", 0)) == [*wanted(), b"not flushed"]


def test_a_cut_at_recovery_is_kept_and_told(path, memory_path, caplog):
    """After a crash the bytes are in a .damaged file, byte for byte, and a warning says so."""
    with kafkalog.Log(path) as log:
        log.append_many([b"later"] * 3, timestamps_ms=[1] * 3, batch_bytes=100)
        killed = trees.copy_tree(path, memory_path / "killed-0")
    data = (killed / NAME).read_bytes()
    start = start_of(killed / NAME, COUNT)
    flip(killed / NAME, start + 30, 0)
    cut = (killed / NAME).read_bytes()[start:]
    with caplog.at_level(logging.WARNING), kafkalog.Log(killed) as log:
        assert log.recovery.truncated_bytes == len(cut) > 0
        assert log.recovery.kept == f"{NAME}.damaged"
        assert values(log) == wanted()
    assert (killed / f"{NAME}.damaged").read_bytes() == cut
    assert f"{NAME}.damaged" in caplog.text and str(start) in caplog.text
    assert (killed / NAME).read_bytes() == data[:start]


def test_segments_behind_a_cut_are_kept(memory_path):
    """Whole segments that a recovery drops are renamed, not deleted."""
    config = {"segment.bytes": 300, "file.delete.delay.ms": 0}
    path = memory_path / "log-0"
    with kafkalog.Log(path, config=config) as log:
        for value in wanted():
            log.append(value, timestamp_ms=1)
        killed = trees.copy_tree(path, memory_path / "killed-0")
    trees.nothing_was_flushed(killed)
    logs = sorted(killed.glob("*.log"))
    dropped = {file.name: file.read_bytes() for file in logs[2:] if file.stat().st_size}
    flip(logs[1], 70, 0)
    with kafkalog.Log(killed, config=config) as log:
        assert log.recovery.segments_dropped == len(logs) - 2
        assert values(log) == wanted(log.end_offset)
    for name, data in dropped.items():
        assert (killed / f"{name}.damaged").read_bytes() == data


def test_kept_files_are_never_replaced(path, memory_path):
    """A second recovery's bytes go into a file with a number."""
    for number in range(3):
        with kafkalog.Log(path) as log:
            log.append(b"next", timestamp_ms=1)
            killed = trees.copy_tree(path, memory_path / f"killed{number}-0")
        with (killed / NAME).open("ab") as file:
            file.write(b"torn %d" % number)
        path = killed
        with kafkalog.Log(path) as log:
            assert log.recovery.truncated_bytes == len(b"torn 0")
    kept = [NAME + ".damaged" + end for end in ("", ".1", ".2")]
    assert [(path / name).read_bytes() for name in kept] == [b"torn 0", b"torn 1", b"torn 2"]


def test_a_batch_that_lies_twice_is_cut_by_repair(path):
    """A whole batch in a wrong place: no open accepts it, and the remedy removes only that one."""
    data = (path / NAME).read_bytes()
    start, end = start_of(path / NAME, 4), start_of(path / NAME, 5)
    (path / NAME).write_bytes(data[:end] + data[start:])
    (path / ".kafka_cleanshutdown").unlink()  # it names a size, and Kafka's own does not
    with pytest.raises(CorruptLog, match="repair"):
        kafkalog.Log(path)
    repair(path)
    assert (path / NAME).read_bytes() == data
    assert (path / f"{NAME}.damaged").read_bytes() == data[start:end]
    with kafkalog.Log(path) as log:
        assert values(log) == wanted()
