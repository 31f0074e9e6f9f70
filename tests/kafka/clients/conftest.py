"""Real clients against a broker: ours, or Apache Kafka as the proof that the tests are right.

KAFKALOG_CLIENTS_AGAINST selects the broker: `kafkalog` (the default), `kafka` or `both`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.clients import programs, servers
from tests.kafka.clients.agent import Agent

AGAINST = os.environ.get("KAFKALOG_CLIENTS_AGAINST", "kafkalog")
SIDES = list(servers.SIDES) if AGAINST == "both" else [AGAINST]
HERE = f"{Path(__file__).parent}/"
START_S = 180
TEST_S = 300
"""The first test may compile a client; the limit does not measure the test itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


@pytest.fixture(scope="session", params=SIDES)
def side(request: pytest.FixtureRequest) -> str:
    """The kind of broker."""
    return str(request.param)


@pytest.fixture(scope="session")
def start_server(side: str) -> Callable[..., Any]:
    """`start_server(directory, settings)`: a server of that kind, a context manager."""

    @contextlib.contextmanager
    def start(directory: Path, settings: dict[str, str] | None = None) -> Iterator[Any]:
        made = servers.SIDES[side](directory, settings)
        try:
            with made:
                yield made
        except servers.Unavailable as reason:
            pytest.skip(str(reason))

    return start


@pytest.fixture(scope="session")
def server(
    start_server: Callable[..., Any],
    side: str,
    memory: Path,
    wait_until: Callable[..., None],
) -> Iterator[servers.Server]:
    """One broker for all tests; each uses its own topics and groups."""
    home = memory / f"server-{side}"
    home.mkdir()
    with start_server(home / "data") as made:
        wait_until(made.answers, "the broker takes connections", START_S)
        Admin(made.bootstrap).until_ready()
        yield made


@pytest.fixture
def own_broker(side: str, tmp_path: Path) -> Iterator[servers.Server]:
    """A broker for one test, which may kill it, with transactions; every response of acks=all is on
    disk."""
    settings = {
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.replication.factor": "1",
    }
    if side == "kafkalog":
        settings["kafkalog.durability"] = "fsync"
    try:
        with servers.SIDES[side](tmp_path / "data", settings) as made:
            yield made
    except servers.Unavailable as reason:
        pytest.skip(str(reason))


class Admin:
    """confluent-kafka's admin client, as far as tests need it to set up."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.client = AdminClient({"bootstrap.servers": bootstrap})

    def until_ready(self) -> None:
        self.client.list_topics(timeout=60)

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, partitions, 1, config=settings)
        for future in self.client.create_topics([new]).values():
            future.result(30)
        while len(self.partitions(topic)) < partitions:
            pass  # Kafka's metadata is updated a little after the answer

    def partitions(self, topic: str) -> list[int]:
        return list(self.client.list_topics(topic, timeout=30).topics[topic].partitions)


@pytest.fixture(scope="session")
def admin(server: servers.Server) -> Admin:
    return Admin(server.bootstrap)


_numbers = itertools.count()


@pytest.fixture(scope="session")
def new_topic(admin: Admin) -> Callable[..., str]:
    """`new_topic(partitions=1, name="topic", **settings)`: a new topic's name."""

    def make(partitions: int = 1, name: str = "topic", **settings: str) -> str:
        topic = f"{name}-{next(_numbers)}"
        admin.create(topic, partitions, {k.replace("_", "."): v for k, v in settings.items()})
        return topic

    return make


@pytest.fixture
def new_group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture(scope="session")
def agent(
    server: servers.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Agent]]:
    """`agent(name)`: the running agent of a client, shared by all tests that do not end it."""
    running: dict[str, Agent] = {}
    errors = tmp_path_factory.mktemp("agents")
    with contextlib.ExitStack() as ending:

        def get(name: str) -> Agent:
            if name not in running:
                made = begun(name, server.bootstrap, errors / f"{name}.err")
                running[name] = ending.enter_context(made)
            return running[name]

        yield get


@pytest.fixture
def new_agent(server: servers.Server, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """`new_agent(name, bootstrap=None)`: an agent for one test, which may kill it."""
    with contextlib.ExitStack() as running:

        def start(name: str, bootstrap: str | None = None) -> Agent:
            errors = tmp_path / f"{name}-{next(_numbers)}.err"
            return running.enter_context(begun(name, bootstrap or server.bootstrap, errors))

        yield start


def begun(name: str, bootstrap: str, errors: Path) -> Agent:
    try:
        command, archive = programs.command(name), programs.archive(name)
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
    return Agent(name, command, bootstrap, errors, archive)


@pytest.fixture(params=programs.CLIENTS)
def client(request: pytest.FixtureRequest, agent: Callable[[str], Agent]) -> Agent:
    """Each client in turn."""
    return agent(str(request.param))
