"""What the three examples of delivery promise, killed at fixed points."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import Broker, Consumer, Producer
from tests.support.stable import stable_ends

ROOT = Path(__file__).resolve().parents[2]
COUNT = 20
SENT = [b"%d" % i for i in range(COUNT)]


Point = tuple[str, int, str]
"""A method, which call of it, before or after."""
KINDS: dict[str, dict[Point, tuple[int, int]]] = {
    "at_most_once": {
        ("commit", 2, "before"): (0, 0),
        ("commit", 2, "after"): (5, 0),
        ("send", 8, "before"): (5, 0),
        ("flush", 2, "after"): (0, 0),
    },
    "at_least_once": {
        ("send", 8, "before"): (0, 2),
        ("flush", 2, "after"): (0, 5),
        ("commit", 2, "before"): (0, 5),
        ("commit", 2, "after"): (0, 0),
    },
    "exactly_once": {
        ("send", 8, "after"): (0, 0),
        ("send_offsets", 2, "after"): (0, 0),
        ("commit_transaction", 2, "before"): (0, 0),
        ("commit_transaction", 2, "after"): (0, 0),
    },
}
"""(at most so many lost, at most so many twice): a batch has five records.  Of those that a kill
finds on their way some may have arrived."""
SURE = {("commit", 2, "after"): "lost", ("flush", 2, "after"): "twice"}
"""The points at which just that happens, to all five."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with Broker(tmp_path_factory.mktemp("delivery") / "data", config=config) as broker:
        yield broker.bootstrap_servers


def run(name: str, point: Point, *where: str) -> int:
    """The status of an example that is killed there."""
    command = [sys.executable, "-m", "tests.examples.dying", name, *map(str, point), *where]
    done = subprocess.run(command, cwd=ROOT, timeout=120, capture_output=True, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def read(servers: str, topic: str) -> list[bytes | None]:
    stable_ends(servers, topic)
    with Consumer(
        servers, topic, isolation="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        found = consumer.poll(timeout_ms=10_000, max_records=1_000)
        ends = consumer.end_offsets(consumer.assignment)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += consumer.poll(max_records=1_000)
    return [record.value for record in found]


@pytest.mark.parametrize(
    ("name", "point"), [(name, point) for name, points in KINDS.items() for point in points]
)
def test_killed_there_it_keeps_what_it_promises(servers: str, name: str, point: Point) -> None:
    """Loss only; duplicates only; neither."""
    source, target = (f"{name}-{'-'.join(map(str, point))}-{end}" for end in ("in", "out"))
    with Producer(servers) as producer:
        for value in SENT:
            producer.send(source, value, partition=0)
    with Producer(servers) as producer:
        assert producer.partitions(target) == 1
    assert run(name, point, servers, source, target) == -signal.SIGKILL
    assert run(name, ("none", 0, "before"), servers, source, target) == 0
    found = Counter(read(servers, target))
    assert set(found) <= set(SENT)
    lost = sum(value not in found for value in SENT)
    twice = sum(times - 1 for times in found.values())
    lost_max, twice_max = KINDS[name][point]
    assert lost <= lost_max and twice <= twice_max, found
    wanted = SURE.get(point)
    if wanted == "lost" and name == "at_most_once":
        assert lost == lost_max
    if wanted == "twice" and name == "at_least_once":
        assert twice == twice_max
