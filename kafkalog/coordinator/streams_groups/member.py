"""A member of a streams group: what it says, and the tasks that it was given.  Never changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.member import MEMBER_BYTES, PARTITION_BYTES
from kafkalog.coordinator.weight import text_bytes

__all__ = [
    "NO_TASKS", "Endpoint", "Given", "Role", "StreamsMember", "StreamsState", "Task", "Tasks",
    "TasksOf", "each_task", "tag_bytes",
]  # fmt: skip


class Role(IntEnum):
    """How a member has a task."""

    ACTIVE = 0
    """It processes the records."""
    STANDBY = 1
    """It keeps a copy of the state."""
    WARMUP = 2
    """It builds the state up, to be active later."""


TasksOf = tuple[Role, str]
"""The tasks of a subtopology in one role."""
Task = tuple[Role, str, int]
Tasks = Mapping[TasksOf, frozenset[int]]
"""Partitions of subtopologies, by role: a target assignment."""
Given = Mapping[TasksOf, Mapping[int, int]]
"""The same, each with the assignment epoch in which the member got it; only those of active tasks
are used."""
NO_TASKS: dict[TasksOf, dict[int, int]] = {}


class StreamsState(IntEnum):
    """How far a member has got; the numbers are Kafka's."""

    STABLE = 1
    UNREVOKED = 2
    """It has tasks to give up before it gets to the next epoch."""
    UNRELEASED = 3
    """It waits for tasks that others have to give up."""
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """Where a member answers queries about its state."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """A member at one moment."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsState = StreamsState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    """Members of one process share its state directory."""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()
    """Sorted."""
    assigned: Given = NO_TASKS
    revoking: Given = NO_TASKS
    """Tasks that it has, and is to give up."""

    @property
    def topics(self) -> Collection[str]:
        """None: its group's topology has them."""
        return ()

    @property
    def said_bytes(self) -> int:
        """Approximate memory of its words."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.process_id)
        found = sum(map(text_bytes, texts))
        found += text_bytes(self.endpoint.host) if self.endpoint else 0
        return found + tag_bytes(self.tags)

    @property
    def bytes(self) -> int:
        """Approximate memory of it."""
        kept = sum(map(len, self.assigned.values())) + sum(map(len, self.revoking.values()))
        return MEMBER_BYTES + self.said_bytes + PARTITION_BYTES * kept

    def reconciled(self, assignment_epoch: int) -> bool:
        """True if it has what the target assignment of this epoch gives it."""
        return self.state is StreamsState.STABLE and self.epoch == assignment_epoch

    def moved(
        self, epoch: int, state: StreamsState, assigned: Given, revoking: Given = NO_TASKS
    ) -> StreamsMember:
        """The member one step on."""
        return self._replace(
            epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned,
            revoking=revoking,
        )  # fmt: skip


def tag_bytes(tags: Collection[tuple[str, str]]) -> int:
    """Approximate memory of a member's tags."""
    return sum(PARTITION_BYTES + text_bytes(key) + text_bytes(text) for key, text in tags)


def each_task(given: Mapping[TasksOf, Collection[int]]) -> Iterator[Task]:
    """Every task of an assignment."""
    return ((*key, number) for key, numbers in given.items() for number in numbers)
