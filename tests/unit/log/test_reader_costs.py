"""The costs of a reader next to a live writer in another process: counted, not timed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog

INTERVAL = 4096
BOUND = 16 * INTERVAL  # walking an interval, and one read's transfer
VALUE = b"v" * 900
CONFIG = {"index.interval.bytes": INTERVAL, "file.delete.delay.ms": 0}
NO_SPACE = 28


def bytes_read() -> int:
    """The bytes that this process has read so far by system calls, from files or elsewhere."""
    said = Path("/proc/self/io").read_text()
    return int(said.partition("rchar: ")[2].partition("\n")[0])


@pytest.fixture
def counted(native_test: tuple[Any, Any]) -> Iterator[Any]:
    _, lib = native_test
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


def fill(log: kafkalog.Log, count: int) -> None:
    """Append batches of about 1 KB; each record's timestamp is its offset."""
    start = log.end_offset
    log.append_many(
        [VALUE] * count, timestamps_ms=list(range(start, start + count)), batch_bytes=1000
    )


def cost_of(reader: kafkalog.Log, offset: int) -> int:
    before = bytes_read()
    assert reader[offset].offset == offset
    return bytes_read() - before


def cost_of_time(reader: kafkalog.Log, offset: int) -> int:
    before = bytes_read()
    assert reader.offset_at(offset) == offset
    return bytes_read() - before


def costs_of(reader: kafkalog.Log, rng: random.Random, end: int) -> list[int]:
    places = [rng.randrange(end) for _ in range(20)] + [end - 1, 0]
    costs = [cost_of(reader, offset) for offset in places]
    return costs + [cost_of_time(reader, offset) for offset in places]


def test_a_random_read_of_a_large_active_segment_reads_an_interval(tmp_path, rng):
    """Also the first read, and reads of new records; it must not walk all headers before that."""
    with kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log:
        fill(log, 20_000)
        with kafkalog.Log(tmp_path / "log-0", mode="r") as reader:
            for _ in range(3):
                costs = costs_of(reader, rng, log.end_offset)
                assert max(costs) < BOUND, costs
                fill(log, 500)
            log.roll()  # from here on it uses the sealed segment's index
            costs_of(reader, rng, log.end_offset)


def test_a_reader_without_shared_entries_walks_once(tmp_path, rng, counted):
    """Memory files are full: the entries of one walk are kept, and extended with the segment."""
    config = {**CONFIG, "segment.bytes": 1 << 26, "preallocate": True}
    with kafkalog.Log(tmp_path / "log-0", config=config) as log:
        log.append(VALUE, timestamp_ms=0)
        counted.kl_io_fail(b"fallocate", 1, NO_SPACE, 1, 0)
        fill(log, 10_000)
        with kafkalog.Log(tmp_path / "log-0", mode="r") as reader:
            first = cost_of(reader, 9_000)
            assert first > 1 << 20  # there are no index entries
            for _ in range(3):
                costs = costs_of(reader, rng, log.end_offset)
                assert max(costs) < 4 * BOUND, costs  # the last 64 KiB have no entries
                fill(log, 100)


