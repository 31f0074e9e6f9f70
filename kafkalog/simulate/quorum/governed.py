"""A simulated cluster under a quorum: controllers over Raft, brokers, a client that creates topics,
and what must hold of the metadata."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kafkalog.metadata.image import NO_LEADER, MetadataImage
from kafkalog.simulate.quorum.brokers import FIRST_BROKER, Broker
from kafkalog.simulate.quorum.checks import Checks
from kafkalog.simulate.quorum.cluster import Cluster
from kafkalog.simulate.quorum.metadata import SESSION_MS, ControllerNode
from kafkalog.simulate.quorum.node import Node
from kafkalog.simulate.quorum.run import outcome
from kafkalog.simulate.quorum.setup import Setup, drawn_setup
from kafkalog.simulate.run import Result
from kafkalog.simulate.world import Violated
from kafkalog.wire.apis import CREATE_TOPICS

__all__ = ["Governed", "run"]

BROKERS = 3
PARTITIONS = 2
LED = 10
"""Another replica leads within so many sessions after a broker died; brokers find another
controller within as many."""
BROKER_FAULTS = 4
"""As many faults of nodes come for one of a broker."""


class MetadataChecks(Checks):
    """Those of Raft, and of the metadata; of these each image is compared with the one before."""

    def __init__(self) -> None:
        """Nothing has happened."""
        super().__init__()
        self.created: dict[str, Any] = {}
        """Topics whose creation was acknowledged, and their ids."""
        self.brokers: list[Broker] = []
        self._seen = -1

    def settled_image(self, node: Node, before: MetadataImage, now: MetadataImage) -> None:
        """A node's controller applied a batch."""
        if now.offset <= self._seen:
            return  # of a node that is behind: the records are the same
        self._seen = now.offset
        for topic, one in now.partitions():
            where = f"{topic.name}-{one.partition}"
            old = before.partition(topic.name, one.partition)
            if not {*one.isr} <= {*one.replicas} or not one.isr:
                raise Violated(f"isr: {where} has {one.isr} of {one.replicas}")
            if one.leader != NO_LEADER and one.leader not in one.isr:
                raise Violated(f"isr: {where} is led by {one.leader}, which is not in {one.isr}")
            if old is None or old is one:
                continue
            if one.leader_epoch < old.leader_epoch or one.partition_epoch <= old.partition_epoch:
                raise Violated(f"epochs: {where} goes from {old} to {one}")
            if one.leader != old.leader and one.leader_epoch == old.leader_epoch:
                raise Violated(f"epochs: {where} has two leaders in epoch {one.leader_epoch}")
            if one.leader not in (NO_LEADER, *old.isr):
                raise Violated(f"unclean: {where} is led by {one.leader}, not one of {old.isr}")

    def elected(self, node: Node, epoch: int) -> None:
        """A controller is active: that of the leader of its epoch."""
        if self.leaders.get(epoch) != node.key:
            raise Violated(f"one-controller: node {node.id} is active in epoch {epoch}")

    def unsettled(self) -> str:
        """The reason why the cluster is not at rest; empty: it is."""
        return super().unsettled() or self.ungoverned()

    def ungoverned(self) -> str:
        """The reason why the leader's controller does not have all brokers and replicas; empty: it
        has them."""
        leader = next((one for one in self.nodes if one.leads), None)
        if not isinstance(leader, ControllerNode) or not leader.is_active:
            return "no controller is active"
        image = leader.image
        for broker in self.brokers:
            behind = broker.image.offset < image.offset - 1
            if not broker.serves or behind or not broker.is_heard_by(leader):
                return f"broker {broker.id}: {broker.now}, {broker.image.offset} of {image.offset}"
        for topic, one in image.partitions():
            if one.leader == NO_LEADER or len(one.isr) < len(one.replicas):
                return f"{topic.name}-{one.partition}: leader {one.leader}, ISR {one.isr}"
        return ""

    def settled(self) -> None:
        """All logs are equal, and nothing that was acknowledged is missing."""
        super().settled()
        for node in self.nodes:
            assert isinstance(node, ControllerNode)
            for name, topic_id in self.created.items():
                found = node.image.topics.get(name)
                if found is None or found.id != topic_id:
                    raise Violated(f"acknowledged: node {node.id} has no topic {name}")


