"""Fixtures for pytest: a broker for each test, or one for all tests with a prefix for each.

Pytest loads it through its entry point; the fixtures import what is slow to load.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from kafkalog.store import Store
    from kafkalog.testing.broker import TestBroker
    from kafkalog.testing.cluster import TestCluster
    from kafkalog.testing.security import Security

__all__ = [
    "kafkalog_broker",
    "kafkalog_cluster",
    "kafkalog_config",
    "kafkalog_session_broker",
    "kafkalog_store",
    "kafkalog_topic_prefix",
]

T = TypeVar("T")

NAME_MAX = 60
"""Length of a test's name in its topics' names."""
TOPICS_TOLD = 3
MARKER = (
    "kafkalog(config, topics, zookeeper, security, users, acls, mechanism): settings of this "
    "test's kafkalog_broker or kafkalog_cluster by Kafka's names, which override kafkalog_config; "
    "its topics, by name, with their number of partitions; zookeeper=True: nodes on a model of "
    "ZooKeeper, not under a controller (KRaft); how clients of kafkalog_broker must connect "
    "(ssl, sasl_plaintext or sasl_ssl), the passwords of its users, and what they may do"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our options."""
    group = parser.getgroup("kafkalog")
    group.addoption(
        "--kafkalog-keep",
        action="store_true",
        help="keep the data directories of kafkalog's brokers, not only of tests that fail",
    )
    group.addoption(
        "--kafkalog-disk",
        action="store_true",
        help="keep the data of kafkalog's brokers below tmp_path from the start, not in memory",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Our marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep a broker's directory if its test failed, and report its path."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
        for broker in _brokers(item):
            broker.keep = True
            lines = _told(broker, _kept_at(item.config, broker.path))
            report.sections.append(("kafkalog broker", "\n".join(lines)))
        for cluster in _clusters(item):
            path = _kept_at(item.config, cluster.path)
            report.sections.append(("kafkalog cluster", "\n".join(_told_of(cluster, path))))
        for store in _stores(item):
            path = _kept_at(item.config, store.path)
            lines = iter((f"its directory is kept: {path}", *_commands(path, ())))
            report.sections.append(("kafkalog store", "\n".join(lines)))
    return report


def _brokers(item: pytest.Item) -> Sequence[TestBroker]:
    """The brokers among a test's fixtures."""
    loaded = sys.modules.get("kafkalog.testing.broker")
    return _among(item, loaded.TestBroker) if loaded else ()


def _clusters(item: pytest.Item) -> Sequence[TestCluster]:
    """The same, of clusters."""
    loaded = sys.modules.get("kafkalog.testing.cluster")
    return _among(item, loaded.TestCluster) if loaded else ()


def _stores(item: pytest.Item) -> Sequence[Store]:
    """The same, of stores."""
    loaded = sys.modules.get("kafkalog.store")
    return _among(item, loaded.Store) if loaded else ()


def _among(item: pytest.Item, kind: type[T]) -> list[T]:
    return [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, kind)]


def _kept_at(config: pytest.Config, path: str) -> str:
    """Where a directory that is still in use will be kept."""
    return config.stash.get(_PLACES, {}).get(path, path)


def _told(broker: TestBroker, path: str) -> Iterator[str]:
    yield f"a broker at {broker.bootstrap_servers}; its directory is kept:"
    topics: list[str] = []
    if broker.running:
        from kafkalog.server.broker import node_of

        topics = sorted(n for n in node_of(broker.broker).image.topics if not n.startswith("__"))
    yield from _commands(path, topics)
    for fault in broker.broker.faults.all if broker.running else ():
        yield f"still set: {fault!r}"


def _told_of(cluster: TestCluster, path: str) -> Iterator[str]:
    running = ", ".join(map(str, cluster.running)) or "none"
    yield f"a cluster at {cluster.bootstrap_servers}, running: {running}; it is kept:"
    for node, broker in cluster.nodes.items():
        yield from _commands(f"{path}/{os.path.basename(broker.path)}", ())
        for fault in broker.broker.faults.all if broker.running else ():
            yield f"still set at node {node}: {fault!r}"


def _commands(path: str, topics: Sequence[str]) -> Iterator[str]:
    """Commands that open a kept directory."""
    yield f"  kafkalog topics --dir {path}"
    for name in topics[:TOPICS_TOLD]:
        yield f"  kafkalog consume --dir {path} --topic {name}"
    if len(topics) > TOPICS_TOLD:
        yield f"  and {len(topics) - TOPICS_TOLD} more topics"


@pytest.fixture(scope="session")
def kafkalog_config() -> Mapping[str, object]:
    """Settings of all brokers, by Kafka's names: override it in a conftest.py."""
    return {}


@pytest.fixture
def kafkalog_broker(
    request: pytest.FixtureRequest, tmp_path: Path, kafkalog_config: Mapping[str, object]
) -> Iterator[TestBroker]:
    """A broker for this test, with its data in memory: see TestBroker.

    `@pytest.mark.kafkalog(config={...}, topics={"orders": 3})` gives it settings and topics, and
    `@pytest.mark.kafkalog(security="sasl_ssl", users={"alice": "secret"}, acls=[...])` security.
    """
    config, topics = _marked(request, kafkalog_config)
    security = _secured(request)
    yield from _serving(request, tmp_path / "kafkalog", config, topics, security)