def test_a_reader_of_a_log_that_nobody_has_open_walks_once(tmp_path, rng):
    """The index on disk is too short: another program wrote it, or it was lost."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 10_000)
    for index in path.glob("*index"):
        index.write_bytes(b"")
    before = bytes_read()
    with kafkalog.Log(path, mode="r", config=CONFIG) as reader:
        cost_of(reader, 9_000)
        assert bytes_read() - before > 1 << 20  # during the open, or now
        costs = costs_of(reader, rng, 10_000)
        assert max(costs) < BOUND, costs


def test_a_folder_of_the_future_is_not_loaded_at_each_look(tmp_path, native_test):
    """The clock was set back, or the folder copied from a machine whose clock is ahead."""
    ffi, lib = native_test
    path, calls = tmp_path / "log-0", []
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 10)
    for modified_s in (1_000, time.time() + 86_400):
        os.utime(path, (modified_s, modified_s))
        with kafkalog.Log(path, mode="r", config=CONFIG) as reader:
            assert reader.end_offset == 10
            before = lib.kl_io_calls(ffi.NULL)
            for _ in range(10):
                assert reader.end_offset == 10
            calls.append(lib.kl_io_calls(ffi.NULL) - before)
    assert calls[0] == calls[1]
    with kafkalog.Log(path, mode="r", config=CONFIG) as reader:
        assert reader.end_offset == 10
        with kafkalog.Log(path, config=CONFIG) as log:
            fill(log, 5)
            log.roll()
            fill(log, 5)
        assert reader.end_offset == 20


def test_a_roll_makes_a_reader_open_only_new_files(tmp_path, counted):
    """Not its 50 other segments; the writer's syncs open some files in between, too."""
    opens = []
    with kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log:
        fill(log, 10)
        log.roll()
        with kafkalog.Log(tmp_path / "log-0", mode="r") as reader:
            for _ in range(50):
                fill(log, 10)
                log.roll()
                before = counted.kl_io_calls(b"openat")
                reader.refresh()
                opens.append(counted.kl_io_calls(b"openat") - before)
            assert [r.offset for r in reader.read()] == list(range(510))
            assert len(reader.segments) == 52
    assert sorted(opens)[len(opens) // 2] < 20, opens


def test_a_reader_notices_each_change(tmp_path):
    """A truncation, a deletion, a truncation of the active segment, which grows again."""
    with (
        kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log,
        kafkalog.Log(tmp_path / "log-0", mode="r") as reader,
    ):
        for _ in range(10):
            fill(log, 10)
            log.roll()
            reader.refresh()
        log.truncate(35)
        log.append_many([b"anew"] * 65, timestamps_ms=list(range(1000, 1065)))
        assert [r.value for r in reader.read(30)] == [VALUE] * 5 + [b"anew"] * 65
        log.delete_before(20)
        assert [r.offset for r in reader.read()] == list(range(20, 100))
        assert reader.offset_at(1010) == 45
        fill(log, 1000)
        assert reader[900].value == VALUE  # it now has the active segment's entries
        log.truncate(200)
        log.append_many([b"x" * 3000] * 300, batch_bytes=3000, timestamps_ms=[5000] * 300)
        assert {len(reader[offset].value) for offset in range(200, 500, 7)} == {3000}
        assert reader.offset_at(5000) == 200


def test_a_first_look_at_segments_reads_nothing(tmp_path, counted):
    """Names, sizes and offsets are known; timestamps and entries are read only on request."""
    with kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log:
        for _ in range(20):
            fill(log, 10)
            log.roll()
        log.delete_before(50)
    with kafkalog.Log(tmp_path / "log-0", config={**CONFIG, "retention.bytes": 100_000}) as log:
        counted.kl_io_reset()
        segments = log.segments
        assert [s.base_offset for s in segments] == list(range(50, 201, 10))
        assert sum(s.size_bytes for s in segments) == log.size_bytes
        log.flush()  # checkpoints only need the first one's base offset
        assert log.apply_retention() is not None  # and retention by size only their sizes
        assert counted.kl_io_calls(b"pread") == 0
        oldest = log.segments[0]
        assert (oldest.first_timestamp_ms, oldest.largest_timestamp_ms) == (
            oldest.base_offset,
            oldest.next_offset - 1,
        )
        assert (oldest.offset_index_entries, oldest.time_index_entries) == (1, 2)
        assert 0 < counted.kl_io_calls(b"pread") < 10


def test_a_segment_that_is_gone_says_so(tmp_path):
    """Known values stay; reading another raises StaleLog."""
    with kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log:
        fill(log, 10)
        log.roll()
        fill(log, 10)
        first, second = log.segments
        log.delete_before(10)
        assert (first.base_offset, first.next_offset) == (0, 10)
        with pytest.raises(kafkalog.errors.StaleLog, match="no segment 0"):
            _ = first.largest_timestamp_ms
        assert second.largest_timestamp_ms == 19
