"""What a node is to do with its copy of a partition, whatever its metadata come from."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

from kafkalog.metadata.image import Partition
from kafkalog.types import TopicPartition

__all__ = ["Drop", "Effect", "Follow", "Held", "Lead"]


class Held(NamedTuple):
    """A partition of which this node keeps a copy."""

    topic_id: UUID
    state: Partition
    """As the controller said it last."""


class Lead(NamedTuple):
    """Take records and followers from now on."""

    partition: TopicPartition
    held: Held
    new: bool
    """No copy has any data yet."""


class Follow(NamedTuple):
    """Copy what the leader has; follow none where there is no leader."""

    partition: TopicPartition
    held: Held
    new: bool


class Drop(NamedTuple):
    """Neither any more."""

    partition: TopicPartition
    delete: bool
    """And its data go."""


Effect: TypeAlias = Lead | Follow | Drop
