"""The topics of a topology, compared with those that exist: how many tasks each subtopology has,
and which internal topics are missing.  Pure.

Source: KIP-1071, Kafka's InternalTopicManager, RepartitionTopics and CopartitionedTopicsEnforcer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.streams_groups.topology import (
    InternalTopic,
    Subtopology,
    Topology,
    invalid_topology,
)

__all__ = ["Configured", "Part", "Problem", "Status", "configured"]

TASKS_MAX = 50_000
"""Tasks of a topology: an assignment of all of them takes time."""
NEW_PARTITIONS_MAX = 10_000
"""Partitions of the internal topics that are missing: controllers create no more in one request."""
SHOWN_MAX = 3
"""Topics that a message names."""


class Status(IntEnum):
    """Notes in a heartbeat's answer besides its tasks; the numbers are Kafka's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Problem(NamedTuple):
    """Why a topology cannot be run yet."""

    status: Status
    detail: str


class Part(NamedTuple):
    """A subtopology whose topics have known partitions."""

    tasks: int
    """One for each partition of the topic that has most."""
    sources: frozenset[str]
    sinks: frozenset[str]
    repartitions: tuple[InternalTopic, ...]
    """With their numbers of partitions, like the changelogs."""
    changelogs: tuple[InternalTopic, ...]

    @property
    def inputs(self) -> list[str]:
        """The topics from which it reads."""
        return sorted({*self.sources, *(one.name for one in self.repartitions)})


class Configured(NamedTuple):
    """A topology as far as its topics exist."""

    epoch: int
    """The topology's."""
    parts: Mapping[str, Part] | None
    """By the subtopology's id; None: not known, because of the problem."""
    missing: Mapping[str, InternalTopic]
    """The internal topics that do not exist, by name."""
    problem: Problem | None
    """None: it is ready to run."""


class _Wrong(Exception):
    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail)


def _mismatch(detail: str) -> _Wrong:
    return _Wrong(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)


def configured(topology: Topology, topics: Topics) -> Configured:
    """Compare a topology with the topics.  Raises: Refusal, if no topics could make it run."""
    try:
        parts, missing = _Sizing(topology, topics).run()
    except _Wrong as wrong:
        return Configured(topology.epoch, None, {}, wrong.problem)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_some(missing)}"
        problem = Problem(Status.MISSING_INTERNAL_TOPICS, detail)
    return Configured(topology.epoch, parts, missing, problem)


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:SHOWN_MAX])
    more = len(names) - SHOWN_MAX
    return f"{shown} and {more} additional topics" if more > 0 else shown


def _counts_text(counts: Mapping[str, int]) -> str:
    return "[{" + ", ".join(f"{name}={count}" for name, count in sorted(counts.items())) + "}]"


