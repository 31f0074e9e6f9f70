"""The share partitions of a group: which the share coordinator is to begin to keep, which it keeps,
and which it is to forget.  Pure.

Source: KIP-932, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.share_groups.state import NO_STATES, Kept, ShareGroup, States
from kafkalog.coordinator.share_state.persister import UNINITIALIZED_OFFSET, InitializeState

__all__ = [
    "UNKNOWN", "Partitions", "assignable", "forgetting", "forgotten", "initialized",
    "initializing", "is_complete", "not_initialized", "of_existing", "requests", "to_assign",
    "to_initialize",
]  # fmt: skip

UNKNOWN = "<UNKNOWN>"
"""Kafka's name of a topic that no longer exists."""
Partitions = Mapping[UUID, Collection[int]]


def together(one: Mapping[UUID, Kept], other: Mapping[UUID, Kept]) -> dict[UUID, Kept]:
    """All share partitions of both."""
    found = dict(one)
    for topic, kept in other.items():
        before = found.get(topic)
        every = kept.partitions | (before.partitions if before else frozenset())
        found[topic] = Kept(kept.name, every)
    return found


# ---- initialization ------------------------------------------------------------------------


def to_initialize(
    group: ShareGroup, topics: Topics, wall_ms: int, retry_ms: int
) -> dict[UUID, Kept]:
    """The partitions of subscribed topics whose state is not kept yet.  One that was asked for is
    asked for again after `retry_ms`."""
    states = group.states or NO_STATES
    asked = wall_ms - states.at_ms < retry_ms
    known = together(states.initialized, states.initializing if asked else {})
    found = {}
    for name in sorted(group.topics):
        topic = topics.topic(name)
        if topic is None:
            continue
        has = known[topic.id].partitions if topic.id in known else frozenset()
        if not has or len(has) < topic.partition_count:
            found[topic.id] = Kept(name, frozenset(range(topic.partition_count)) - has)
    return found


def initializing(states: States | None, new: Mapping[UUID, Kept], wall_ms: int) -> States:
    """The states once these are to be kept."""
    before = states or NO_STATES
    every = together(before.initializing, new)
    left = {topic: name for topic, name in before.deleting.items() if topic not in every}
    return States(every, before.initialized, left, wall_ms)


def requests(states: States | None, new: Mapping[UUID, Kept], epoch: int) -> list[InitializeState]:
    """The states that the share coordinator is asked to keep, in the group's `epoch`; `states`:
    those from before.  Later partitions of a topic are read from their beginning."""
    before = states or NO_STATES
    return [
        InitializeState(
            topic, number, epoch,
            0 if topic in before.initialized or topic in before.initializing
            else UNINITIALIZED_OFFSET,
        )
        for topic, kept in new.items() for number in sorted(kept.partitions)
    ]  # fmt: skip


def initialized(states: States | None, done: Partitions, topics: Topics, wall_ms: int) -> States:
    """The states once these are kept."""
    before = states or NO_STATES
    new = {
        topic: Kept(topics.name_of(topic) or UNKNOWN, frozenset(numbers))
        for topic, numbers in done.items()
    }
    left = _less(before.initializing, done)
    return States(left, together(before.initialized, new), before.deleting, wall_ms)


def not_initialized(states: States, failed: Partitions, wall_ms: int) -> States:
    """The states once these could not be kept: they will be asked for again."""
    left = _less(states.initializing, failed)
    return states._replace(initializing=left, at_ms=wall_ms)


def _less(topics: Mapping[UUID, Kept], done: Partitions) -> dict[UUID, Kept]:
    found = {}
    for topic, kept in topics.items():
        left = kept.partitions.difference(done.get(topic, ()))
        if left:
            found[topic] = Kept(kept.name, left)
    return found


# ---- assignment ----------------------------------------------------------------------------


def assignable(states: States | None) -> dict[UUID, frozenset[int]]:
    """The partitions that may be assigned."""
    kept = (states or NO_STATES).initialized
    return {topic: one.partitions for topic, one in kept.items()}


def to_assign(group: ShareGroup) -> bool:
    """True if partitions of a subscribed topic can be assigned, and are not."""
    if not group.members or group.states is None:
        return False
    assigned: dict[UUID, set[int]] = {}
    for target in group.target.values():
        for topic, numbers in target.items():
            assigned.setdefault(topic, set()).update(numbers)
    return any(
        kept.name in group.topics and kept.partitions != assigned.get(topic, set())
        for topic, kept in group.states.initialized.items()
    )


def is_complete(group: ShareGroup, topics: Topics, wall_ms: int) -> bool:
    """True if the states of all partitions of subscribed topics are kept, and all are assigned:
    a heartbeat has nothing to begin."""
    if not group.complete:
        begun = group.states is not None and bool(group.states.initializing)
        missing = begun or to_initialize(group, topics, wall_ms, 0) or to_assign(group)
        group.complete = not missing
    return group.complete


# ---- deletion ------------------------------------------------------------------------------


def forgetting(states: States, topics: Topics, wall_ms: int) -> tuple[States, Partitions]:
    """The states once all are to be forgotten, and the partitions to forget."""
    every = together(states.initialized, states.initializing)
    for topic in states.deleting:
        name = topics.name_of(topic)
        found = None if name is None else topics.topic(name)
        if name is not None and found is not None and found.id == topic:
            again = Kept(name, frozenset(range(found.partition_count)))
            every = together(every, {topic: again})
    deleting = {topic: kept.name for topic, kept in every.items()}
    gone = {topic: sorted(kept.partitions) for topic, kept in every.items()}
    return States({}, {}, deleting, wall_ms), gone


def forgotten(states: States, done: Iterable[UUID], wall_ms: int) -> States:
    """The states once these topics are forgotten."""
    gone = set(done)
    left = {topic: name for topic, name in states.deleting.items() if topic not in gone}
    return states._replace(deleting=left, at_ms=wall_ms)


def of_existing(states: States, topics: Topics, wall_ms: int) -> States | None:
    """The states without topics that no longer exist; None: all exist."""

    def left(some: Mapping[UUID, Kept]) -> dict[UUID, Kept]:
        return {topic: one for topic, one in some.items() if topics.name_of(topic) is not None}

    deleting = {t: name for t, name in states.deleting.items() if topics.name_of(t) is not None}
    found = States(left(states.initializing), left(states.initialized), deleting, wall_ms)
    return None if found[:3] == states[:3] else found
