"""A streams group: its members, its epochs, its topology, and the tasks that members have.

State and its bookkeeping, no protocol.  `changes` changes it.  Source: KIP-1071, Kafka's
StreamsGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.base import NewerGroup, Subscription
from kafkalog.coordinator.streams_groups.configured import Configured
from kafkalog.coordinator.streams_groups.member import (
    Role,
    StreamsMember,
    Task,
    TasksOf,
    each_task,
)
from kafkalog.coordinator.streams_groups.topology import Topology
from kafkalog.coordinator.weight import Weight, text_bytes

__all__ = [
    "NOT_VALIDATED", "NO_OFFSETS", "Failure", "Offsets", "StreamsGroup", "StreamsGroupState",
    "task_offset_bytes",
]  # fmt: skip

NOT_VALIDATED = -1
OFFSET_BYTES = 200
"""Memory of the offset of a task that a member reports, besides the text of the subtopology's id;
rounded up."""


class StreamsGroupState(Enum):
    """A streams group's state; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Offsets(NamedTuple):
    """How far a member's copies of state have got, and where their changelogs end, by subtopology
    and partition."""

    at: Mapping[tuple[str, int], int]
    end: Mapping[tuple[str, int], int]
    bytes: int = 0
    """Approximate memory of it."""

    @classmethod
    def of(cls, at: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int]) -> Offsets:
        """A report.  Its ids are as the member says: Kafka does not look for them in the topology
        either."""
        return cls(at, end, task_offset_bytes(at) + task_offset_bytes(end))


def task_offset_bytes(offsets: Mapping[tuple[str, int], int]) -> int:
    """Approximate memory of offsets of tasks."""
    return sum(OFFSET_BYTES + text_bytes(subtopology) for subtopology, _ in offsets)


NO_OFFSETS = Offsets({}, {})


class Failure(NamedTuple):
    """Why an internal topic could not be created."""

    why: str
    until_ms: int
    """When another attempt is made, on the monotonic clock."""


class StreamsGroup(NewerGroup[StreamsMember, TasksOf]):
    """One group.  Only for the coordinator's thread."""

    def __init__(self, within: Weight | None = None) -> None:
        """`within`: the sum to which its weight is added."""
        super().__init__(within)
        self.topology: Topology | None = None
        self.readers: dict[str, str] = {}
        """The subtopology that reads each topic."""
        self.validated_epoch = NOT_VALIDATED
        """The epoch of the topology, once its topics are as they must be."""
        self.configs: tuple[tuple[str, str], ...] = ()
        """The settings of the last target assignment, sorted."""
        self.descriptions = (-1, -1)
        """The topology epochs of the description that a broker with a plugin stored, and failed to
        store; kept for brokers of Apache Kafka."""
        self.static: dict[str, str] = {}
        """Instance ids and their member ids."""
        self.holders: dict[Task, Counter[str]] = {}
        """The processes whose members have a task."""
        # What follows is not stored.
        self.configured: Configured | None = None
        self.offsets: dict[str, Offsets] = {}
        """Members' reports of their copies of state."""
        self.shutdown: str | None = None
        """The member that wants the whole application to end."""
        self.endpoint_epoch = 0
        """Grows when the partitions behind an endpoint change."""
        self.creating: dict[str, int] = {}
        """Internal topics that are being created, and when they are asked for again, on the
        monotonic clock."""
        self.failures: dict[str, Failure] = {}

    # ---- what it is ------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        """Its state."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        reconciled = all(one.reconciled(self.assignment_epoch) for one in self.members.values())
        return StreamsGroupState.STABLE if reconciled else StreamsGroupState.RECONCILING

    def said_bytes(self, member_id: str) -> int:
        """Approximate memory of a member's words and reports; 0: there is none."""
        return super().said_bytes(member_id) + self.offsets.get(member_id, NO_OFFSETS).bytes

    def static_member(self, instance_id: str) -> StreamsMember | None:
        """The member with an instance id."""
        found = self.static.get(instance_id)
        return None if found is None else self.members[found]

    def reads(self, topic: str) -> bool:
        """True if its members read a topic."""
        return bool(self.members) and topic in self.readers

    def processes(self, role: Role, subtopology: str, partition: int) -> Counter[str]:
        """The processes whose members have a task in a role."""
        return self.holders.get((role, subtopology, partition), _NOBODY)

    # ---- how it changes --------------------------------------------------------------------

    def put_topology(self, topology: Topology | None) -> None:
        """Set the topology."""
        before = 0 if self.topology is None else self.topology.bytes
        self.weight.add((0 if topology is None else topology.bytes) - before)
        self.topology = topology
        names = set() if topology is None else topology.required()
        self.topics = dict.fromkeys(names, Subscription(1, 0))
        self.readers = {} if topology is None else topology.readers()

    def put_offsets(self, member_id: str, offsets: Offsets) -> None:
        """Set a member's report of its copies of state."""
        before = self.offsets.pop(member_id, NO_OFFSETS)
        if offsets != NO_OFFSETS:
            self.offsets[member_id] = offsets
        self.weight.add(offsets.bytes - before.bytes)

    def _remember(self, member: StreamsMember) -> None:
        super()._remember(member)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        for given in (member.assigned, member.revoking):
            for task in each_task(given):
                self.holders.setdefault(task, Counter())[member.process_id] += 1

    def _forget(self, member: StreamsMember) -> None:
        super()._forget(member)
        if self.static.get(member.instance_id or "") == member.member_id:
            del self.static[member.instance_id or ""]
        for given in (member.assigned, member.revoking):
            for task in each_task(given):
                processes = self.holders[task]
                processes[member.process_id] -= 1
                if not processes[member.process_id]:
                    del processes[member.process_id]
                if not processes:
                    del self.holders[task]


_NOBODY: Counter[str] = Counter()
