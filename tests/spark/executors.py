"""Work for a cluster whose executors are killed or slow: programs for drivers.

Each prints a line for each job: its name, the number of rows, the number of different rows, and
whether a flag exists.  `python -c "from tests.spark.executors import killed; killed()"`, with a
folder and the master's address.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.spark.cutting import _java
from tests.support import waiting

ROWS = 2000
WAIT_S = 200
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "key binary, value binary"


def session(**conf: str) -> tuple[Any, Path]:
    """A session with an executor on each of the two workers, and the folder to work in."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(sys.argv[2]).appName("kafkalog executors")
    given = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m", "spark.cores.max": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
        "spark.driver.extraJavaOptions": QUICK, "spark.executor.extraJavaOptions": QUICK,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], **conf,
    }  # fmt: skip
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark, Path(sys.argv[1])


def wait_for(what: Callable[[], Any]) -> Any:
    """The first true value of `what`."""
    return waiting.wait_for(what, str(what), WAIT_S, 0.02)


def dying(rows: Any, flag: Path, staging: Path | None) -> Any:
    """The rows, but the first task to take one kills its executor: before it hands on a row, or
    when the sink has staged some of them."""
    flag.touch()

    def kill(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            mine = False
            with suppress(FileNotFoundError):
                flag.unlink()
                mine = True
            while mine and staging and not any(p.stat().st_size for p in staging.rglob("*.log")):
                yield batch  # repeatedly: this attempt dies anyway
            if mine:
                os.kill(_java(), signal.SIGKILL)
            yield batch

    return rows.select("key", "value").mapInArrow(kill, SCHEMA)


def report(name: str, rows: Any, flag: Path | None = None) -> None:
    """`flag`: print whether it exists after the rows were read."""
    values = [row.value for row in rows.select("value").collect()]
    seen = [flag.exists()] if flag else []
    print(name, len(values), len(set(values)), *seen, flush=True)


def read(spark: Any, folder: Path, topic: str) -> Any:
    options = {"subscribe": topic, "maxBytesPerPartition": "20k"}
    return spark.read.format("kafkalog").options(**options).load(str(folder))


def write(rows: Any, out: Path, topic: str) -> None:
    rows.write.format("kafkalog").mode("append").option("topic", topic).save(str(out))


def stream(spark: Any, place: Path, topic: str, of: Callable[[Any], Any]) -> None:
    rows = spark.readStream.format("kafkalog").option("maxBytesPerPartition", "20k")
    rows = rows.options(subscribe="orders", startingOffsets="earliest").load(str(place / "in"))
    query = (
        of(rows).writeStream.format("kafkalog").option("topic", topic)
        .option("checkpointLocation", str(place / f"checkpoint-{topic}"))
        .trigger(availableNow=True).start(str(place / "out"))
    )  # fmt: skip
    query.awaitTermination()


def killed() -> None:
    """Kill executors that read and write."""
    spark, place = session()
    out, flag = place / "out", place / "flag"
    staging = place / "out.staging"
    report("read", dying(read(spark, place / "in", "orders"), flag, None), flag)
    for name, when in (("before", None), ("within", staging)):
        write(dying(read(spark, place / "in", "orders"), flag, when), out, f"batch-{name}")
        report(f"batch-{name}", read(spark, out, f"batch-{name}"), flag)
        stream(spark, place, f"stream-{name}", lambda rows, when=when: dying(rows, flag, when))
        report(f"stream-{name}", read(spark, out, f"stream-{name}"), flag)
    spark.stop()


def reported() -> None:
    """Kill an executor after its task has reported, and before the other task has."""
    spark, place = session()
    first, go = place / "first", place / "go"

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 0:
            (place / "first.new").write_text(str(_java()))
            (place / "first.new").rename(first)
        else:
            wait_for(go.exists)
        yield from batches

    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "cast(string(id % 7) as binary) key", "cast(string(id) as binary) value"
    )
    tracker = spark.sparkContext.statusTracker()

    def one_is_done() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage and stage.numCompletedTasks == 1 for stage in stages)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write_there, spark, rows.mapInArrow(wait, SCHEMA), place / "out")
        wait_for(one_is_done)
        executor = int(first.read_text())
        os.kill(executor, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{executor}").exists())
        go.touch()
        done.result()
    report("reported", read(spark, place / "out", "reported"))
    spark.stop()


def write_there(spark: Any, rows: Any, out: Path) -> None:
    """Write in a thread, where no session is active."""
    from pyspark_kafkalog import register

    register(spark)
    write(rows, out, "reported")


def speculative() -> None:
    """Let the first attempt of a task wait, after its first rows, until the batch is delivered."""
    spark, place = session(**{
        "spark.speculation": "true", "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.1", "spark.speculation.multiplier": "1",
    })  # fmt: skip
    for kind in ("batch", "stream"):
        slow, done = place / f"slow-{kind}", place / f"done-{kind}"

        def wait(batches: Iterator[Any], slow: Path = slow, done: Path = done) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            for batch in batches:
                yield batch
                if context.partitionId() == 0 and context.attemptNumber() == 0:
                    slow.touch()
                    wait_for(done.exists)

        def slowed(rows: Any, wait: Any = wait) -> Any:
            return rows.select("key", "value").mapInArrow(wait, SCHEMA)

        topic = f"speculative-{kind}"
        if kind == "batch":
            write(slowed(read(spark, place / "in", "orders")), place / "out", topic)
        else:
            stream(spark, place, topic, slowed)
        done.touch()
        report(topic, read(spark, place / "out", topic), slow)
    spark.stop()