class _Sizing:
    """The partitions of a topology's topics."""

    def __init__(self, topology: Topology, topics: Topics) -> None:
        self._all = topology.subtopologies
        self._topics = topics
        self._counts: dict[str, int] = {}
        """Those of internal topics, as far as they are decided."""

    def run(self) -> tuple[dict[str, Part], dict[str, InternalTopic]]:
        """The parts, and the internal topics that are missing."""
        lost = {name for one in self._all for name in one.sources if self._existing(name) is None}
        if lost:
            raise _Wrong(Status.MISSING_SOURCE_TOPICS, f"Source topics {_some(lost)} are missing.")
        self._repartition()
        self._copartition()
        for one in self._all:
            tasks = self._tasks(one)
            self._counts.update((each.name, tasks) for each in one.changelogs)
        parts = {one.id: self._part(one) for one in self._all}
        total = sum(part.tasks for part in parts.values())
        if total > TASKS_MAX:
            raise _mismatch(f"The topology has {total} tasks, wanted at most {TASKS_MAX}.")
        missing = self._missing(parts)
        if (count := sum(one.partitions for one in missing.values())) > NEW_PARTITIONS_MAX:
            raise _Wrong(
                Status.MISSING_INTERNAL_TOPICS,
                f"Internal topics are missing: {_some(missing)}. They are not created: they have "
                f"{count} partitions, wanted at most {NEW_PARTITIONS_MAX}.",
            )
        return parts, missing

    def _existing(self, name: str) -> int | None:
        topic = self._topics.topic(name)
        return None if topic is None else topic.partition_count

    def _count(self, name: str) -> int | None:
        """The partitions of a topic that exists, or whose number is decided."""
        found = self._existing(name)
        return self._counts.get(name) if found is None else found

    def _known_count(self, name: str) -> int:
        found = self._count(name)
        if found is None:
            raise invalid_topology(f"Number of partitions is not set for topic: {name}")
        return found

    def _tasks(self, one: Subtopology) -> int:
        counts = [self._known_count(name) for name in one.inputs()]
        if not counts:
            raise invalid_topology(f"No source topics found for subtopology {one.id}")
        return max(counts)

    # ---- repartition topics ----------------------------------------------------------------

    def _repartition(self) -> None:
        """A repartition topic has as many partitions as the topics that flow into it."""
        found = {
            one.name: one.partitions for each in self._all for one in each.repartitions
            if one.partitions
        }  # fmt: skip
        self._follow(found)
        if any(name not in found for one in self._all for name in one.sinks):
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics. There may "
                "be loops in the topology that cannot be resolved."
            )
        if any(one.name not in found for each in self._all for one in each.repartitions):
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics, because a "
                "repartition source topic is never used as a sink topic."
            )
        self._counts.update(found)

    def _follow(self, found: dict[str, int]) -> None:
        """Add the topics to which subtopologies write, as far as what flows into them is known.

        Kafka goes through all subtopologies until nothing is left, and a count rests on what it had
        found by then.  Here each has its turn once, in that order: as (round, place in the list).
        """
        readers: dict[str, list[int]] = {}
        for place, one in enumerate(self._all):
            for each in one.repartitions:
                readers.setdefault(each.name, []).append(place)
        turns = [
            (0, place) for place, one in enumerate(self._all) if self._flow(one, found) is not None
        ]
        queued = {place for _, place in turns}
        while turns:
            number, place = heappop(turns)
            count = self._flow(self._all[place], found)
            assert count is not None, "it has its turn because something is known"
            for name in self._all[place].sinks:
                if name in found:
                    continue
                found[name] = count
                for reader in readers.get(name, ()):
                    if reader not in queued:
                        queued.add(reader)
                        heappush(turns, (number if reader > place else number + 1, reader))

    def _flow(self, one: Subtopology, found: Mapping[str, int]) -> int | None:
        counts = [found[each.name] for each in one.repartitions if each.name in found]
        for name in one.sources:
            count = self._existing(name)
            counts += () if count is None else (count,)
        return max(counts, default=None)

    # ---- copartitioned topics --------------------------------------------------------------

    def _copartition(self) -> None:
        """Topics that are joined have equally many partitions."""
        internal = {one.name: one.partitions for each in self._all for one in each.repartitions}
        fixed = {name for name, count in internal.items() if count}
        every = {self._known_count(name) for name in fixed}
        for one in self._all:
            for group in one.copartitions:
                names = {one.sources[at] for at in group.sources}
                names |= {one.repartitions[at].name for at in group.repartitions}
                if names:
                    self._align(names, names & internal.keys(), fixed, every)

    def _align(
        self, names: set[str], internal: set[str], fixed: set[str], every: set[int]
    ) -> None:  # fmt: skip
        """One group; `every`: the counts of the fixed topics of all groups."""
        counts = {name: self._known_count(name) for name in names}
        own = {name: counts[name] for name in internal}
        if internal != names:
            others = {name: counts[name] for name in names - internal}
            wanted = next(iter(others.values()))
            if len(set(others.values())) > 1:
                raise _mismatch(_unequal(others))
        elif fixed:  # Kafka compares those of all groups, too
            wanted = next(iter(every))
            if len(every) > 1:
                raise _mismatch(_unequal(own))
        else:
            wanted = max(own.values())
        for name, count in own.items():
            self._counts[name] = wanted
            if name in fixed and count != wanted:
                raise _mismatch(
                    f"Number of partitions [{count}] of repartition topic [{name}] doesn't match "
                    f"number of partitions [{wanted}] of the source topic."
                )

    # ---- what follows ----------------------------------------------------------------------

    def _part(self, one: Subtopology) -> Part:
        return Part(
            self._tasks(one), frozenset(one.sources), frozenset(one.sinks),
            tuple(map(self._sized, one.repartitions)), tuple(map(self._sized, one.changelogs)),
        )  # fmt: skip

    def _sized(self, topic: InternalTopic) -> InternalTopic:
        return topic._replace(partitions=topic.partitions or self._counts[topic.name])

    def _missing(self, parts: Mapping[str, Part]) -> dict[str, InternalTopic]:
        found: dict[str, InternalTopic] = {}
        for part in parts.values():
            found.update((one.name, one) for one in (*part.repartitions, *part.changelogs))
        for name, topic in list(found.items()):
            count = self._existing(name)
            if count is None:
                continue
            del found[name]
            if count != topic.partitions:
                raise _mismatch(
                    f"Existing topic {name} has different number of partitions: expected "
                    f"{topic.partitions}, found {count}"
                )
        return found


def _unequal(counts: Mapping[str, int]) -> str:
    return f"Following topics do not have the same number of partitions: {_counts_text(counts)}"
