"""A year of flights through the log: `make demo`; `make demo-full` with the whole pipeline.

Writes a data directory (default `demo-data` here, recreated each time), and shows what
one does with a log: append, look, find, count, crash, serve, move in transactions, test, lose a
node of three, analyse and stream with Spark, delete, dump, verify, draw.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import crash
import delays
import exactly_once
import failover
import layout
import served
import sparks
import steps
import stream
import tested
import workers
from source import Flight, read_flights
from tour import Failed, Tour, say


def run(directory: Path, full: bool = False, no_spark: bool = False) -> None:
    """All steps, in order.  `full`: Spark's driver is killed in the middle of a stream, too."""
    tour = Tour()
    with ExitStack() as undo:
        none = "as --no-spark says" if no_spark else sparks.why_none()
        session = none or undo.enter_context(sparks.Session())
        flights = first_steps(tour, directory)
        with_clients(tour, directory, flights)
        with_spark(tour, directory, flights, session, full)  # which has started in the meantime
    last_steps(tour, directory)


def first_steps(tour: Tour, directory: Path) -> list[Flight]:
    """A directory with all flights, as one program uses it; the flights."""
    with tour.step("Read the input: every flight that left New York in 2013"):
        flights = read_flights()
        parted = steps.by_partition(flights)
        say(f"{len(flights):,} flights, in order of scheduled departure, keyed by carrier")
    with layout.open_directory(directory) as manager:
        with tour.step(f"Write them: topic {layout.TOPIC}, {layout.PARTITIONS} partitions, zstd"):
            steps.write(manager, parted)
        with tour.step("Look at what is on disk"):
            steps.show(manager, parted)
        with tour.step("Draw it"):
            steps.picture(manager, directory / "flights.svg", "flights, the year 2013")
        with tour.step("Find by time: the first flight of 4 July"):
            steps.find(manager, flights)
        with tour.step("Columns into Arrow: departures by hour of the day"):
            steps.departures(manager)
    # One process owns a directory at a time: the next writer is another process.
    with tour.step("Kill -9 a writer in the middle, and recover"):
        crash.kill_and_recover(directory, parted)
    return flights


def with_clients(tour: Tour, directory: Path, flights: list[Flight]) -> None:
    """Served, and replicated."""
    with tour.step("Serve it: an unmodified Kafka client reads, writes, joins a group"):
        served.by_a_kafka_client(directory, flights)
    with tour.step("A transaction: read, transform, write, commit; aborted once"):
        exactly_once.consume_transform_produce(directory, flights[:10_000])
    with tour.step("A work queue: workers share one partition, one goes away with its jobs"):
        workers.share_the_work(directory, flights[:1000])
    with tour.step("Test your own program: a broker for each test"):
        tested.with_a_broker_each()
    with tour.step("Three nodes: kill -9 the one that leads, under load"):
        failover.a_leader_is_killed(directory / "failover.svg")


def with_spark(
    tour: Tour, directory: Path, flights: list[Flight], session: sparks.Session | str, full: bool
) -> None:
    """The steps that need Java.  `session`: the session, or why there is none."""
    if isinstance(session, str):
        with tour.step("Spark"):
            say(f"skipped: {session}")
        return
    with tour.step("Spark over the same directory: delay by carrier and month"):
        delays.by_carrier_and_month(session, directory)
    with tour.step("Stream it: Spark from topic to topic, exactly once, stopped in the middle"):
        stream.a_month(session, directory, flights)
    if full:
        with tour.step("Stream three months, with kill -9 of Spark's driver in the middle"):
            stream.a_quarter_of_the_year(directory, flights)


def last_steps(tour: Tour, directory: Path) -> None:
    """Delete half of it, and look at it again."""
    with layout.open_directory(directory) as manager:
        with tour.step("Delete the first half of the year"):
            steps.delete_half(manager)
        with tour.step("Draw what is left"):
            steps.picture(manager, directory / "flights-from-july.svg", "flights, from July on")
    with tour.step("Dump a batch, as Kafka's own tool would"):
        steps.dump(directory)
    with tour.step("Verify: batches, checksums, indexes"):
        steps.verify(directory)
    tour.finish()


def main() -> int:
    """Parse the arguments and run; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("demo-data"), metavar="DIR")
    parser.add_argument("--full", action="store_true", help="the whole pipeline, killed, too")
    parser.add_argument("--no-spark", action="store_true", help="without the steps on Spark")
    arguments = parser.parse_args()
    directory = arguments.dir.absolute()
    if (
        directory.exists()
        and not (directory / "meta.properties").exists()
        and any(directory.iterdir())
    ):
        parser.error(f"{directory} is not empty and not a data directory: it will not be replaced")
    shutil.rmtree(directory, ignore_errors=True)
    try:
        run(directory, arguments.full, arguments.no_spark)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
