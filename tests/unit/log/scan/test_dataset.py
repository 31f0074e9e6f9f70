"""Topics as pyarrow datasets: the same rows as in a scan, reading only what is needed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import arrow, errors, pushdown
from tests.support.waiting import wait_for

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")
SEED = 20_261_127
PARTITIONS, RECORDS = 3, 1_500
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
KEYS = (None, b"", b"a", b"ab", b"\xff", b"z" * 30)
FIRST = ["partition", "key", "value", "topic", "offset", "timestamp", "timestampType", "headers"]
offset, key, time, partition = (
    pc.field(name) for name in ("offset", "key", "timestamp", "partition")
)


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


def test_all_rows_by_a_store_a_log_and_a_path(store: kafkalog.Store) -> None:
    whole = store.scan("t").to_arrow()
    for where, topic in ((store, "t"), (store.path, "t")):
        data = kafkalog.arrow.dataset(where, topic)
        assert data.schema.names == FIRST
        for _ in range(2):  # it can be read again
            assert data.to_table().equals(whole.select(FIRST))
        assert data.count_rows() == len(whole)
    with kafkalog.Log(Path(store.path) / "t-1", mode="r") as log:
        data = kafkalog.arrow.dataset(log, columns=["offset", "value"])
        assert data.to_table().equals(log.scan(columns=["offset", "value"]).to_arrow())
        assert data.head(3)["offset"].to_pylist() == [0, 1, 2]
    empty = kafkalog.arrow.dataset(store, "t", partitions=[PARTITIONS])
    assert (empty.count_rows(), len(empty.to_table())) == (0, 0)


def test_columns_in_the_order_asked_for(store: kafkalog.Store) -> None:
    data, whole = kafkalog.arrow.dataset(store, "t"), store.scan("t").to_arrow()
    for names in (["value", "partition"], ["partition"], ["headers"]):
        assert data.to_table(columns=names).equals(whole.select(names))
    found = data.to_table(columns=["offset"], filter=key == b"a")
    assert found.equals(whole.filter(key == b"a").select(["offset"]))
    assert data.count_rows(filter=key == b"a") == len(found) > 0
    assert data.to_table(columns=[], filter=partition == 1).num_rows == RECORDS


def comparison(rng: random.Random) -> Any:
    """A comparison that can be pushed down into the scan, or one that cannot."""
    compare = rng.choice(["__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"])
    kind = rng.randrange(7)
    if kind == 0:
        return getattr(offset, compare)(rng.randrange(-10, RECORDS + 10))
    if kind == 1:
        when = EPOCH + timedelta(microseconds=rng.randrange(-(10**6), RECORDS * 10**6))
        if rng.random() < 0.5:
            when = when.replace(microsecond=when.microsecond // 1_000 * 1_000)
        unit = "ms" if when.microsecond % 1_000 == 0 else "us"
        return getattr(time, compare)(pa.scalar(when, pa.timestamp(unit, "UTC")))
    if kind == 2:
        return getattr(partition, compare)(rng.randrange(-1, PARTITIONS + 2))
    if kind == 3:
        return getattr(key, compare)(rng.choice(KEYS[1:]))
    if kind == 4:
        return pc.starts_with(key, rng.choice([b"", b"a", b"q"]))
    if kind == 5:
        return pc.scalar(rng.randrange(RECORDS)) < offset
    return rng.choice(
        [key.is_null(), pc.binary_length(pc.field("value")) > 30, key.isin([b"a", b"ab"])]
    )


def predicate(rng: random.Random) -> Any:
    made = comparison(rng)
    for _ in range(rng.randrange(4)):
        other = comparison(rng)
        made = (made | other) if rng.random() < 0.2 else (made & other)
    return ~made if rng.random() < 0.1 else made


@pytest.mark.parametrize("round_", range(4))
def test_the_same_rows_with_a_filter_and_without(store: kafkalog.Store, round_: int) -> None:
    rng = random.Random(SEED * 10 + round_)
    for _ in range(15):
        asked = predicate(rng)
        given = rng.choice([{}, {"start_time_ms": 300_000}, {"key_prefix": b"a"}])
        wanted = store.scan("t", **given).to_arrow().filter(asked).select(["partition", "offset"])
        data = kafkalog.arrow.dataset(store, "t", **given)
        found = data.to_table(columns=["partition", "offset"], filter=asked)
        assert found.equals(wanted), (str(asked), given)


def test_understood_filters() -> None:
    def of(asked: Any) -> pushdown.Narrow:
        return arrow._narrowed(asked)[0]

    when = EPOCH + timedelta(milliseconds=7, microseconds=1)
    assert of((offset > 4) & (pc.scalar(9) >= offset)) == pushdown.Narrow(start=5, stop=10)
    assert of((time > when) & (partition == 2)) == pushdown.Narrow(start_time_ms=8, partition=2)
    assert of(time <= when).stop_time_ms == 8
    assert of((key == b"k") & key.is_valid()) == pushdown.Narrow(key=b"k")
    for asked in ((offset > 4) | (key == b"k"), ~(key == b"k"), key == offset, offset == 1.5):
        assert of(asked) == pushdown.Narrow(), str(asked)
    assert arrow._narrowed((offset > 4) & key.is_null())[1] == {"offset", "key"}


def duckdb_of(data: Any) -> Callable[[str], list[Any]]:
    db = pytest.importorskip("duckdb")

    def rows(query: str) -> list[Any]:
        with db.connect() as connection:
            connection.register("t", data)
            return list(connection.execute(query).fetchall())

    return rows


def test_duckdb_asks_it(store: kafkalog.Store) -> None:
    rows = duckdb_of(kafkalog.arrow.dataset(store, "t"))
    whole = store.scan("t").to_arrow().to_pylist()
    assert rows("select count(*) from t") == [(len(whole),)]
    assert rows("select * from t limit 1")[0][:2] == (0, whole[0]["key"])
    asked = 'select partition, "offset" from t where key = \'ab\'::blob and "offset" >= 700'
    wanted = [(row["partition"], row["offset"]) for row in whole if row["key"] == b"ab"]
    assert sorted(rows(asked)) == [pair for pair in wanted if pair[1] >= 700] != []
    sizes = "select sum(octet_length(value)) from t where timestamp < '1970-01-01 00:10:00Z'"
    late = EPOCH + timedelta(minutes=10)
    assert rows(sizes) == [(sum(len(r["value"]) for r in whole if r["timestamp"] < late),)]


def test_records_are_decompressed_only_for_keys_values_headers(tmp_path: Path) -> None:
    """A damaged body with an unchecked CRC is not noticed if nothing needs it."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append_many([b"v"] * 100, compression="zstd", timestamps_ms=[7] * 100)
    path = next((tmp_path / "t-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[61:] = bytes(len(data) - 61)
    path.write_bytes(data)
    rows = duckdb_of(kafkalog.arrow.dataset(tmp_path, "t", check_crcs=False))
    assert rows('select count(*), max("offset") from t where partition = 0') == [(100, 99)]
    with pytest.raises(Exception, match="the batch at offset 0"):
        rows("select value from t")


def read_bytes() -> int:
    """The bytes that this process has read so far, from a cache or a disk."""
    return int(dict(line.split(": ") for line in open("/proc/self/io"))["rchar"])


def test_few_bytes_are_read(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "store") as store:
        store.create_topic("t", 2)
        for log in store["t"]:
            times = [1_000 * i for i in range(20_000)]
            log.append_many([bytes(500)] * 20_000, timestamps_ms=times, batch_bytes=20_000)
        data = kafkalog.arrow.dataset(store, "t")
        rows = duckdb_of(data)
        for asked, count in (
            ("true", 40_000),
            ('"offset" >= 19900', 200),
            ('"offset" < 100', 200),
            ("timestamp >= '1970-01-01 05:31:40Z'", 200),
            ('partition = 1 and "offset" < 50', 50),
        ):
            before = read_bytes()
            assert rows(f"select count(*) from t where {asked}") == [(count,)]
            assert read_bytes() - before < 4_000_000, asked
        before = read_bytes()
        assert data.count_rows() == 40_000
        assert read_bytes() - before < 4_000_000


def test_a_reader_that_is_dropped_ends_its_threads(store: kafkalog.Store) -> None:
    reader = kafkalog.arrow.dataset(store, "t", batch_rows=10).scanner(["value"]).to_reader()
    assert reader.read_next_batch().num_rows > 0
    del reader
    ended = lambda: not any(t.name == "kafkalog-scan" for t in threading.enumerate())  # noqa: E731
    wait_for(ended, "the end of the scan's threads")


def test_a_program_may_end_in_the_middle_of_a_read(store: kafkalog.Store) -> None:
    program = (
        "import sys, kafkalog\n"
        "data = kafkalog.arrow.dataset(sys.argv[1], 't', batch_rows=10)\n"
        "reader = data.scanner(['value']).to_reader()\n"
        "print(reader.read_next_batch().num_rows)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, store.path], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) > 0


def test_refused_arguments(store: kafkalog.Store, tmp_path: Path) -> None:
    with pytest.raises(errors.ArgumentError, match="not a broker's address"):
        kafkalog.arrow.dataset("localhost:9092", "t")
    with pytest.raises(errors.ArgumentError, match="'values' is not one of"):
        kafkalog.arrow.dataset(store, "t", columns=["values"])
    data = kafkalog.arrow.dataset(store, "t")
    for call in (data.get_fragments, lambda: data.filter(key == b"a"), lambda: data.sort_by("key")):
        with pytest.raises(errors.ArgumentError, match="take a filter"):
            call()
    for columns in (["values"], {"next": offset + 1}, "value"):
        with pytest.raises(errors.ArgumentError, match="columns: found"):
            data.to_table(columns=columns)
    with pytest.raises(Exception, match="no topic 'u'"):
        kafkalog.arrow.dataset(store.path, "u").to_table()
