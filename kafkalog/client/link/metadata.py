"""A client's metadata of a cluster: nodes, leaders of partitions, coordinators; and which broker
it asks next.  It only decides: no clock, no socket, no thread.

Brokers lag behind the controller by different amounts, so answers contradict each other.  For one
topic id the leader epoch says which answer is newer.  For two ids of one name nothing does: the
latest answer counts, and nothing is kept from the other topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.failures import failure
from kafkalog.client.link.handling import Handling, handling
from kafkalog.client.link.transport import Address
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = [
    "GROUP", "NO_NODE", "TRANSACTION", "Known", "MetadataAnswer", "PartitionInfo", "Recovery",
    "TopicAnswer", "TopicInfo", "controllers_in", "endpoint_type", "known_in", "metadata_of",
    "places_of",
]  # fmt: skip

K = TypeVar("K")
V = TypeVar("V")
NO_NODE = -1
GROUP, TRANSACTION = 0, 1
"""The key types of a coordinator: a group, a transactional id."""
PAST_MAX = 10_000
"""Forgotten or deleted topics whose epochs are remembered."""
PAST_PARTITIONS_MAX = 200_000
"""The partitions of these, about 50 MB; and of one topic, those that its last answer lacks."""
COORDINATORS_MAX = 10_000
SOUGHT_MAX = 1_000
NODES_MAX = 10_000
"""Including those that only other answers than metadata have named."""
CONTRADICTED_MAX = 5
"""How often metadata may contradict a leader known only from an error in another answer."""


class PartitionInfo(NamedTuple):
    """A partition, from metadata."""

    partition: int
    leader: int
    """A node; -1: none now."""
    leader_epoch: int
    """-1: not reported."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic, from metadata."""

    name: str
    topic_id: UUID
    """All zero if not reported."""
    internal: bool
    partitions: dict[int, PartitionInfo]


class TopicAnswer(NamedTuple):
    """A broker's answer about a topic."""

    code: int
    info: TopicInfo


class Hearsay(NamedTuple):
    """A leader that only an error has named."""

    answered: PartitionInfo
    """The newest leader that metadata has given."""
    contradicted: int
    """The number of answers since then that gave an older one."""


class MetadataAnswer(NamedTuple):
    """A broker's answer about its cluster."""

    nodes: Mapping[int, Address]
    """Empty: it does not know its cluster yet, and its answer is ignored."""
    racks: Mapping[int, str | None]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[TopicAnswer]


