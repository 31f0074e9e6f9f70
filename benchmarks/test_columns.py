"""A topic as columns, compared with the same columns in columnar files.

Two partitions of records of 100 B, uncompressed, in batches of 64 KiB, all from the page cache.  A
query wants only the values, and sums their lengths.  Compared with one Arrow IPC file, read
and not mapped into memory, and one of parquet, zstd.  Each tool reads all three.

And a topic compressed with zstd, of records with one of a thousand keys, compared with parquet,
zstd: rows are counted, filtered by a key, summed, and grouped by key.  The figure there is CPU
time, of all threads together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.spark.topics import TOPIC, fill_directory

pa = pytest.importorskip("pyarrow")

RECORDS = scaled(5_000_000, 10_000)  # a partition
PARTITIONS = 2
VALUE_BYTES = 100
OURS, IPC, PARQUET = "kafkalog", "Arrow IPC file, read", "parquet, zstd"
SHARE_OF_IPC = 0.8


class Places(NamedTuple):
    """The same rows three times."""

    log: Path
    ipc: Path
    parquet: Path


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("columns")
    made = Places(folder / "log", folder / "rows.arrow", folder / "rows.parquet")
    fill_directory(made.log, [RECORDS] * PARTITIONS)
    columns = ["key", "value", "offset", "timestamp"]
    schema = pa.schema(kafkalog.polars.TopicScan([], columns=columns))
    with (
        pa.OSFile(str(made.ipc), "wb") as file,
        pa.ipc.new_file(file, schema) as ipc,
        pyarrow.parquet.ParquetWriter(made.parquet, schema, compression="zstd") as parquet,
    ):
        for number in range(PARTITIONS):
            with kafkalog.Log(made.log / f"{TOPIC}-{number}", mode="r") as log:
                for batch in log.scan(columns=columns):
                    ipc.write_batch(pa.record_batch(batch))
                    parquet.write_batch(pa.record_batch(batch))
    yield made


def polars(places: Places) -> dict[str, Callable[[], int]]:
    pl = pytest.importorskip("polars")
    total = pl.col("value").bin.size().sum()

    def ours() -> int:
        return int(kafkalog.polars.scan(places.log, TOPIC).select(total).collect().item())

    def ipc() -> int:
        with places.ipc.open("rb") as file:  # a path would be mapped
            frame = pl.read_ipc(file, columns=["value"])
        return int(frame.select(total).item())

    def parquet() -> int:
        return int(pl.scan_parquet(places.parquet).select(total).collect().item())

    return {OURS: ours, IPC: ipc, PARQUET: parquet}


def duckdb(places: Places) -> dict[str, Callable[[], int]]:
    db = pytest.importorskip("duckdb")
    total = "select sum(octet_length(value)) from"

    def one(query: str, **named: Any) -> int:
        with db.connect() as connection:
            for name, rows in named.items():
                connection.register(name, rows)
            return int(connection.execute(query).fetchall()[0][0])

    def ours() -> int:
        from kafkalog.frames import scan_of

        with scan_of(places.log, TOPIC, columns=["value"]) as rows:
            return one(f"{total} rows", rows=pa.RecordBatchReader.from_stream(rows))

    def ipc() -> int:
        with pa.OSFile(str(places.ipc)) as file:
            return one(f"{total} rows", rows=pa.ipc.open_file(file).read_all().select(["value"]))

    def parquet() -> int:
        return one(f"{total} '{places.parquet}'")

    return {OURS: ours, IPC: ipc, PARQUET: parquet}


def pandas(places: Places) -> dict[str, Callable[[], int]]:
    import pyarrow.compute as pc

    pd = pytest.importorskip("pandas")

    def total(frame: Any) -> int:
        return int(pc.sum(pc.binary_length(pa.array(frame["value"]))).as_py())

    def ours() -> int:
        frame = kafkalog.pandas.read(places.log, TOPIC, columns=["value"], dtype_backend="pyarrow")
        return total(frame)

    def ipc() -> int:
        frame = pd.read_feather(places.ipc, columns=["value"], dtype_backend="pyarrow")
        return total(frame)

    def parquet() -> int:
        frame = pd.read_parquet(places.parquet, columns=["value"], dtype_backend="pyarrow")
        return total(frame)

    return {OURS: ours, IPC: ipc, PARQUET: parquet}


@pytest.mark.parametrize("tool", [polars, duckdb, pandas], ids=lambda tool: tool.__name__)
def test_values(
    measure: Any, places: Places, tool: Callable[[Places], dict[str, Callable[[], int]]]
) -> None:
    """Rows a second, only the value column."""
    rows = RECORDS * PARTITIONS

    def run(read: Callable[[], int]) -> Callable[[], None]:
        def once() -> None:
            assert read() == rows * VALUE_BYTES

        return once

    sides = [Side(name, rows, run(read)) for name, read in tool(places).items()]
    wants = [Want(OURS, than=IPC, factor=SHARE_OF_IPC), Want(OURS, than=PARQUET)]
    work = f"{tool.__name__}: values, their length in sum"
    measure(f"columns-{tool.__name__}", work, sides, wants)


ZSTD_RECORDS = scaled(2_000_000, 10_000)
KEYS = 1_000
KEY = b"user-000017"
PIECE = 10_000
SEED = 20_261_126


class Pair(NamedTuple):
    """The same rows twice."""

    log: Path
    parquet: Path


def pieces() -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys, and values of VALUE_BYTES that zstd makes about a third of."""
    rng = random.Random(SEED)
    words = [rng.randbytes(6).hex() for _ in range(2_000)]
    keys = [b"user-%06d" % number for number in range(KEYS)]
    for at in range(0, ZSTD_RECORDS, PIECE):
        values = [
            f'{{"n":{n:012},"a":"{a}","b":"{b}","c":"{c}","d":{rng.randrange(10**8):08}}}'
            for n, (a, b, c) in enumerate((rng.choices(words, k=3) for _ in range(PIECE)), at)
        ]
        padded = [value.ljust(VALUE_BYTES).encode()[:VALUE_BYTES] for value in values]
        yield rng.choices(keys, k=PIECE), padded


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("zstd")
    made = Pair(folder / "log", folder / "rows.parquet")
    with kafkalog.Log(made.log / f"{TOPIC}-0") as log:
        for keys, values in pieces():
            log.append_many(values, keys=keys, compression="zstd")
        table = log.scan(columns=["key", "value", "offset", "timestamp"]).to_arrow()
    pyarrow.parquet.write_table(table, made.parquet, compression="zstd")
    yield made


