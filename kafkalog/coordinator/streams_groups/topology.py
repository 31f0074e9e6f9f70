"""The topology of a Kafka Streams application, as its members send it and the journal keeps it.
Never changes.

Source: KIP-1071, Kafka's StreamsTopology.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.weight import text_bytes
from kafkalog.disk.layout import topic_problem
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Copartition", "InternalTopic", "Subtopology", "Topology", "check_topology", "invalid_topology",
    "topology_fields", "topology_in",
]  # fmt: skip

SUBTOPOLOGIES_MAX, NAMES_MAX, COPARTITIONS_MAX = 500, 5_000, 5_000
"""Subtopologies of a topology, names of topics in it, and copartition groups with the positions in
them: what is derived from them takes time."""
NAME_BYTES = 300
"""Memory of a name in a topology besides its characters, with what is derived from it, or of a
position; rounded up."""


class InternalTopic(NamedTuple):
    """A topic that the application needs, and that is created for it."""

    name: str
    partitions: int
    """0: as many as its subtopology has tasks."""
    replication_factor: int
    """0: the broker's default."""
    configs: tuple[tuple[str, str], ...]


class Copartition(NamedTuple):
    """Topics that must have equally many partitions, by their positions in the subtopology's lists
    of sources, of patterns, and of repartition topics."""

    sources: tuple[int, ...]
    regexes: tuple[int, ...]
    repartitions: tuple[int, ...]


class Subtopology(NamedTuple):
    """A part of a topology that one task processes, partition by partition."""

    id: str
    sources: tuple[str, ...]
    regexes: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    sinks: tuple[str, ...]
    """The repartition topics to which it writes."""
    repartitions: tuple[InternalTopic, ...]
    """The repartition topics from which it reads."""
    copartitions: tuple[Copartition, ...]

    def inputs(self) -> Iterator[str]:
        """The topics from which it reads."""
        yield from self.sources
        yield from (one.name for one in self.repartitions)


