"""Two instances of a join of two streams, each with standbys for the other's tasks: they are killed
in turn, and every pair comes out once."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial

import pytest

import kafkalog
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.kafka.streams.application import STREAMS, WAIT_S, Application, committed
from tests.support import apache

TASKS = {"0_0", "0_1", "0_2", "0_3"}
"""A task for each partition."""
PARTITIONS = len(TASKS)
KEYS = 20
COUNT = 400
"""Records of each side between two kills."""
KILLED = (0, 1, 0)
"""The instances, in the order of their deaths."""
STEP_MS, NEAR_MS = 10, 1_000
"""From one record to the next, and between the records of a pair."""

Wait = Callable[..., None]
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]


class Fed:
    """The records produced so far, and the pairs that they make."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self._bootstrap, self._rng = bootstrap, rng
        self._now_ms = int(time.time() * 1_000) - 60_000
        self._sides: dict[str, dict[str, list[tuple[str, int]]]] = {
            "left": defaultdict(list), "right": defaultdict(list)
        }  # fmt: skip
        self._number = 0

    def more(self) -> None:
        """Produce COUNT records more to each side."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for _ in range(COUNT):
            self._number += 1
            self._now_ms += STEP_MS
            for side, records in self._sides.items():
                key = str(self._rng.randrange(KEYS))
                records[key].append((str(self._number), self._now_ms))
                producer.produce(side, str(self._number), key, timestamp=self._now_ms)
        assert producer.flush(WAIT_S) == 0

    def pairs(self) -> Counter[tuple[str, str]]:
        """Key and values of each pair."""
        return Counter(
            (key, f"{left}:{right}")
            for key, lefts in self._sides["left"].items()
            for left, left_ms in lefts
            for right, right_ms in self._sides["right"][key]
            if abs(left_ms - right_ms) <= NEAR_MS
        )


def joined(bootstrap: str) -> Counter[tuple[str, str]]:
    """Key and values of each pair that came out."""
    found = committed(bootstrap, "pairs", PARTITIONS)
    return Counter((key.decode(), value.decode()) for key, value in found)


def placed(instances: list[Application]) -> bool:
    """True if each task is active at one instance and standby at the other."""
    first, second = instances
    return (
        set(first.ask("active")) == set(second.ask("standby"))
        and set(first.ask("standby")) == set(second.ask("active"))
        and {*first.ask("active"), *second.ask("active")} == TASKS
        and bool(first.ask("active")) and bool(second.ask("active"))
    )  # fmt: skip


def has_all(instance: Application) -> bool:
    return set(instance.ask("active")) == TASKS


def known(instances: list[Application]) -> bool:
    """True if each instance knows the partitions of both, active and standby."""
    parts = {f"{topic}-{number}" for topic in ("left", "right") for number in range(PARTITIONS)}
    hosts = {one.host for one in instances}
    for question in ("hosts", "standby-hosts"):
        for one in instances:
            found = [where.split("/") for where in one.ask(question)]
            if len(found) != len(parts):
                return False
            if {host for host, _ in found} != hosts or {part for _, part in found} != parts:
                return False
    return True


@pytest.mark.parametrize(
    "broker", [("kafkalog", "streams"), ("kafka", "streams")], indirect=True,
    ids=["kafkalog", "kafka"],
)  # fmt: skip
def test_pairs_come_out_once_through_kills(
    broker: Server, admin: Admin, started: Callable[..., Application], rng: random.Random,
    wait_until: Wait,
) -> None:  # fmt: skip
    for topic in ("left", "right", "pairs"):
        admin.create(topic, PARTITIONS, {})
    instances = [started("streams-join", STREAMS, apache.free_port()) for _ in range(2)]
    with kafkalog.Admin(broker.bootstrap) as ours:
        group = ("group", instances[0].group)
        ours.alter_configs({group: {"streams.num.standby.replicas": "1"}}).check()
    fed = Fed(broker.bootstrap, rng)

    def until(condition: Callable[[], object], expected: str) -> None:
        try:
            wait_until(condition, expected, WAIT_S)
        except AssertionError as problem:
            said = "\n".join(one.said() for one in instances)
            raise AssertionError(f"{problem}\n{said}") from None

    def until_joined(share: float) -> None:
        least = share * fed.pairs().total()
        until(lambda: joined(broker.bootstrap).total() >= least, "pairs come out")

    until(lambda: placed(instances), "all tasks have a place and a standby")
    until(lambda: known(instances), "each knows where all partitions are")
    for number in KILLED:
        killed, other = instances[number], instances[1 - number]
        fed.more()
        until_joined(0.5)
        killed.kill()
        fed.more()
        until_joined(1)
        wait_until(partial(has_all, other), "the other has its tasks", WAIT_S)
        killed.start()
        until(lambda: placed(instances), "it is back, and so are the standbys")
    fed.more()
    until_joined(1)
    assert joined(broker.bootstrap) == fed.pairs()
    until(lambda: known(instances), "each knows where all partitions are, after the kills")