@pytest.fixture
def kafkalog_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, kafkalog_config: Mapping[str, object]
) -> Iterator[TestCluster]:
    """Three nodes for this test, with their data in memory: see TestCluster.

    The same marker gives them settings, and topics with three replicas; with `zookeeper=True` they
    are on a model of ZooKeeper instead of under a controller (KRaft).
    """
    from kafkalog.testing.cluster import TestCluster

    config, topics = _marked(request, kafkalog_config)
    zookeeper = _on_zookeeper(request)
    with _place(request, tmp_path / "kafkalog-cluster") as (path, kept):
        with TestCluster(path, zookeeper or None, config=config) as cluster:
            for topic, partitions in topics.items():
                cluster.create_topic(topic, partitions)
            yield cluster
        kept(request.node.stash.get(_FAILED, False))


def _marked(
    request: pytest.FixtureRequest, config: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, int]]:
    """Settings and topics of a test."""
    settings, topics = dict(config), dict[str, int]()
    for marker in reversed(list(request.node.iter_markers("kafkalog"))):  # the nearest last
        settings.update(marker.kwargs.get("config") or {})
        topics.update(marker.kwargs.get("topics") or {})
    return settings, topics


def _on_zookeeper(request: pytest.FixtureRequest) -> bool:
    """True if a test's nodes are on a model of ZooKeeper; the nearest marker that says so or not
    decides."""
    for marker in request.node.iter_markers("kafkalog"):
        if "zookeeper" in marker.kwargs:
            return bool(marker.kwargs["zookeeper"])
    return False


def _secured(request: pytest.FixtureRequest) -> Security | None:
    """The security of a test's broker; the nearest marker that names one decides."""
    for marker in request.node.iter_markers("kafkalog"):
        if "security" in marker.kwargs:
            from kafkalog.testing.security import Security

            given = {name: marker.kwargs.get(name) for name in ("users", "acls")}
            mechanism = marker.kwargs.get("mechanism", "PLAIN")
            return Security(marker.kwargs["security"], **given, mechanism=mechanism)
    return None


@pytest.fixture
def kafkalog_store(
    request: pytest.FixtureRequest, tmp_path: Path, kafkalog_config: Mapping[str, object]
) -> Iterator[Store]:
    """The same without a port, for clients of this process: a kafkalog.Store for this test."""
    from kafkalog.store import Store
    from kafkalog.testing.broker import SETTINGS

    with _place(request, tmp_path / "kafkalog-store") as (path, kept):
        with Store(path, config={**SETTINGS, **kafkalog_config}) as store:
            yield store
        kept(request.node.stash.get(_FAILED, False))


@pytest.fixture(scope="session")
def kafkalog_session_broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafkalog_config: Mapping[str, object],
) -> Iterator[TestBroker]:
    """One broker for all tests, one per xdist process: see kafkalog_topic_prefix."""
    yield from _serving(request, tmp_path_factory.mktemp("kafkalog"), kafkalog_config, {})


@pytest.fixture
def kafkalog_topic_prefix(
    request: pytest.FixtureRequest, kafkalog_session_broker: TestBroker
) -> Iterator[str]:
    """The prefix of this test's topics and groups at kafkalog_session_broker.

    Afterwards its topics are deleted (unless it failed), the broker is healed, and its clock is
    set back to the machine's time.
    """
    numbers = request.config.stash.setdefault(_NUMBER, [0])
    numbers[0] += 1
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:NAME_MAX].rstrip("-")
    prefix = f"t{numbers[0]}-{name}-"
    yield prefix
    kafkalog_session_broker.heal()
    if not request.node.stash.get(_FAILED, False):
        kafkalog_session_broker.delete_topics(prefix)
    kafkalog_session_broker.turn_back()


_NUMBER = pytest.StashKey[list[int]]()
_FAILED = pytest.StashKey[bool]()
_PLACES = pytest.StashKey[dict[str, str]]()
"""Where directories in use will be kept."""


def _serving(
    request: pytest.FixtureRequest, path: Path, config: Mapping[str, object],
    topics: Mapping[str, int], security: Security | None = None,
) -> Iterator[TestBroker]:  # fmt: skip
    from kafkalog.testing.broker import TestBroker

    with _place(request, path) as (now, kept):
        with TestBroker(now, config=config, security=security) as broker:
            for topic, partitions in topics.items():
                broker.create_topic(topic, partitions)
            yield broker
        kept(broker.keep)


@contextmanager
def _place(
    request: pytest.FixtureRequest, path: Path
) -> Iterator[tuple[str, Callable[[bool], None]]]:
    """The place of a data directory for `path`, and a function that says at its end whether to
    keep it; if it is never called, the directory is kept."""
    from kafkalog.testing.place import Place

    place = Place(path, on_disk=request.config.getoption("--kafkalog-disk"))
    places = request.config.stash.setdefault(_PLACES, {})
    places[place.path] = place.final
    wanted = [True]
    try:
        yield place.path, lambda keep: wanted.insert(0, keep)
    finally:
        del places[place.path]
        if wanted[0] or request.config.getoption("--kafkalog-keep"):
            place.keep()
        else:
            place.remove()
