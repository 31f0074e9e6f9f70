"""What a controller knows of its cluster.

A cache of the tree: it is filled once, by who is elected, and each change is in the tree first.
Which brokers live is the only thing that comes from elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalog.cluster.controller.elect import Leadership
from kafkalog.metadata.image import TOPIC, Broker, Partition
from kafkalog.metadata.zookeeper import tree
from kafkalog.metadata.zookeeper.loading import Loaded
from kafkalog.metadata.zookeeper.session import Check, Create, Delete, Operation, Set

__all__ = [
    "NEVER_LED",
    "Context",
    "Folder",
    "Reign",
    "Removal",
    "TopicPartition",
    "Write",
    "leadership",
]

TopicPartition = tuple[str, int]
NEVER_LED = -1
"""The leader epoch of a partition that has no state in the tree yet."""


class Reign(NamedTuple):
    """Of the controller that decides: who it is, and by what its writes prove it."""

    broker: int
    epoch: int
    """What /controller_epoch says."""
    epoch_version: int
    """The version of that znode: a later controller's is another."""
    unclean: bool = False
    """Whether who is out of sync may lead where nobody else is left, of every topic that says
    nothing else."""


class Write(NamedTuple):
    """A partition's new state, all or nothing, and only while this controller reigns."""

    partition: TopicPartition
    after: Partition
    """As it is once the write is done."""
    operations: tuple[Operation, ...]
    """The first is the check of the reign; where it stands in the way, another reigns."""


class Folder(NamedTuple):
    """A znode that others stand in; that it is there already is as well."""

    path: str
    operations: tuple[Operation, ...]
    """The first is the check of the reign."""


class Removal(NamedTuple):
    """A znode that goes; that it is gone already is as well."""

    path: str
    operations: tuple[Operation, ...]
    """The first is the check of the reign."""


class Context:
    """What a controller knows.  One thread only: the controller's."""

    def __init__(self, reign: Reign, loaded: Loaded) -> None:
        self.reign = reign
        image = loaded.image
        self.brokers: dict[int, Broker] = dict(image.brokers)
        self.ending: set[int] = set()
        """Who has asked to be let go, and may not be elected."""
        self.lost_directories: dict[int, frozenset[TopicPartition]] = {}
        """What each broker holds on a disk that failed."""
        self.ids: dict[str, uuid.UUID] = {name: topic.id for name, topic in image.topics.items()}
        self.partitions: dict[TopicPartition, Partition] = {
            (topic.name, one.partition): one for topic, one in image.partitions()
        }
        self.written_by: dict[TopicPartition, int] = dict(loaded.written_by)
        """The epoch of the controller that wrote a partition's state."""
        self.deleted: set[str] = set(loaded.deleted)
        """Topics that are to be deleted; nobody is elected for them."""
        self.dropped: dict[str, set[tuple[int, int]]] = {}
        """Of these, the partitions that brokers have dropped: (partition, broker)."""
        self.stale: set[TopicPartition] = set()
        """Whose state in the tree is other than here: nothing is decided until it is read again."""
        self._unclean = _unclean(loaded)

    # ---- who is there ---------------------------------------------------------------------

    def electable(self, key: TopicPartition) -> frozenset[int]:
        """Who may lead a partition, or be in sync: who lives, has its disk, and is to stay."""
        return frozenset(one for one in self.holding(key) if one not in self.ending)

    def holding(self, key: TopicPartition) -> Iterator[int]:
        """The brokers that live and have the partition's disk."""
        lost = self.lost_directories
        return (one for one in self.brokers if key not in lost.get(one, ()))

    def offline_replicas(self, key: TopicPartition) -> tuple[int, ...]:
        """Of a partition's brokers, those that cannot be asked for it."""
        holding = set(self.holding(key))
        return tuple(one for one in self.partitions[key].replicas if one not in holding)

    def on(self, broker: int) -> Iterator[TopicPartition]:
        """The partitions that a broker keeps, or is to."""
        return (key for key, one in self.partitions.items() if broker in one.replicas)

    def unclean(self, topic: str) -> bool:
        """Whether a leader out of sync is better for this topic than none."""
        return self._unclean.get(topic, self.reign.unclean)

    def says_unclean(self, topic: str, said: bool | None) -> None:
        """What a topic says of itself now; None: nothing."""
        self._unclean.pop(topic, None)
        if said is not None:
            self._unclean[topic] = said

    # ---- what is written ------------------------------------------------------------------

    def write(self, key: TopicPartition, new: Leadership) -> Write:
        """What puts a leadership into the tree, where the partition's state is as it is here."""
        one, path = self.partitions[key], tree.partition_path(*key)
        data = tree.write_partition(
            tree.PartitionState(
                new.leader, new.leader_epoch, new.isr, self.reign.epoch, new.recovering
            )
        )
        first = one.leader_epoch == NEVER_LED
        change = Create(path, data) if first else Set(path, data, one.partition_epoch)
        after = one._replace(
            leader=new.leader, leader_epoch=new.leader_epoch, isr=new.isr,
            leader_recovery_state=int(new.recovering), partition_epoch=one.partition_epoch + 1,
        )  # fmt: skip
        return Write(key, after, (self._check(), change))

    def folders(self, keys: Iterable[TopicPartition]) -> list[Folder]:
        """What partitions that have no state yet are to stand in, the outer before the inner."""
        first = [key for key in keys if self.partitions[key].leader_epoch == NEVER_LED]
        outer = dict.fromkeys(tree.partitions_path(topic) for topic, _ in first)
        inner = [tree.partition_path(*key).removesuffix("/state") for key in first]
        return [Folder(path, (self._check(), Create(path))) for path in [*outer, *inner]]

    def removals(self, paths: Iterable[str]) -> list[Removal]:
        """What takes znodes out of the tree, the inner before the outer."""
        return [Removal(path, (self._check(), Delete(path))) for path in paths]

    def _check(self) -> Check:
        return Check(tree.CONTROLLER_EPOCH, self.reign.epoch_version)

    def written(self, write: Write) -> None:
        """A write was done."""
        self.partitions[write.partition] = write.after
        self.written_by[write.partition] = self.reign.epoch

    def read(self, key: TopicPartition, state: tree.PartitionState, version: int) -> None:
        """A partition's state as it was found in the tree."""
        self.stale.discard(key)
        self.written_by[key] = state.controller_epoch
        self.partitions[key] = self.partitions[key]._replace(
            leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr,
            leader_recovery_state=int(state.recovering), partition_epoch=version,
        )  # fmt: skip


def leadership(one: Partition) -> Leadership:
    """Who leads a partition, as elections have it."""
    return Leadership(one.leader, one.leader_epoch, one.isr, bool(one.leader_recovery_state))


def _unclean(loaded: Loaded) -> dict[str, bool]:
    """What topics say for themselves."""
    found = {}
    for (kind, name), settings in loaded.image.configs.items():
        said = settings.get("unclean.leader.election.enable")
        if kind == TOPIC and said is not None:
            found[name] = said.strip().lower() == "true"
    return found
