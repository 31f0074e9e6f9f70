"""Predicates of polars that are pushed down into a scan: the same rows from fewer bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.polars
from kafkalog import pushdown
from kafkalog.log.scan.topic import TopicScan
from kafkalog.pushdown import narrow, predicate_tree

pl = pytest.importorskip("polars")
register_io_source = pytest.importorskip("polars.io.plugins").register_io_source
SEED = 20_261_126
PARTITIONS, RECORDS = 3, 1_500
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
KEYS = (None, b"", b"a", b"ab", b"abc", b"\xff", b"z" * 30)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Store]:
    rng = random.Random(SEED)
    with kafkalog.Store(tmp_path_factory.mktemp("store")) as made:
        made.create_topic("t", PARTITIONS + 1, config={"index.interval.bytes": 1_000})
        for number in range(PARTITIONS):
            made["t"][number].append_many(
                [rng.randbytes(rng.randrange(60)) for _ in range(RECORDS)],
                [rng.choice(KEYS) for _ in range(RECORDS)],
                [1_000 * i + rng.randrange(5_000) for i in range(RECORDS)],
                compression="zstd" if number == 1 else None,
                batch_bytes=2_000,
            )
        made["t"][2].delete_before(100)
        yield made


def comparison(rng: random.Random) -> Any:
    """A comparison that can be pushed down into the scan, or one that cannot."""
    compare = rng.choice(["__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"])
    kind = rng.randrange(7)
    if kind == 0:
        return getattr(pl.col("offset"), compare)(rng.randrange(-10, RECORDS + 10))
    if kind == 1:
        when = EPOCH + timedelta(microseconds=rng.randrange(-(10**6), RECORDS * 10**6))
        if rng.random() < 0.5:
            when = when.replace(microsecond=when.microsecond // 1_000 * 1_000)
        return getattr(pl.col("timestamp"), compare)(when)
    if kind == 2:
        return getattr(pl.col("partition"), compare)(rng.randrange(-1, PARTITIONS + 2))
    if kind == 3:
        return getattr(pl.col("key"), compare)(rng.choice(KEYS[1:]))
    if kind == 4:
        return pl.col("key").bin.starts_with(rng.choice([b"", b"a", b"ab", b"q"]))
    if kind == 5:
        return pl.lit(rng.randrange(RECORDS)) < pl.col("offset")
    return rng.choice([pl.col("key").is_null(), pl.col("value").bin.size() > 30])


def predicate(rng: random.Random) -> Any:
    made = comparison(rng)
    for _ in range(rng.randrange(4)):
        other = comparison(rng)
        made = (made | other) if rng.random() < 0.2 else (made & other)
    return ~made if rng.random() < 0.1 else made


@pytest.mark.parametrize("round_", range(6))
def test_the_same_rows_with_it_and_without(store: kafkalog.Store, round_: int) -> None:
    rng = random.Random(SEED * 10 + round_)
    for _ in range(15):
        asked = predicate(rng)
        given = rng.choice([{}, {"start_time_ms": 300_000}, {"key_prefix": b"a"}])
        whole = store.scan("t", **given).to_polars()
        wanted = whole.filter(asked).select("partition", "offset", "key", "value")
        frame = kafkalog.polars.scan(store, "t", **given).filter(asked)
        found = frame.select("partition", "offset", "key", "value").collect()
        assert found.rows() == wanted.rows(), (str(asked), given)


def test_filters_after_head_apply_to_its_rows(store: kafkalog.Store) -> None:
    frame = kafkalog.polars.scan(store, "t", columns=["offset", "key"])
    first = frame.head(50).collect()
    found = frame.head(50).filter(pl.col("offset") >= 20, pl.col("key") == b"a").collect()
    assert found.rows() == [row for row in first.rows() if row[1] >= 20 and row[0] == b"a"]


def test_frames_have_as_many_rows_as_were_asked_for(store: kafkalog.Store) -> None:
    """Not as many as polars requests."""
    frame = kafkalog.polars.scan(store, "t", partitions=[0], batch_rows=500).select("value")
    assert frame.collect().n_chunks() > 2


def test_understood_filters() -> None:
    def of(asked: Any) -> pushdown.Narrow:
        frame: list[Any] = []
        rows = pl.DataFrame(TopicScan([]))

        def source(columns: Any, asked: Any, *_: Any) -> Iterator[Any]:
            frame.append(predicate_tree(asked))
            yield rows

        register_io_source(source, schema=rows.schema).filter(asked).collect()
        return narrow(frame[0])

    when = EPOCH + timedelta(milliseconds=7, microseconds=1)
    offset, time, key = pl.col("offset"), pl.col("timestamp"), pl.col("key")
    assert of((offset > 4) & (offset <= 9)) == pushdown.Narrow(start=5, stop=10)
    assert of((time > when) & (pl.col("partition") == 2)) == pushdown.Narrow(
        start_time_ms=8, partition=2
    )
    assert of(time <= when).stop_time_ms == 8
    assert of(key == b"k") == pushdown.Narrow(key=b"k")
    assert of(key.bin.starts_with(b"k") & (offset == 3)) == pushdown.Narrow(3, 4, key_prefix=b"k")
    assert of((offset > 4) | (key == b"k")) == pushdown.Narrow()


def read_bytes() -> int:
    """The bytes that this process has read so far, from a cache or a disk."""
    return int(dict(line.split(": ") for line in open("/proc/self/io"))["rchar"])


def test_it_reads_fewer_bytes(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "store") as store:
        store.create_topic("t", 2)
        for log in store["t"]:
            times = [1_000 * i for i in range(20_000)]
            log.append_many([bytes(500)] * 20_000, timestamps_ms=times, batch_bytes=20_000)
        frame = kafkalog.polars.scan(store, "t")
        late = EPOCH + timedelta(seconds=19_900)
        for asked, rows in (
            (pl.col("offset") >= 19_900, 200),
            (pl.col("offset") < 100, 200),
            (pl.col("timestamp") >= late, 200),
            ((pl.col("partition") == 1) & (pl.col("offset") < 50), 50),
        ):
            before = read_bytes()
            assert frame.filter(asked).select(pl.len()).collect().item() == rows
            assert read_bytes() - before < 4_000_000, str(asked)
