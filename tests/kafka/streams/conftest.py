"""Apache Kafka, which proves the tests right, or our broker, for applications of Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka.clients import programs, servers
from tests.kafka.clients.conftest import Admin
from tests.kafka.streams.application import Application

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.task.offset.interval.ms": "1000",
    "group.streams.task.offset.interval.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[servers.Server]:
    """A broker for one test, which may kill it; its parameter is the kind and, for the word count,
    the protocol of the group."""
    side, _protocol = request.param
    settings = {**SETTINGS}
    if side == "kafkalog":
        settings["kafkalog.durability"] = "fsync"
    try:
        with servers.SIDES[side](tmp_path / "data", settings) as made:
            yield made
    except servers.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def admin(broker: servers.Server, wait_until: Callable[..., None]) -> Admin:
    wait_until(broker.answers, "the broker takes connections", 180)
    made = Admin(broker.bootstrap)
    made.until_ready()
    return made


@pytest.fixture
def started(broker: servers.Server, tmp_path: Path) -> Iterator[Callable[..., Application]]:
    """`started(kind, protocol, port=0)`: a running instance, which is killed at the end."""
    with ExitStack() as running:
        count = 0

        def start(kind: str, protocol: dict[str, str], port: int = 0) -> Application:
            nonlocal count
            count += 1
            folder = tmp_path / f"instance{count}"
            made = Application(kind, broker.bootstrap, folder, protocol, port)
            try:
                made.start()
            except programs.Unavailable as reason:
                pytest.skip(str(reason))
            running.callback(made.kill)
            return made

        yield start
