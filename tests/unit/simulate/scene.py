"""A cluster with one partition, for tests that act step by step."""

from __future__ import annotations

from pathlib import Path

from kafkalog.config.topic import TopicConfig
from kafkalog.simulate.around import Setup
from kafkalog.simulate.cluster import Cluster
from kafkalog.simulate.records import batch, kept
from kafkalog.simulate.replica import Produce, Produced, Replica
from kafkalog.simulate.rules import Rules

__all__ = ["DURABLE", "Scene"]

DURABLE = TopicConfig.of({"kafkalog.durability": "fsync"})


class Scene(Cluster):
    """One partition with replicas on nodes 1, 2 and 3, or fewer."""

    def __init__(self, folder: Path, rules: Rules | None = None, **setup: object) -> None:
        given = Setup(**{"partitions": 1, "durable": False, **setup})  # type: ignore[arg-type]
        folder.mkdir(exist_ok=True)
        super().__init__(folder, 1, given, rules or Rules())
        self.tp = self.partitions[0]
        self.count = 0
        self.start()
        self.until(lambda: self.isr() == {*range(1, given.replicas + 1)})
        self.until(lambda: self.replica(1).leads)

    def replica(self, node: int) -> Replica:
        """A node's replica; waits until it has one."""
        self.until(lambda: self.tp in self.nodes[node].replicas)
        return self.nodes[node].replicas[self.tp]

    def isr(self) -> set[int]:
        state = self.checks.state(self.tp)
        return {*state.isr} if state else set()

    def leader(self) -> int:
        state = self.checks.state(self.tp)
        return state.leader if state else -1

    def send(self, node: int, acks: int = -1) -> list[Produced]:
        """Send a record to a node; its answer will be in the list."""
        self.count += 1
        answers: list[Produced] = []
        ask = Produce(self.tp, batch(b"%d" % self.count, 7, 0, self.count - 1), acks)
        self.replica(node).produce(ask, answers.append)
        return answers

    def sent(self, node: int, acks: int = -1) -> None:
        """Send a record, and wait until it is acknowledged."""
        answers = self.send(node, acks)
        self.until(lambda: bool(answers))
        assert answers[0].error == "", answers

    def led_by(self, node: int) -> None:
        """Wait until a node leads, and knows it."""
        self.until(lambda: self.leader() == node)
        self.until(lambda: self.nodes[node].up and self.replica(node).leads)

    def apart(self, node: int, *others: int) -> None:
        """Cut a node off from `others`; by default from all."""
        those = others or [one for one in self.network.places if one != node]
        self.network.cut(link for one in those for link in ((node, one), (one, node)))

    def controller(self) -> int:
        """Wait for a controller; returns its node."""
        self.until(lambda: any(one.up and one.controller.is_active for one in self.nodes.values()))
        return next(n for n, one in self.nodes.items() if one.up and one.controller.is_active)

    def controlled_by(self, node: int) -> None:
        """Elect controllers until it is that node, and let it finish what it begins with."""
        while self.controller() != node:
            self.resign()
            self.pass_ms(200)
        self.pass_ms(300)

    def values(self, node: int) -> list[int]:
        """The checksums of a node's records."""
        log = self.replica(node).log
        return [one.checksum for one in kept(log, 0, log.end_offset)]
