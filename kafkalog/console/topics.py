"""Topics as the console shows them: partitions, sizes, segments, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.metadata import PartitionInfo, TopicInfo
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.known import Known, offline, under
from kafkalog.console.person import Person
from kafkalog.types import TopicPartition
from kafkalog.wire.values import ZERO_UUID

__all__ = ["configs", "layout", "measures", "partitions", "topics"]

PAGE, PAGE_MAX = 50, 200
NAMES_CHARS_MAX = 12_000
MEASURED_MAX = 5_000
"""Partitions that are measured for one page."""
SORTS: dict[str, Callable[[Known, TopicInfo], Any]] = {
    "name": lambda _, one: one.name,
    "partitions": lambda _, one: (-len(one.partitions), one.name),
    "health": lambda known, one: (
        -known.offline.get(one.name, 0), -known.under.get(one.name, 0), one.name
    ),
}  # fmt: skip
SEGMENTS_MAX = 500
"""Segments of a partition that are shown, the newest."""


def page(asked: Asked, things: list[Any]) -> tuple[list[Any], dict[str, int]]:
    """The things of the page that a request names, and where it is among all."""
    size = asked.whole("size", PAGE, 1, PAGE_MAX)
    first = asked.whole("first", 0)
    return things[first : first + size], {"first": first, "size": size, "total": len(things)}


def topics(person: Person, asked: Asked) -> dict[str, Any]:
    """A page of topics: `q` a part of the name, `internal`, `sort`, `first`, `size`."""
    known = person.known()
    part, internal = asked.text("q", "").lower(), asked.flag("internal")
    sort = SORTS[asked.one_of("sort", SORTS, "name")]
    found = sorted(
        (one for one in known.topics.values()
         if part in one.name.lower() and (internal or not one.internal)),
        key=partial(sort, known),
    )  # fmt: skip
    shown, where = page(asked, found)
    return {
        **where, "all": len(known.topics), "topics": [_row(one) for one in shown],
        "partitions": sum(len(one.partitions) for one in found),
        "under": sum(known.under.get(one.name, 0) for one in found),
        "offline": sum(known.offline.get(one.name, 0) for one in found),
    }  # fmt: skip


def _row(one: TopicInfo) -> dict[str, Any]:
    return {
        "name": one.name, "internal": one.internal, "partitions": len(one.partitions),
        "replication": max((len(p.replicas) for p in one.partitions.values()), default=0),
        "under": under(one), "offline": offline(one), "id": _id(one.topic_id),
    }  # fmt: skip


def _id(topic_id: UUID) -> str:
    return "" if topic_id == ZERO_UUID else str(topic_id)


def measures(person: Person, asked: Asked) -> dict[str, Any]:
    """Records and bytes of topics, `names` with commas, as far as the user may know them."""
    known = person.topics()
    names = [name for name in asked.text("names", most=NAMES_CHARS_MAX).split(",") if name in known]
    tps: list[TopicPartition] = []
    for name in names:
        some = [TopicPartition(name, number) for number in known[name].partitions]
        if len(tps) + len(some) <= MEASURED_MAX:
            tps += some
    found: dict[str, dict[str, float]] = {name: {} for name in {tp.topic for tp in tps}}
    starts, ends = offsets(person, tps)
    for tp in tps:
        if tp in starts and tp in ends:
            row = found[tp.topic]
            row["records"] = row.get("records", 0) + ends[tp] - starts[tp]
    for tp, replicas in sizes(person, tps).items():
        row = found[tp.topic]
        row["bytes"] = row.get("bytes", 0) + sum(replicas.values())
    view = person.view  # another thread may forget it
    for one in () if view is None else view.topics:
        if one.name in found and one.records_per_s is not None:
            found[one.name]["per_s"] = one.records_per_s
    return found


def offsets(
    person: Person, tps: list[TopicPartition], committed: bool = False
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where partitions begin, and their high watermarks, or their last stable offsets if only ended
    transactions count; without those that cannot be asked."""
    if not tps:
        return {}, {}
    first = person.admin.list_offsets(dict.fromkeys(tps, "earliest")).done
    last = person.admin.list_offsets(
        dict.fromkeys(tps, "latest"),
        isolation="read_committed" if committed else "read_uncommitted",
    ).done
    return ({tp: one.offset for tp, one in first.items()},
            {tp: one.offset for tp, one in last.items()})  # fmt: skip


def sizes(person: Person, tps: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, int]]:
    """Bytes of each replica, by node; empty without the right to know them."""
    wanted = list(tps)
    found: dict[TopicPartition, dict[int, int]] = {}
    if not wanted:
        return found
    for node, dirs in person.admin.describe_log_dirs(partitions=wanted).done.items():
        for one in dirs:
            for tp, replica in one.replicas.items():
                if not replica.future:
                    found.setdefault(tp, {})[node] = replica.size_bytes
    return found


def partitions(person: Person, asked: Asked) -> dict[str, Any]:
    """A page of a topic's partitions: `name`, `first`, `size`, `only` all or unhealthy."""
    topic = person.topic(asked.text("name"))
    only = asked.one_of("only", ("all", "unhealthy"), "all")
    some = [
        one for _, one in sorted(topic.partitions.items())
        if only == "all" or one.leader < 0 or len(one.isr) < len(one.replicas)
    ]  # fmt: skip
    shown, where = page(asked, some)
    tps = [TopicPartition(topic.name, one.partition) for one in shown]
    starts, ends = offsets(person, tps)
    bytes_ = sizes(person, tps)
    return {
        **where, "topic": _row(topic),
        "rows": [
            _partition(one, starts.get(tp), ends.get(tp), bytes_.get(tp, {}))
            for tp, one in zip(tps, shown, strict=True)
        ],
    }  # fmt: skip


def _partition(
    one: PartitionInfo, start: int | None, end: int | None, bytes_: Mapping[int, int]
) -> dict[str, Any]:
    return {
        "partition": one.partition, "leader": one.leader, "epoch": one.leader_epoch,
        "replicas": one.replicas, "isr": one.isr, "start": start, "end": end,
        "bytes": {str(node): size for node, size in sorted(bytes_.items())},
    }  # fmt: skip


def layout(person: Person, asked: Asked) -> dict[str, Any]:
    """The segments of a partition of this process: `name`, `partition`.

    They are for those who may describe log directories.
    """
    topic = person.topic(asked.text("name"))
    tp = TopicPartition(topic.name, asked.whole("partition", 0, 0, 1 << 31))
    if tp.partition not in topic.partitions:
        raise Refused(404, f"topic {topic.name!r} has no partition {tp.partition}")
    if person.place.segments is None:
        return {"segments": None}
    if not sizes(person, [tp]):
        return {"segments": None}
    try:
        found = person.place.segments(tp)
    except errors.KafkalogError:  # it was deleted, or its replica is elsewhere
        return {"segments": None}
    return {
        "count": len(found),
        "segments": [one._asdict() for one in found[-SEGMENTS_MAX:]],
    }


def configs(person: Person, asked: Asked) -> list[dict[str, Any]]:
    """The settings of a topic or a broker: `kind`, `name`.  Secrets have no value."""
    kind = asked.one_of("kind", ("topic", "broker", "group"), "topic")
    found = person.admin.describe_configs([(kind, asked.text("name"))], documentation=True)
    (settings,) = found.check().values()
    return [
        {
            "name": name, "value": None if one.sensitive else one.value, "source": one.source,
            "secret": one.sensitive, "text": (one.documentation or "")[:2_000],
        }
        for name, one in sorted(settings.items())
    ]  # fmt: skip
