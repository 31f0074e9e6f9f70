"""Fixtures for pytest: a broker of its own for each test, or one for all with a prefix each.

Loaded by pytest through its entry point; what costs time is imported by the fixtures that want it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalog.store import Store
    from kafkalog.testing.broker import TestBroker

__all__ = [
    "kafkalog_broker",
    "kafkalog_config",
    "kafkalog_session_broker",
    "kafkalog_store",
    "kafkalog_topic_prefix",
]

NAME_MAX = 60
"""Of a test, in its topics' names."""
TOPICS_TOLD = 3
MARKER = (
    "kafkalog(config, topics): settings of this test's kafkalog_broker by Kafka's names, over "
    "kafkalog_config; topics that it has, by name, with their number of partitions"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our options."""
    group = parser.getgroup("kafkalog")
    group.addoption(
        "--kafkalog-keep",
        action="store_true",
        help="keep the data directories of kafkalog's brokers, not only of tests that fail",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Our marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep a broker's directory when its test failed, and tell where it is."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
        for broker in _brokers(item):
            broker.keep = True
            report.sections.append(("kafkalog broker", "\n".join(_told(broker))))
        for store in _stores(item):
            told = [f"its directory is kept: {store.path}", *_commands(store.path, ())]
            report.sections.append(("kafkalog store", "\n".join(told)))
    return report


def _brokers(item: pytest.Item) -> list[TestBroker]:
    """Those among a test's fixtures."""
    loaded = sys.modules.get("kafkalog.testing.broker")
    if loaded is None:
        return []
    values = getattr(item, "funcargs", {}).values()
    return [value for value in values if isinstance(value, loaded.TestBroker)]


def _stores(item: pytest.Item) -> list[Store]:
    """The same, of stores."""
    loaded = sys.modules.get("kafkalog.store")
    if loaded is None:
        return []
    values = getattr(item, "funcargs", {}).values()
    return [value for value in values if isinstance(value, loaded.Store)]


def _told(broker: TestBroker) -> Iterator[str]:
    yield f"{broker!r}; its directory is kept:"
    topics: list[str] = []
    if broker.running:
        topics = sorted(n for n in broker.broker.node.image.topics if not n.startswith("__"))
    yield from _commands(broker.path, topics)
    for fault in broker.broker.faults.all if broker.running else ():
        yield f"still set: {fault!r}"


def _commands(path: str, topics: Sequence[str]) -> Iterator[str]:
    """What opens a directory that is kept."""
    yield f"  kafkalog topics --dir {path}"
    for name in topics[:TOPICS_TOLD]:
        yield f"  kafkalog consume --dir {path} --topic {name}"
    if len(topics) > TOPICS_TOLD:
        yield f"  and {len(topics) - TOPICS_TOLD} topics more"


@pytest.fixture(scope="session")
def kafkalog_config() -> Mapping[str, object]:
    """Settings of all brokers, by Kafka's names: override it in a conftest.py."""
    return {}


@pytest.fixture
def kafkalog_broker(
    request: pytest.FixtureRequest, tmp_path: Path, kafkalog_config: Mapping[str, object]
) -> Iterator[TestBroker]:
    """A broker of this test's own, in a directory below its tmp_path: see TestBroker.

    `@pytest.mark.kafkalog(config={...}, topics={"orders": 3})` gives it settings and topics.
    """
    config, topics = dict(kafkalog_config), dict[str, int]()
    for marker in reversed(list(request.node.iter_markers("kafkalog"))):  # the nearest last
        config.update(marker.kwargs.get("config") or {})
        topics.update(marker.kwargs.get("topics") or {})
    yield from _serving(request, tmp_path / "kafkalog", config, topics)


@pytest.fixture
def kafkalog_store(
    request: pytest.FixtureRequest, tmp_path: Path, kafkalog_config: Mapping[str, object]
) -> Iterator[Store]:
    """The same without a port, for clients of this process: a kafkalog.Store of this test's own."""
    from kafkalog.store import Store
    from kafkalog.testing.broker import SETTINGS

    path = tmp_path / "kafkalog-store"
    with Store(path, config={**SETTINGS, **kafkalog_config}) as store:
        yield store
    if not request.node.stash.get(_FAILED, False):
        _remove(request, path)


@pytest.fixture(scope="session")
def kafkalog_session_broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafkalog_config: Mapping[str, object],
) -> Iterator[TestBroker]:
    """One broker for all tests, of each of xdist's processes: see kafkalog_topic_prefix."""
    yield from _serving(request, tmp_path_factory.mktemp("kafkalog"), kafkalog_config, {})


@pytest.fixture
def kafkalog_topic_prefix(
    request: pytest.FixtureRequest, kafkalog_session_broker: TestBroker
) -> Iterator[str]:
    """What this test's names of topics and groups begin with, at kafkalog_session_broker.

    Afterwards its topics are deleted (but when it failed), and the broker is healed.
    """
    numbers = request.config.stash.setdefault(_NUMBER, [0])
    numbers[0] += 1
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:NAME_MAX].rstrip("-")
    prefix = f"t{numbers[0]}-{name}-"
    yield prefix
    kafkalog_session_broker.heal()
    if not kafkalog_session_broker.keep:
        kafkalog_session_broker.delete_topics(prefix)


_NUMBER = pytest.StashKey[list[int]]()
_FAILED = pytest.StashKey[bool]()


def _serving(
    request: pytest.FixtureRequest, path: Path, config: Mapping[str, object],
    topics: Mapping[str, int],
) -> Iterator[TestBroker]:  # fmt: skip
    from kafkalog.testing.broker import TestBroker

    with TestBroker(path, config=config) as broker:
        for topic, partitions in topics.items():
            broker.create_topic(topic, partitions)
        yield broker
    if not broker.keep:
        _remove(request, path)


def _remove(request: pytest.FixtureRequest, path: Path) -> None:
    if not request.config.getoption("--kafkalog-keep"):
        shutil.rmtree(path, ignore_errors=True)
