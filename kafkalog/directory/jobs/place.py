"""What the jobs of a data directory need of it."""

from typing import Protocol

from kafkalog.clock import Clock
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.folders import Folders
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.log.handle import Handle
from kafkalog.types import TopicPartition

__all__ = ["Place"]


class Place(Protocol):
    """A data directory: its manager is one."""

    path: str
    clock: Clock
    config: BrokerConfig
    state: DirectoryState

    def partitions(self, topic: str | None = None) -> tuple[TopicPartition, ...]:
        """The partitions that are here (of one topic), sorted."""

    def topic_config(self, topic: str) -> TopicConfig:
        """The settings of a topic."""

    @property
    def folders(self) -> Folders:
        """Where the partitions lie."""

    def handle(self, tp: TopicPartition) -> Handle:
        """The open log of a partition; opened for it where it is not.

        Raises: UnknownTopicOrPartition, Closed, and what opening a log raises.
        """

    def handles(self) -> tuple[Handle, ...]:
        """The logs that are open now, in the order of topics and partitions."""
