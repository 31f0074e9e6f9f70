"""Builds the metadata's image from the whole tree, as a new controller finds it.

Pure.  An unreadable znode is left out and reported; all others are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from kafkalog.errors import BadZnode
from kafkalog.metadata.image import (
    BROKER,
    TOPIC,
    Broker,
    MetadataImage,
    Partition,
    Topic,
    empty_image,
)
from kafkalog.security.scram import Credential
from kafkalog.wire.values import ZERO_UUID
from kafkalog.zookeeper import entities, own_settings, tree, users

__all__ = ["Loaded", "Znode", "broker", "load"]

PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""By Kafka's numbers."""
KINDS = {"topics": TOPIC, "brokers": BROKER}
T = TypeVar("T")


class Znode(NamedTuple):
    """A znode as ZooKeeper returns it."""

    data: bytes | None
    version: int = 0
    """How often its data was changed."""
    created: int = 0
    """The transaction that created it (czxid): for a broker, its epoch."""
    owner: int = 0
    """The session that owns it; 0: none."""
    changed: int = 0
    """The transaction that last wrote its data (mzxid)."""
    created_ms: int = 0
    """When it was created, by the clock of ZooKeeper; 0: not known."""


Tree = Mapping[str, Znode]
"""By path from the chroot: "/brokers/ids/1"."""


class Loaded(NamedTuple):
    """The contents of a tree."""

    image: MetadataImage
    controller: tree.ControllerNode | None
    controller_epoch: int
    """0 before the first election."""
    written_by: Mapping[tuple[str, int], int]
    """The epoch of the controller that wrote a partition's state."""
    written_at: Mapping[tuple[str, int], int]
    """And the transaction that created it, which is compared with brokers' epochs."""
    assigned_at: Mapping[str, int]
    """The version of the znode with the replicas of a topic's partitions."""
    unread: frozenset[tuple[str, int]]
    """Partitions whose state exists, but is unreadable."""
    deleted: frozenset[str]
    """Topics to delete."""
    problems: tuple[BadZnode, ...]
    """The errors of znodes that were left out."""


Quotas = Mapping[Any, Mapping[str, float]]
"""By the entity as the wire has it."""


def load(znodes: Tree, node_id: int, quotas: Quotas = MappingProxyType({})) -> Loaded:
    """Load a whole tree, for the broker `node_id`; `quotas`: those that were known before, which
    stay where they have become unreadable."""
    return _Loading(znodes, quotas).load(node_id)


def broker(number: int, znode: Znode) -> Broker:
    """A broker from its registration.

    Raises: BadZnode.
    """
    found = tree.read_broker(number, znode.data)
    endpoints = tuple(
        (e.listener, e.host, e.port, PROTOCOLS.get(e.protocol, -1)) for e in found.endpoints
    )
    features = tuple((name, low, high) for name, (low, high) in found.features.items())
    return Broker(
        number, znode.created, ZERO_UUID, endpoints, features, found.rack,
        fenced=False, in_controlled_shutdown=False, directories=(),
    )  # fmt: skip


