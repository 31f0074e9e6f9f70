"""The way of a member from what it has to what the target assignment gives it.

A partition is given to a member only after the member that had it gave it up: it first has to
give up what it may not keep, then it waits for what others have, then it gets it.  Pure.  Source:
KIP-848, Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.member import (
    Assigned,
    Member,
    MemberState,
    Partitions,
)

__all__ = ["MustRejoin", "Owned", "Target", "next_step"]

Owned = Mapping[UUID, Collection[int]] | None
"""The partitions that a member says it has; None: it did not say."""


class MustRejoin(Exception):
    """The member's state is unknown: it must give everything up, and rejoin."""


class Target(NamedTuple):
    """The goal of a member."""

    epoch: int
    partitions: Partitions
    subscribed: Collection[UUID]
    """The topics to which the member subscribes: it gets no others."""
    epoch_of: Callable[[UUID, int], int]
    """The epoch of the member that has a partition; -1: nobody has it."""


def next_step(member: Member, target: Target, owned: Owned, subscription_changed: bool) -> Member:
    """The member after its heartbeat, with the epoch and the partitions that it now has.

    Raises: MustRejoin.
    """
    if member.state is MemberState.STABLE:
        if member.epoch != target.epoch:
            return _towards(member, target, owned, member.epoch)
        return _without_others(member, target, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED:
        if _owns(owned, member.revoking):
            return _without_others(member, target, owned) if subscription_changed else member
        return _towards(member, target, owned, member.epoch)
    if member.state is MemberState.UNRELEASED:
        return _towards(member, target, owned, member.epoch)
    if owned is None or any(owned.values()):
        raise MustRejoin
    return _towards(member, target, owned, target.epoch)


def _owns(owned: Owned, assigned: Assigned) -> bool:
    """True if the member has one of these, or may have it."""
    if owned is None:
        return True
    return any(
        not assigned.get(topic, {}).keys().isdisjoint(numbers) for topic, numbers in owned.items()
    )


def _without_others(member: Member, target: Target, owned: Owned) -> Member:
    """The member without topics to which it no longer subscribes."""
    kept: dict[UUID, Mapping[int, int]] = {}
    revoking = dict(member.revoking)
    for topic, epochs in member.assigned.items():
        if topic in target.subscribed:
            kept[topic] = epochs
        else:
            revoking[topic] = {**revoking.get(topic, {}), **epochs}
    if len(kept) == len(member.assigned):
        return member
    if _owns(owned, revoking):
        return member.moved(member.epoch, MemberState.UNREVOKED, kept, revoking)
    return member.moved(member.epoch, member.state, kept, member.revoking)


def _towards(member: Member, target: Target, owned: Owned, epoch: int) -> Member:
    """The member on its way to the target; `epoch`: its own while it has to give partitions up."""
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    given: dict[UUID, dict[int, int]] = {}
    waits = False
    for topic in {**target.partitions, **member.assigned}:
        has = member.assigned.get(topic, {})
        wanted = target.partitions.get(topic, frozenset())
        if topic not in target.subscribed:
            wanted = frozenset()
        if stays := {number: has[number] for number in has if number in wanted}:
            kept[topic] = stays
        if goes := {number: has[number] for number in has if number not in wanted}:
            revoking[topic] = goes
        own = member.revoking.get(topic, {})
        for number in wanted - has.keys():
            if target.epoch_of(topic, number) != -1 and number not in own:
                waits = True
            else:
                given.setdefault(topic, {})[number] = target.epoch
    if revoking and _owns(owned, revoking):
        return member.moved(epoch, MemberState.UNREVOKED, kept, revoking)
    for topic, epochs in given.items():
        kept[topic] = {**kept.get(topic, {}), **epochs}
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return member.moved(target.epoch, state, kept)
