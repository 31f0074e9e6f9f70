"""The data source in a real Spark session, compared with what Kafka's own consumer read."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import IntegerType, StructField, StructType
from pyspark_kafkalog.source import KafkalogSource

import kafkalog
from kafkalog.testing.broker import TestBroker
from tests.conftest import ROOT
from tests.spark.conftest import START_MS, spark_environment, write_topic
from tests.support import kafka_data
from tests.support.answers import TIMESTAMP_TYPES

pytestmark = pytest.mark.spark

Load = Callable[..., Any]
ALL = {"subscribePattern": ".*", "includeHeaders": "true"}
UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def as_expected(df: Any) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """The rows of a read in the form of the expected files, by topic-partition."""
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    # Python's datetime ends in the year 9999; the long does not.
    exact = df.selectExpr("*", "unix_millis(timestamp) as ms").drop("timestamp")
    for row in exact.collect():
        found.setdefault((row.topic, row.partition), []).append(
            (
                row.offset,
                row.ms,
                TIMESTAMP_TYPES[row.timestampType],
                None if row.key is None else bytes(row.key),
                None if row.value is None else bytes(row.value),
                tuple(
                    (header.key, None if header.value is None else bytes(header.value))
                    for header in row.headers or ()
                ),
            )
        )
    return found


def expected(directory: Path, committed: bool) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """The records that Kafka's consumer read from ordinary topics, without the leader epoch."""
    answers = {}
    for partition in kafka_data.partitions():
        if partition.directory == directory and not partition.topic.startswith("__"):
            records = kafka_data.expected_records(partition, committed)
            if records:
                key = (partition.topic, partition.number)
                answers[key] = [tuple(record[:-1]) for record in records]
    return answers


def directories() -> list[Any]:
    """The clean data directories of message format 2, as parameters."""
    names = {(p.case, p.directory) for p in kafka_data.readable() if p.case not in BROKER_ONLY}
    return [pytest.param(path, id=f"{case}-{path.name}") for case, path in sorted(names)]


BROKER_ONLY = {"groups-3.9", "groups-4.1", "kraft"}
"""Cases about internal topics, which a pattern does not match."""


@pytest.mark.parametrize("directory", directories())
def test_committed_records_equal_those_of_kafkas_consumer(load: Load, directory: Path):
    assert as_expected(load(directory, **ALL)) == expected(directory, committed=True)


@pytest.mark.parametrize("directory", [p for p in directories() if "transactions" in str(p.id)])
def test_uncommitted_records_when_asked_for(load: Load, directory: Path):
    found = as_expected(load(directory, **ALL, more=UNCOMMITTED))
    assert found == expected(directory, committed=False)
    assert found != expected(directory, committed=True)


def test_many_tasks_read_each_record_once(load: Load, topics: Path):
    df = load(topics, subscribe="orders", maxBytesPerPartition="16k")
    rows = df.selectExpr("partition", "offset", "spark_partition_id() task").collect()
    assert len({row.task for row in rows}) > 6
    wanted = [(number, offset) for number in range(3) for offset in range(1000)]
    assert sorted((row.partition, row.offset) for row in rows) == wanted


def test_limits_reach_the_source(load: Load, topics: Path):
    df = load(
        topics,
        assign='{"orders":[1]}',
        startingTimestamp=str(START_MS + 990_000),
        endingOffsets='{"orders":{"1":995}}',
    )
    assert [row.offset for row in df.orderBy("offset").collect()] == list(range(990, 995))


def test_a_users_schema_prunes_the_columns(load: Load, topics: Path):
    df = load(topics, schema="OFFSET long, value binary", subscribe="one")
    assert df.columns == ["OFFSET", "value"]
    assert [row.OFFSET for row in df.orderBy("offset").collect()] == list(range(50))
    assert load(topics, subscribe="one", columns="timestamp").dtypes == [("timestamp", "timestamp")]


def test_the_default_columns_are_those_of_sparks_kafka_source(load: Load, topics: Path):
    assert load(topics, subscribe="one").dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=["false", "true"])
def pushdown(spark: Any, request: pytest.FixtureRequest):
    """Spark pushes filters down to sources that take them; older versions never do."""
    spark.conf.set(PUSHDOWN, request.param)
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.usefixtures("pushdown")
def test_one_load_scanned_with_several_filters(load: Load, topics: Path):
    """Spark's pushed-down filters break this: the plan for one filter must not serve another."""
    df = load(topics, subscribe="orders")
    both = df.filter("partition = 0").union(df.filter("partition = 1"))
    assert Counter(row.partition for row in both.select("partition").collect()) == {
        0: 1000,
        1: 1000,
    }
    assert df.filter("partition = 2").count() == 1000
    assert df.count() == 3000


