"""Rules of `guards` for requests about consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkalog.security.permissions import Kind, Operation
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "group_operations", "hidden_members", "named_topics", "offsets_refused", "only_whole",
    "share_offsets",
]  # fmt: skip

DENIED = "The group has described topic(s) that the client is not authorized to describe."


def group_operations(check: Any) -> None:
    """The caller's operations on each group."""
    if not check.body.include_authorized_operations:
        return

    def set_them(answer: dict[str, Any]) -> None:
        for row in answer.get("groups") or ():
            if not row.get("error_code"):
                row["authorized_operations"] = check.node.admission.operations(
                    check.request.peer, Kind.GROUP, row["group_id"]
                )

    check.after.append(set_them)


def named_topics(check: Any) -> bool:
    """True if the caller may describe all topics that its heartbeat names: those to which it
    subscribes, or those of its topology."""
    if check.request.api is apis.STREAMS_GROUP_HEARTBEAT:
        names = _of_topology(check.body.topology)
    else:
        names = set(check.body.subscribed_topic_names or ())
    found: set[str] = check.allowed(Operation.DESCRIBE, Kind.TOPIC, names)
    return names <= found


def _of_topology(topology: Any) -> set[str]:
    names: set[str] = set()
    for one in () if topology is None else topology.subtopologies:
        names.update(one.source_topics, one.repartition_sink_topics)
        names.update(each.name for each in one.repartition_source_topics)
        names.update(each.name for each in one.state_changelog_topics)
    return names


def hidden_members(check: Any) -> None:
    """A group with a topic that the caller may not describe is shown without its members and
    its topology."""

    def hide(answer: dict[str, Any]) -> None:
        for row in answer.get("groups") or ():
            names = set(_topics_of(row))
            if names and not names <= check.allowed(
                Operation.DESCRIBE, Kind.TOPIC, names, quiet=True
            ):
                row.update(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=DENIED,
                    members=[], topology=None,
                )  # fmt: skip

    check.after.append(hide)


def _topics_of(row: dict[str, Any]) -> Iterator[str]:
    if row.get("topology"):
        for one in row["topology"]["subtopologies"]:
            yield from (*one["source_topics"], *one["repartition_sink_topics"])
            for kind in ("repartition_source_topics", "state_changelog_topics"):
                yield from (each["name"] for each in one[kind])
        return
    for member in row.get("members") or ():
        yield from member["subscribed_topic_names"]
        for kind in ("assignment", "target_assignment"):
            parts = member.get(kind, {}).get("topic_partitions", ())  # share groups have no target
            yield from (one["topic_name"] for one in parts)


def offsets_refused(topic: Any) -> dict[str, Any]:
    """A topic of OffsetFetch that the caller may not describe."""
    denied = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "committed_offset": -1,
              "committed_leader_epoch": -1, "metadata": ""}  # fmt: skip
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [{"partition_index": index, **denied} for index in topic.partition_indexes],
    }


def only_whole(check: Any) -> None:
    """An answer that refuses the whole request has no rows of refused items."""

    def change(answer: dict[str, Any]) -> None:
        if answer.get("error_code"):
            check.refused.clear()

    check.after.append(change)


def share_offsets(check: Any) -> None:
    """DescribeShareGroupOffsets: several groups, each with topics of its own; if it asks for all,
    those that may be described are the answer."""
    for row in check.refused.get("groups", ()):
        row.pop("topics", None)
    refused: dict[str, list[dict[str, Any]]] = {}
    for group in check.body.groups:  # one may be named several times
        rows = refused.setdefault(group.group_id, [])
        if group.topics is not None:
            names = {one.topic_name for one in group.topics}
            denied = names - check.allowed(Operation.DESCRIBE, Kind.TOPIC, names)
            rows += [_share_refused(one) for one in group.topics if one.topic_name in denied]
            group.topics = [one for one in group.topics if one.topic_name not in denied]

    def change(answer: dict[str, Any]) -> None:
        for row in answer.get("groups") or ():
            if row.get("error_code"):
                continue
            topics = row.get("topics") or ()
            names = {one["topic_name"] for one in topics}
            shown = check.allowed(Operation.DESCRIBE, Kind.TOPIC, names, quiet=True)
            row["topics"] = [
                *(one for one in topics if one["topic_name"] in shown),
                *refused.get(row["group_id"], ()),
            ]

    check.after.append(change)


def _share_refused(topic: Any) -> dict[str, Any]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied = {"error_code": code, "error_message": "Topic authorization failed."}
    return {
        "topic_name": topic.topic_name,
        "partitions": [{"partition_index": number, **denied} for number in topic.partitions],
    }
