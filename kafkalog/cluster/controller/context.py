"""What a controller knows of its cluster.

A cache of the tree: the elected controller fills it once, and each change is in the tree first.
The set of live brokers is all that comes from elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkalog.cluster.controller.leader_election import Leadership
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import TOPIC, Broker, Partition
from kafkalog.metadata.zookeeper import tree
from kafkalog.metadata.zookeeper.loading import Loaded
from kafkalog.metadata.zookeeper.session import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    Set,
)

__all__ = [
    "NEVER_LED",
    "Assignment",
    "Change",
    "Context",
    "Copies",
    "Folder",
    "Reign",
    "Removal",
    "TopicPartition",
    "Write",
    "leadership",
    "unclean_of",
]

TopicPartition = tuple[str, int]
Copies = dict[str, set[tuple[int, int]]]
"""By topic: (partition, broker)."""
LEADER_EPOCH_MAX = 2**31 - 1
NEVER_LED = -1
"""The leader epoch of a partition that has no state in the tree yet."""


class Reign(NamedTuple):
    """The identity of the deciding controller, and how its writes prove it."""

    broker: int
    epoch: int
    """The value of /controller_epoch."""
    epoch_version: int
    """The version of that znode: a later controller's differs."""
    unclean: bool = False
    """Whether an out-of-sync replica may lead if no other is left, for every topic that does not
    set it."""


class Write(NamedTuple):
    """A partition's new state, all or nothing, and only while this controller reigns."""

    partition: TopicPartition
    after: Partition
    """The partition once the write is done."""
    operations: tuple[Operation, ...]
    """The first checks the reign; if it is refused, another controller reigns."""


class Assignment(NamedTuple):
    """New assignments of a topic's partitions, together with their states, all or nothing."""

    topic: str
    after: Mapping[TopicPartition, Partition]
    """The partitions once the write is done."""
    operations: tuple[Operation, ...]
    """The first checks the reign, the second writes the topic's znode."""


class Folder(NamedTuple):
    """A znode that holds others; one that already exists is fine, too."""

    path: str
    operations: tuple[Operation, ...]
    """The first checks the reign."""


class Change(NamedTuple):
    """Another change of the tree."""

    path: str
    operations: tuple[Operation, ...]
    """The first checks the reign."""


class Removal(NamedTuple):
    """A znode to remove; one that is already gone is fine, too."""

    path: str
    operations: tuple[Operation, ...]
    """The first checks the reign."""


