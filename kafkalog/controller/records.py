"""A controller's decisions, as records, and its queries to the store that keeps them.

A record is written whole or not at all, and only while the controller that wrote it is the active
one.  A store translates: into znodes, or into a metadata log.  No rule knows which.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kafkalog.controller.leader_election import Leadership
from kafkalog.metadata.image import Partition

__all__ = [
    "DONE", "PRODUCER_ID_BLOCK", "UNREADABLE", "Confirmation", "ElectionEnd", "LastProducerId",
    "Outcome", "PartitionChange", "PartitionState", "PartitionStates", "PartitionsCreation",
    "ProducerIds", "Query", "Record", "RequestedMoves", "Settings", "SettingsChange",
    "TopicCreation", "TopicDeletion", "TopicPartition", "TopicRemoval",
    "next_producer_ids",
]  # fmt: skip

PRODUCER_ID_BLOCK = 1000
PRODUCER_ID_MAX = (1 << 63) - 1
TopicPartition = tuple[str, int]
Replicas: TypeAlias = Mapping[int, tuple[int, ...]]
"""By partition."""


class PartitionChange(NamedTuple):
    """Other leaders, ISRs or replicas for partitions of one topic."""

    topic: str
    after: Mapping[TopicPartition, Partition]
    """The partitions once it is written; those whose leader or ISR changes have the next partition
    epoch."""
    replicas: bool = False
    """The replicas are written, too."""


class TopicCreation(NamedTuple):
    """A new topic."""

    name: str
    topic_id: uuid.UUID
    replicas: Replicas
    settings: Mapping[str, str]


class PartitionsCreation(NamedTuple):
    """New partitions of a topic that exists."""

    topic: str
    replicas: Replicas
    """Replicas of the new partitions alone."""


class TopicDeletion(NamedTuple):
    """The request to delete a topic: its replicas must be dropped before it can be removed."""

    topic: str


class TopicRemoval(NamedTuple):
    """The end of a deletion: no broker has a replica of the topic any more."""

    topic: str


class SettingsChange(NamedTuple):
    """Other settings of a topic or a broker; refused if they are no longer as `Settings` found
    them."""

    kind: int
    """TOPIC or BROKER, of kafkalog.metadata.image."""
    name: str
    changes: Mapping[str, str | None]
    """None: the setting is removed."""


class ProducerIds(NamedTuple):
    """A block of producer ids that is given to a broker; refused if `LastProducerId` is no longer
    as it was found."""

    broker: int
    first: int
    last: int


def next_producer_ids(broker: int, last: int) -> ProducerIds | None:
    """A block for a broker, after the last id that was given out; None: they are used up."""
    if last + 1 > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        return None
    return ProducerIds(broker, last + 1, last + PRODUCER_ID_BLOCK)


class RequestedMoves(NamedTuple):
    """The reassignments that were requested in the store and have not ended; empty: none."""

    left: Mapping[TopicPartition, tuple[int, ...]]


class ElectionEnd(NamedTuple):
    """The elections that were requested in the store are done."""


class Confirmation(NamedTuple):
    """Nothing: written only to learn that this controller is still the active one."""


Record: TypeAlias = (
    PartitionChange | TopicCreation | PartitionsCreation | TopicDeletion | TopicRemoval
    | SettingsChange | ProducerIds | RequestedMoves | ElectionEnd | Confirmation
)  # fmt: skip


class Outcome(NamedTuple):
    """The outcome of writing a record."""

    done: bool
    why: str = ""
    """Why it was refused, for the log."""
    stale: frozenset[TopicPartition] = frozenset()
    """Partitions that may differ in the store from what the controller knows."""


DONE = Outcome(True)


# ---- what is asked of a store ------------------------------------------------------------------


class PartitionStates(NamedTuple):
    """The states of these partitions; the answer is a mapping from key to PartitionState, None (the
    partition has none) or UNREADABLE."""

    keys: tuple[TopicPartition, ...]


class PartitionState(NamedTuple):
    """A partition as the store has it."""

    leadership: Leadership
    partition_epoch: int
    written_by: int
    """The epoch of the controller that wrote it."""


UNREADABLE = "unreadable"


class Settings(NamedTuple):
    """The settings of these topics and brokers, by kind and name; the answer has a mapping from
    name to value for each."""

    resources: tuple[tuple[int, str], ...]


class LastProducerId(NamedTuple):
    """The last producer id that was given out; -1: none; None: it is unreadable."""


Query: TypeAlias = PartitionStates | Settings | LastProducerId