class _Loading:
    def __init__(self, znodes: Tree, quotas: Quotas) -> None:
        self._znodes, self._known_quotas = znodes, quotas
        self._children: dict[str, list[str]] = {}
        for path in znodes:
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent, []).append(name)
        self._problems: list[BadZnode] = []
        self._written_by: dict[tuple[str, int], int] = {}
        self._written_at: dict[tuple[str, int], int] = {}
        self._unread: set[tuple[str, int]] = set()

    def load(self, node_id: int) -> Loaded:
        topics = dict(self._topics())
        image = empty_image(self._one(tree.CLUSTER_ID, tree.read_cluster_id) or "", node_id)
        block = self._one(tree.PRODUCER_IDS, tree.read_producer_ids)
        configs, quotas, scram = self._settings(topics)
        epoch = self._one(tree.CONTROLLER_EPOCH, tree.read_epoch) or 0
        image = image._replace(
            epoch=epoch,
            topics=topics,
            names={topic.id: name for name, topic in topics.items() if topic.id != ZERO_UUID},
            brokers=dict(self._brokers()),
            configs=configs,
            quotas=quotas,
            next_producer_id=block.last + 1 if block else 0,
            scram=scram,
        )
        controller = self._one(tree.CONTROLLER, tree.read_controller)
        deleted = frozenset(self._children.get(tree.DELETE_TOPICS, ()))
        problems = tuple(self._problems)
        assigned_at = {name: self._znodes[tree.topic_path(name)].version for name in topics}
        return Loaded(
            image, controller, epoch, self._written_by, self._written_at, assigned_at,
            frozenset(self._unread), deleted, problems,
        )  # fmt: skip

    def _read(self, read: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return read(*arguments)
        except BadZnode as problem:
            self._problems.append(problem)
            return None

    def _one(self, path: str, read: Callable[[bytes | None], T]) -> T | None:
        found = self._znodes.get(path)
        # A folder that was created and never written is empty, and not an error.
        return self._read(read, found.data) if found and found.data else None

    def _numbered(self, parent: str) -> Iterator[tuple[int, str]]:
        """The children whose names are numbers; Kafka creates no others there."""
        for name in self._children.get(parent, ()):
            if name.isdecimal() and len(name) <= 10:
                yield int(name), f"{parent}/{name}"

    # ---- brokers and topics ------------------------------------------------------------------

    def _brokers(self) -> Iterator[tuple[int, Broker]]:
        for number, path in self._numbered(tree.BROKERS):
            found = self._read(broker, number, self._znodes[path])
            if found is not None:
                yield number, found

    def _topics(self) -> Iterator[tuple[str, Topic]]:
        for name in self._children.get(tree.TOPICS, ()):
            found = self._read(tree.read_topic, name, self._znodes[tree.topic_path(name)].data)
            if found is not None:
                partitions = {
                    number: self._partition(name, number, found) for number in found.replicas
                }
                yield name, Topic(name, found.topic_id, partitions)

    def _partition(self, topic: str, number: int, node: tree.TopicNode) -> Partition:
        """A partition without a state yet: no leader, and epoch -1, which is below every first
        one."""
        state, version = tree.PartitionState(-1, -1, (), 0), -1
        if znode := self._znodes.get(tree.partition_path(topic, number)):
            found = self._read(tree.read_partition, topic, number, znode.data)
            if found is not None:
                state, version = found, znode.version
                self._written_by[topic, number] = state.controller_epoch
                self._written_at[topic, number] = znode.changed
            else:
                self._unread.add((topic, number))
        return Partition(
            number, node.replicas[number], state.isr, state.leader, state.leader_epoch, version,
            removing_replicas=node.removing.get(number, ()),
            adding_replicas=node.adding.get(number, ()),
            leader_recovery_state=int(state.recovering),
        )  # fmt: skip

    # ---- settings ----------------------------------------------------------------------------

    def _settings(self, topics: Mapping[str, Topic]) -> tuple[dict[Any, Any], ...]:
        """Settings of topics and brokers, quotas, and SCRAM credentials."""
        configs: dict[tuple[int, str], Mapping[str, str]] = {}
        quotas: dict[Any, Mapping[str, float]] = {}
        scram: dict[tuple[str, int], Credential] = {}
        for entity in self._entities():
            data = self._znodes[entities.config_path(entity)].data
            if entity[0] in KINDS:
                if entity[0] == "topics":
                    found = self._topic_settings(entity[1], topics.get(entity[1]))
                else:
                    found = self._read(entities.read_config, entity, data) or {}
                name = "" if entity[1] == entities.DEFAULT else entity[1]
                if found:
                    configs[KINDS[entity[0]], name] = found
                continue
            client = users.read(entity, data)
            self._problems += client.problems
            scram |= users.credentials(entity, client)
            pairs = entities.quota_entity(entity)
            rates = self._known_quotas.get(pairs) if client.quotas is None else client.quotas
            if rates:
                quotas[pairs] = rates
        return configs, quotas, scram

    def _topic_settings(self, name: str, topic: Topic | None) -> Mapping[str, str]:
        entity, own = ("topics", name), self._znodes.get(own_settings.path_of(name))
        config = self._znodes[entities.config_path(entity)]
        found = self._read(entities.read_config, entity, config.data) or {}
        if topic is None or own is None:
            return found
        return {**found, **(self._read(own_settings.read, name, topic.id, own.data) or {})}

    def _entities(self) -> Iterator[entities.Entity]:
        for kind in entities.KINDS:
            for name in self._children.get(f"{entities.CONFIG}/{kind}", ()):
                yield (kind, name)
                for client in self._children.get(f"{entities.CONFIG}/users/{name}/clients", ()):
                    if kind == "users":
                        yield (kind, name, "clients", client)
