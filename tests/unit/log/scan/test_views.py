"""Batches with keys and values as Arrow's views: the same rows, copied if that saves memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.log.scan.topic import TopicScan
from tests.support import batches
from tests.unit.log.scan.conftest import Writer

pa = pytest.importorskip("pyarrow")
SEED = 20_261_124
LENGTHS = (0, 1, 11, 12, 13, 14, 100, 5_000)  # up to twelve bytes are in the view itself


def some_bytes(rng: random.Random) -> bytes | None:
    return None if rng.random() < 0.1 else rng.randbytes(rng.choice(LENGTHS))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[kafkalog.Log]]:
    """Two partitions of several MB: uncompressed batches with compressed ones in between."""
    rng = random.Random(SEED)
    opened = []
    for number in range(2):
        log = kafkalog.Log(tmp_path_factory.mktemp("views") / f"t-{number}")
        opened.append(log)
        for _ in range(40):
            rows = [
                batches.Row(value=some_bytes(rng), key=some_bytes(rng), timestamp_ms=i)
                for i in range(rng.randrange(1, 200))
            ]
            codec = rng.choice(["none", "none", "none", *batches.CODECS])
            log.append_batches(batches.batch(rows, codec=codec))
    yield opened
    for log in opened:
        log.close()


def as_table(scan: Any) -> Any:
    """The rows of views, with a scan's own column types."""
    found = pa.Table.from_batches(map(pa.record_batch, scan.view_batches()))
    for name in {"key", "value"} & set(found.column_names):
        assert found.schema.field(name).type == pa.binary_view()
    return found.cast(pa.schema(scan))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": ["value"]},
        {"columns": ["key", "offset"]},
        {"columns": ["offset", "timestamp"]},
        {"batch_rows": 50},
        {"batch_bytes": 10_000, "columns": ["value", "headers"]},
        {"start_time_ms": 20, "stop_time_ms": 60},
    ],
    ids=str,
)
def test_the_same_rows(logs: list[kafkalog.Log], options: dict[str, Any]) -> None:
    scans = [log.scan(**options) for log in logs]
    for scan in [*scans, TopicScan(logs, threads=2, **options)]:
        assert as_table(scan).equals(scan.to_arrow())


@pytest.mark.parametrize("codec", batches.CODECS)
def test_a_batch_that_is_kept_is_not_written_over(writer: Writer, codec: str) -> None:
    """The memory of dropped batches is reused."""
    values = [b"%04d" % i * 10 for i in range(2_000)]
    for at in range(0, len(values), 20):
        writer.batch((batches.Row(value=one) for one in values[at : at + 20]), codec=codec)
    some = []
    scan = writer.log.scan(columns=["value", "offset"], batch_rows=60)
    for number, batch in enumerate(scan.view_batches()):
        if number % 3 == 0:
            some.append(pa.record_batch(batch))
        del batch
    assert len(some) > 9
    for kept in some:
        assert kept["value"].to_pylist() == [values[i] for i in kept["offset"].to_pylist()]


def test_rows_before_damage(tmp_path: Path) -> None:
    with kafkalog.Log(tmp_path / "log", config={"segment.bytes": 50_000}) as log:
        values = [b"%04d" % i * 20 for i in range(2_000)]
        log.append_many(values, batch_bytes=2_000)
        segment = log.segments[1]
        with open(tmp_path / "log" / f"{segment.base_offset:020}.log", "r+b") as file:
            file.seek(segment.size_bytes // 2)
            file.write(b"!")
    with kafkalog.Log(tmp_path / "log", mode="r") as log:
        seen: list[bytes] = []
        with pytest.raises(errors.CorruptMessage):
            for batch in log.scan(columns=["value"]).view_batches():
                seen += pa.record_batch(batch)["value"].to_pylist()
        assert segment.base_offset < len(seen) < segment.next_offset
        assert seen == values[: len(seen)]


def test_few_bytes_do_not_keep_all_of_them(tmp_path: Path) -> None:
    """Keys next to large values are copied: a batch holds little more memory than they need."""
    with kafkalog.Log(tmp_path / "log") as log:
        log.append_many([bytes(10_000)] * 1_000, [b"key %020d" % i for i in range(1_000)])
        held = [pa.record_batch(batch).nbytes for batch in log.scan(columns=["key"]).view_batches()]
        assert sum(held) < 200_000
        whole = [
            pa.record_batch(batch).nbytes for batch in log.scan(columns=["value"]).view_batches()
        ]
        assert sum(whole) < 2 * 10_000_000


def test_polars_takes_them(logs: list[kafkalog.Log]) -> None:
    pl = pytest.importorskip("polars")
    for columns in (["value"], ["key", "offset"], ["partition"]):
        scan = TopicScan(logs, columns=columns)
        assert scan.to_polars().rows() == pl.DataFrame(scan).rows()
    empty = TopicScan([], columns=["key", "offset"]).to_polars()
    assert empty.schema == pl.DataFrame(TopicScan([], columns=["key", "offset"])).schema