def polars_queries(pair: Pair, ours: bool) -> dict[str, Callable[[], int]]:
    pl = pytest.importorskip("polars")
    sizes = pl.col("value").bin.size().sum()

    def frame() -> Any:
        return kafkalog.polars.scan(pair.log, TOPIC) if ours else pl.scan_parquet(pair.parquet)

    return {
        "rows, counted": lambda: int(frame().select(pl.len()).collect().item()),
        "values of one key": lambda: int(
            frame().filter(pl.col("key") == KEY).select("value").collect().height
        ),
        "values, their length in sum": lambda: int(frame().select(sizes).collect().item()),
        "keys, grouped": lambda: int(frame().group_by("key").len().collect().height),
    }


def duckdb_queries(pair: Pair, ours: bool) -> dict[str, Callable[[], int]]:
    db = pytest.importorskip("duckdb")

    def asked(query: str) -> Callable[[], int]:
        def run() -> int:
            with db.connect() as connection:
                if ours:
                    connection.register("topic", kafkalog.arrow.dataset(pair.log, TOPIC))
                rows = "topic" if ours else f"'{pair.parquet}'"
                return int(connection.execute(query.format(rows)).fetchall()[0][0])

        return run

    grouped = "select count(*) from (select key, count(*) from {} group by key)"
    return {
        "rows, counted": asked("select count(*) from {}"),
        "values of one key": asked(
            f"select count(value) from {{}} where key = '{KEY.decode()}'::blob"
        ),
        "values, their length in sum": asked("select sum(octet_length(value)) from {}"),
        "keys, grouped": asked(grouped),
    }


QUERIES = {
    "rows, counted": 0.5,
    "values of one key": 1.0,
    "values, their length in sum": 1.0,
    "keys, grouped": 1.0,
}
"""Each query, and how many times as good as parquet it should be."""


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("tool", [polars_queries, duckdb_queries], ids=["polars", "duckdb"])
def test_zstd(
    measure: Any,
    pair: Pair,
    tool: Callable[[Pair, bool], dict[str, Callable[[], int]]],
    query: str,
) -> None:
    """Rows a second of CPU time."""
    sides = {OURS: tool(pair, True)[query], PARQUET: tool(pair, False)[query]}
    assert len({ask() for ask in sides.values()}) == 1, "the sides disagree"

    def timed(ask: Callable[[], int]) -> Callable[[], float]:
        def once() -> float:
            begun_s = time.process_time()
            ask()
            return time.process_time() - begun_s

        return once

    name, words = tool.__name__.partition("_")[0], query.replace(",", "").split()
    measure(
        "-".join(["columns", name, *words]),
        f"{name}, zstd: {query}",
        [Side(side, ZSTD_RECORDS, timed(ask)) for side, ask in sides.items()],
        [Want(OURS, than=PARQUET, factor=QUERIES[query])],
        about="Of the processors' time, of all threads.",
    )