class Topology(NamedTuple):
    """A topology at one epoch."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]
    """By length and text of the id."""

    def required(self) -> set[str]:
        """The topics that it needs: what it reads, and its changelogs."""
        found = {name for each in self.subtopologies for name in each.inputs()}
        return found | {one.name for each in self.subtopologies for one in each.changelogs}

    def readers(self) -> dict[str, str]:
        """The subtopology that reads each topic; the last one, if several do."""
        return {name: one.id for one in self.subtopologies for name in one.inputs()}

    @property
    def bytes(self) -> int:
        """Approximate memory of it."""
        texts = [text for one in self.subtopologies for text in _texts(one)]
        found = sum(NAME_BYTES + text_bytes(text) for text in texts)
        return found + NAME_BYTES * _copartitions(self)


def _texts(one: Subtopology) -> Iterator[str]:
    yield one.id
    yield from one.sources
    yield from one.regexes
    yield from one.sinks
    for topic in (*one.changelogs, *one.repartitions):
        yield topic.name
        yield from (text for pair in topic.configs for text in pair)


def _copartitions(topology: Topology) -> int:
    """Its copartition groups and the positions in them, together."""
    groups = (group for one in topology.subtopologies for group in one.copartitions)
    return sum(1 + sum(map(len, group)) for group in groups)


# ---- from and to messages ------------------------------------------------------------------


def topology_in(body: Any) -> Topology:
    """The topology of a heartbeat, or of a record of the journal."""
    found = [
        Subtopology(
            one.subtopology_id, tuple(one.source_topics), tuple(one.source_topic_regex),
            _internal(one.state_changelog_topics), tuple(one.repartition_sink_topics),
            _internal(one.repartition_source_topics),
            tuple(
                Copartition(
                    tuple(each.source_topics), tuple(each.source_topic_regex),
                    tuple(each.repartition_source_topics),
                )
                for each in one.copartition_groups
            ),
        )
        for one in body.subtopologies
    ]  # fmt: skip
    return Topology(body.epoch, tuple(sorted(found, key=lambda one: (len(one.id), one.id))))


def _internal(topics: Iterable[Any]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            one.name, one.partitions, one.replication_factor,
            tuple((each.key, each.value) for each in one.topic_configs),
        )
        for one in topics
    )  # fmt: skip


def topology_fields(topology: Topology) -> dict[str, Any]:
    """The fields of its record."""
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopology_id": one.id,
                "source_topics": list(one.sources),
                "source_topic_regex": list(one.regexes),
                "state_changelog_topics": internal_fields(one.changelogs),
                "repartition_sink_topics": list(one.sinks),
                "repartition_source_topics": internal_fields(one.repartitions),
                "copartition_groups": [
                    {
                        "source_topics": list(each.sources),
                        "source_topic_regex": list(each.regexes),
                        "repartition_source_topics": list(each.repartitions),
                    }
                    for each in one.copartitions
                ],
            }
            for one in topology.subtopologies
        ],
    }


def internal_fields(topics: Iterable[InternalTopic]) -> list[dict[str, Any]]:
    """Topics as records and answers name them."""
    return [
        {
            "name": one.name, "partitions": one.partitions,
            "replication_factor": one.replication_factor,
            "topic_configs": [{"key": key, "value": value} for key, value in one.configs],
        }
        for one in topics
    ]  # fmt: skip


# ---- what is refused -----------------------------------------------------------------------


def invalid_topology(why: str) -> Refusal:
    """The refusal of a topology that no application can have."""
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def check_topology(topology: Topology) -> None:
    """Check a topology that a member sent.  Raises: Refusal."""
    names = _named(topology)
    if len(topology.subtopologies) > SUBTOPOLOGIES_MAX or len(names) > NAMES_MAX:
        raise invalid_topology(
            f"The topology has {len(topology.subtopologies)} subtopologies and {len(names)} names "
            f"of topics, wanted at most {SUBTOPOLOGIES_MAX} and {NAMES_MAX}."
        )
    if (count := _copartitions(topology)) > COPARTITIONS_MAX:
        raise invalid_topology(
            f"The topology has {count} copartition groups and positions in them, wanted at most "
            f"{COPARTITIONS_MAX}."
        )
    if prohibited := [name for name in dict.fromkeys(names) if name in INTERNAL_TOPICS]:
        raise invalid_topology(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is "
            "prohibited."
        )
    if wrong := [name for name in dict.fromkeys(names) if topic_problem(name)]:
        raise invalid_topology(f"Topic names {','.join(wrong)} are not valid topic names.")
    if topology.epoch < 0:
        raise invalid_topology("Topology epoch must be non-negative.")
    ids = [one.id for one in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise invalid_topology("The topology has several subtopologies of the same id.")
    for one in topology.subtopologies:
        _check(one)


def _named(topology: Topology) -> list[str]:
    """The topics that a topology names."""
    found: list[str] = []
    for one in topology.subtopologies:
        found += (*one.sources, *one.sinks)
        found += (each.name for each in (*one.repartitions, *one.changelogs))
    return found


def _check(one: Subtopology) -> None:
    for topic in one.changelogs:
        if topic.partitions:
            raise invalid_topology(
                f"Changelog topic {topic.name} must have an undefined partition count, but it is "
                f"set to {topic.partitions}."
            )
    for topic in one.repartitions:
        if topic.partitions < 0:
            raise invalid_topology(
                f"Repartition topic {topic.name}: found {topic.partitions} partitions, wanted 0 or "
                "more."
            )
    for group in one.copartitions:
        inside = all(0 <= at < len(one.sources) for at in group.sources)
        if not inside or not all(0 <= at < len(one.repartitions) for at in group.repartitions):
            raise invalid_topology(
                f"Subtopology {one.id}: a copartition group names a topic that it does not read."
            )
