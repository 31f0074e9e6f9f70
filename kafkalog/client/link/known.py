"""What a client knows of a cluster's nodes and topics, and which answer it believes.

Pure: answers go in, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.failures import failure, is_retriable
from kafkalog.client.link.transport import Address
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["NO_NODE", "Known", "PartitionInfo", "TopicInfo", "known_in", "places_of"]

NO_NODE = -1


class PartitionInfo(NamedTuple):
    """A partition, as metadata has it."""

    partition: int
    leader: int
    """A node; -1: it has none now."""
    leader_epoch: int
    """-1: the broker does not say."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic, as metadata has it."""

    name: str
    topic_id: UUID
    """All zero where the broker gives none."""
    internal: bool
    partitions: dict[int, PartitionInfo]


class Known:
    """Nodes, topics and leaders, as the latest answers name them.  One thread at a time."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, TopicInfo] = {}
        """What is known of topics that were asked for."""
        self.version = 0
        """Another one whenever a leader may be another."""
        self.refused: dict[str, errors.KafkalogError] = {}
        """What the broker said against topics that were asked for last."""
        self._latest: dict[str, TopicInfo] = {}
        """What was known last, also of topics that are forgotten: no older answer is believed."""
        self._names: dict[UUID, str] = {}

    def take_metadata(self, answer: Any, names: list[str] | None) -> None:
        """An answer about these topics (None: about all).  Topics that do not exist are forgotten;
        what the broker says against one is left in `refused`."""
        self.nodes = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        self.racks = {b.node_id: b.rack for b in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        for name in list(self.topics) if names is None else names:
            self.topics.pop(name, None)
        self.version += 1
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._latest.pop(topic.name, None)
                continue
            if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
                continue
            if topic.error_code and not is_retriable(topic.error_code):
                self.refused[topic.name] = failure(topic.error_code, f"topic {topic.name!r}")
                continue
            self._take(topic)
        if names is None:  # no other topic is there
            self._latest = {name: self._latest[name] for name in self.topics}

    def _take(self, topic: Any) -> None:
        partitions = {
            p.partition_index: PartitionInfo(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
            )
            for p in topic.partitions
        }
        info = TopicInfo(
            topic.name, topic.topic_id, topic.is_internal, dict(sorted(partitions.items()))
        )
        self._keep_later(info)
        self.topics[info.name] = self._latest[info.name] = info
        self._names[info.topic_id] = info.name

    def _keep_later(self, info: TopicInfo) -> None:
        """A broker may not have heard yet of a leader that another one has named."""
        before = self._latest.get(info.name)
        if before is None or before.topic_id != info.topic_id or not info.topic_id.int:
            return  # nothing tells a topic without an id from one that had its name before
        for number, row in info.partitions.items():
            known = before.partitions.get(number)
            if known is not None and 0 <= row.leader_epoch < known.leader_epoch:
                info.partitions[number] = known

    def learn(self, other: Known, names: Iterable[str]) -> None:
        """Take over what another thread's client, which makes no call now, knows of nodes and of
        these topics."""
        self.version += 1
        self.cluster_id, self.controller_id = other.cluster_id, other.controller_id
        self.nodes, self.racks = dict(other.nodes), dict(other.racks)
        for name in names:
            self.topics.pop(name, None)
            if (info := other.topics.get(name)) is not None:
                info = info._replace(partitions=dict(info.partitions))
                self._keep_later(info)
                self.topics[name] = self._latest[name] = info

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
            self.nodes[leader] = at
        info.partitions[tp.partition] = found._replace(leader=leader, leader_epoch=epoch)
        self.version += 1
        return leader in self.nodes

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic that was asked for; None when no such was."""
        return self._names.get(topic_id)

    def forget(self, topic: str | None = None) -> None:
        """What was known of a topic (None: of all) is asked for again when it is needed."""
        if topic is None:
            self.topics.clear()
        else:
            self.topics.pop(topic, None)


def known_in(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> bool:
    """Whether metadata has a partition."""
    info = topics.get(tp.topic)
    return info is not None and tp.partition in info.partitions


def places_of(answer: Any) -> dict[int, Address]:
    """Where the nodes are that an answer to Produce or Fetch names as leaders (KIP-951)."""
    found = getattr(answer, "node_endpoints", None) or ()
    return {at.node_id: Address(at.host, at.port) for at in found}
