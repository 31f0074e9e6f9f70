"""What a client believes of a cluster: its nodes, the leaders of partitions, coordinators; and
which broker it asks next.  It decides and does nothing else: no clock, no socket, no thread.

Brokers lag behind the controller by different amounts, so answers contradict each other.  Within
one topic id the leader epoch says which answer is newer.  Nothing does between two ids of one name:
the latest answer counts, and takes over nothing from the other topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.failures import failure, is_retriable
from kafkalog.client.link.transport import Address
from kafkalog.types import TopicPartition

__all__ = [
    "GROUP", "NO_NODE", "TRANSACTION", "Known", "MetadataAnswer", "PartitionInfo", "Recovery",
    "TopicAnswer", "TopicInfo", "known_in", "metadata_of", "places_of",
]  # fmt: skip

K = TypeVar("K")
V = TypeVar("V")
NO_NODE = -1
GROUP, TRANSACTION = 0, 1
"""What a coordinator is of: a group, a transactional id."""
PAST_MAX = 10_000
"""Topics whose epochs are remembered although they are forgotten or deleted."""
COORDINATORS_MAX = 10_000
SOUGHT_MAX = 1_000
NODES_MAX = 10_000
"""With those that other answers than metadata have named."""
CONTRADICTED_MAX = 5
"""How often metadata may contradict a leader that only an error of another answer named."""


class PartitionInfo(NamedTuple):
    """A partition, as metadata has it."""

    partition: int
    leader: int
    """A node; -1: it has none now."""
    leader_epoch: int
    """-1: the broker gives none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic, as metadata has it."""

    name: str
    topic_id: UUID
    """All zero where the broker gives none."""
    internal: bool
    partitions: dict[int, PartitionInfo]


class TopicAnswer(NamedTuple):
    """What a broker says of a topic."""

    code: int
    info: TopicInfo


class MetadataAnswer(NamedTuple):
    """What a broker says of its cluster."""

    nodes: Mapping[int, Address]
    """Empty: it does not know its cluster yet, and is not believed."""
    racks: Mapping[int, str | None]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[TopicAnswer]


class Known:
    """What is believed now.  One thread at a time."""

    def __init__(self) -> None:
        """Nothing."""
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, TopicInfo] = {}
        """Topics that were asked for and are there."""
        self.version = 0
        """Another one whenever a leader may be another."""
        self.refused: dict[str, errors.KafkalogError] = {}
        """Why the broker refused topics of the last question."""
        self._seen: dict[UUID, TopicInfo] = {}
        """The last that was known of each topic, also of a forgotten one; the latest at the end."""
        self._hearsay: dict[tuple[UUID, int], int] = {}
        """Partitions whose leader only an error named, and how often metadata has contradicted it:
        an error names no topic id, and may be about a deleted topic of the same name."""
        self._sought: dict[str, float] = {}
        """Topics that are not there, and since when they are asked for."""
        self._coordinators: dict[tuple[int, str], int] = {}

    # ---- metadata ----------------------------------------------------------------------

    def answered(self, names: Iterable[str] | None, answer: MetadataAnswer) -> None:
        """A broker has answered about these topics (None: about all).  Those that do not exist are
        forgotten; those that it refuses are in `refused`."""
        if not answer.nodes:
            return
        asked = None if names is None else set(names)
        if self.cluster_id and answer.cluster_id and answer.cluster_id != self.cluster_id:
            self._seen.clear()  # another cluster, perhaps with copies of the same topics
            self._hearsay.clear()
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        self.nodes, self.racks = dict(answer.nodes), dict(answer.racks)
        self.version += 1
        for name in list(self.topics) if asked is None else asked:
            self.topics.pop(name, None)
        for code, info in answer.topics:
            if asked is not None and info.name not in asked:
                continue
            if not code:
                self._take(info)
            elif not is_retriable(code):
                self.refused[info.name] = failure(code, f"topic {info.name!r}")
        self._bound()

    def _take(self, info: TopicInfo) -> None:
        rows, topic_id = dict(info.partitions), info.topic_id
        if topic_id.int and (before := self._seen.pop(topic_id, None)) is not None:
            for number, known in before.partitions.items():
                row = rows.get(number)
                if row is None or self._is_older(row, known, topic_id):
                    rows[number] = known  # a topic never loses a partition
        taken = info._replace(partitions=dict(sorted(rows.items())))
        self.topics[info.name] = taken
        if topic_id.int:
            self._seen[topic_id] = taken

    def _is_older(self, row: PartitionInfo, known: PartitionInfo, topic_id: UUID) -> bool:
        """Whether the broker did not know yet of the leader that is known."""
        older = 0 <= row.leader_epoch < known.leader_epoch
        key = topic_id, row.partition
        if key in self._hearsay:
            self._hearsay[key] += 1
            if not older or self._hearsay[key] > CONTRADICTED_MAX:
                del self._hearsay[key]
                return False
        return older

    def _bound(self) -> None:
        if len(self._seen) - len(self.topics) <= PAST_MAX:
            return
        current = {info.topic_id for info in self.topics.values()}
        past = [topic_id for topic_id in self._seen if topic_id not in current]
        for topic_id in past[: max(len(past) - PAST_MAX, 0)]:
            del self._seen[topic_id]
        self._hearsay = {key: n for key, n in self._hearsay.items() if key[0] in self._seen}

    def learn(self, other: Known, names: Iterable[str]) -> None:
        """Take over what another one, which does not change in the meantime, knows of nodes and
        of these topics."""
        names = list(names)
        topics = [TopicAnswer(0, other.topics[name]) for name in names if name in other.topics]
        self.answered(
            names,
            MetadataAnswer(other.nodes, other.racks, other.cluster_id, other.controller_id, topics),
        )

    def learn_leader(self, tp: TopicPartition, leader: int, epoch: int, at: Address | None) -> bool:
        """Believe an answer that names a partition's leader (KIP-951); False: it is no news, or
        it is not known where that node is.

        `at`: where it is, if the answer says so.
        """
        info = self.topics.get(tp.topic)
        found = info and info.partitions.get(tp.partition)
        if info is None or found is None or leader == NO_NODE or epoch <= found.leader_epoch:
            return False
        if at is not None:
            self._place(leader, at)
        info.partitions[tp.partition] = found._replace(leader=leader, leader_epoch=epoch)
        self.version += 1
        if info.topic_id.int:
            self._hearsay[info.topic_id, tp.partition] = 0
        return leader in self.nodes

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that was asked for; None when no such was, or when another topic has
        that name now."""
        found = self._seen.get(topic_id)
        if found is None:
            return None
        now = self.topics.get(found.name, found)
        return found.name if now.topic_id == topic_id else None

    def forget(self, topic: str | None = None) -> None:
        """What is known of a topic (None: of all) is asked for again when it is needed."""
        if topic is None:
            self.topics.clear()
        else:
            self.topics.pop(topic, None)

    def rebootstrap(self) -> None:
        """Nothing is known any more but the epochs of leaders."""
        self.controller_id = NO_NODE
        self.nodes, self.racks = {}, {}
        self.topics.clear()
        self._coordinators.clear()
        self.version += 1

    def _place(self, node: int, at: Address) -> None:
        _put(self.nodes, node, at, NODES_MAX)

    # ---- topics that are not there -------------------------------------------------------

    def sought_since_s(self, topic: str, now_s: float) -> float:
        """Since when a missing topic is looked for; from now on if it was not before."""
        since_s = self._sought.get(topic, now_s)
        _put(self._sought, topic, since_s, SOUGHT_MAX)
        return since_s

    def seek_no_more(self, topic: str) -> None:
        """It is there, or is not looked for now."""
        self._sought.pop(topic, None)

    # ---- coordinators ------------------------------------------------------------------

    def coordinator_of(self, name: str, kind: int) -> int | None:
        """The node that coordinates a group or a transactional id; None: it is to be asked for."""
        return self._coordinators.get((kind, name))

    def learn_coordinator(self, name: str, kind: int, node: int, at: Address) -> None:
        """Believe an answer that names a coordinator and its address."""
        self._place(node, at)
        _put(self._coordinators, (kind, name), node, COORDINATORS_MAX)

    def forget_coordinator(self, name: str, kind: int = GROUP) -> None:
        """Ask for it again when it is needed."""
        self._coordinators.pop((kind, name), None)

    def forget_coordinators(self) -> None:
        """Ask for all of them again when they are needed."""
        self._coordinators.clear()


