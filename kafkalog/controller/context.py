"""A controller's view of its cluster.

A cache of its store: the active controller fills it once, and each change is in the store first.
The set of live brokers is all that comes from elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkalog.controller.leader_election import Leadership
from kafkalog.controller.records import (
    PartitionChange,
    PartitionState,
    TopicPartition,
)
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import NO_LEADER, TOPIC, Broker, MetadataImage, Partition

__all__ = [
    "NEVER_LED",
    "Claim",
    "Context",
    "Copies",
    "Snapshot",
    "leadership",
    "unclean_of",
]

Copies = dict[str, set[tuple[int, int]]]
"""By topic: (partition, broker)."""
LEADER_EPOCH_MAX = 2**31 - 1
NEVER_LED = -1
"""The leader epoch of a partition that has no state in the store yet."""


class Claim(NamedTuple):
    """The identity of the deciding controller, and how its writes prove it."""

    broker: int
    epoch: int
    """The controller epoch."""
    epoch_version: int
    """The store's version of that epoch: a later controller's differs."""
    unclean: bool = False
    """The default of topics: an out-of-sync replica may lead if no other is left."""


class Snapshot(Protocol):
    """The content of its store when a controller becomes active."""

    @property
    def image(self) -> MetadataImage:
        """All metadata."""

    @property
    def written_by(self) -> Mapping[TopicPartition, int]:
        """The epoch of the controller that wrote a partition's state."""

    @property
    def written_at(self) -> Mapping[TopicPartition, int]:
        """When it was written, to be compared with brokers' epochs."""

    @property
    def unread(self) -> frozenset[TopicPartition]:
        """Partitions whose state exists, but is unreadable."""

    @property
    def deleted(self) -> frozenset[str]:
        """Topics to delete."""

    @property
    def problems(self) -> Sequence[Exception]:
        """The errors of what was left out."""


