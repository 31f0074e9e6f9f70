"""Start, memory, many partitions, topics one by one.

Start: from nothing running on a formatted directory to the first acknowledged record, sent by a
bare socket that retries every millisecond.  Memory is resident memory of the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import programs
from benchmarks.broker.brokers import KAFKA, OURS, Kafka, Ours, Served, brokers
from benchmarks.broker.wire import Connection, create_topic, frame
from benchmarks.measure import Part, Side, Want, scaled
from benchmarks.rivals import kafka_broker
from kafkalog.wire import apis
from tests.support.apache import free_port
from tests.support.batches import Row, batch

TOPIC = "first"
IN_PROCESS = "kafkalog, in process"
SPREAD = (1, 100, 1_000, 10_000)
SPREAD_KAFKA = (1, 100, 1_000)
SPREAD_BYTES, SPREAD_SIZE, SPREAD_PIECE = 64_000_000, 1000, 20
TOPICS = 1_000


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[dict[str, Served]]:
    """For all rows but those of memory: a JVM stays warm from one to the next."""
    with brokers(module_folder, [OURS, KAFKA]) as made:
        yield made


@pytest.fixture
def fresh(folder: Path) -> Iterator[dict[str, Served]]:
    """Brokers that have served nothing yet."""
    with brokers(folder, [OURS, KAFKA]) as made:
        yield made


# ---- start ----------------------------------------------------------------------------------


def produce_frame(topic: str) -> bytes:
    part = {"index": 0, "records": batch([Row(b"value")])}
    topics = [{"name": topic, "partition_data": [part]}]
    asked = {"transactional_id": None, "acks": 1, "timeout_ms": 30_000, "topic_data": topics}
    return frame("PRODUCE", 7, asked)


def until_acknowledged(bootstrap: str, request: bytes) -> None:
    """Connect and produce, again and again, until a record is acknowledged."""
    deadline, pause = time.monotonic() + 60, threading.Event()
    while True:
        try:
            with Connection(bootstrap) as connection:
                connection.socket.sendall(request)
                answer = apis.PRODUCE.decode_response(7, connection.read()[4:])
                if not answer.responses[0].partition_responses[0].error_code:
                    return
        except (OSError, EOFError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("no acknowledged record within a minute")
        pause.wait(0.001)


def test_start(measure: Any, folder: Path) -> None:
    request = produce_frame(TOPIC)
    made: list[Ours | Kafka] = [Ours(folder / "ours")]
    if not kafka_broker.unavailable():
        made.append(Kafka(folder / "kafka" / "data"))
    for broker in made:  # directories that are formatted and have the topic
        with broker:
            create_topic(broker.bootstrap, TOPIC, 1, {})
            until_acknowledged(broker.bootstrap, request)

    def from_nothing(broker: Ours | Kafka) -> Callable[[], object]:
        def run() -> object:
            broker.launch()
            until_acknowledged(broker.bootstrap, request)
            return None

        return run

    def in_process() -> Side:
        directory, port = folder / "within", free_port()
        address = f"127.0.0.1:{port}"
        running: list[Any] = []

        def run() -> object:
            from kafkalog.server.broker import Broker

            running.append(Broker(directory, listeners=f"PLAINTEXT://{address}"))
            running[-1].__enter__()
            until_acknowledged(address, request)
            return None

        def stop(_: object = None) -> None:
            running.pop().__exit__(None, None, None)

        from kafkalog.server.broker import Broker

        with Broker(directory, listeners=f"PLAINTEXT://{address}"):
            create_topic(address, TOPIC, 1, {})
            until_acknowledged(address, request)
        return Side(IN_PROCESS, 1, lambda _: run(), setup=lambda: 1, done=stop)

    names = {id(made[0]): OURS, id(made[-1]): KAFKA if len(made) > 1 else OURS}
    sides = [in_process()] + [
        Side(
            names[id(broker)], 1, lambda _, b=broker: from_nothing(b)(), setup=lambda: 1,
            done=lambda _, b=broker: b.stop(),
        )
        for broker in made
    ]  # fmt: skip
    measure(
        "life-start", "Start to the first acknowledged record", sides,
        [Want(IN_PROCESS, 0.010), Want(OURS, 0.150)], unit="s",
        cold="A start is not warmed: each is that of a new process, as users have it.",
    )  # fmt: skip


class Fresh:
    """An empty directory, and a test's broker over it once it has begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broker: Any = None

    def begin(self) -> None:
        from kafkalog.testing.broker import TestBroker

        self.broker = TestBroker(self.path)

    def end(self) -> None:
        self.broker.close()


def test_a_tests_broker(measure: Any, folder: Path) -> None:
    """Where the plugin puts its data, and on a disk."""
    from kafkalog.testing.place import Place

    number = iter(range(1000))
    in_memory, on_disk = f"{IN_PROCESS}, as the fixtures have it", f"{IN_PROCESS}, on disk"

    def side(name: str, disk: bool) -> Side:
        def fresh() -> Fresh:
            return Fresh(Path(Place(folder / f"fresh-{next(number)}", on_disk=disk).path))

        return Side(name, 1, Fresh.begin, setup=fresh, done=Fresh.end)

    sides = [side(in_memory, False), side(on_disk, True)]
    work = "A test's broker, from an empty directory to its address"
    wants = [Want(in_memory, 0.010), Want(on_disk, 0.010)]
    measure("life-test", work, sides, wants, unit="s", jvm=False)


