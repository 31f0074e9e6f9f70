"""Scans of a topic's partitions in threads: the same rows and order, in bounded memory."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.pandas
import kafkalog.polars
from kafkalog import errors
from kafkalog.log.scan import topic as topic_scan
from kafkalog.log.scan.topic import TopicScan
from tests.support.waiting import wait_for

PARTITIONS, RECORDS = 3, 4_000
SEED = 20_261_123


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Store]:
    """Topic `t`: partitions with dense indexes; one is compressed, the last is empty."""
    rng = random.Random(SEED)
    config = {"index.interval.bytes": 1_000}
    with kafkalog.Store(tmp_path_factory.mktemp("store")) as made:
        made.create_topic("t", PARTITIONS + 1, config=config)
        for number in range(PARTITIONS):
            for at in range(0, RECORDS, 500):
                rows = range(at, at + 500)
                made["t"][number].append_many(
                    [bytes(rng.randrange(120)) for _ in rows],
                    [b"%d" % (i % 13) if i % 7 else None for i in rows],
                    [1_000 * i for i in rows],
                    compression="zstd" if number == 1 else None,
                    batch_bytes=2_000,
                )
        yield made


@pytest.fixture(params=[1, 3])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of threads; pieces are so small that each partition has many."""
    monkeypatch.setattr(topic_scan, "PIECE_BYTES", 5_000)
    monkeypatch.setattr(topic_scan, "PIECE_BLOCKS", 2)
    return int(request.param)


def in_turn(store: kafkalog.Store, **options: Any) -> list[Any]:
    """The rows of scans of one log after another."""
    return [row for log in store["t"] for row in log.scan(**options).to_arrow().to_pylist()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": ["offset", "key"]},
        {"start_time_ms": 1_234_000, "stop_time_ms": 2_345_678, "columns": ["value"]},
        {"isolation": "read_committed", "batch_rows": 100},
    ],
    ids=["all", "columns", "times", "small batches"],
)
def test_the_rows_of_one_log_after_another(
    store: kafkalog.Store, small: int, options: dict[str, Any]
) -> None:
    scan = store.scan("t", threads=small, **options)
    assert scan.to_arrow().to_pylist() == in_turn(store, **options)
    assert scan.count() == len(in_turn(store, **options))


def test_partitions_that_are_named(store: kafkalog.Store, small: int) -> None:
    scan = store.scan("t", partitions=[2, 0], threads=small, columns=["partition", "offset"])
    found = [(row["partition"], row["offset"]) for row in scan.to_arrow().to_pylist()]
    assert found == [(number, i) for number in (2, 0) for i in range(RECORDS)]


def test_records_appended_during_a_scan_are_not_seen(tmp_path: Path, small: int) -> None:
    with kafkalog.Log(tmp_path / "log") as log:
        log.append_many([b"v" * 50] * 1_000, batch_bytes=1_000)
        batches = iter(TopicScan([log], threads=small, batch_rows=10))
        rows = len(next(batches))
        log.append_many([b"late"] * 1_000)
        assert rows + sum(map(len, batches)) == 1_000


def test_the_ends_of_all_partitions_are_of_one_moment(tmp_path: Path, small: int) -> None:
    """Even if the first partitions take long."""
    with kafkalog.Store(tmp_path / "store") as store:
        store.create_topic("t", 2)
        for log in store["t"]:
            log.append_many([b"v" * 50] * 1_000, batch_bytes=1_000)
        batches = iter(store.scan("t", threads=small, batch_rows=10))
        rows = len(next(batches))
        store["t"][1].append_many([b"late"] * 1_000)
        assert rows + sum(map(len, batches)) == 2_000


def test_deleted_records_are_not_searched(tmp_path: Path, small: int) -> None:
    """It was deleted from the middle of a segment whose index still has entries for it."""
    with kafkalog.Log(tmp_path / "log", config={"index.interval.bytes": 500}) as log:
        log.append_many([b"v" * 50] * 2_000, batch_bytes=1_000)
        log.delete_before(1_234)
        assert len(log.segments) == 1
        found = TopicScan([log], threads=small, columns=["offset"]).to_numpy()["offset"]
        assert found.tolist() == list(range(1_234, 2_000))