@pytest.mark.parametrize("pushdown", ["true"], indirect=True)
@pytest.mark.usefixtures("pushdown")
@pytest.mark.long
def test_a_source_that_takes_filters_returns_wrong_rows(spark: Any):
    """Why our source takes no filters, not even by an option: Spark plans a load() once, for the
    filter that comes first or last.  When this fails, a version of Spark has fixed it."""
    datasource = pytest.importorskip("pyspark.sql.datasource")
    equal = getattr(datasource, "EqualTo", None)
    if equal is None:
        pytest.skip("Spark before 4.1 pushes no filters down")

    class Reader(datasource.DataSourceReader):  # type: ignore[misc]
        only: int | None = None

        def pushFilters(self, filters: Any) -> Any:
            for one in filters:
                if isinstance(one, equal) and one.attribute == ("number",):
                    self.only = one.value
                yield one  # Spark filters every row again, which does not help

        def partitions(self) -> list[Any]:
            numbers = range(3) if self.only is None else [self.only]
            return [datasource.InputPartition(number) for number in numbers]

        def read(self, partition: Any) -> Any:
            yield (partition.value,)

    class Numbers(datasource.DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "number int"

        def reader(self, schema: Any) -> Any:
            return Reader()

    spark.dataSource.register(Numbers)
    assert spark.read.format("numbers").load().count() == 3
    df = spark.read.format("numbers").load()
    assert df.filter("number = 1").count() == 1
    assert df.count() == 1  # and not 3
    both = spark.read.format("numbers").load()
    rows = both.filter("number = 0").union(both.filter("number = 1")).collect()
    assert Counter(row.number for row in rows) != {0: 1, 1: 1}


def test_sql(spark: Any, topics: Path):
    spark.sql(
        f"CREATE TEMPORARY VIEW orders USING kafkalog OPTIONS (path '{topics}', subscribe 'orders')"
    )
    row = spark.sql("SELECT count(*) n, max(offset) m FROM orders WHERE key = X'36'").first()
    sixes = [i for i in range(1000) if i % 7 == 6]
    assert (row.n, row.m) == (3 * len(sixes), sixes[-1])
    spark.sql("DROP VIEW orders")


def test_a_table_needs_its_options_again(spark: Any, topics: Path):
    """Spark 4.3 passes them to a Python source when the table is created, not when it is read."""
    options = f"('path' = '{topics}', 'subscribe' = 'one')"
    spark.sql(f"CREATE TABLE one USING kafkalog OPTIONS {options}")
    try:
        assert spark.sql(f"SELECT count(*) n FROM one WITH {options}").first().n == 50
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) n FROM one").first()
    finally:
        spark.sql("DROP TABLE one")


def test_a_limit_stops_early_and_cleanly(load: Load, topics: Path):
    assert len(load(topics, subscribe="orders").take(5)) == 5


def test_a_folder_without_metadata_and_a_partitions_own(load: Load, topics: Path):
    assert not (topics / "meta.properties").exists()
    assert load(topics, subscribe="one").count() == 50
    df = load(topics / "orders-2", subscribe="orders")
    assert df.select("topic", "partition").distinct().collect() == [("orders", 2)]


def test_an_empty_topic_and_then_not(load: Load, tmp_path: Path):
    kafkalog.Log(tmp_path / "new-0").close()
    assert load(tmp_path, subscribePattern="n.*").count() == 0
    write_topic(tmp_path, "new", 2, 5)
    assert load(tmp_path, subscribePattern="n.*").count() == 10


def test_a_running_writer_is_no_obstacle(load: Load, tmp_path: Path):
    with kafkalog.Log(tmp_path / "live-0") as log:
        log.append_many([b"x"] * 100)
        assert load(tmp_path, subscribe="live").count() == 100
        log.append(b"y")
        assert load(tmp_path, subscribe="live").count() == 101


def test_brokers_in_the_place_of_a_path(spark: Any, tmp_path: Path):
    """Ported code changes only the name of the format."""
    with TestBroker(tmp_path) as broker, kafkalog.Producer(broker.bootstrap_servers) as producer:
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([("a", 2)]).check()
        for number in range(2):
            producer.send_many("a", [b"%d" % i for i in range(1000)], partition=number)
        producer.flush()
        reader = spark.read.format("kafkalog").options(
            **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "a"},
            maxRecordsPerPartition="300",
        )
        rows = reader.load().selectExpr("partition", "cast(cast(value as string) as int) v")
        found = {row.partition: row for row in rows.groupBy("partition").agg(
            {"v": "sum", "*": "count"}).collect()}  # fmt: skip
        assert {p: (row["sum(v)"], row["count(1)"]) for p, row in found.items()} == {
            0: (499_500, 1000),
            1: (499_500, 1000),
        }
        assert rows.rdd.getNumPartitions() == 8
    impatient = {"kafka.default.api.timeout.ms": "1", "fetchOffset.numRetries": "1"}
    with pytest.raises(PySparkException, match=r"the brokers at .*PeerGone"):
        reader.options(**impatient).load()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "ordres"}, "no topic 'ordres' here; did you mean 'orders'?"),
        ({"subscribe": "one", "startOffsets": "1"}, "did you mean 'startingOffsets'?"),
        ({}, "wanted one of subscribe, subscribePattern, assign"),
        ({"subscribe": "one", "startingOffsets": "latest"}, "wants 'earliest' here"),
    ],
)
def test_mistakes_are_readable(load: Load, topics: Path, options: dict[str, str], words: str):
    with pytest.raises(AnalysisException) as caught:
        load(topics, **options).count()
    assert words in str(caught.value)


