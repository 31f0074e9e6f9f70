"""Flights through Structured Streaming, from topic to topic, exactly once: the whole program.

    python examples/pipeline/pipeline.py [--dir DIR] [--days N]

Ingests the flights that left New York in 2013 into a topic, counts and averages them by airport and
day in Spark with event-time windows and a watermark, writes each day to a sink topic, is killed
with `kill -9` in the middle, continues, and reads the result back as a table and a picture.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import days
import picture
import query
from flights import source, tour

HERE = Path(__file__).resolve().parent
MICRO_BATCHES_BEFORE_KILL = 3
MICRO_BATCHES_BEFORE_STOP = 1
PATIENCE_S = 600


def run(folder: Path, flights: Sequence[Any], offsets: int = query.OFFSETS_PER_TRIGGER) -> Path:
    """Run everything in an empty `folder`; returns the picture.

    Raises: tour.Failed when the result is not what Python finds in the input.
    """
    data, checkpoint = _begin(folder, flights)
    words = [sys.executable, str(HERE / "query.py"), str(data), str(checkpoint), str(offsets)]
    done = _run_and_kill(words, folder, checkpoint)
    tour.say(f"kill -9 of the driver and its workers after {done} micro-batches; started again")
    _run_to_the_end(words, folder)
    return _judge(folder, flights, done)


def run_in(spark: Any, folder: Path, flights: Sequence[Any], offsets: int) -> Path:
    """As `run`, in a running session; the query is stopped in the middle, not killed."""
    data, checkpoint = _begin(folder, flights)
    first = query.start(spark, data, checkpoint, offsets)
    _wait_for_batches(checkpoint, MICRO_BATCHES_BEFORE_STOP, lambda: first.isActive)
    first.stop()
    done = _batches(checkpoint)
    tour.say(f"stopped after {done} micro-batch{'es' * (done > 1)}; started again")
    query.start(spark, data, checkpoint, offsets).awaitTermination()
    return _judge(folder, flights, done)


def _begin(folder: Path, flights: Sequence[Any]) -> tuple[Path, Path]:
    """The data directory with the input, and the place of the checkpoint."""
    data = folder / "data"
    days.ingest(data, flights)
    tour.say(f"{len(flights):,} flights in the topic {query.SOURCE}, a partition for each airport")
    tour.code(
        'spark.readStream.format("kafkalog").option("maxOffsetsPerTrigger", ...).load(data)\n'
        '     .withWatermark("timestamp", "10 days")\n'
        '     .groupBy(window("timestamp", "1 day"), airport)\n'
        '     .agg(...).writeStream.format("kafkalog").option("topic", "days").start(data)'
    )
    return data, folder / "checkpoint"


def _judge(folder: Path, flights: Sequence[Any], done: int) -> Path:
    """Compare the result with the input, and draw it.  `done`: micro-batches before the break."""
    data, checkpoint = folder / "data", folder / "checkpoint"
    found, count = days.read_back(data)
    wanted = days.expected(flights)
    tour.check(_batches(checkpoint) > done, f"{_batches(checkpoint)} micro-batches in all")
    tour.check(
        count == len(found), f"{count} records in the topic {query.SINK}, none of them twice"
    )
    tour.check(found == wanted, "counts and delays are those that Python finds in the input")
    _show(found)
    path = folder / "days.svg"
    path.write_text(picture.draw(found), encoding="utf-8")
    tour.say(f"drawn: {path}")
    return path


def _start(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "spark.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)


def _batches(checkpoint: Path) -> int:
    """The number of finished micro-batches."""
    return len(list(checkpoint.glob("commits/[0-9]*")))


def _wait_for_batches(checkpoint: Path, wanted: int, runs: Callable[[], bool]) -> None:
    """Raises: tour.Failed when the query ends earlier, or takes too long."""
    ends = time.monotonic() + PATIENCE_S
    while _batches(checkpoint) < wanted:
        if not runs() or time.monotonic() > ends:
            raise tour.Failed(f"Spark ended before {wanted} micro-batches")
        time.sleep(0.01)


def _run_and_kill(words: list[str], folder: Path, checkpoint: Path) -> int:
    child = _start(words, folder)
    try:
        _wait_for_batches(checkpoint, MICRO_BATCHES_BEFORE_KILL, lambda: child.poll() is None)
    except tour.Failed:
        raise _failed(folder) from None
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # the JVM and Spark's workers, too
        child.wait()
    return _batches(checkpoint)


def _run_to_the_end(words: list[str], folder: Path) -> None:
    child = _start(words, folder)
    try:
        if child.wait(PATIENCE_S):
            raise _failed(folder)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _failed(folder: Path) -> SystemExit:
    told = (folder / "spark.log").read_text(errors="replace")[-3000:]
    return SystemExit(f"Spark ended too early:\n{told}")


def _show(found: days.Days) -> None:
    """The worst days."""
    worst = sorted(found.items(), key=lambda one: one[1].mean or 0.0, reverse=True)[:5]
    tour.say("the days of the largest delays")
    tour.table(
        ["airport", "day", "planned", "departed", "mean delay"],
        [
            [airport, str(day), str(one.planned), str(one.departed), f"{one.mean or 0:.0f} min"]
            for (airport, day), one in worst
        ],
        left=2,
    )


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("pipeline-data"), metavar="DIR")
    parser.add_argument("--days", type=int, default=365, help="of the year, from 1 January on")
    parser.add_argument("--offsets", type=int, default=query.OFFSETS_PER_TRIGGER, metavar="N")
    args = parser.parse_args()
    folder = args.dir.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / "data").exists():
        parser.error(f"{folder} is not empty and not made by this program: it will not be replaced")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    flights = source.read_flights()
    until_ms = flights[0].timestamp_ms + args.days * days.DAY_MS
    run(folder, [flight for flight in flights if flight.timestamp_ms < until_ms], args.offsets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