def test_damage_comes_after_the_rows_before_it(tmp_path: Path, small: int) -> None:
    config = {"segment.bytes": 20_000}
    with kafkalog.Log(tmp_path / "log", config=config) as log:
        log.append_many([b"v" * 50] * 2_000, batch_bytes=1_000)
        segment = log.segments[1]
        with open(tmp_path / "log" / f"{segment.base_offset:020}.log", "r+b") as file:
            file.seek(segment.size_bytes - 10)
            file.write(b"!")
    with kafkalog.Log(tmp_path / "log", mode="r") as log:
        seen = 0
        with pytest.raises(errors.CorruptMessage):
            for batch in TopicScan([log], threads=small, columns=["offset"], batch_rows=10):
                seen += len(batch)
        with pytest.raises(errors.CorruptMessage):
            list(log.scan(columns=["offset"], batch_rows=10))
        assert segment.base_offset < seen < segment.next_offset
    assert not threads()


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "kafkalog-scan"]


def test_an_early_stop_leaves_no_thread(store: kafkalog.Store, small: int) -> None:
    """Closed or dropped, it leaves no thread."""
    batches = iter(store.scan("t", threads=small, batch_rows=10))
    next(batches)
    assert threads()
    batches.close()  # type: ignore[attr-defined]
    assert not threads()
    stream = store.scan("t", threads=small, batch_rows=10).__arrow_c_stream__()
    del stream
    gc.collect()
    wait_for(lambda: not threads(), "the end of its threads")


def pieces_of(store: kafkalog.Store) -> Iterator[Any]:
    scan = store.scan("t", batch_rows=1)
    return scan._pieces(scan._ends())


def test_no_more_is_ahead_than_is_said(store: kafkalog.Store, small: int) -> None:
    """A slow reader has only a few blocks of a few pieces in memory."""
    work = topic_scan._Work(pieces_of(store), 16, 2 * small)
    runs = [threading.Thread(target=work.run) for _ in range(small)]
    for one in runs:
        one.start()

    def full() -> bool:
        with work.lock:
            held = [len(piece.blocks) for piece in work.begun]
            assert len(held) <= 2 * small and max(held, default=0) <= 2
            return held.count(2) >= small

    wait_for(full, "the read-ahead is full")
    work.end()
    for one in runs:
        one.join()


@pytest.mark.parametrize("wrong", [0, -1, 65, 1.5, "2", float("nan")], ids=repr)
def test_threads_that_cannot_be(store: kafkalog.Store, wrong: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="threads: found"):
        store.scan("t", threads=wrong)


def test_mistakes_are_reported_at_once(store: kafkalog.Store) -> None:
    with pytest.raises(errors.ArgumentError, match="did you mean 'value'"):
        store.scan("t", columns=["valeu"])
    with pytest.raises(errors.UnknownTopicOrPartition, match="has no partition 9"):
        store.scan("t", partitions=[9])
    for name in ("start", "stop"):
        with pytest.raises(errors.ArgumentError, match=f"{name}: an offset of one partition"):
            store.scan("t", **{name: 1})


# ---- the packages ---------------------------------------------------------------------------


def wheres(store: kafkalog.Store) -> list[Any]:
    return [store, store.path, Path(store.path)]


def test_duckdb_reads_it(store: kafkalog.Store) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = store.scan("t", columns=["partition", "value"])
    query = "select partition, count(*), sum(octet_length(value)) from rows group by 1 order by 1"
    assert duckdb.sql(query).fetchall() == [
        (number, RECORDS, sum(len(one.value or b"") for one in store["t"][number]))
        for number in range(PARTITIONS)
    ]
    assert rows.count() == PARTITIONS * RECORDS


