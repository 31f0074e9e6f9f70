"""Three nodes, each a process, on a real ZooKeeper: they die, their sessions end and ZooKeeper goes
away while confluent-kafka produces to three partitions with acks=all.

Every run is the same, each step after a number of acknowledged records.  No acknowledged record
is lost, duplicated or reordered, nearly all are acknowledged, and all replicas are equal, byte for
byte.  In `make test` a leader is killed, and the controller that elects another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalog.zookeeper import tree
from tests.kafka.cluster.load import Load
from tests.kafka.cluster.members import OURS, PATIENCE_S, until
from tests.kafka.cluster.nodes import Nodes
from tests.support import apache
from tests.support.zookeeper import ends

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1200)]

NUMBERS = (1, 2, 3)
FEW, MANY = 30, 300
"""This many more records are acknowledged in each partition before the next step."""
AWAY_S = 10.0
HOWS = ["its process", pytest.param("its session", marks=pytest.mark.long)]
"""The part of a controller that ends; test_ours.py also ends only a session."""


@pytest.fixture(scope="module")
def started(memory: Path) -> Iterator[Nodes]:
    """Their data are in memory: processes die here, and no disk."""
    try:
        with (
            Nodes(memory / "under-load", NUMBERS, between=True) as made,
            ThreadPoolExecutor(len(NUMBERS)) as starting,
        ):
            for _ in starting.map(lambda number: made.begin(number, OURS), NUMBERS):
                pass
            yield made
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")


@pytest.fixture
def nodes(started: Nodes) -> Nodes:
    """All nodes run, whatever another test did to them."""
    back(started)
    return started


@pytest.mark.long
def test_each_node_is_killed(nodes: Nodes) -> None:
    with Load(nodes) as load:
        for number in NUMBERS:
            load.go_on(FEW)
            nodes.nodes[number].kill()
            nodes.missed(number)
            load.go_on(FEW)
            nodes.begin(number)
            nodes.in_sync()
        load.end()


@pytest.mark.long
def test_each_node_is_killed_twice(nodes: Nodes) -> None:
    """First each stays away until others lead its partitions, and leads again before the next one
    dies; then each is restarted at once, and the next one dies while it catches up."""
    with Load(nodes) as load:
        for number in NUMBERS:
            load.go_on(MANY)
            nodes.nodes[number].kill()
            load.go_on(MANY)
            assert number not in load.led.values()
            nodes.begin(number)
            nodes.in_sync()
            nodes.first_lead([load.topic])
        for number in NUMBERS:
            load.go_on(MANY)
            nodes.nodes[number].kill()
            nodes.nodes[number].begin(OURS)
        load.go_on(MANY)
        load.end()


@pytest.mark.long
@pytest.mark.parametrize("who", ["controller", "another"])
def test_a_node_is_paused(nodes: Nodes, who: str) -> None:
    """Its process stands still until others lead its partitions and its session is over: writes go
    on without it, and it has everything again afterwards."""
    with Load(nodes) as load:
        load.go_on(FEW)
        reigns = nodes.controller()
        pauses = reigns if who == "controller" else next(n for n in NUMBERS if n != reigns)
        assert pauses in load.led.values()
        with nodes.nodes[pauses].stands_still():
            nodes.missed(pauses)
            load.go_on(FEW)
        load.go_on(FEW)
        nodes.in_sync()
        load.end()


@pytest.mark.long
@pytest.mark.parametrize("who", ["controller", "another"])
def test_zookeeper_is_away_then_a_node_dies(nodes: Nodes, who: str) -> None:
    """After ten seconds without ZooKeeper records are still acknowledged.  A node dies as soon as
    ZooKeeper is back: others take over its partitions."""
    with Load(nodes) as load:
        load.go_on(FEW)
        reigns = nodes.controller()
        dies = reigns if who == "controller" else next(n for n in NUMBERS if n != reigns)
        assert dies in load.led.values()
        nodes.zookeeper.kill()
        load.acknowledged_since(time.monotonic() + AWAY_S)
        nodes.zookeeper.begin()
        nodes.nodes[dies].kill()
        load.go_on(FEW)
        nodes.begin(dies)
        load.end()


@pytest.mark.long
def test_sessions_end(nodes: Nodes) -> None:
    """The controller's: a controller is elected.  Each node's: it registers again."""

    def ended(path: str, counted: str, what: str) -> None:
        """End the session of a znode, and wait until the znode `counted` is written again."""

        def changed() -> int:
            found = nodes.session.read(counted)
            return 0 if found is None else found.changed

        before = changed()
        ends(nodes.hosts, path)
        until(lambda: changed() > before, what)

    with Load(nodes) as load:
        load.go_on(FEW)
        ended(tree.CONTROLLER, tree.CONTROLLER_EPOCH, "a controller is elected")
        load.go_on(FEW)
        for number in NUMBERS:
            path = tree.broker_path(number)
            ended(path, path, f"{number} registers again")
            load.go_on(FEW)
        load.end()


@pytest.mark.long
@pytest.mark.parametrize("how", HOWS)
def test_a_controller_ends_before_any_node_hears_of_its_election(nodes: Nodes, how: str) -> None:
    """The new leader is in ZooKeeper, and no node has heard of it: the next controller announces
    it, even if it finds nothing to change."""
    reigns = nodes.controller()
    dies, left = NUMBERS[reigns % 3], NUMBERS[(reigns + 1) % 3]
    with Load(nodes) as load:
        load.go_on(FEW)
        (partition,) = [n for n, leader in load.led.items() if leader == dies]
        before = nodes.state(load.topic, partition)
        elects = nodes.between[reigns].hold(tree.partition_path(load.topic, partition))
        nodes.nodes[dies].kill()
        nodes.missed(dies)
        assert elects.wait(PATIENCE_S)
        until(lambda: nodes.state(load.topic, partition) != before, "it is in ZooKeeper")
        elected = nodes.state(load.topic, partition)
        assert (elected.leader, {*elected.isr}) == (left, {left, reigns})
        assert elected.leader_epoch == before.leader_epoch + 1
        for number in (left, reigns):
            assert known(nodes, number, load, partition) == (dies, before.leader_epoch)
        controller_ends(nodes, how)
        until(lambda: known(nodes, left, load, partition)[0] == left, "it knows that it leads")
        back(nodes)
        load.go_on(FEW)
        load.end()


@pytest.mark.long
@pytest.mark.parametrize("how", HOWS)
def test_a_controller_ends_before_a_leader_hears_of_its_isr(nodes: Nodes, how: str) -> None:
    """The ISR that a leader requested is in ZooKeeper, but the answer is lost: the leader learns of
    it from the next controller, or when it asks again."""
    reigns = nodes.controller()
    dies, leads = NUMBERS[reigns % 3], NUMBERS[(reigns + 1) % 3]
    with Load(nodes) as load:
        (partition,) = [n for n, leader in load.led.items() if leader == leads]
        nodes.nodes[dies].kill()
        nodes.missed(dies)
        until(lambda: dies not in nodes.state(load.topic, partition).isr, "the ISR shrinks")
        load.go_on(FEW)
        passes = nodes.between[reigns].hold(tree.partition_path(load.topic, partition))
        nodes.begin(dies)
        assert passes.wait(PATIENCE_S)
        until(lambda: dies in nodes.state(load.topic, partition).isr, "it is in ZooKeeper")
        controller_ends(nodes, how)
        back(nodes)
        load.go_on(FEW)
        load.end()


@pytest.mark.long
@pytest.mark.parametrize("how", HOWS)
def test_a_controller_ends_before_any_node_hears_of_a_topic(nodes: Nodes, how: str) -> None:
    """Its leaders are in ZooKeeper, its client has no answer: the next controller announces it."""
    topic = f"untold-{how.split()[1]}"
    passes = nodes.between[nodes.controller()].hold(tree.partition_path(topic, 0))
    with ThreadPoolExecutor(1) as asking:
        made = asking.submit(Load, nodes, topic)
        assert passes.wait(PATIENCE_S)
        until(lambda: nodes.session.read(tree.partition_path(topic, 0)), "it is in ZooKeeper")
        controller_ends(nodes, how)
        back(nodes)
        with made.result(PATIENCE_S) as load:
            load.go_on(FEW)
            load.end()


def controller_ends(nodes: Nodes, how: str) -> None:
    """Another node is elected, or the same one again if it only lost its session."""
    reigns = nodes.controller()
    if how == "its process":
        nodes.nodes[reigns].kill()
        nodes.missed(reigns)
    else:
        ends(nodes.hosts, tree.CONTROLLER)


def back(nodes: Nodes) -> None:
    """Restart dead nodes."""
    for number, node in nodes.nodes.items():
        if not node.lives:
            nodes.begin(number, OURS)
    nodes.all_known()


def known(nodes: Nodes, number: int, load: Load, partition: int) -> tuple[int, int]:
    """The leader of a partition and its epoch, as a node reports them."""
    said = nodes.metadata(nodes.nodes[number])
    (topic,) = [one for one in said.topics if one.name == load.topic]
    (row,) = [one for one in topic.partitions if one.partition_index == partition]
    return row.leader_id, row.leader_epoch