def _put(some: dict[K, V], key: K, value: V, most: int) -> None:
    """Put it at the end; the first one goes if there are too many."""
    some.pop(key, None)
    some[key] = value
    if len(some) > most:
        del some[next(iter(some))]


def known_in(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> bool:
    """Whether metadata has a partition."""
    info = topics.get(tp.topic)
    return info is not None and tp.partition in info.partitions


def places_of(answer: Any) -> dict[int, Address]:
    """Where the nodes are that an answer to Produce or Fetch names as leaders (KIP-951)."""
    found = getattr(answer, "node_endpoints", None) or ()
    return {at.node_id: Address(at.host, at.port) for at in found}


def metadata_of(answer: Any) -> MetadataAnswer:
    """What an answer to Metadata says."""
    topics = []
    for topic in answer.topics:
        rows = {
            p.partition_index: PartitionInfo(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
            )
            for p in topic.partitions
        }
        info = TopicInfo(topic.name, topic.topic_id, topic.is_internal, rows)
        topics.append(TopicAnswer(topic.error_code, info))
    return MetadataAnswer(
        {b.node_id: Address(b.host, b.port) for b in answer.brokers},
        {b.node_id: b.rack for b in answer.brokers},
        answer.cluster_id,
        answer.controller_id,
        topics,
    )


class Recovery:
    """When a client begins again with bootstrap.servers, as metadata.recovery.strategy has it
    (KIP-899, KIP-1102), and which brokers it may ask."""

    def __init__(self, rebootstraps: bool, trigger_s: float) -> None:
        """`rebootstraps` False: it never does.  `trigger_s`: it does after so long without
        metadata."""
        self.rebootstraps = rebootstraps
        self._trigger_s = trigger_s
        self._since_s: float | None = None
        """Since when metadata is asked for in vain."""

    def asks(self, now_s: float) -> bool:
        """Metadata is asked for; whether to begin again before that."""
        if self._since_s is None:
            self._since_s = now_s
        late = now_s - self._since_s > self._trigger_s
        if late:
            self._since_s = now_s
        return late and self.rebootstraps

    def answered(self) -> None:
        """It was had."""
        self._since_s = None

    def brokers(self, servers: Sequence[Address], nodes: Mapping[int, Address]) -> list[Address]:
        """Those that may be asked, the best first.  `servers`: the configured ones."""
        if not self.rebootstraps and nodes:
            return list(dict.fromkeys(nodes.values()))
        return list(dict.fromkeys((*servers, *nodes.values())))
