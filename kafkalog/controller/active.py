"""The active controller: what its steps work with, and the interface of the store it writes to."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from kafkalog.controller.context import Claim, Context, Copies, Snapshot
from kafkalog.controller.events import Caller, Clock, Options
from kafkalog.controller.records import Record
from kafkalog.controller.requests import RequestBatch
from kafkalog.disk.layout import uuid_text
from kafkalog.metadata.image import MetadataImage, Partition, Topic

__all__ = ["Active", "Answer", "NotActive", "Periodic", "Steps", "Store", "Work"]

T = TypeVar("T")
Steps = Generator[object, Any, T]
"""A controller's reaction to an event: it yields sequences of records, and is sent their
outcomes; queries, and is sent their answers; and whatever else its store understands."""


class NotActive(Exception):
    """A store refused a record because another controller is the active one."""


class Store(Protocol):
    """Where the records of one active controller are kept; each controller gets a Store of its
    own."""

    @property
    def image(self) -> MetadataImage:
        """The metadata; only settings are read from it."""

    @property
    def answers(self) -> Mapping[int, Answer]:
        """Handlers of requests that only a controller with such a store gets, by API key."""

    def requests(self, context: Context, listener: str) -> RequestBatch:
        """The gatherer of requests to brokers.  `listener`: as in RequestBatch."""

    def perform(self, context: Context, wanted: object) -> Generator[Any, Any, Any]:
        """Carry out what a step yielded; returns what the step is sent.

        Yields effects for the driver, whose `number` the controller sets, and is sent their
        results.

        Raises: NotActive.
        """

    def problem(self, context: Context, record: Record) -> str | None:
        """Why a record is too large to be kept; None: it is not."""

    @property
    def periodic(self) -> Mapping[Clock, Periodic]:
        """The works of this store's clocks."""

    def first_works(self) -> Sequence[Work]:
        """The controller's first works."""

    def works(self, event: object) -> Iterable[Work]:
        """The controller's reaction to an event of the store."""


class Active:
    """The state that an active controller's steps work with."""

    def __init__(
        self, options: Options, claim: Claim, snapshot: Snapshot, store: Store,
        stray_replicas: Copies | None = None,
    ) -> None:  # fmt: skip
        """`stray_replicas`: as in Context."""
        self.options = options
        self.context = Context(claim, snapshot, stray_replicas)
        self.store = store
        self.random = Random(options.seed)
        self.now_ms = 0
        """The time of the event that is handled."""
        self.caller = Caller()
        """The client whose request is answered."""
        self.batch = store.requests(self.context, options.listener)

    def known(self, enlarged: Collection[str] = ()) -> MetadataImage:
        """The metadata with the topics as they are now; `enlarged`: those with their partitions,
        which the others lack."""
        context = self.context
        partitions: dict[str, dict[int, Partition]] = {name: {} for name in enlarged}
        if partitions:
            for (topic, number), one in context.partitions.items():
                if topic in partitions:
                    partitions[topic][number] = one
        found = {name: Topic(name, topic_id, partitions.get(name, {}))
                 for name, topic_id in context.ids.items()}  # fmt: skip
        names = {topic_id: name for name, topic_id in context.ids.items()}
        return self.store.image._replace(topics=found, names=names)

    def new_id(self) -> UUID:
        """A topic's id; none begins with a dash, which commands would take for an option."""
        while True:
            found = UUID(int=self.random.getrandbits(128), version=4)
            if not uuid_text(found).startswith("-"):
                return found


Answer = Callable[[Active, Any, int], Steps[dict[str, Any]]]
"""The handler of a request, in a version; returns the fields of the response."""


class Work(NamedTuple):
    """Steps to take, one work after another."""

    name: str
    """As errors name it."""
    begin: Callable[[Active], Steps[Any]]
    key: Hashable = None
    """Only one work with the same key waits; None: all of them do."""


class Periodic(NamedTuple):
    """A work of a clock."""

    work: Work
    period_ms: int
