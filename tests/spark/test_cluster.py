"""A standalone cluster of two workers whose Python lacks this package, so it is shipped."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import kafkalog
from tests.conftest import ROOT
from tests.spark.conftest import spark_environment, spark_home, write_topic
from tests.support.apache import free_port

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

WORKERS = 2
START_S = 120

DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

place, master, archive = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
builder = (
    SparkSession.builder.master(master).appName("kafkalog cluster")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.executor.memory", "512m")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", str(place / "warehouse"))
    .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "100s")
    .config("spark.cores.max", "2")
    .config("spark.archives", f"{archive}#shipped")
    .config("spark.executorEnv.PYTHONPATH", "shipped")
)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
source = (
    spark.read.format("kafkalog").option("subscribe", "orders").option("minPartitions", "8")
    .load(str(place / "in"))
)
print(source.count())
def where(batches):
    import os, kafkalog
    for batch in batches:
        yield batch.from_pydict({"worker": [os.getcwd()], "of": [kafkalog.__file__]})
seen = source.mapInArrow(where, "worker string, of string").distinct().collect()
print(len({row.worker for row in seen}), all("shipped" in row.of for row in seen))
out = str(place / "out")
source.selectExpr("key", "value").write.format("kafkalog").mode("append").option(
    "topic", "batch").save(out)
query = (
    spark.readStream.format("kafkalog").options(subscribe="orders", startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", 500).option("minPartitions", "4").load(str(place / "in"))
    .select("key", "value")
    .writeStream.format("kafkalog").option("topic", "stream")
    .option("checkpointLocation", str(place / "checkpoint"))
    .trigger(availableNow=True).start(out)
)
query.awaitTermination()
for topic in ("batch", "stream"):
    read = spark.read.format("kafkalog").option("subscribe", topic).load(out)
    print(topic, read.count(), read.select("value").distinct().count())
spark.stop()
"""


class Cluster(NamedTuple):
    master: str
    environment: dict[str, str]
    """The environment of drivers."""


@pytest.fixture(scope="module")
def cluster(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one slot each."""
    place = tmp_path_factory.mktemp("cluster")
    (place / "home").mkdir()
    home = spark_home(place / "home")
    environment = {**os.environ, **spark_environment()}
    environment.update(SPARK_HOME=str(home), SPARK_DAEMON_MEMORY="128m")
    # A Python with the libraries of this one, but without this package, which an editable
    # installation puts into every other; drivers find it by their PYTHONPATH.
    python = place / "python"
    libraries = Path(pa.__file__).parents[1]
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    environment.update(PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=str(python))
    bare = {**environment, "PYTHONPATH": ""}
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    running: list[subprocess.Popen[str]] = []

    def start(name: str, *words: str) -> None:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        output = place / f"{len(running)}.out"
        with output.open("w") as file:
            running.append(subprocess.Popen(command, env=bare, cwd=place, stdout=file, stderr=file))

    try:
        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for number in range(WORKERS):
            start(
                # Spark starts no second attempt of a task on the host that has the first.
                "worker.Worker", "--host", f"127.0.0.{1 + number}", "-c", "1", "-m", "600m",
                "--webui-port", "0", "-d", str(place / f"work{number}"), master,
            )  # fmt: skip
        yield Cluster(master, environment)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(START_S)


def drive(cluster: Cluster, place: Path, archive: str, driver: str = DRIVER) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", driver, str(place), cluster.master, archive],
        cwd=place, env=cluster.environment, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_batch_and_stream_with_the_package_shipped(cluster: Cluster, tmp_path: Path) -> None:
    """As an archive, since a zip of Python files cannot have the C core."""
    write_topic(tmp_path / "in", "orders", 2, 1000)
    archive = tmp_path / "package.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(Path(kafkalog.__file__).parent, "kafkalog", filter=_plain)
        tar.add(ROOT / "spark_connector" / "pyspark_kafkalog", "pyspark_kafkalog", filter=_plain)
    assert drive(cluster, tmp_path, str(archive)) == [
        "2000", "2 True", "batch 2000 2000", "stream 2000 2000",
    ]  # fmt: skip


UNSHIPPED = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master(sys.argv[2]).appName("kafkalog unshipped")
    .config("spark.ui.enabled", "false").config("spark.executor.memory", "512m")
    .config("spark.cores.max", "2").config("spark.task.maxFailures", "1").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
source = spark.read.format("kafkalog").option("subscribe", "orders").load(sys.argv[1] + "/in")
try:
    source.count()
except Exception as problem:
    print(problem)
"""


def test_executors_without_the_package_say_so(cluster: Cluster, tmp_path: Path) -> None:
    """With the message that docs/spark.md quotes."""
    write_topic(tmp_path / "in", "orders", 1, 10)
    # Spark passes on the driver's PYTHONPATH: here one that is valid only for the driver.
    (tmp_path / "mine").mkdir()
    for package in (ROOT / "kafkalog", ROOT / "spark_connector" / "pyspark_kafkalog"):
        (tmp_path / "mine" / package.name).symlink_to(package)
    there = Cluster(cluster.master, {**cluster.environment, "PYTHONPATH": "mine"})
    said = "\n".join(drive(there, tmp_path, "", UNSHIPPED))
    assert "ModuleNotFoundError: No module named 'pyspark_kafkalog'" in said, said


ENDINGS = {
    "killed": [
        "read 2000 2000 False",
        "batch-before 2000 2000 False", "stream-before 2000 2000 False",
        "batch-within 2000 2000 False", "stream-within 2000 2000 False",
    ],
    "reported": ["reported 2000 2000"],
    "speculative": ["speculative-batch 2000 2000 True", "speculative-stream 2000 2000 True"],
}  # fmt: skip
"""The output of the programs in executors.py."""


@pytest.mark.parametrize("program", ENDINGS)
def test_executors_that_die_or_are_slow(cluster: Cluster, tmp_path: Path, program: str) -> None:
    """Spark runs their tasks again.  Each row is there once, no transaction stays open, and nothing
    stays staged."""
    write_topic(tmp_path / "in", "orders", 2, 1000)
    driver = f"from tests.spark.executors import {program}; {program}()"
    assert drive(cluster, tmp_path, "", driver) == ENDINGS[program]
    assert not (tmp_path / "out.staging").exists()
    with kafkalog.Store(tmp_path / "out") as store:
        logs = [log for topic in store.topics for log in store[topic]]
        assert all(log.last_stable_offset == log.end_offset > 0 for log in logs)


def _plain(one: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Only installed files: no sources of the C core, nothing that Python caches."""
    built = "__pycache__" in one.name or one.name.endswith((".c", ".h", ".o"))
    return None if built else one