# ---- memory ---------------------------------------------------------------------------------


def test_memory(measure_together: Any, fresh: dict[str, Served]) -> None:
    count = scaled(1000, 20)
    idle = {name: broker.memory_bytes() for name, broker in fresh.items()}
    with ExitStack() as connections:
        for broker in fresh.values():
            topic = broker.new_topic(count)
            programs.load("produce", broker.bootstrap, topic, count, 100, count, 1, piece=1)
            for _ in range(count):
                connection = connections.enter_context(Connection(broker.bootstrap))
                connection.ask("API_VERSIONS", 0, {})
        parts = [
            Part("life-idle", "Idle, resident memory", "B", [Want(OURS, 60e6)]),
            Part(
                "life-1000", "1,000 partitions and 1,000 idle connections, resident memory", "B",
                [Want(OURS, 120e6)],
            ),
        ]  # fmt: skip
        sides = {
            name: lambda n=name, b=broker: {
                "life-idle": idle[n], "life-1000": b.memory_bytes(),
            }
            for name, broker in fresh.items()
        }  # fmt: skip
        cold = "Memory is that of brokers that have just started, and warm-up would change it."
        measure_together(parts, sides, rounds=3, cold=cold)


# ---- many partitions ------------------------------------------------------------------------


def test_many_partitions(measure_together: Any, running: dict[str, Served]) -> None:
    key, count = "spread", scaled(SPREAD_BYTES // SPREAD_SIZE, 2000)

    def side(broker: Served, partitions: int) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            topic = broker.new_topic(partitions)
            found = programs.load(
                "produce", broker.bootstrap, topic, count, SPREAD_SIZE, partitions, 1, acks=1,
                piece=SPREAD_PIECE,
            )  # fmt: skip
            broker.drop_topic(topic)
            return {key: count * SPREAD_SIZE / found["seconds"]}

        return once

    sides = {
        f"{name}, {partitions:,}": side(broker, partitions)
        for name, broker in running.items()
        for partitions in (SPREAD if name == OURS else SPREAD_KAFKA)
        if partitions <= scaled(10_000, 100)
    }
    wants = [
        Want(f"{OURS}, {partitions:,}", than=f"{OURS}, 1", factor=0.8) for partitions in SPREAD[1:]
    ]
    work = f"Partitions written in turn, {SPREAD_PIECE} records of {SPREAD_SIZE} B each time"
    parts = [Part(key, work, "B/s", wants)]
    measure_together(parts, sides, rounds=3, jvm=True, writes=count * SPREAD_SIZE)


# ---- topics one by one ----------------------------------------------------------------------


class Topics:
    """Topics of one partition that one client creates and deletes, each with its own request."""

    def __init__(self, bootstrap: str, prefix: str, count: int) -> None:
        self._connection = Connection(bootstrap)
        self._names = [f"{prefix}-{number}" for number in range(count)]

    def create(self) -> None:
        for name in self._names:
            new = {"name": name, "num_partitions": 1, "replication_factor": 1,
                   "assignments": [], "configs": []}  # fmt: skip
            asked = {"topics": [new], "timeout_ms": 30_000, "validate_only": False}
            (made,) = self._connection.ask("CREATE_TOPICS", 4, asked).topics
            assert not made.error_code, made

    def delete(self) -> None:
        for name in self._names:
            asked = {"topic_names": [name], "timeout_ms": 30_000}
            (gone,) = self._connection.ask("DELETE_TOPICS", 3, asked).responses
            assert not gone.error_code, gone

    def close(self) -> None:
        self._connection.__exit__()


def made_topics(topics: Topics) -> Topics:
    """Create all of them."""
    topics.create()
    return topics


@pytest.mark.parametrize("what", ["made", "deleted"])
def test_topics_one_by_one(measure: Any, running: dict[str, Served], what: str) -> None:
    """A program that creates a topic for each of its tenants, and deletes them again."""
    number = iter(range(10_000))

    def side(name: str, broker: Served) -> Side:
        count = scaled(TOPICS if name == OURS else TOPICS // 10, 10)

        def topics() -> Topics:
            return Topics(broker.bootstrap, f"tenant-{next(number)}", count)

        def end(topics: Topics) -> None:
            topics.delete()
            topics.close()

        if what == "made":
            return Side(name, count, Topics.create, setup=topics, done=end)
        return Side(
            name, count, Topics.delete, setup=lambda: made_topics(topics()), done=Topics.close
        )

    sides = [side(name, broker) for name, broker in running.items()]
    work = f"Topics {what} one by one, {TOPICS:,} of them (Kafka: {TOPICS // 10:,})"
    wants = [Want(OURS, 500), Want(OURS, than=KAFKA, factor=1)]
    measure(f"topics-{what}", work, sides, wants, jvm=True)