class Context:
    """A controller's view of its cluster.  One thread only: the controller's."""

    def __init__(
        self, claim: Claim, loaded: Snapshot, stray_replicas: Copies | None = None
    ) -> None:
        """`stray_replicas`: as this node knew them when it was the controller before.  Those of a
        topic that was not read are forgotten: the topic may only be unreadable, and another
        controller may have given the replica back since."""
        self.claim = claim
        image = loaded.image
        self.brokers: dict[int, Broker] = dict(image.brokers)
        self.shutting_down: set[int] = set()
        """Brokers that asked for a controlled shutdown; they may not be elected."""
        self.offline_log_dirs: dict[int, frozenset[TopicPartition]] = {}
        """The partitions that each broker holds on a failed disk."""
        self.ids: dict[str, uuid.UUID] = {name: topic.id for name, topic in image.topics.items()}
        self.partitions: dict[TopicPartition, Partition] = {
            (topic.name, one.partition): one for topic, one in image.partitions()
        }
        self.written_by: dict[TopicPartition, int] = dict(loaded.written_by)
        """The epoch of the controller that wrote a partition's state."""
        self.restarted: dict[TopicPartition, frozenset[int]] = dict(_restarted(loaded))
        """Members of an ISR that registered after it was written: no controller saw them die."""
        self.deleted: set[str] = set(loaded.deleted)
        """Topics being deleted; no leader is elected for them."""
        self.dropped: Copies = {}
        """The copies of these that brokers have dropped."""
        self.stray_replicas: Copies = {
            name: those for name, those in (stray_replicas or {}).items() if name in self.ids
        }
        """Copies that moves left behind and that their brokers have not reported as dropped."""
        self.failed: Copies = {}
        """Retries of both: the copies that brokers could not drop; an empty set if the store
        refused."""
        self.retrying: set[tuple[str, tuple[int, int] | None]] = set()
        """Retries in flight: copies by topic; None: the topic's removal from the store."""
        self.stale: set[TopicPartition] = set(loaded.unread)
        """Their state in the store differs from here: nothing is decided until it is read again."""
        self.unreadable: set[TopicPartition] = set(loaded.unread)
        """Those of them that must not be read again at once: the state is unreadable, or differed
        again when it was read."""
        self.undecidable: dict[TopicPartition, str] = {}
        """Why nothing could be decided about a partition, as it was logged last."""
        self.moves_to_check: set[TopicPartition] = set()
        """Partitions under a move whose ISR may have changed since the move was last looked at."""
        self.requested_moves: dict[TopicPartition, tuple[int, ...]] = {}
        """The moves in /admin/reassign_partitions that are not done."""
        self._unclean = _unclean(loaded)

    # ---- live brokers ---------------------------------------------------------------------

    def electable(self, key: TopicPartition) -> frozenset[int]:
        """Brokers that may lead a partition, or be in sync: alive, with its disk, and not shutting
        down."""
        return frozenset(one for one in self.holding(key) if one not in self.shutting_down)

    def holding(self, key: TopicPartition) -> Iterator[int]:
        """The live brokers that have the partition's disk."""
        lost = self.offline_log_dirs
        return (one for one in self.brokers if key not in lost.get(one, ()))

    def offline_replicas(self, key: TopicPartition) -> tuple[int, ...]:
        """A partition's replicas whose broker or disk is offline."""
        holding = set(self.holding(key))
        return tuple(one for one in self.partitions[key].replicas if one not in holding)

    def on(self, broker: int) -> Iterator[TopicPartition]:
        """The partitions that a broker keeps or must keep."""
        return (key for key, one in self.partitions.items() if broker in one.replicas)

    def unclean(self, topic: str) -> bool:
        """True if an out-of-sync leader is better for this topic than none."""
        return self._unclean.get(topic, self.claim.unclean)

    def set_unclean(self, topic: str, said: bool | None) -> None:
        """Set a topic's own unclean.leader.election.enable; None: it has none."""
        self._unclean.pop(topic, None)
        if said is not None:
            self._unclean[topic] = said

    def moved_off(self, broker: int, key: TopicPartition) -> None:
        """A broker no longer keeps a partition, whose disk no longer counts as lost: it must be
        asked to drop its copy."""
        self.stray_replicas.setdefault(key[0], set()).add((key[1], broker))
        if key in (lost := self.offline_log_dirs.get(broker, frozenset())):
            self.offline_log_dirs[broker] = lost - {key}

    # ---- what is written ------------------------------------------------------------------

    def change(self, key: TopicPartition, new: Leadership) -> PartitionChange:
        """The record of a leadership.  Raises: ArgumentError: it cannot be written."""
        return PartitionChange(key[0], {key: self.led(key, self.partitions[key], new)})

    def led(self, key: TopicPartition, one: Partition, new: Leadership | None) -> Partition:
        """A partition once this leadership is written; None: it has no state yet.

        Raises: ArgumentError: it cannot be written.
        """
        if new is None:
            return one
        if new.leader_epoch > LEADER_EPOCH_MAX:
            raise ArgumentError(
                f"{key[0]}-{key[1]}: leader_epoch: found {one.leader_epoch}, wanted less than "
                f"{LEADER_EPOCH_MAX}: no other leader can be elected"
            )
        return one._replace(
            leader=new.leader, leader_epoch=new.leader_epoch, isr=new.isr,
            leader_recovery_state=int(new.recovering), partition_epoch=one.partition_epoch + 1,
        )  # fmt: skip

    def written(self, change: PartitionChange) -> None:
        """A change was written."""
        for key, one in change.after.items():
            if one.partition_epoch != self.partitions[key].partition_epoch:
                self.written_by[key] = self.claim.epoch
            self.partitions[key] = one
            if not change.replicas:
                self._check_move(key)

    def read(self, key: TopicPartition, found: PartitionState | None) -> None:
        """A partition's state was read from the store; None: it has none."""
        self.stale.discard(key)
        self.unreadable.discard(key)
        state = found or PartitionState(Leadership(NO_LEADER, NEVER_LED, ()), -1, self.claim.epoch)
        self.written_by[key] = state.written_by
        new = state.leadership
        self.partitions[key] = self.partitions[key]._replace(
            leader=new.leader, leader_epoch=new.leader_epoch, isr=new.isr,
            leader_recovery_state=int(new.recovering), partition_epoch=state.partition_epoch,
        )  # fmt: skip
        self._check_move(key)

    def _check_move(self, key: TopicPartition) -> None:
        one = self.partitions[key]
        if one.adding_replicas or one.removing_replicas:
            self.moves_to_check.add(key)


def leadership(one: Partition) -> Leadership:
    """The leadership of a partition, as elections use it."""
    return Leadership(one.leader, one.leader_epoch, one.isr, bool(one.leader_recovery_state))


def unclean_of(settings: Mapping[str, str]) -> bool | None:
    """A topic's unclean.leader.election.enable; None: it does not set it."""
    said = settings.get("unclean.leader.election.enable")
    return None if said is None else said.strip().lower() == "true"


def _restarted(loaded: Snapshot) -> Iterator[tuple[TopicPartition, frozenset[int]]]:
    epochs = {one.id: one.epoch for one in loaded.image.brokers.values()}
    for topic, one in loaded.image.partitions():
        key = topic.name, one.partition
        written_at = loaded.written_at.get(key)
        if written_at is not None:
            found = frozenset(each for each in one.isr if epochs.get(each, -1) > written_at)
            if found:
                yield key, found


def _unclean(loaded: Snapshot) -> dict[str, bool]:
    """unclean.leader.election.enable of the topics that set it."""
    topics = {name: said for (kind, name), said in loaded.image.configs.items() if kind == TOPIC}
    found = {name: unclean_of(settings) for name, settings in topics.items()}
    return {name: said for name, said in found.items() if said is not None}
