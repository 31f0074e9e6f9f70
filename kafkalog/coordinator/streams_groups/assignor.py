"""The assignor of streams groups: which member processes which task, and which keep copies of its
state.  Pure.

A task stays with the member that has it, else it goes to one that has a copy of its state, else to
the process with the least load.  Copies of a task are in other processes than the task itself.
Source: KIP-1071, Kafka's StickyTaskAssignor and ProcessState.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from kafkalog.coordinator.streams_groups.member import Given, Role, TasksOf

__all__ = ["NAME", "Assignee", "TaskSpec", "sticky"]

NAME = "sticky"
TaskId = tuple[str, int]
"""A subtopology and a partition."""
Found = dict[str, dict[TasksOf, set[int]]]
_Copy = tuple[bool, int, str]
"""False if it is in use, its negative offset, and its member: the best one is least."""
COPIES_MAX = 16
"""Copies of a task's state that are looked at, beyond those that there are to be."""


class Assignee(NamedTuple):
    """A member, as the assignor sees it."""

    process_id: str
    assigned: Given
    """Its tasks."""
    offsets: Mapping[TaskId, int]
    """How far its copies of state have got, as it reports."""


class TaskSpec(NamedTuple):
    """The input of the assignor."""

    members: Mapping[str, Assignee]
    tasks: Mapping[str, int]
    """The number of tasks of each subtopology."""
    stateful: frozenset[str]
    """The subtopologies that have state."""
    standbys: int
    """How many copies of the state of each task there are to be."""


def sticky(spec: TaskSpec) -> Found:
    """Assign the tasks.  Every member has an entry; each task has a member, if there is one."""
    found = _Assignment(spec)
    if spec.members:
        found.assign_active()
        found.assign_standbys()
    return found.found


class _Quota:
    """How many tasks a member may have before others get more."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.each = 0
        self._share()

    def _share(self) -> None:
        self.each = -(-self._tasks // self._members) if self._members else 0

    def reached(self, count: int) -> None:
        """A member has this many: if that is its part, the others share the rest."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self._share()


