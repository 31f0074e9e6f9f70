"""The source of a broker's metadata: one interface for a single node and a cluster member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.log.log import Log
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.requests import (
        Elections,
        FeatureChanges,
        MorePartitions,
        NewTopics,
        Result,
        SettingsAsked,
        TopicMoves,
        TopicNamed,
    )

__all__ = ["Changeable", "Charge", "Described", "Metadata", "Planned", "Quorum", "free"]

T = TypeVar("T")
Planned = tuple[list[tuple[str, Any]], list[dict[str, Any]]]
"""Records of the metadata log, of which all are written or none, and the results."""
Charge = Callable[[int], None]
"""Counts partitions that are created or deleted.  Raises: Refused."""


def free(_count: int) -> None:
    """A Charge that counts nothing."""


class Described(Protocol):
    """Metadata as a broker or a controller has them."""

    @property
    def image(self) -> MetadataImage:
        """The current metadata."""

    @property
    def controller(self) -> int:
        """The controller's node; -1 if none is known."""

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after each change, in order."""

    def describe_configs(self, asked: SettingsAsked) -> list[Result]:
        """One result per resource."""


class Metadata(Described, Protocol):
    """A single node's metadata log, or a member's view of its cluster."""

    @property
    def clustered(self) -> bool:
        """True if the node belongs to a cluster with a controller."""

    @property
    def on_zookeeper(self) -> bool:
        """True if the metadata are in ZooKeeper, False if they are KRaft's log."""

    def followed(self, call: Callable[[], T]) -> T:
        """Call `call` while no change is creating folders."""

    def lead(self, log: Log) -> int:
        """Let an open log append in the leader epoch of its partition; returns that epoch."""

    def create_topics(self, asked: NewTopics) -> list[Result]:
        """One result per topic."""

    def allocate_producer_ids(self) -> range:
        """A block of producer ids that was never handed out."""


class Quorum(NamedTuple):
    """The one voter of a metadata log, which leads it."""

    epoch: int
    end_offset: int
    directory_id: UUID | None
    """None if the settings define the voters (kraft.version 0)."""


class Changeable(Metadata, Protocol):
    """The metadata of a single node: it changes them itself at clients' request."""

    def create_topics(self, asked: NewTopics, charge: Charge = free) -> list[Result]:
        """One result per topic; `charge`, here and in the next two: counts partitions against
        the client's quota."""

    def delete_topics(self, asked: Sequence[TopicNamed], charge: Charge = free) -> list[Result]:
        """One result per topic."""

    def create_partitions(self, asked: MorePartitions, charge: Charge = free) -> list[Result]:
        """One result per topic."""

    def update_features(self, asked: FeatureChanges) -> Result:
        """The error for the whole request, if any."""

    def elect_leaders(self, asked: Elections) -> list[Result]:
        """One result per topic."""

    def alter_partition_reassignments(self, asked: Sequence[TopicMoves]) -> list[Result]:
        """One result per topic."""

    def alter(self, planned: Callable[[MetadataImage], Planned]) -> list[Result]:
        """Carry out a change that is planned on top of the image; its results."""

    def unregister_broker(self, broker_id: int) -> Result:
        """The error, if any."""

    def unregister_controller(self, controller_id: int) -> Result:
        """The error, if any."""

    def quorum(self) -> Quorum:
        """The state for DescribeQuorum."""
