"""A cluster of nodes of both kinds, whatever its control plane: its state, and what can be done to
it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import kafkalog
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.wire import apis
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.waiting import wait_for

KAFKA, OURS = "kafka", "kafkalog"
PATIENCE_S = 200.0
"""For events that take seconds on an idle machine."""
INTERNAL = ("__consumer_offsets", "__transaction_state")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "200",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "300",
    "replica.lag.time.max.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
}
"""Settings of each node, of either kind, under each control plane."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """As `wait_for`, for events that take seconds.  A check queries every node, on new connections,
    or all znodes: constant checks would take the processor from the nodes."""
    return wait_for(condition, what, PATIENCE_S, pause_s=0.2)


class State(NamedTuple):
    """A partition: its leader and its ISR."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class Member(Protocol):
    """One node, of one kind or the other; it keeps its number, directory and address."""

    number: int
    kind: str
    data: Path
    address: str
    lives: bool

    def begin(self, kind: str) -> None:
        """Start it on its directory as this kind, whether or not it was that kind before."""

    def stop(self) -> object:
        """Stop in order: others take over its partitions first."""

    def kill(self) -> None: ...
    def stands_still(self) -> contextlib.AbstractContextManager[Any]:
        """Pause it: others see it as dead, and it notices no time passing."""

    def output(self) -> str: ...


