"""Where a broker's metadata come from, as all that follows them sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.metadata.asked import NewTopics, SettingsAsked
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.plan import Result

__all__ = ["Metadata"]

T = TypeVar("T")


class Metadata(Protocol):
    """The metadata log of a node that is alone, or what a member knows of its cluster."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as they stand."""

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
