"""The parts of a data directory that jobs use."""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from kafkalog.clock import Clock
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.folders import Folders
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.errors import Closed, NoSpace, UnknownTopicOrPartition
from kafkalog.log.handle import Handle
from kafkalog.logs.limit import limited
from kafkalog.types import TopicPartition

__all__ = ["Place", "each", "ticks_ms"]

T = TypeVar("T")
_logger = limited(__name__)


class Place(Protocol):
    """A data directory; implemented by its manager."""

    path: str
    clock: Clock
    config: BrokerConfig
    state: DirectoryState

    def partitions(self, topic: str | None = None) -> tuple[TopicPartition, ...]:
        """The partitions here (of one topic), sorted."""

    def topic_config(self, topic: str) -> TopicConfig:
        """The settings of a topic."""

    @property
    def folders(self) -> Folders:
        """The directory of the partitions."""

    def handle(self, tp: TopicPartition) -> Handle:
        """The log of a partition, which is opened if necessary.

        Raises: UnknownTopicOrPartition, Closed, errors of opening a log.
        """

    def handles(self) -> tuple[Handle, ...]:
        """The logs that are open now, in the order of topics and partitions."""

    @property
    def openings(self) -> int:
        """How often a log was opened."""


def each(place: Place, what: Iterable[T], work: Callable[[T], object]) -> None:
    """Do `work` for each; a failure of one does not stop the others.

    Raises: the first failure, after all are done.
    """
    first: Exception | None = None
    for one in what:
        try:
            work(one)
        except (Closed, UnknownTopicOrPartition):
            continue  # closed or deleted since the list was made
        except Exception as error:
            # On a full disk each would report the same: the job reports it once.
            level = logging.DEBUG if isinstance(error, NoSpace) else logging.ERROR
            _logger.log(level, "%s: %s: %s", place.path, one, error)
            first = first or error
    if first is not None:
        raise first


def ticks_ms(place: Place) -> int:
    """The directory's monotonic time."""
    return round(place.clock.monotonic_s() * 1000)
