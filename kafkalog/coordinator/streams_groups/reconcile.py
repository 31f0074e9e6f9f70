"""The way of a member from the tasks that it has to those that the target assignment gives it.

It first gives up what it may not keep, then waits for what others have, then gets the rest.  Two
members of one process cannot have the same task, as they share a state directory; a member itself
may change the role in which it has a task without giving it up.  Pure.  Source: KIP-1071, Kafka's
CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.reconcile import MustRejoin
from kafkalog.coordinator.streams_groups.member import (
    Given,
    Role,
    StreamsMember,
    StreamsState,
    Tasks,
    TasksOf,
)

__all__ = ["Goal", "Owned", "next_step"]

Owned = Mapping[TasksOf, Collection[int]] | None
"""The tasks that a member says it has; None: it did not say."""
Parts = dict[TasksOf, dict[int, int]]
_REPLICAS = (Role.STANDBY, Role.WARMUP)


class Goal(NamedTuple):
    """The goal of a member."""

    epoch: int
    tasks: Tasks
    processes: Callable[[Role, str, int], Counter[str]]
    """The processes whose members have a task in a role."""


def next_step(member: StreamsMember, goal: Goal, owned: Owned) -> StreamsMember:
    """The member after its heartbeat, with the epoch and the tasks that it now has.

    Raises: MustRejoin.
    """
    if member.state is StreamsState.STABLE:
        return member if member.epoch == goal.epoch else _Step(member, goal, owned).at(member.epoch)
    if member.state is StreamsState.UNREVOKED:
        if _holds(owned, member.revoking):
            return member
        return _Step(member, goal, owned).at(member.epoch + 1)
    if member.state is StreamsState.UNRELEASED:
        return _Step(member, goal, owned).at(member.epoch)
    if owned is None or any(owned.values()):
        raise MustRejoin
    return _Step(member, goal, owned).at(goal.epoch)


def _holds(owned: Owned, given: Given) -> bool:
    """True if the member has one of these, or may have it."""
    if owned is None:
        return True
    return any(not given.get(key, {}).keys().isdisjoint(some) for key, some in owned.items())


class _Step:
    """One step of a member."""

    def __init__(self, member: StreamsMember, goal: Goal, owned: Owned) -> None:
        self._member, self._goal, self._owned = member, goal, owned
        self._kept: Parts = {}
        self._revoking: Parts = {}
        self._coming: Parts = {}
        self._waits = False

    def at(self, epoch: int) -> StreamsMember:
        """The member after it; `epoch`: its own while it has to give tasks up."""
        for key in {**self._goal.tasks, **self._member.assigned}:
            self._compare(key)
        self._change_roles()
        for role in _REPLICAS:
            for key, number in self._had(role):
                if self._is_goal(Role.ACTIVE, key[1], number):
                    _take(self._revoking, key, number)
        revokes = bool(self._revoking) and _holds(self._owned, self._revoking)
        for role in _REPLICAS:
            for key, number in self._had(role):
                promoted = number in self._coming.get((Role.ACTIVE, key[1]), {})
                if self._is_goal(Role.ACTIVE, key[1], number) and (revokes or not promoted):
                    self._kept.setdefault(key, {})[number] = 0
        if revokes:
            return self._member.moved(epoch, StreamsState.UNREVOKED, self._kept, self._revoking)
        for key, epochs in self._coming.items():
            self._kept.setdefault(key, {}).update(epochs)
        state = StreamsState.UNRELEASED if self._waits else StreamsState.STABLE
        return self._member.moved(self._goal.epoch, state, self._kept)

    def _compare(self, key: TasksOf) -> None:
        has, wanted = self._member.assigned.get(key, {}), self._goal.tasks.get(key, frozenset())
        if stays := {number: has[number] for number in has if number in wanted}:
            self._kept[key] = stays
        if goes := {number: has[number] for number in has if number not in wanted}:
            self._revoking[key] = goes
        role, subtopology = key
        epoch = self._goal.epoch if role is Role.ACTIVE else 0
        for number in wanted - has.keys():
            if self._unreleased(role, subtopology, number):
                self._waits = True
            else:
                self._coming.setdefault(key, {})[number] = epoch

    # ---- what others have ------------------------------------------------------------------

    def _unreleased(self, role: Role, subtopology: str, number: int) -> bool:
        processes, own = self._goal.processes, self._member.process_id
        if role is Role.ACTIVE:
            active = bool(processes(Role.ACTIVE, subtopology, number))
        else:
            active = own in processes(Role.ACTIVE, subtopology, number)
            if role is Role.STANDBY and self._has(Role.ACTIVE, subtopology, number):
                active = False  # it becomes a standby of itself
        if active:
            return True
        if role is not Role.ACTIVE and own in processes(role, subtopology, number):
            return True
        others = [one for one in _REPLICAS if one is not role]
        return any(
            own in processes(one, subtopology, number) and not self._has(one, subtopology, number)
            for one in others
        )

    def _has(self, role: Role, subtopology: str, number: int) -> bool:
        return number in self._member.assigned.get((role, subtopology), {})

    def _is_goal(self, role: Role, subtopology: str, number: int) -> bool:
        return number in self._goal.tasks.get((role, subtopology), frozenset())

    def _had(self, role: Role) -> list[tuple[TasksOf, int]]:
        return [
            (key, number) for key, numbers in self._member.assigned.items() if key[0] is role
            for number in numbers
        ]  # fmt: skip

    # ---- changes of role -------------------------------------------------------------------

    def _change_roles(self) -> None:
        """A member keeps its copy of the state when an active task becomes a standby, or a standby
        a warm-up, or the other way round."""
        for (_, subtopology), number in self._had(Role.ACTIVE):
            self._grant((Role.STANDBY, subtopology), number)
        for role, other in (_REPLICAS, _REPLICAS[::-1]):
            for key, number in self._had(role):
                if self._grant((other, key[1]), number):
                    _take(self._revoking, key, number)

    def _grant(self, key: TasksOf, number: int) -> bool:
        """Give a task at once that was to come later."""
        if number not in self._coming.get(key, {}):
            return False
        _take(self._coming, key, number)
        self._kept.setdefault(key, {})[number] = 0
        return True


def _take(parts: Parts, key: TasksOf, number: int) -> None:
    some = parts.get(key)
    if some is not None and some.pop(number, None) is not None and not some:
        del parts[key]
