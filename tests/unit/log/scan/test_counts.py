"""Counting reads only the headers of batches: the count is exact, and few bytes are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.polars
from kafkalog import errors
from kafkalog.log.scan.topic import TopicScan
from tests.support import batches

LENGTHS = (1, 7, 30)
ISOLATION = pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])


def rows_of(count: int, bytes_each: int = 100) -> list[batches.Row]:
    return [batches.Row(bytes(bytes_each), b"k%d" % (i % 5), 1_000) for i in range(count)]


def fill(log: kafkalog.Log) -> None:
    """Append committed, aborted and open transactions, and batches outside of transactions."""
    sequence = 0
    for number in range(60):
        how: dict[str, Any] = {}
        rows = rows_of(LENGTHS[number % 3])
        if number % 5 == 0:
            how = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
            how["base_sequence"] = sequence
            sequence += len(rows)
        log.append_batches(batches.batch(rows, codec=["none", "zstd"][number % 2], **how))
        if how and number < 50:
            log.append_marker(9, 0, number % 10 == 0)


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[kafkalog.Log]]]:
    """Partitions: as written, compacted, with several segments, with a later start, empty."""
    folder = tmp_path_factory.mktemp("counts")
    logs = []
    for number in range(5):
        config = {"index.interval.bytes": 300, "cleanup.policy": "compact"}
        if number == 2:
            config["segment.bytes"] = 8_000
        log = kafkalog.Log(folder / f"t-{number}", config=config)
        if number < 4:
            fill(log)
        if number == 1:
            log.roll()
            log.compact()
        if number == 3:
            log.delete_before(50)
        logs.append(log)
    yield folder, logs
    for log in logs:
        log.close()


@ISOLATION
def test_as_many_as_there_are(topic: tuple[Path, list[kafkalog.Log]], isolation: str) -> None:
    for log in topic[1]:
        end = log.end_offset
        for start in range(log.start_offset, end + 1, 13):
            for stop in (start, min(start + 9, end), (start + end) // 2, end):
                wanted = sum(1 for _ in log.scan(start, stop, isolation=isolation).records())
                found = log.scan(start, stop, isolation=isolation).count()
                assert found == wanted, (repr(log), start, stop)


@ISOLATION
def test_polars_counts_a_topic(topic: tuple[Path, list[kafkalog.Log]], isolation: str) -> None:
    pl = pytest.importorskip("polars")
    folder, logs = topic
    whole = TopicScan(logs, isolation=isolation).to_polars()
    frame = kafkalog.polars.scan(folder, "t", isolation=isolation)
    assert frame.select(pl.len()).collect().item() == len(whole) > 0
    assert frame.select("partition").collect().equals(whole.select("partition"))
    assert frame.select("partition").head(9).collect().equals(whole.select("partition").head(9))
    late = pl.col("offset") > 40
    assert frame.filter(late).select(pl.len()).collect().item() == len(whole.filter(late))
    empty = kafkalog.polars.scan(folder, "t", partitions=[4])
    assert empty.select(pl.len()).collect().item() == 0
    assert empty.select("partition").collect().schema == {"partition": pl.Int32}


def test_more_rows_than_a_frame_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    monkeypatch.setattr(kafkalog.polars, "CONSTANT_ROWS", 7)
    counts = [0, 6, 7, 8, 21]
    with kafkalog.Store(tmp_path / "store") as store:
        store.create_topic("t", len(counts))
        for number, count in enumerate(counts):
            store["t"][number].append_many([b"v"] * count)
        frame = kafkalog.polars.scan(store, "t").select("partition").collect()
        assert frame["partition"].to_list() == [n for n, c in enumerate(counts) for _ in range(c)]
        assert frame.n_chunks() == 7  # of at most 7 rows, whatever polars requests
        assert kafkalog.polars.scan(store, "t").select(pl.len()).collect().item() == sum(counts)


def read_bytes() -> int:
    """The bytes that this process has read so far, from a cache or a disk."""
    return int(dict(line.split(": ") for line in open("/proc/self/io"))["rchar"])


@pytest.mark.parametrize(("batch_bytes", "most"), [(100_000, 2_000_000), (6_000, 5_000_000)])
def test_few_bytes_are_read(tmp_path: Path, batch_bytes: int, most: int) -> None:
    config = {"segment.bytes": 1 << 20} if batch_bytes == 100_000 else {}
    with kafkalog.Log(tmp_path / "t-0", config=config) as log:
        log.append_many([bytes(1_000)] * 20_000, batch_bytes=batch_bytes)
        before = read_bytes()
        assert log.scan().count() == 20_000
        assert read_bytes() - before < most


@pytest.mark.parametrize("sealed", [False, True])
def test_a_damaged_header_is_reported_as_when_records_are_read(
    tmp_path: Path, sealed: bool
) -> None:
    """Damage of its length, magic or offsets; in a sealed segment, of any of its bytes."""
    places = [0, 8, 16]  # base offset, length, magic
    if sealed:
        places += [17, 60]  # the CRC, the count
    for at in places:
        folder = tmp_path / f"at{at}-0"
        with kafkalog.Log(folder) as log:
            for _ in range(40):
                log.append_batches(batches.batch(rows_of(20)))
            position = len(batches.batch(rows_of(20))) * 25
            if sealed:
                log.roll()
                log.append(b"next")
        path = next(iter(sorted(folder.glob("*.log"))))
        data = bytearray(path.read_bytes())
        data[position + at] ^= 0x40
        with kafkalog.Log(folder) as log:  # opened first, since an open checks the tail
            path.write_bytes(data)
            with pytest.raises(errors.KafkalogError) as read:
                list(log.scan())
            with pytest.raises(errors.KafkalogError) as counted:
                log.scan().count()
            assert (type(counted.value), str(counted.value)) == (type(read.value), str(read.value))