def test_polars_reads_only_the_wanted_columns(
    store: kafkalog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl = pytest.importorskip("polars")
    asked: list[Any] = []
    real = topic_scan.TopicScan.__init__

    def init(self: Any, *logs: Any, **options: Any) -> None:
        asked.append(options["columns"])
        real(self, *logs, **options)

    for where in wheres(store):
        frame = kafkalog.polars.scan(where, "t")
        assert frame.collect_schema().names() == list(kafkalog.polars.column_bits(None)[0])
        monkeypatch.setattr(topic_scan.TopicScan, "__init__", init)
        found = (
            frame.filter(pl.col("offset") % 1000 == 7, pl.col("key").is_not_null())
            .select("partition", "offset")
            .collect()
        )
        monkeypatch.undo()
        keyed = [i for i in range(7, RECORDS, 1000) if i % 7]
        assert found.rows() == [(n, i) for n in range(PARTITIONS) for i in keyed]
    assert all(set(one) == {"key", "partition", "offset"} for one in asked if len(one) < 8)
    assert len(asked) >= 3


def test_polars_counts_and_stops(store: kafkalog.Store) -> None:
    pl = pytest.importorskip("polars")
    frame = kafkalog.polars.scan(store, "t", columns=["offset", "value"])
    assert frame.select(pl.len()).collect().item() == PARTITIONS * RECORDS
    assert frame.head(5).collect()["offset"].to_list() == [0, 1, 2, 3, 4]
    assert frame.filter(pl.col("offset") > 3_990).head(3).collect()["offset"].to_list() == [
        3_991,
        3_992,
        3_993,
    ]
    by_hand = in_turn(store, columns=["value"])
    total = frame.select(pl.col("value").bin.size().sum()).collect().item()
    assert total == sum(len(row["value"]) for row in by_hand)


@pytest.mark.parametrize("backend", ["numpy", "pyarrow"])
def test_pandas_reads_it(store: kafkalog.Store, backend: Any) -> None:
    pytest.importorskip("pandas")
    for where in wheres(store):
        frame = kafkalog.pandas.read(
            where, "t", dtype_backend=backend, columns=["offset", "value", "timestamp"]
        )
        assert frame["offset"].tolist() == list(range(RECORDS)) * PARTITIONS
        assert frame["value"].tolist() == [row["value"] for row in in_turn(store)]
        assert str(frame["timestamp"].iloc[1]) == "1970-01-01 00:00:01+00:00"


def test_partitions_of_a_place(store: kafkalog.Store) -> None:
    for where in wheres(store):
        frame = kafkalog.pandas.read(where, "t", partitions=[1], columns=["partition"])
        assert frame["partition"].tolist() == [1] * RECORDS
        with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 9"):
            kafkalog.pandas.read(where, "t", partitions=[9])
    with pytest.raises(errors.ArgumentError, match="partitions: a log is one"):
        kafkalog.pandas.read(store["t"][0], partitions=[0])


def test_of_a_log(store: kafkalog.Store) -> None:
    log = store["t"][1]
    assert len(kafkalog.pandas.read(log, columns=["offset"])) == RECORDS
    with pytest.raises(errors.ArgumentError, match="topic: found 'u', wanted 't' or None"):
        kafkalog.pandas.read(log, "u")


def test_missing_topics(store: kafkalog.Store, tmp_path: Path) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition, match="no topic 'u'"):
        kafkalog.pandas.read(store.path, "u")
    with pytest.raises(errors.ArgumentError, match="where: found int"):
        kafkalog.pandas.read(3, "t")
    with pytest.raises(errors.ArgumentError, match="topic: found None"):
        kafkalog.pandas.read(store)
    with pytest.raises(errors.ArgumentError, match="dtype_backend: found 'arrow'"):
        kafkalog.pandas.read(store, "t", dtype_backend="arrow")  # type: ignore[arg-type]
    with pytest.raises((errors.NotFound, FileNotFoundError), match="nowhere"):
        kafkalog.pandas.read(tmp_path / "nowhere", "t")