def test_a_schema_of_other_types_is_refused(load: Load, topics: Path):
    with pytest.raises(AnalysisException, match="column 'value': found string, wanted binary"):
        load(topics, schema="value string", subscribe="one").count()


def test_old_message_formats_are_refused_by_name(load: Load, kafka_cases: Path):
    old = kafka_data.old_formats()[0]
    with pytest.raises(PySparkException, match=r"magic [01]"):
        load(old.directory, assign=f'{{"{old.topic}":[{old.number}]}}').count()


REGISTER = """
import sys
from pathlib import Path
import pyspark_kafkalog
from tests.spark.conftest import build_session

spark = build_session(Path(sys.argv[1], "warehouse"))
spark.sparkContext.setLogLevel("FATAL")
reader = spark.read.format("kafkalog").option("subscribe", "one")
try:
    reader.load(sys.argv[2])
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
pyspark_kafkalog.register(spark)
print(reader.load(sys.argv[2]).count())
"""


@pytest.mark.long
def test_registration_where_another_package_hides_the_source(
    java: str, topics: Path, tmp_path: Path
):
    """One `pyspark_*` package that cannot be imported makes Spark find none; register() helps."""
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('broken')\n")
    environment = spark_environment()
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", REGISTER, str(tmp_path), str(topics)],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.split() == ["True", "50"], done.stderr[-3000:]


def test_an_installed_package_is_found_by_listing_folders(tmp_path: Path):
    """PySpark lists folders, so an import hook (another kind of editable install) is no help."""
    try:
        importlib.metadata.distribution("kafkalog")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("kafkalog is not installed in this environment, it is only on the path")
    listed = "import pkgutil; print('pyspark_kafkalog' in [m.name for m in pkgutil.iter_modules()])"
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", listed],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "True", done.stderr


NOT_ACTIVATED = """
import sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from tests.spark.conftest import build_session
import pyspark_kafkalog

spark = build_session(Path(sys.argv[1], "warehouse"))
spark.sparkContext.setLogLevel("OFF")
try:
    pyspark_kafkalog.register(spark)
except ImportError as error:
    print(error)
else:
    reader = spark.read.format("kafkalog").option("subscribe", "one")
    print(reader.load(sys.argv[2]).count())
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_environment_that_is_not_activated(java: str, topics: Path, tmp_path: Path):
    """Its Python is called by its path, so Spark's `python3` is another one.  The error says which
    variable to set, and with that it works."""
    other = Path(getattr(sys, "_base_executable", sys.executable))
    if other == Path(sys.executable):
        pytest.skip("this Python is not in a virtual environment")
    try:
        importlib.metadata.distribution("kafkalog")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("kafkalog is not installed in this environment, it is only on the path")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "python3").symlink_to(other)
    unset = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: text for name, text in os.environ.items() if name not in unset}
    environment["PATH"] = os.pathsep.join([str(binaries), str(Path(java).parent), "/usr/bin:/bin"])
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"

    def run(**more: str) -> str:
        words = [str(tmp_path), str(topics), str(ROOT)]
        done = subprocess.run(
            [sys.executable, "-c", NOT_ACTIVATED, *words], cwd=tmp_path,
            env={**environment, **more}, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    said = run()
    assert f"Set PYSPARK_PYTHON={sys.executable}" in said
    assert str(binaries / "python3") in said
    assert run(PYSPARK_PYTHON=sys.executable).split()[-1] == "50"


def test_a_worker_of_another_environment_is_named(monkeypatch, tmp_path):
    """Spark then shows a trace of its Python; the cause is one variable."""
    import sys

    import pyspark_kafkalog

    class Refusing:
        class dataSource:
            @staticmethod
            def register(_source):
                raise RuntimeError("[DATA_SOURCE_NOT_FOUND] no module")

    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "bin" / "python3"))
    with pytest.raises(ImportError, match=f"Set PYSPARK_PYTHON={sys.executable}"):
        pyspark_kafkalog.register(Refusing)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with pytest.raises(RuntimeError, match="DATA_SOURCE_NOT_FOUND"):
        pyspark_kafkalog.register(Refusing)


class Told(KafkalogSource):
    """Its only column is named by the number of objects that a planner's collections skip."""

    @classmethod
    def name(cls) -> str:
        return "told"

    def schema(self) -> StructType:
        super().schema()
        return StructType([StructField(str(gc.get_freeze_count()), IntegerType())])


def test_a_session_settles_its_planners(spark: Any, tmp_path: Path) -> None:
    """Spark keeps a process for each kind of plan; this asks the one for schemas."""
    write_topic(tmp_path, "a", 1, 10)
    spark.dataSource.register(Told)
    reader = spark.read.format("told").option("subscribe", "a")
    told = [int(reader.load(str(tmp_path)).columns[0]) for _ in range(2)]
    assert told[-1] > 10_000
