"""Where a broker's metadata come from, as all that follows them sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.log.log import Log
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.plan import Result
    from kafkalog.metadata.requests import (
        FeatureChanges,
        MorePartitions,
        NewTopics,
        SettingChanges,
        SettingsAsked,
        TopicNamed,
    )

__all__ = ["Changeable", "Metadata", "Quorum"]

T = TypeVar("T")


class Metadata(Protocol):
    """The metadata log of a node that is alone, or what a member knows of its cluster."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as they stand."""

    @property
    def clustered(self) -> bool:
        """Whether the node is one of several, of which one decides."""

    @property
    def controller(self) -> int:
        """The broker that decides; -1: nobody is known to."""

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call it after each change, in their order."""

    def followed(self, call: Callable[[], T]) -> T:
        """What `call` gives while no change is under way."""

    def lead(self, log: Log) -> int:
        """Let an open log append in the leader epoch of its partition; that epoch."""

    def create_topics(self, asked: NewTopics) -> list[Result]:
        """One result a topic."""

    def describe_configs(self, asked: SettingsAsked) -> list[Result]:
        """One result a resource."""

    def allocate_producer_ids(self) -> range:
        """A block of producer ids, which nobody gets a second time."""


class Quorum(NamedTuple):
    """The one voter of a metadata log, which leads it."""

    epoch: int
    end_offset: int
    directory_id: UUID | None
    """None where the voters are those of the settings (kraft.version 0)."""


class Changeable(Metadata, Protocol):
    """The metadata of a node that is alone: it changes them itself, as clients ask."""

    def delete_topics(self, asked: Sequence[TopicNamed]) -> list[Result]:
        """One result a topic."""

    def create_partitions(self, asked: MorePartitions) -> list[Result]:
        """One result a topic."""

    def alter_configs(self, asked: SettingChanges) -> list[Result]:
        """One result a resource."""

    def incremental_alter_configs(self, asked: SettingChanges) -> list[Result]:
        """One result a resource."""

    def update_features(self, asked: FeatureChanges) -> Result:
        """The error of all, if there is one."""

    def unregister_broker(self, broker_id: int) -> Result:
        """The error, if there is one."""

    def unregister_controller(self, controller_id: int) -> Result:
        """The error, if there is one."""

    def quorum(self) -> Quorum:
        """What DescribeQuorum tells."""