class _Process:
    """The members of one process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self.total = 0
        self._queue: list[tuple[int, int, str]] | None = None

    @property
    def load(self) -> float:
        """Tasks per member."""
        return self.total / len(self.counts)

    def add(self, member_id: str, task: TaskId) -> int:
        """Give a member a task; returns how many it then has."""
        self._queue = None
        return self._add(member_id, task)

    def _add(self, member_id: str, task: TaskId) -> int:
        self.total += 1
        self.tasks.add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]

    def add_to_least(self, task: TaskId) -> tuple[str, int]:
        """Give the member with the fewest tasks one more; returns it, and how many it has."""
        if self._queue is None:
            self._queue = [
                (count, number, name) for number, (name, count) in enumerate(self.counts.items())
            ]
            heapify(self._queue)
        _, number, name = self._queue[0]
        count = self._add(name, task)
        heapreplace(self._queue, (count, number, name))
        return name, count


_Queued = tuple[float, int, _Process]
"""A process by its load."""


class _Assignment:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self.found: Found = {name: {} for name in spec.members}
        self._process: dict[str, _Process] = {}
        self._active: dict[TaskId, str] = {}
        """The member that has been active for a task."""
        self._copies: dict[TaskId, list[_Copy]] = {}
        """The best copies of each task's state, the very best one first."""
        for name, member in spec.members.items():
            process = self._process.setdefault(member.process_id, _Process(len(self._process)))
            process.counts[name] = 0
            self._look_at(name, member)
        total = sum(spec.tasks.values())
        copied = sum(spec.tasks[one] for one in spec.stateful) * spec.standbys
        self._for_active = _Quota(total, len(spec.members))
        self._for_all = _Quota(total + copied, len(spec.members))

    def _look_at(self, name: str, member: Assignee) -> None:
        """A copy that it keeps goes before one that is left from earlier."""
        kept: set[TaskId] = set()
        for (role, subtopology), numbers in member.assigned.items():
            for number in numbers:
                task = subtopology, number
                if role is Role.ACTIVE:
                    self._active[task] = name
                elif role is Role.STANDBY:
                    kept.add(task)
                    self._note_copy(task, (False, -member.offsets.get(task, 0), name))
        for task, offset in member.offsets.items():
            if task not in kept and 0 <= task[1] < self._spec.tasks.get(task[0], 0):
                self._note_copy(task, (True, -offset, name))

    def _note_copy(self, task: TaskId, copy: _Copy) -> None:
        """Any number of members may report a copy: the work for a task must not grow with it."""
        best = self._copies.setdefault(task, [])
        if len(best) < COPIES_MAX + self._spec.standbys:
            insort(best, copy)
        elif copy < best[-1]:
            best.pop()
            insort(best, copy)

    def _copiers(self, task: TaskId) -> list[str]:
        return [name for *_, name in self._copies.get(task, ())]

    def _process_of(self, member_id: str) -> _Process:
        return self._process[self._spec.members[member_id].process_id]

    def _count(self, member_id: str) -> int:
        return self._process_of(member_id).counts[member_id]

    def _note(self, role: Role, member_id: str, task: TaskId, count: int) -> None:
        self.found[member_id].setdefault((role, task[0]), set()).add(task[1])
        if role is Role.ACTIVE:
            self._for_active.reached(count)
        self._for_all.reached(count)

    def _give(self, role: Role, member_id: str, task: TaskId) -> None:
        self._note(role, member_id, task, self._process_of(member_id).add(member_id, task))

    def _least_loaded(self, names: list[str], without: TaskId | None = None) -> str | None:
        """The first of these members, unless another has less to do and so has its process;
        `without`: a task that its process must not have."""
        best: str | None = None
        for name in names:
            process = self._process_of(name)
            if without is not None and without in process.tasks:
                continue
            if best is None or (
                process.load < self._process_of(best).load and self._count(name) < self._count(best)
            ):
                best = name
        return best

    # ---- active tasks ----------------------------------------------------------------------

    def assign_active(self) -> None:
        """Give every task to a member."""
        every = [(one, n) for one, count in self._spec.tasks.items() for n in range(count)]
        every.sort(key=lambda task: (task[1], task[0]))
        left = [task for task in every if not self._stays(task, self._active.get(task))]
        left = [
            task for task in left if not self._stays(task, self._least_loaded(self._copiers(task)))
        ]
        queue = self._by_load()
        for task in sorted(left):
            *_, process = queue[0]
            self._note(Role.ACTIVE, *_swapped(process.add_to_least(task), task))
            heapreplace(queue, (process.load, process.number, process))

    def _stays(self, task: TaskId, member_id: str | None) -> bool:
        if member_id is None or self._count(member_id) >= self._for_active.each:
            return False
        self._give(Role.ACTIVE, member_id, task)
        return True

    def _by_load(self) -> list[_Queued]:
        queue = [(one.load, one.number, one) for one in self._process.values()]
        heapify(queue)
        return queue

    # ---- copies ----------------------------------------------------------------------------

    def assign_standbys(self) -> None:
        """Give the copies of the state of each task to members of other processes, as far as there
        are any."""
        spec = self._spec
        if not spec.standbys:
            return
        every = [(one, n) for one in spec.stateful for n in range(spec.tasks[one])]
        left: list[tuple[TaskId, int]] = []
        for task in sorted(every, key=lambda task: (task[1], task[0]), reverse=True):
            count = 0
            while count < spec.standbys and (name := self._copier(task)) is not None:
                self._give(Role.STANDBY, name, task)
                count += 1
            left.append((task, spec.standbys - count))
        queue = self._by_load()
        for task, count in sorted(left, reverse=True):
            for _ in range(count):
                process = _least_without(queue, task)
                if process is None:
                    break
                self._note(Role.STANDBY, *_swapped(process.add_to_least(task), task))
                heappush(queue, (process.load, process.number, process))

    def _copier(self, task: TaskId) -> str | None:
        """A member that has some of the task's state, and may have more tasks."""
        before = self._active.get(task)
        if (
            before is not None
            and task not in self._process_of(before).tasks
            and self._count(before) < self._for_all.each
        ):
            return before
        found = self._least_loaded(self._copiers(task), task)
        return found if found is not None and self._count(found) < self._for_all.each else None


def _least_without(queue: list[_Queued], task: TaskId) -> _Process | None:
    """Take the process with the least load out that does not have a task."""
    have: list[_Queued] = []
    found = None
    while queue and found is None:
        one = heappop(queue)
        if task in one[2].tasks:
            have.append(one)
        else:
            found = one[2]
    for one in have:
        heappush(queue, one)
    return found


def _swapped(added: tuple[str, int], task: TaskId) -> tuple[str, TaskId, int]:
    name, count = added
    return name, task, count