class Context:
    """What a controller knows.  One thread only: the controller's."""

    def __init__(self, reign: Reign, loaded: Loaded, strays: Copies | None = None) -> None:
        """`strays`: as an earlier reign of this node knew them.  Those of a topic that was not
        read are forgotten: its znode may only be unreadable, and another controller may have
        given the copy back in the meantime."""
        self.reign = reign
        image = loaded.image
        self.brokers: dict[int, Broker] = dict(image.brokers)
        self.ending: set[int] = set()
        """Brokers that asked for a controlled shutdown; they may not be elected."""
        self.lost_directories: dict[int, frozenset[TopicPartition]] = {}
        """The partitions that each broker holds on a failed disk."""
        self.ids: dict[str, uuid.UUID] = {name: topic.id for name, topic in image.topics.items()}
        self.partitions: dict[TopicPartition, Partition] = {
            (topic.name, one.partition): one for topic, one in image.partitions()
        }
        self.written_by: dict[TopicPartition, int] = dict(loaded.written_by)
        """The epoch of the controller that wrote a partition's state."""
        self.reborn: dict[TopicPartition, frozenset[int]] = dict(_reborn(loaded))
        """Members of an ISR that registered after it was written: no controller saw them die."""
        self.deleted: set[str] = set(loaded.deleted)
        """Topics being deleted; no leader is elected for them."""
        self.dropped: Copies = {}
        """The copies of these that brokers have dropped."""
        self.strays: Copies = {name: those for name, those in (strays or {}).items()
                               if name in self.ids}  # fmt: skip
        """Copies that moves left behind and that their brokers have not reported as dropped."""
        self.failed: Copies = {}
        """Of both, what to retry: the copies that brokers could not drop; an empty set if the tree
        refused."""
        self.again: set[tuple[str, tuple[int, int] | None]] = set()
        """Retries in flight: copies by topic; None: the topic's removal from the tree."""
        self.stale: set[TopicPartition] = set(loaded.unread)
        """Their state in the tree differs from here: nothing is decided until it is read again."""
        self.unread: set[TopicPartition] = set(loaded.unread)
        """Of these, what must not be read again at once: the state is unreadable, or differed again
        when it was read."""
        self.broken: dict[TopicPartition, str] = {}
        """Why nothing could be decided about a partition, as it was logged last."""
        self.shifted: set[TopicPartition] = set()
        """Partitions under a move whose ISR may have changed since the move was last looked at."""
        self.assigned_at: dict[str, int] = dict(loaded.assigned_at)
        """The version of a topic's znode; a topic that is not here is written at any version."""
        self.asked_by_tree: dict[TopicPartition, tuple[int, ...]] = {}
        """The moves in /admin/reassign_partitions that are not done."""
        self._unclean = _unclean(loaded)

    # ---- live brokers ---------------------------------------------------------------------

    def electable(self, key: TopicPartition) -> frozenset[int]:
        """Brokers that may lead a partition, or be in sync: alive, with its disk, and not shutting
        down."""
        return frozenset(one for one in self.holding(key) if one not in self.ending)

    def holding(self, key: TopicPartition) -> Iterator[int]:
        """The live brokers that have the partition's disk."""
        lost = self.lost_directories
        return (one for one in self.brokers if key not in lost.get(one, ()))

    def offline_replicas(self, key: TopicPartition) -> tuple[int, ...]:
        """A partition's replicas whose broker or disk is offline."""
        holding = set(self.holding(key))
        return tuple(one for one in self.partitions[key].replicas if one not in holding)

    def on(self, broker: int) -> Iterator[TopicPartition]:
        """The partitions that a broker keeps or must keep."""
        return (key for key, one in self.partitions.items() if broker in one.replicas)

    def unclean(self, topic: str) -> bool:
        """Whether an out-of-sync leader is better for this topic than none."""
        return self._unclean.get(topic, self.reign.unclean)

    def says_unclean(self, topic: str, said: bool | None) -> None:
        """Set a topic's own unclean.leader.election.enable; None: it has none."""
        self._unclean.pop(topic, None)
        if said is not None:
            self._unclean[topic] = said

    def moved_off(self, broker: int, key: TopicPartition) -> None:
        """A broker no longer keeps a partition: it must drop its copy, whose disk no longer counts
        as lost."""
        self.strays.setdefault(key[0], set()).add((key[1], broker))
        if key in (lost := self.lost_directories.get(broker, frozenset())):
            self.lost_directories[broker] = lost - {key}

    # ---- what is written ------------------------------------------------------------------

    def write(self, key: TopicPartition, new: Leadership) -> Write:
        """The write of a leadership; refused if the partition's state is not as it is here."""
        after, change = self._led(key, self.partitions[key], new)
        return Write(key, after, (self._check(), change))

    def _led(
        self, key: TopicPartition, one: Partition, new: Leadership
    ) -> tuple[Partition, Operation]:
        path = tree.partition_path(*key)
        if new.leader_epoch > LEADER_EPOCH_MAX:
            raise ArgumentError(
                f"{path}: leader_epoch: found {one.leader_epoch}, wanted less than "
                f"{LEADER_EPOCH_MAX}: no other leader can be elected"
            )
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
        return after, change

    def assign(
        self, topic: str, those: Mapping[TopicPartition, tuple[Partition, Leadership | None]]
    ) -> Assignment:
        """The write that assigns a topic's partitions to other brokers, under other leaderships
        (None: it has no state yet); refused if the topic or a state is not as it is here."""
        after = {}
        changes: list[Operation] = []
        for key, (one, new) in those.items():
            after[key] = one
            if new is not None:
                after[key], change = self._led(key, one, new)
                changes.append(change)
        now = {key[1]: one for key, one in self.partitions.items() if key[0] == topic}
        now |= {key[1]: one for key, one in after.items()}
        node = tree.TopicNode(
            self.ids[topic],
            {number: one.replicas for number, one in now.items()},
            {number: one.adding_replicas for number, one in now.items() if one.adding_replicas},
            {number: one.removing_replicas for number, one in now.items()
             if one.removing_replicas},
        )  # fmt: skip
        own = Set(
            tree.topic_path(topic), tree.write_topic(node), self.assigned_at.get(topic, ANY_VERSION)
        )
        return Assignment(topic, after, (self._check(), own, *changes))

    def assigned(self, done: Assignment) -> None:
        """An assignment was written."""
        for key, one in done.after.items():
            if one.partition_epoch != self.partitions[key].partition_epoch:
                self.written_by[key] = self.reign.epoch
            self.partitions[key] = one
        if done.topic in self.assigned_at:
            self.assigned_at[done.topic] += 1

    def check(self, key: TopicPartition, one: Partition, new: Leadership | None) -> None:
        """Raises if this leadership cannot be written: ArgumentError."""
        if new is not None:
            self._led(key, one, new)

    def folders(self, keys: Iterable[TopicPartition]) -> list[Folder]:
        """The znodes that will hold partitions without a state yet, the outer before the inner."""
        first = [key for key in keys if self.partitions[key].leader_epoch == NEVER_LED]
        outer = dict.fromkeys(tree.partitions_path(topic) for topic, _ in first)
        inner = [tree.partition_path(*key).removesuffix("/state") for key in first]
        return [Folder(path, (self._check(), Create(path))) for path in [*outer, *inner]]

    def removals(self, paths: Iterable[str]) -> list[Removal]:
        """The removals of znodes; `paths`: the inner before the outer."""
        return [Removal(path, (self._check(), Delete(path))) for path in paths]

    def change(self, path: str, change: Operation, *others: Operation) -> Change:
        """A change of a znode, and of others with it, that are not a partition's state."""
        return Change(path, (self._check(), change, *others))

    def reigning(self) -> Change:
        """A change that writes nothing, and is refused if another controller reigns."""
        return Change(tree.CONTROLLER_EPOCH, (self._check(),))

    def _check(self) -> Check:
        return Check(tree.CONTROLLER_EPOCH, self.reign.epoch_version)

    def written(self, write: Write) -> None:
        """A write was done."""
        self.partitions[write.partition] = write.after
        self.written_by[write.partition] = self.reign.epoch
        self._shift(write.partition)

    def read(self, key: TopicPartition, state: tree.PartitionState, version: int) -> None:
        """A partition's state was read from the tree."""
        self.stale.discard(key)
        self.unread.discard(key)
        self.written_by[key] = state.controller_epoch
        self.partitions[key] = self.partitions[key]._replace(
            leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr,
            leader_recovery_state=int(state.recovering), partition_epoch=version,
        )  # fmt: skip
        self._shift(key)

    def _shift(self, key: TopicPartition) -> None:
        one = self.partitions[key]
        if one.adding_replicas or one.removing_replicas:
            self.shifted.add(key)


def leadership(one: Partition) -> Leadership:
    """The leadership of a partition, as elections use it."""
    return Leadership(one.leader, one.leader_epoch, one.isr, bool(one.leader_recovery_state))


def unclean_of(settings: Mapping[str, str]) -> bool | None:
    """A topic's unclean.leader.election.enable; None: it does not set it."""
    said = settings.get("unclean.leader.election.enable")
    return None if said is None else said.strip().lower() == "true"


def _reborn(loaded: Loaded) -> Iterator[tuple[TopicPartition, frozenset[int]]]:
    epochs = {one.id: one.epoch for one in loaded.image.brokers.values()}
    for topic, one in loaded.image.partitions():
        key = topic.name, one.partition
        written_at = loaded.written_at.get(key)
        if written_at is not None:
            found = frozenset(each for each in one.isr if epochs.get(each, -1) > written_at)
            if found:
                yield key, found


def _unclean(loaded: Loaded) -> dict[str, bool]:
    """unclean.leader.election.enable of the topics that set it."""
    topics = {name: said for (kind, name), said in loaded.image.configs.items() if kind == TOPIC}
    found = {name: unclean_of(settings) for name, settings in topics.items()}
    return {name: said for name, said in found.items() if said is not None}