class Known:
    """The metadata known now.  One thread at a time."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, TopicInfo] = {}
        """Topics that were requested and exist."""
        self.version = 0
        """Changes whenever a leader may have changed."""
        self.refused: dict[str, errors.KafkalogError] = {}
        """Why the broker refused topics of the last request."""
        self._seen: dict[UUID, TopicInfo] = {}
        """The last knowledge of each topic, also of a forgotten one; the latest at the end."""
        self._hearsay: dict[tuple[UUID, int], Hearsay] = {}
        """Partitions whose leader is only known from an error: an error names no topic id, and may
        be about a deleted topic of the same name."""
        self._sought: dict[str, float] = {}
        """Missing topics, and since when they are looked for."""
        self._coordinators: dict[tuple[int, str], int] = {}

    # ---- metadata ----------------------------------------------------------------------

    def answered(self, names: Iterable[str] | None, answer: MetadataAnswer) -> None:
        """Take a broker's answer about these topics (None: all).  Topics that do not exist are
        forgotten; those that it refuses are in `refused`."""
        if not answer.nodes:
            return
        wanted = None if names is None else set(names)
        if self.cluster_id and answer.cluster_id and answer.cluster_id != self.cluster_id:
            self._seen.clear()  # another cluster, perhaps with copies of the same topics
            self._hearsay.clear()
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        self.nodes, self.racks = dict(answer.nodes), dict(answer.racks)
        self.version += 1
        for name in list(self.topics) if wanted is None else wanted:
            self.topics.pop(name, None)
        for code, info in answer.topics:
            if wanted is not None and info.name not in wanted:
                continue
            if not code:
                self._take(info)
            elif handling(code, apis.METADATA) is Handling.RAISE:
                self.refused[info.name] = failure(code, f"topic {info.name!r}", api=apis.METADATA)
        self._bound()

    def _take(self, info: TopicInfo) -> None:
        rows, topic_id = dict(info.partitions), info.topic_id
        if topic_id.int and (before := self._seen.pop(topic_id, None)) is not None:
            most = len(rows) + PAST_PARTITIONS_MAX
            for number, known in before.partitions.items():
                row = rows.get(number)
                if row is not None:
                    rows[number] = self._newer(row, known, topic_id)
                elif len(rows) < most:  # a topic never loses a partition
                    rows[number] = known
        taken = info._replace(partitions=dict(sorted(rows.items())))
        self.topics[info.name] = taken
        if topic_id.int:
            self._seen[topic_id] = taken

    def _newer(self, row: PartitionInfo, known: PartitionInfo, topic_id: UUID) -> PartitionInfo:
        """The one to believe: what a broker answered, or what is known already."""
        key = topic_id, row.partition
        hearsay = self._hearsay.pop(key, None)
        if not self._is_older(row, known):
            return row
        if hearsay is None:
            return known
        answered = hearsay.answered if self._is_older(row, hearsay.answered) else row
        if hearsay.contradicted == CONTRADICTED_MAX:
            return answered
        self._hearsay[key] = Hearsay(answered, hearsay.contradicted + 1)
        return known

    def _is_older(self, row: PartitionInfo, known: PartitionInfo) -> bool:
        """True if the broker that answered `row` does not know the current leader yet."""
        return 0 <= row.leader_epoch < known.leader_epoch

    def _bound(self) -> None:
        current = {info.topic_id for info in self.topics.values()}
        past = [topic_id for topic_id in self._seen if topic_id not in current]
        count, partitions = len(past), sum(len(self._seen[one].partitions) for one in past)
        if count <= PAST_MAX and partitions <= PAST_PARTITIONS_MAX:
            return
        for topic_id in past:
            if count <= PAST_MAX and partitions <= PAST_PARTITIONS_MAX:
                break
            count, partitions = count - 1, partitions - len(self._seen.pop(topic_id).partitions)
        self._hearsay = {key: n for key, n in self._hearsay.items() if key[0] in self._seen}

    def learn(self, other: Known, names: Iterable[str]) -> None:
        """Take over what another one knows of nodes and of these topics.  The other must not change
        in the meantime."""
        names = list(names)
        topics = [TopicAnswer(0, other.topics[name]) for name in names if name in other.topics]
        self.answered(
            names,
            MetadataAnswer(other.nodes, other.racks, other.cluster_id, other.controller_id, topics),
        )

    def learn_leader(self, tp: TopicPartition, leader: int, epoch: int, at: Address | None) -> bool:
        """Take an answer that names a partition's leader (KIP-951); False: it is not newer, or the
        node's address is unknown.

        `at`: the address, if the answer has it.
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
            key = info.topic_id, tp.partition
            before = self._hearsay.get(key)
            self._hearsay[key] = Hearsay(found if before is None else before.answered, 0)
        return leader in self.nodes

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that was requested; None: it was not, or another topic has the name
        now."""
        found = self._seen.get(topic_id)
        if found is None:
            return None
        now = self.topics.get(found.name, found)
        return found.name if now.topic_id == topic_id else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        """The leader epoch of a partition, as a request names it; -1: not known."""
        info = self.topics.get(tp.topic)
        row = None if info is None else info.partitions.get(tp.partition)
        return -1 if row is None else row.leader_epoch

    def forget(self, topic: str | None = None) -> None:
        """Forget a topic (None: all): it is requested again when needed."""
        if topic is None:
            self.topics.clear()
        else:
            self.topics.pop(topic, None)

    def rebootstrap(self) -> None:
        """Forget everything except the epochs of leaders."""
        self.controller_id = NO_NODE
        self.nodes, self.racks = {}, {}
        self.topics.clear()
        self._coordinators.clear()
        self.version += 1

    def _place(self, node: int, at: Address) -> None:
        _put(self.nodes, node, at, NODES_MAX)

    # ---- missing topics ------------------------------------------------------------------

    def sought_since_s(self, topic: str, now_s: float) -> float:
        """Since when a missing topic is looked for; from now on if it was not."""
        since_s = self._sought.get(topic, now_s)
        _put(self._sought, topic, since_s, SOUGHT_MAX)
        return since_s

    def seek_no_more(self, topic: str) -> None:
        """The topic exists, or is no longer looked for."""
        self._sought.pop(topic, None)

    # ---- coordinators ------------------------------------------------------------------

    def coordinator_of(self, name: str, kind: int) -> int | None:
        """The coordinator of a group or a transactional id; None: it must be looked up."""
        return self._coordinators.get((kind, name))

    def learn_coordinator(self, name: str, kind: int, node: int, at: Address) -> None:
        """Take an answer that names a coordinator and its address."""
        self._place(node, at)
        _put(self._coordinators, (kind, name), node, COORDINATORS_MAX)

    def forget_coordinator(self, name: str, kind: int = GROUP) -> None:
        """Look it up again when it is needed."""
        self._coordinators.pop((kind, name), None)

    def forget_coordinators(self) -> None:
        """Look all of them up again when they are needed."""
        self._coordinators.clear()


def _put(some: dict[K, V], key: K, value: V, most: int) -> None:
    """Put it at the end; the first one is dropped if there are too many."""
    some.pop(key, None)
    some[key] = value
    if len(some) > most:
        del some[next(iter(some))]


def known_in(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> bool:
    """True if metadata has a partition."""
    info = topics.get(tp.topic)
    return info is not None and tp.partition in info.partitions


def places_of(answer: Any) -> dict[int, Address]:
    """The addresses of leaders that an answer to Produce or Fetch names (KIP-951)."""
    found = getattr(answer, "node_endpoints", None) or ()
    return {at.node_id: Address(at.host, at.port) for at in found}


def metadata_of(answer: Any) -> MetadataAnswer:
    """The content of an answer to Metadata."""
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


def endpoint_type(controllers: bool) -> int:
    """DescribeCluster's number of brokers, or of controllers (KIP-919)."""
    return 2 if controllers else 1


