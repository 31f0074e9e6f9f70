"""Two instances of a join of two streams, each with standbys for the other's tasks: they are killed
in turn, and every pair comes out once."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

import kafkalog
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.kafka.streams.application import STREAMS, WAIT_S, Application
from tests.kafka.streams.pairs import PARTITIONS, TOPICS, Fed, has_all, joined, placed
from tests.support import apache

KILLED = (0, 1, 0)
"""The instances, in the order of their deaths."""

Wait = Callable[..., None]
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]


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
    for topic in TOPICS:
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
