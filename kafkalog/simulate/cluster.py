"""Nodes, a ZooKeeper and clients in one world."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

from kafkalog.simulate.around import Setup
from kafkalog.simulate.checks import Checks
from kafkalog.simulate.clients import Client, Producer, Reader
from kafkalog.simulate.ensemble import Ensemble
from kafkalog.simulate.network import Network, Speed
from kafkalog.simulate.node import Node
from kafkalog.simulate.rules import Rules
from kafkalog.simulate.world import Violated, World
from kafkalog.types import TopicPartition
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, Delete

__all__ = ["Cluster"]

TOPIC = "t"
RECREATED = TopicPartition("d", 0)
"""Partition of a topic that is created, deleted and created again."""
SETTLED_MS = 60_000.0
"""How long a cluster may take, in virtual time, to settle after it was healed."""


class Cluster:
    """Nodes, a ZooKeeper and clients in one world."""

    def __init__(
        self, folder: Path, seed: int, setup: Setup, rules: Rules, speed: Speed | None = None
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, speed or Speed())
        self.setup = setup
        self.ensemble = Ensemble(self.network, setup.session_ms)
        self.tree = self.ensemble.tree
        self.checks = Checks(self.world, self.tree, setup.unclean)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(setup.partitions)]
        self._make_tree()
        self.nodes = {
            one: Node(
                one, folder / str(one), self.network, self.ensemble, setup, rules, self.checks
            )
            for one in range(1, setup.nodes + 1)
        }
        self.checks.nodes = self.nodes
        self.clients: list[Client] = []
        self._lives = 0  # of the topic that is recreated

    def _make_tree(self) -> None:
        there = self.tree
        there.ensure((*tree.PERSISTENT, "/cluster"))
        there.commit([Create(tree.CONTROLLER_EPOCH, tree.write_epoch(0))])
        replicas = {tp.partition: self._placed(tp.partition + 1) for tp in self.partitions}
        node = tree.TopicNode(uuid.uuid5(uuid.NAMESPACE_DNS, TOPIC), replicas, {}, {})
        there.commit([Create(tree.topic_path(TOPIC), tree.write_topic(node))])

    def _placed(self, first: int) -> tuple[int, ...]:
        setup = self.setup
        return tuple((first - 1 + n) % setup.nodes + 1 for n in range(setup.replicas))

    # ---- time -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes."""
        for node in self.nodes.values():
            node.start()

    def until(self, condition: Callable[[], bool], limit_ms: float = 30_000.0) -> None:
        """Let time pass until the condition holds.  Raises: Violated: it never does."""
        self.world.run(self.world.now_ms + limit_ms, condition)
        if not condition():
            raise Violated(f"never: {getattr(condition, '__doc__', '') or 'what is awaited'}")

    def pass_ms(self, ms: float) -> None:
        """Let that much time pass."""
        self.world.run(self.world.now_ms + ms)

    # ---- clients ----------------------------------------------------------------------------

    def add_clients(self, dice: random.Random) -> None:
        """Add a workload: for each partition producers, and a reader.

        With power cuts only acks=all: records sent with acks=1 are shown before they are on disk.
        """
        pause_ms = dice.choice((2.0, 10.0, 40.0))
        for tp in self.partitions:
            every = (-1,), (-1, -1), (-1, -1) if self.setup.durable else (-1, 1)
            for acks in dice.choice(every):
                number = 101 + len(self.clients)
                self.clients.append(
                    Producer(number, tp, self.network, self.setup, self.checks, acks, pause_ms)
                )
            number = 101 + len(self.clients)
            self.clients.append(Reader(number, tp, self.network, self.setup, self.checks))

    # ---- what an operator may do ----------------------------------------------------------------

    def resign(self) -> None:
        """Depose the controller: its znode is deleted."""
        self.tree.commit([Delete(tree.CONTROLLER)])

    def delete_records(self, node: int) -> None:
        """Delete the visible records of the partitions that a node leads, except the last few."""
        for one in self.nodes[node].replicas.values():
            state = self.checks.state(one.tp)
            if one.leads and state is not None and state.leader_epoch == one.leader_epoch:
                shown = one.handle.high_watermark
                one.log.delete_before(max(one.log.start_offset, shown - 10))

    def move(self, first: int, number: int) -> None:
        """Reassign a partition to the nodes from `first` on, as many as it has replicas; nothing
        happens while a reassignment is waiting."""
        tp = self.partitions[number % len(self.partitions)]
        wanted = tree.write_reassignment({tp: self._placed(first)})
        self.tree.commit([Create(tree.REASSIGNMENT, wanted)])

    def recreate(self, first: int) -> None:
        """Create the topic on the nodes from `first` on, or have it deleted; nothing happens while
        it is being deleted."""
        topic = RECREATED.topic
        if self.tree.read(tree.topic_path(topic)) is not None:
            for client in self.clients:
                client.stopped |= client.tp == RECREATED
            self.tree.commit([Create(f"{tree.DELETE_TOPICS}/{topic}")])
            return
        self._lives += 1
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{topic}{self._lives}")
        node = tree.TopicNode(topic_id, {0: self._placed(first)}, {}, {})
        self.tree.commit([Create(tree.topic_path(topic), tree.write_topic(node))])
        number = 101 + len(self.clients)
        self.clients.append(
            Producer(number, RECREATED, self.network, self.setup, self.checks, -1, 5.0, topic_id)
        )

    def _unsettled(self) -> str:
        """As Checks.unsettled, for all topics."""
        topic = RECREATED.topic
        doomed = self.tree.read(f"{tree.DELETE_TOPICS}/{topic}") is not None
        there = self.tree.read(tree.topic_path(topic)) is not None
        if self._lives and (doomed or not there):
            return self.checks.left(topic) or self.checks.unsettled(self.partitions)
        return self.checks.unsettled(self.partitions + [RECREATED] * there)

    # ---- the end --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Heal everything, and check that the cluster settles as it must."""
        self.world.note("--- all is healed")
        self.network.heal()
        for node in self.nodes.values():
            node.paused_until_ms, node.disk_factor = 0.0, 1.0
            if not node.up:
                node.start()
        for client in self.clients:
            client.stopped = True
        end_ms = self.world.now_ms + SETTLED_MS
        unsettled = "nothing was looked at"
        while unsettled:
            if self.world.now_ms > end_ms:
                raise Violated(f"settles: after {SETTLED_MS / 1000:.0f} s: {unsettled}")
            self.pass_ms(200.0)
            waits = [one.number for one in self.clients if isinstance(one, Producer) and one.waits]
            unsettled = self._unsettled()
            if waits and not unsettled:
                unsettled = f"producers {waits} are not answered"
        there = self.tree.read(tree.topic_path(RECREATED.topic)) is not None
        self.checks.final(self.partitions + [RECREATED] * there)

    def close(self) -> None:
        """Release what the nodes have open."""
        for node in self.nodes.values():
            node.close()
