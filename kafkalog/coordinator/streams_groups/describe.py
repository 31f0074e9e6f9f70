"""StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalog.coordinator.step import Body
from kafkalog.coordinator.streams_groups.assignor import NAME
from kafkalog.coordinator.streams_groups.member import StreamsMember
from kafkalog.coordinator.streams_groups.records import endpoint_fields, task_fields
from kafkalog.coordinator.streams_groups.state import NO_OFFSETS, StreamsGroup
from kafkalog.coordinator.streams_groups.topology import InternalTopic, internal_fields
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["described"]

NOT_STORED = 1
"""The status of a topology's description that no plugin keeps."""


def described(group_id: str, group: StreamsGroup, *, description: bool) -> Body:
    """A group of the answer.  `description`: the topology's description is asked for."""
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology": _topology(group),
        "members": [_member(group, one) for one in group.members.values()],
        "assignor_name": NAME,
        "topology_description_status": NOT_STORED if description else 0,
    }


def _topology(group: StreamsGroup) -> Body | None:
    topology, found = group.topology, group.configured
    if topology is None:
        return None
    if found is not None and found.problem is None and found.parts is not None:
        rows = [
            _part(name, one.sources, one.sinks, one.changelogs, one.repartitions)
            for name, one in sorted(found.parts.items())
        ]
    else:
        rows = [
            _part(one.id, one.sources, one.sinks, one.changelogs, one.repartitions)
            for one in sorted(topology.subtopologies, key=lambda one: one.id)
        ]
    return {"epoch": topology.epoch, "subtopologies": rows}


def _part(
    name: str, sources: Iterable[str], sinks: Iterable[str],
    changelogs: Iterable[InternalTopic], repartitions: Iterable[InternalTopic],
) -> Body:  # fmt: skip
    return {
        "subtopology_id": name,
        "source_topics": sorted(sources),
        "repartition_sink_topics": sorted(sinks),
        "state_changelog_topics": internal_fields(sorted(changelogs)),
        "repartition_source_topics": internal_fields(sorted(repartitions)),
    }


def _member(group: StreamsGroup, member: StreamsMember) -> Body:
    offsets = group.offsets.get(member.member_id, NO_OFFSETS)
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": endpoint_fields(member.endpoint),
        "client_tags": [{"key": key, "value": text} for key, text in member.tags],
        "task_offsets": _offsets(offsets.at),
        "task_end_offsets": _offsets(offsets.end),
        "assignment": task_fields(member.assigned),
        "target_assignment": task_fields(group.target.get(member.member_id, {})),
    }


def _offsets(offsets: Mapping[tuple[str, int], int]) -> list[Body]:
    return [
        {"subtopology_id": subtopology, "partition": number, "offset": offset}
        for (subtopology, number), offset in sorted(offsets.items())
    ]