def controllers_in(answer: Any) -> MetadataAnswer:
    """The controllers in an answer to DescribeCluster: they know no topics."""
    return MetadataAnswer(
        {one.broker_id: Address(one.host, one.port) for one in answer.brokers},
        {one.broker_id: one.rack for one in answer.brokers},
        answer.cluster_id,
        answer.controller_id,
        (),
    )


class Recovery:
    """When a client starts again from bootstrap.servers, by metadata.recovery.strategy (KIP-899,
    KIP-1102), and which brokers it may ask."""

    def __init__(self, rebootstraps: bool, trigger_s: float) -> None:
        """`rebootstraps` False: it never does.  `trigger_s`: it does after this long without
        metadata."""
        self.rebootstraps = rebootstraps
        self._trigger_s = trigger_s
        self._since_s: float | None = None
        """Since when requests for metadata have failed."""

    def asks(self, now_s: float) -> bool:
        """Metadata will be requested; returns whether to rebootstrap first."""
        if self._since_s is None:
            self._since_s = now_s
        late = now_s - self._since_s > self._trigger_s
        if late:
            self._since_s = now_s
        return late and self.rebootstraps

    def answered(self) -> None:
        """Metadata was received."""
        self._since_s = None

    def brokers(self, servers: Sequence[Address], nodes: Mapping[int, Address]) -> list[Address]:
        """The brokers that may be asked, the best first.  `servers`: the configured ones."""
        if not self.rebootstraps and nodes:
            return list(dict.fromkeys(nodes.values()))
        return list(dict.fromkeys((*servers, *nodes.values())))
