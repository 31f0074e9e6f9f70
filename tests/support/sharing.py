"""How a run uses the machine: how many processes, and which tests share one."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.effort import EXPLORING

SPARK = re.compile(r"tests/spark/test_\w*session\.py$")
"""Files whose tests start Spark: ten seconds of a processor, and as many until it is warm."""


KAFKA = re.compile(
    r"tests/(?!kafka/).*\[kafka[-\]]|tests/kafka/(clients/test_mirror|referee/test_plane)\.py"
)
"""Tests that are also run on Apache Kafka, and others that only query one: they share a broker."""
CLIENTS = re.compile(
    r"tests/kafka/clients/test_(admin|groups|kafka_tools|kcat|records|streams|transactions)\.py"
)
"""They share a broker and a program for each client; mostly they wait."""
ZOOKEEPER = re.compile(r"tests/kafka/cluster/test_(commands|follower|member|model|session)\.py")
"""They share a ZooKeeper."""
IN_MEMORY = re.compile(
    r"tests/(spark/|kafka/(clients/|cluster/|streams/|golden/test_answers)"
    r"|unit/(cli|client|cluster|coordinator|log/scan|mirror|plane|replication|server)/"
    r"|unit/(console|testing|watch)/)"
)
"""Tests that use logs: on disk the file system takes a sixth of their processor time.  Logs, and
code that depends on how a disk keeps them, are tested on disk."""
HOUSE = re.compile(r"tests/house/")
"""They parse the same files of the whole project."""
_GROUPS = (("house", HOUSE), ("clients", CLIENTS), ("zookeeper", ZOOKEEPER), ("spark", SPARK))
SERVERS = {"kafka": "apache_kafka", "clients": "server", "zookeeper": "zookeeper"}
"""The fixture of the server that each group shares."""


class _Tests(list[str]):
    """The tests of a run with a fast `index`, which is called once a test."""

    def __init__(self, nodeids: Sequence[str]) -> None:
        super().__init__(nodeids)
        self._places = {nodeid: place for place, nodeid in enumerate(nodeids)}

    def index(self, nodeid: str, *_: Any) -> int:
        return self._places[nodeid]


class Scheduling(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
    """One process for a file's tests, as they share things that are expensive to start; also for
    Spark's files."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Tests(collection)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget finished tests: the remaining ones are counted after each test."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        files = self.assigned_work[node]
        del files[scope][nodeid]
        if not files[scope]:
            del files[scope]
        self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Assign tests to a process that may have just died: xdist reports its end after its last
        outcomes, and then assigns its tests to another process."""
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The name of the tests that share a process with this one: a group's, or its file's."""
    file = nodeid.split("::", 1)[0]
    if KAFKA.match(nodeid):
        return "kafka"
    for name, files in _GROUPS:
        if files.search(file):
            return name
    return file


class Ends:
    """Ends servers that a group of tests shares after the group's last test: an idle Apache Kafka
    takes 3 % of a processor, and the run goes on for minutes."""

    def __init__(self, servers: Mapping[str, str], group_of: Callable[[str], str]) -> None:
        """`servers`: the fixture of each group's server."""
        self._servers = servers
        self._group_of = group_of
        self._made: dict[str, tuple[pytest.FixtureDef[Any], pytest.FixtureRequest]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Any:
        if fixturedef.argname in self._servers.values():
            self._made[fixturedef.argname] = fixturedef, request
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        done = yield
        own = self._group_of(item.nodeid)
        made = self._made.get(self._servers.get(own, ""))
        if made and nextitem is not None and self._group_of(nextitem.nodeid) != own:
            fixture, request = made
            fixture.finish(request)  # type: ignore[arg-type]
        return done


def spread(files: Collection[Path]) -> dict[Path, tuple[float, Path]]:
    """Ranks of files that spread those of each folder evenly over the run."""
    folders: dict[Path, list[Path]] = {}
    for file in sorted(files):
        folders.setdefault(file.parent, []).append(file)
    return {
        file: (place / len(some), file)
        for some in folders.values() for place, file in enumerate(some)
    }  # fmt: skip


def processes() -> int | None:
    """How many processes run tests; None: as many as processors.

    Otherwise three more, as tests often wait; a search does not.
    """
    return None if EXPLORING else (os.cpu_count() or 1) + 3


def import_share(config: pytest.Config) -> None:
    """Import the tests of this process's share before all others.

    Every process imports all tests, in the same order.  In a fresh checkout each of them would
    compile all files at the same time as the others.  Instead each compiles another share first,
    and finds the other shares compiled.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    folders = [config.rootpath / name for name in config.args]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    for file in files[number % count :: count]:
        # A module that cannot be imported is reported when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(_module(file.relative_to(config.rootpath)))


def _module(file: Path) -> str:
    return ".".join(file.with_suffix("").parts)
