"""The roles of a node's replica, whatever its metadata comes from."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

from kafkalog.metadata.image import Partition
from kafkalog.types import TopicPartition

__all__ = ["Drop", "Effect", "Follow", "Held", "Lead"]


class Held(NamedTuple):
    """A partition with a replica on this node."""

    topic_id: UUID
    state: Partition
    """As the controller last commanded it."""


class Lead(NamedTuple):
    """Lead: accept records and followers from now on."""

    partition: TopicPartition
    held: Held
    new: bool
    """No replica has any data yet."""


class Follow(NamedTuple):
    """Follow the leader; follow nobody if there is no leader."""

    partition: TopicPartition
    held: Held
    new: bool


class Drop(NamedTuple):
    """Neither lead nor follow any more."""

    partition: TopicPartition
    delete: bool
    """And delete its data."""


Effect: TypeAlias = Lead | Follow | Drop