class Governed(Cluster):
    """The controllers, the brokers and the client."""

    node_class = ControllerNode
    checks: MetadataChecks

    def __init__(self, seed: int, setup: Setup) -> None:
        """Made, not started."""
        super().__init__(seed, setup, MetadataChecks())
        for node in self.nodes:
            assert isinstance(node, ControllerNode)
            node.settled, node.elected = self.checks.settled_image, self.checks.elected
        for number in range(FIRST_BROKER, FIRST_BROKER + BROKERS):
            broker = Broker(number, self.world, self._controllers, self._reaches)
            broker.in_sync = self._in_sync
            self.checks.brokers.append(broker)
        self._alone: set[int] = set()
        """Brokers that no message reaches."""
        self._topics = 0
        self._tried: dict[str, None] = {}
        """Topics that the client wants; it asks again for those without an answer."""

    def _controllers(self) -> list[ControllerNode]:
        return [one for one in self.nodes if one.alive and isinstance(one, ControllerNode)]

    def _reaches(self, start: int, end: int) -> bool:
        lost = not self.healed and self.world.chance(self.setup.lost_share)
        return not lost and not {start, end} & self._alone

    def _in_sync(self, number: int) -> bool:
        return any(one.id == number and one.serves for one in self.checks.brokers)

    def start(self) -> None:
        """Start everything."""
        for broker in self.checks.brokers:
            broker.start()
        super().start()
        self.world.later(BROKER_FAULTS * self.setup.fault_ms, self._broker_fault)

    def _broker_fault(self) -> None:
        if self.healed:
            return
        world = self.world
        broker = world.rng.choice(self.checks.brokers)
        kind = world.rng.choice(("kill", "leave", "pause", "alone"))
        later_ms = world.rng.uniform(0.1, 8) * self.setup.election_ms
        if kind == "kill" and broker.alive:
            broker.stop()
        elif kind == "leave":
            broker.leave()
        elif kind == "pause":
            broker.paused_until_ms = world.now_ms + later_ms
        elif kind == "alone":
            self._alone.add(broker.id)
            world.later(later_ms, lambda: self._alone.discard(broker.id))
        world.later(later_ms, broker.back)
        late_ms = world.rng.expovariate(1 / (BROKER_FAULTS * self.setup.fault_ms))
        world.later(late_ms, self._broker_fault)

    # ---- the client ----------------------------------------------------------------------------

    def _append(self) -> None:
        """Create a topic."""
        for node in self._controllers():
            if node.leads and self.world.chance(0.8):
                self._topics += 1
                tried = [name for name in self._tried if name not in self.checks.created]
                again = tried and self.world.chance(0.5)
                name = self.world.rng.choice(tried[-5:]) if again else f"t{self._topics}"
                self._tried[name] = None
                self._create(node, name)
        if not self.healed:
            self.world.later(self.world.rng.uniform(0, 2) * self.setup.append_ms, self._append)

    def _create(self, node: ControllerNode, name: str) -> None:
        topic = {
            "name": name, "num_partitions": PARTITIONS, "configs": [], "assignments": [],
            "replication_factor": min(BROKERS, 2 + self._topics % 2),
        }  # fmt: skip

        def answered(found: Any) -> None:
            if found is not None and not found.topics[0].error_code:
                self.checks.created[name] = found.topics[0].topic_id

        node.ask(CREATE_TOPICS, {"topics": [topic], "timeout_ms": 1_000, "validate_only": False},
                 answered)  # fmt: skip

    def settle(self, ms: float = 60_000.0) -> None:
        """Heal everything, and wait until the cluster is at rest and creates another topic.

        Raises: Violated.
        """
        self.healed = True
        self._alone.clear()
        for broker in self.checks.brokers:
            broker.paused_until_ms = min(broker.paused_until_ms, self.world.now_ms)
            if not broker.alive:
                broker.start()
        super().settle(ms)

    def outlive(self) -> None:
        """After `settle`: a broker stays down.

        Raises: Violated: a partition with another replica in sync is not led by a live one.
        """
        super().outlive()
        until_ms = self.world.now_ms + LED * SESSION_MS
        while found := self.checks.ungoverned():
            if self.world.now_ms >= until_ms:
                raise Violated(f"led: without the former leader: {found}")
            self.world.run(self.world.now_ms + 100)
        leader = next(one for one in self._controllers() if one.leads)
        down = self.world.rng.choice(self.checks.brokers)
        down.stop()
        until_ms = self.world.now_ms + LED * SESSION_MS
        while dark := self._dark(leader, down):
            if self.world.now_ms >= until_ms:
                raise Violated(f"led: without broker {down.id} nobody leads {dark}")
            self.world.run(self.world.now_ms + 100)

    def _dark(self, leader: ControllerNode, down: Broker) -> list[str]:
        return [
            f"{topic.name}-{one.partition}" for topic, one in leader.image.partitions()
            if one.leader in (NO_LEADER, down.id)
        ]  # fmt: skip


def run(seed: int, events: int = 3_000, given: Mapping[str, Any] | None = None) -> Result:
    """A run of `events` events, and then the time that the cluster takes to settle.

    `given`: fields of Setup that are not drawn.
    """
    setup = drawn_setup(random.Random(f"{seed}-setup"))
    setup = setup._replace(
        append_ms=5 * setup.append_ms, fault_ms=3 * setup.fault_ms, **(given or {})
    )
    cluster = Governed(seed, setup)
    return outcome(cluster, seed, events, lambda: len(cluster.checks.created))
