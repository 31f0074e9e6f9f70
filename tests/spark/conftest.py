"""Spark for its tests: one session for all of them, and logs to read."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.conftest import ROOT

START_MS = 1_735_689_600_000
"""The timestamp of the first record that a test writes: 2025-01-01 UTC."""


def spark_environment() -> dict[str, str]:
    """The environment in which Spark's Python workers find the packages of this checkout."""
    paths = [str(ROOT), str(ROOT / "spark_connector"), os.environ.get("PYTHONPATH", "")]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_home(folder: Path) -> Path:
    """The installed Spark, in `folder`, without its `pyspark.zip`.

    Spark puts that file first in the path of its Python processes.  It holds no compiled
    files, so each process would compile what it imports, for more than a second.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    for name in ("bin", "jars", "sbin"):
        (folder / name).symlink_to(installed / name)
    return folder


def build_session(warehouse: Path, master: str = "local[2]") -> Any:
    """A small session: two slots, no user interface, quick to start."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName("kafkalog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )


@pytest.fixture(scope="session")
def java() -> str:
    """The path of Java; skips without it."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        pytest.skip("Spark needs Java 17, and there is no java here")
    return found


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of this test run."""
    home = spark_home(tmp_path_factory.mktemp("spark"))
    environment = {"SPARK_HOME": str(home), **spark_environment()}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    session = build_session(tmp_path_factory.mktemp("warehouse"))
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def load(spark: Any) -> Callable[..., Any]:
    """`load(path, subscribe="a", ...)`: a DataFrame; `schema` and dotted names through `more`."""

    def load_path(path: Path, schema: str | None = None, more: Any = (), **options: str) -> Any:
        reader = spark.read.format("kafkalog").options(**dict(more), **options)
        return (reader.schema(schema) if schema else reader).load(str(path))

    return load_path


def write_topic(directory: Path, topic: str, partitions: int, records: int) -> None:
    """Partitions with `records` each, in segments of about 20 KB and batches of about 1 KB.

    Record i of partition p has value `p:i`, padded, key `i % 7` or none, and is i seconds
    after START_MS; every fifth has a header.
    """
    for number in range(partitions):
        config = {"segment.bytes": 20_000, "index.interval.bytes": 1_000}
        with kafkalog.Log(directory / f"{topic}-{number}", config=config) as log:
            rows = range(records)
            log.append_many(
                [f"{number}:{i}:".encode().ljust(60, b".") for i in rows],
                keys=[b"%d" % (i % 7) if i % 7 else None for i in rows],
                timestamps_ms=[START_MS + 1000 * i for i in rows],
                headers=[[("h", b"%d" % i)] if i % 5 == 0 else [] for i in rows],
                compression="zstd" if number % 2 else None,
                batch_bytes=1_000,
            )


@pytest.fixture(scope="session")
def topics(memory: Path) -> Path:
    """A plain folder (no meta.properties): `orders` with 3 partitions of 1000, `one` with 1."""
    directory = memory / "plain"
    directory.mkdir()
    write_topic(directory, "orders", 3, 1000)
    write_topic(directory, "one", 1, 50)
    return directory


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., None]:
    """`job(*tasks, ...)`: a batch write; each argument is a task's batches."""
    from pyspark_kafkalog.source import KafkalogSource

    from tests.spark.writing import SCHEMAS, again, ddl

    def run(*tasks: list[Any], schema: str = "value", **given: str) -> None:
        wanted = {"path": str(tmp_path / "data"), "topic": "t", **given}
        source = KafkalogSource({k.lower(): v for k, v in wanted.items() if v})
        writer = source.writer(ddl(SCHEMAS[schema]), False)
        messages = [again(again(writer).write(iter(some))) for some in tasks]
        again(writer).commit(messages)

    return run


@pytest.fixture
def micro(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A micro-batch of a stream up to its commit: `(writer, messages)`."""
    from pyspark import TaskContext
    from pyspark.sql import datasource
    from pyspark_kafkalog.source import KafkalogSource

    from tests.spark.writing import again, ddl

    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        pytest.skip("writing streams needs PySpark 4.1")

    def staged(
        number: int, *tasks: list[Any], query: str = "q1", below: str = "", **given: str
    ) -> Any:
        wanted = {"path": str(tmp_path / "data"), "topic": "t", **given}
        source = KafkalogSource({k.lower(): v for k, v in wanted.items() if v})
        writer = again(source.streamWriter(ddl("value binary"), False))
        context = TaskContext._getOrCreate()
        context._localProperties = {
            "sql.streaming.queryId": query, "streaming.sql.batchId": str(number),
            "spark.sql.streaming.checkpointLocation": below,
        }  # fmt: skip
        return writer, [again(writer.write(iter(some))) for some in tasks]

    yield staged
    TaskContext._taskContext = None