class Members:
    """The nodes; a subclass knows their control plane, and is a context manager."""

    nodes: Mapping[int, Member]
    bootstrap: str
    admin: kafkalog.Admin
    controller_is_told = True
    """True if Metadata names the controller."""
    controllers_apart = False
    """True if no node is a controller."""

    @property
    def living(self) -> list[Member]:
        return [node for node in self.nodes.values() if node.lives]

    # ---- the control plane -------------------------------------------------------------------

    def _anybody(self) -> Any:
        """Metadata of a living node; None if none answers."""
        return next(filter(None, map(self.metadata, self.living)), None)

    def registered(self) -> set[int]:
        """The nodes that it takes for alive."""
        found = self._anybody()
        return set() if found is None else {broker.node_id for broker in found.brokers}

    def controller(self) -> int:
        """The active controller; -1: none answers, or it is no node."""
        raise AssertionError("a subclass must define this")

    def state(self, topic: str, partition: int = 0) -> State:
        """A partition, as a broker describes it."""

        def found() -> State | None:
            metadata = self._anybody()
            for one in () if metadata is None else metadata.topics:
                for row in one.partitions if one.name == topic else ():
                    if row.partition_index == partition:
                        return State(row.leader_id, row.leader_epoch, (*row.isr_nodes,))
            return None

        return until(found, f"{topic}-{partition} is known")

    def fits(self, number: int) -> None:
        """Run the command that says if our node can take the place of this one."""
        raise AssertionError("a subclass must define this")

    def joined(self, number: int) -> None:
        """Do what a new node needs to be a full member, apart from replicas."""

    def leaves(self, number: int) -> None:
        """Stop a node without replicas for good."""
        self.nodes[number].stop()

    def end(self) -> None:
        """Stop all, in order."""
        for node in self.living:
            node.stop()

    # ---- queries -----------------------------------------------------------------------------

    def metadata(self, node: Member) -> Any:
        """Metadata as a node answers clients; None if it does not answer."""
        with contextlib.suppress(OSError), Raw(node.address) as raw:
            return raw.call(apis.METADATA, 12, topics=None)
        return None

    def all_known(self) -> None:
        """Wait until every live node knows all live nodes and no others, and a live controller."""

        def known() -> bool:
            there = {node.number for node in self.living}
            if self.registered() != there:
                return False
            controller = self.controller()
            if controller not in there and not self.controllers_apart:
                return False
            for node in self.living:
                found = self.metadata(node)
                if found is None:
                    return False
                if self.controller_is_told and found.controller_id != controller:
                    return False
                if {broker.node_id for broker in found.brokers} != there:
                    return False
            return True

        until(known, "all know all")

    def topics(self) -> list[TopicInfo]:
        """All topics, including internal ones, as a node that answers reports them."""
        while True:
            with contextlib.suppress(kafkalog.KafkalogError):
                names = self.admin.list_topics(internal=True)
                return [*self.admin.describe_topics(names).check().values()]

    def in_sync(self) -> None:
        """Wait until all replicas are in sync, none is being moved, and live nodes name the same
        leaders."""

        def wrong() -> str:
            with contextlib.suppress(kafkalog.KafkalogError):
                if moving := self.admin.list_partition_reassignments():
                    return f"moving: {[*moving]}"
            said: dict[tuple[str, int], set[tuple[int, int]]] = {}
            for node in self.living:
                if (found := self.metadata(node)) is None:
                    return f"node {node.number} does not answer"
                for topic in found.topics:
                    for row in topic.partitions:
                        where = said.setdefault((topic.name, row.partition_index), set())
                        where.add((row.leader_id, row.leader_epoch))
                        if len(where) > 1 or {*row.isr_nodes} != {*row.replica_nodes}:
                            return f"node {node.number}: {topic.name} {row}"
            return ""

        last = [""]
        try:
            until(lambda: last.append(wrong()) or not last[-1], "in sync")
        except AssertionError as late:
            raise AssertionError(f"{late}: {last[-1]}") from None

    # ---- actions -----------------------------------------------------------------------------

    def begin(self, number: int, kind: str = "") -> None:
        """Start a node as this kind, or as what it was, once its last registration is gone."""
        node = self.nodes[number]
        until(lambda: number not in self.registered(), f"{number} is forgotten")
        node.begin(kind or node.kind)
        until(lambda: number in self.registered(), f"{number} is registered")

    def create(self, topic: str, *replicas: Sequence[int], **settings: str) -> None:
        """Create a topic, also if the first node asked does not know the controller yet."""
        config = {name.replace("_", "."): value for name, value in settings.items()}

        def made() -> bool:
            with contextlib.suppress(kafkalog.errors.TopicExists):
                self.admin.create_topics([(topic, -1, -1, config, replicas)]).check()
            return True

        self.try_until(made, f"{topic} is made")
        self.first_lead([topic])

    def first_lead(self, topics: Iterable[str] = ()) -> None:
        """Let the first replica of each partition, of these or all topics, lead: it is elected as
        soon as it is in sync."""
        wanted = {*topics}

        def lead() -> bool:
            found = [one for one in self.topics() if not wanted or one.name in wanted]
            others = [
                (one.name, row.partition)
                for one in found for row in one.partitions.values() if row.leader != row.replicas[0]
            ]  # fmt: skip
            if others:
                self.admin.elect_leaders(others)
            return not others and {one.name for one in found} >= wanted

        self.try_until(lead, f"the first replicas lead: {wanted or 'all'}")

    def try_until(self, done: Callable[[], Any], what: str) -> Any:
        """Repeat a call, as a client does, while leaders and controllers change."""

        def tried() -> Any:
            with contextlib.suppress(kafkalog.KafkalogError):
                return done()
            return None

        return until(tried, what)

    # ---- results -----------------------------------------------------------------------------

    def copies(self, topic: str, partition: int = 0) -> dict[int, list[bytes]]:
        """The batches of each node that has the partition."""
        name = f"{topic}-{partition}"
        folders = {n: node.data / name for n, node in self.nodes.items()}
        return {n: batches_in(folder) for n, folder in folders.items() if folder.exists()}

    def differences(self, topics: Iterable[TopicInfo]) -> list[str]:
        """Partitions whose bytes differ on two nodes, or that a node has without being a replica;
        call it after all nodes have stopped in order."""
        found = []
        for topic in topics:
            for row in topic.partitions.values():
                copies = self.copies(topic.name, row.partition)
                lengths = {n: len(one) for n, one in copies.items()}
                where = f"{topic.name}-{row.partition} of {row.replicas}: {lengths}"
                if {*copies} != {*row.replicas}:
                    found.append(f"{where}: wrong replicas")
                elif any(one != copies[row.replicas[0]] for one in copies.values()):
                    found.append(f"{where}: other bytes")
        return found
