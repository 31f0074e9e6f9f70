"""The metadata at one offset: topics, settings, brokers and the rest.

An image never changes; kafkalog.metadata.changes makes the next one from it.  Names are those
of KRaft's records (docs/format.md, "Metadata").
"""

import uuid
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkalog.security.acls import Acl
from kafkalog.security.scram import Credential
from kafkalog.security.tokens import Token

__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "ELIGIBLE_REPLICAS",
    "GROUP",
    "INTERNAL_TOPICS",
    "METADATA_VERSION",
    "NO_LEADER",
    "TOPIC",
    "Broker",
    "Change",
    "Configs",
    "MetadataImage",
    "Partition",
    "Topic",
    "empty_image",
]

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Kinds of resources that have settings; Kafka's ConfigResource.Type."""
METADATA_VERSION = "metadata.version"
ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"
"""KIP-966; when enabled, min.insync.replicas is a setting of the whole cluster."""
NO_LEADER = -1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")

Configs = Mapping[tuple[int, str], Mapping[str, str]]
"""Settings by (kind of resource, its name): a broker's name is its number, "" is all of them."""


class Partition(NamedTuple):
    """One partition: its replicas and its leader."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """NO_LEADER if nobody leads it."""
    leader_epoch: int
    """Rises whenever a leader is elected, even the same one."""
    partition_epoch: int
    """Rises with every change of the partition."""
    directories: tuple[uuid.UUID, ...] = ()
    """The log directory's id of each replica."""
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    """1: the leader was elected out of sync, and is still recovering."""
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    """Replicas that are offline, as a cluster's controller reports them."""


class Topic(NamedTuple):
    """A topic and its partitions by number."""

    name: str
    id: uuid.UUID
    partitions: Mapping[int, Partition]


class Broker(NamedTuple):
    """The registration of a broker."""

    id: int
    epoch: int
    """The offset of its registration in the metadata log."""
    incarnation_id: uuid.UUID
    endpoints: tuple[tuple[str, str, int, int], ...]
    """(listener's name, host, port, security protocol)."""
    features: tuple[tuple[str, int, int], ...]
    """(name, lowest level, highest level)."""
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[uuid.UUID, ...]
    cordoned: tuple[uuid.UUID, ...] = ()
    """Those of `directories` that get no new partitions (KIP-1066)."""


class MetadataImage(NamedTuple):
    """All metadata at one offset."""

    cluster_id: str
    node_id: int
    offset: int
    """The offset of its last record; -1: none."""
    epoch: int
    """The leader epoch of that record."""
    timestamp_ms: int
    """The time of that record."""
    features: Mapping[str, int]
    """Levels of the features in use, `metadata.version` among them."""
    topics: Mapping[str, Topic]
    names: Mapping[uuid.UUID, str]
    """A topic's name by its id."""
    configs: Configs
    next_producer_id: int
    """The first producer id that is in no block."""
    brokers: Mapping[int, Broker]
    controllers: Mapping[int, Any]
    """RegisterControllerRecord by controller."""
    scram: Mapping[tuple[str, int], Credential]
    """By (user, mechanism): kafkalog.security.scram.Mechanism, or the number of an unknown one."""
    acls: Mapping[uuid.UUID, Acl]
    """By id."""
    tokens: Mapping[str, Token]
    """Delegation tokens by id."""
    quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]
    """Quotas by entity: (type, name; None: default) pairs, sorted by type."""
    foreign: Mapping[str, int]
    """Counts of unknown records, and of records that depend on them, by kind.  A directory with any
    of them is opened for reading only."""

    @property
    def living(self) -> dict[int, Broker]:
        """The brokers that are not fenced."""
        return {number: one for number, one in self.brokers.items() if not one.fenced}

    def topic(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with this id."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> Partition | None:
        """One partition."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                yield topic, partition

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """A resource's own settings; empty if it has none."""
        return self.configs.get((kind, name), _NOTHING)


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Change(NamedTuple):
    """The difference between two images."""

    old: MetadataImage
    new: MetadataImage
    changed: tuple[Topic, ...]
    """New or changed topics, in their new state."""
    gone: tuple[Topic, ...]
    """Deleted topics, in their old state; their names may be in use again."""
    resources: tuple[tuple[int, str], ...]
    """Resources whose settings changed."""


def empty_image(cluster_id: str, node_id: int) -> MetadataImage:
    """The image before the first record."""
    return MetadataImage(
        cluster_id=cluster_id, node_id=node_id, offset=-1, epoch=0, timestamp_ms=-1, features={},
        topics={}, names={}, configs={}, next_producer_id=0, brokers={}, controllers={}, acls={},
        scram={}, tokens={}, quotas={}, foreign={},
    )  # fmt: skip
