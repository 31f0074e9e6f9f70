"""Spark over a log, against the most that Spark takes from any Python source.

The ceiling is a data source that yields one prebuilt Arrow batch again and again: the same
rows, as many of them, in batches of the same size, in the same session.  What is left of it
is what reading, checking and decoding the log costs.  Both run in turn, so that a slow spell
of the machine meets both; the figure is the ratio of the medians.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled

pytest.importorskip("pyspark", "4.0")

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 2
RECORDS = scaled(1_500_000, 1_000)  # a partition
OURS, CEILING = "kafkalog", "prebuilt batches"

# Spark's workers shall not import this file, and pytest with it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class PrebuiltSource(DataSource):
    """`rows` rows for each partition of the topic, all of them the log's first batch."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> Any:
        from pyspark_kafkalog.columns import NAMES, schema_of

        wanted = self.options.get("columns", ",".join(NAMES[:-1]))
        return schema_of(tuple(wanted.split(",")))

    def reader(self, schema: Any) -> PrebuiltReader:
        return PrebuiltReader(self.options["path"], schema)


class PrebuiltReader(DataSourceReader):
    def __init__(self, path: str, schema: Any) -> None:
        self.path, self.schema = path, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark_kafkalog import DefaultSource

        assign = f'{{"bench":[{partition.value}]}}'
        ours = DefaultSource({"path": self.path, "assign": assign}).reader(self.schema)
        batch = next(ours.read(ours.partitions()[0]))
        for at in range(0, RECORDS, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, RECORDS - at))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session as users have it, with two slots and quick task starts."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17, and there is no java here")
    from pyspark.sql import SparkSession

    paths = [str(ROOT), str(ROOT / "spark_connector"), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master(f"local[{PARTITIONS}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("FATAL")
        session.dataSource.register(PrebuiltSource)
        yield session
        session.stop()


@pytest.fixture(scope="module")
def bench_topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of a 16 B key and a 100 B value, uncompressed, in batches of 64 KB."""
    directory = tmp_path_factory.mktemp("bench")
    chunk = scaled(100_000, 1_000)
    for number in range(PARTITIONS):
        with kafkalog.Log(directory / f"bench-{number}") as log:
            for at in range(0, RECORDS, chunk):
                rows = range(at, at + chunk)
                log.append_many(
                    [b"%0100d" % i for i in rows],
                    keys=[b"%016d" % i for i in rows],
                    batch_bytes=64 << 10,
                )
    return directory


def count(df: Any) -> None:
    assert df.count() == PARTITIONS * RECORDS


def noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "action"), [("all", count), ("all", noop), ("value,offset", noop)]
)
def test_share_of_the_ceiling(
    measure: Any, spark: Any, bench_topic: Path, columns: str, action: Callable[[Any], None]
) -> None:
    """Records per second through Spark, beside what prebuilt batches reach."""
    chosen = {} if columns == "all" else {"columns": columns}
    topic = {"subscribe": "bench", "maxBytesPerPartition": "1g", "minPartitions": str(PARTITIONS)}

    def ours() -> Any:
        reader = spark.read.format("kafkalog").options(**chosen, **topic)
        return reader.load(str(bench_topic))

    def prebuilt() -> Any:
        return spark.read.format("prebuilt").options(**chosen).load(str(bench_topic))

    rows = PARTITIONS * RECORDS
    sides = [Side(OURS, rows, action, ours), Side(CEILING, rows, action, prebuilt)]
    work = f"Spark {action.__name__}, {columns.replace(',', ' and ')}"
    key = f"spark-{action.__name__}-{'all' if columns == 'all' else 'two'}"
    measure(key, work, sides, [Want(OURS, than=CEILING, factor=0.8)])
