"""The promises of the three examples of delivery hold when they are killed at fixed points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import Broker, Consumer, Producer
from tests.damage.crash.zygote import Zygote
from tests.support.stable import stable_ends

COUNT = 20
SENT = [b"%d" % i for i in range(COUNT)]


Point = tuple[str, int, str]
"""A method, the number of its call, before or after."""
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
"""(most records lost, most records twice): a batch has five records.  Of those in flight at a kill
some may have arrived."""
SURE = {("commit", 2, "after"): "lost", ("flush", 2, "after"): "twice"}
"""The points at which exactly that happens, to all five."""


@pytest.fixture(scope="module")
def servers(memory: Path) -> Iterator[str]:
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with Broker(memory / "delivery", config=config) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("kafkalog.client.producer.producer", "kafkalog.client.consumer.consumer") as found:
        yield found


def run(zygote: Zygote, name: str, point: Point, *where: str) -> str:
    """How an example ended; with a point it is killed there."""
    worker = zygote.start("tests.examples.dying:run", name=name, point=point, where=where)
    ((ended,),) = worker.reports()
    return str(ended)


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
def test_a_kill_at_each_point_keeps_the_promises(
    servers: str, zygote: Zygote, name: str, point: Point
) -> None:
    """Loss only; duplicates only; neither."""
    source, target = (f"{name}-{'-'.join(map(str, point))}-{end}" for end in ("in", "out"))
    with Producer(servers) as producer:
        for value in SENT:
            producer.send(source, value, partition=0)
    with Producer(servers) as producer:
        assert producer.partitions(target) == 1
    assert run(zygote, name, point, servers, source, target) == "killed"
    assert run(zygote, name, ("none", 0, "before"), servers, source, target) == "done"
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
