"""Consumer groups from outside: who is in them, what they committed, and changes to that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.cluster import Cluster
from kafkalog.client.failures import check_code, is_retriable
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL

__all__ = [
    "Committed",
    "GroupInfo",
    "GroupListing",
    "GroupMetadata",
    "MemberInfo",
    "commit_offsets",
    "committed_offsets",
    "delete_group",
    "delete_offsets",
    "describe_group",
    "list_groups",
]


class GroupListing(NamedTuple):
    """A group in a list."""

    group: str
    protocol_type: str
    state: str
    """Empty where the broker is too old to tell."""
    kind: str
    """classic, consumer, ...; empty where the broker is too old to tell."""


class MemberInfo(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupInfo(NamedTuple):
    """A group and its members."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberInfo, ...]
    coordinator: int
    """A node."""


class GroupMetadata(NamedTuple):
    """Which member of a group commits: for transactions, see `Producer.send_offsets`."""

    group: str
    generation: int = -1
    """-1: it is no member now, or commits from outside."""
    member_id: str = ""
    instance_id: str | None = None


class Committed(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


def list_groups(cluster: Cluster) -> list[GroupListing]:
    """The groups of every node, sorted by name.  Raises: what a broker answers."""

    def step() -> list[GroupListing]:
        cluster.refresh([])
        found = {}
        for node in sorted(cluster.nodes):
            answer = cluster.connect(node).call(apis.LIST_GROUPS, {})
            check_code(answer.error_code, f"groups of node {node}")
            for g in answer.groups:
                found[g.group_id] = GroupListing(
                    g.group_id, g.protocol_type, g.group_state, g.group_type
                )
        return [found[name] for name in sorted(found)]

    return cluster.retrying(step)


def describe_group(cluster: Cluster, group: str) -> GroupInfo:
    """A group; its state is Dead when there is none.  Raises: what a broker answers."""

    def step() -> GroupInfo:
        node = cluster.coordinator(group)
        connection = cluster.connect(node)
        answer = connection.call(apis.DESCRIBE_GROUPS, {"groups": [group]})
        if len(answer.groups) != 1:
            raise errors.BadAnswer(
                f"DescribeGroups of {group!r}: found {len(answer.groups)} groups, wanted 1"
            )
        found = answer.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupInfo(group, "Dead", "", "", (), node)
        check_code(found.error_code, f"group {group!r}")
        plain = found.protocol_type == "consumer"
        members = tuple(sorted(_member(one, plain) for one in found.members))
        return GroupInfo(
            group, found.group_state, found.protocol_type, found.protocol_data, members, node
        )

    return cluster.retrying(step)


def _member(found: Any, plain: bool) -> MemberInfo:
    """`plain`: of a consumer group, whose assignments are partitions."""
    assignment: list[TopicPartition] = []
    if plain and found.member_assignment:
        try:
            _, assigned = CONSUMER_PROTOCOL.decode_assignment(found.member_assignment)
        except errors.KafkalogError:
            assigned = None  # of a client that speaks something else
        for row in assigned.assigned_partitions if assigned is not None else ():
            assignment += (TopicPartition(row.topic, p) for p in row.partitions)
    return MemberInfo(
        found.member_id,
        found.group_instance_id,
        found.client_id,
        found.client_host,
        tuple(sorted(assignment)),
    )


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Committed]:
    """What a group has committed; `partitions` None: everything.

    A partition for which it has committed nothing is left out.

    Raises: what the broker answers.
    """
    topics = None if partitions is None else _by_topic(partitions)
    asked = None if topics is None else [
        {"name": name, "partition_indexes": sorted(some)} for name, some in topics.items()
    ]  # fmt: skip

    def step() -> dict[TopicPartition, Committed]:
        connection = cluster.connect(cluster.coordinator(group))
        version = connection.version_of(apis.OFFSET_FETCH, at_most=9)
        if version >= 8:
            body: dict[str, Any] = {"groups": [{"group_id": group, "topics": asked}]}
        else:
            body = {"group_id": group, "topics": asked}
        answer = connection.call(
            apis.OFFSET_FETCH, {**body, "require_stable": version >= 7}, version
        )
        found = answer
        if version >= 8:
            if len(answer.groups) != 1:
                raise errors.BadAnswer(
                    f"OffsetFetch of {group!r}: found {len(answer.groups)} groups, wanted 1"
                )
            found = answer.groups[0]
        check_code(found.error_code, f"offsets of group {group!r}")
        return _committed(found, group)

    return cluster.retrying(step)


def _committed(found: Any, group: str) -> dict[TopicPartition, Committed]:
    out = {}
    for topic in found.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            check_code(row.error_code, f"offset of group {group!r} in {tp.topic}-{tp.partition}")
            if row.committed_offset >= 0:
                out[tp] = Committed(row.committed_offset, row.committed_leader_epoch, row.metadata)
    return dict(sorted(out.items()))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> None:
    """Commit offsets for a group; without a member only for one that has none.

    Raises: what the broker answers: UnknownMemberId when the group has members.
    """
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": p,
                    "committed_offset": offsets[TopicPartition(name, p)].offset,
                    "committed_leader_epoch": offsets[TopicPartition(name, p)].leader_epoch,
                    "committed_metadata": offsets[TopicPartition(name, p)].metadata,
                }
                for p in some
            ],
        }
        for name, some in _by_topic(offsets).items()
    ]

    def step() -> None:
        connection = cluster.connect(cluster.coordinator(group))
        version = connection.version_of(apis.OFFSET_COMMIT, at_most=9)
        answer = connection.call(
            apis.OFFSET_COMMIT,
            {
                "group_id": group,
                "generation_id_or_member_epoch": generation,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "topics": topics,
            },
            version,
        )
        _check_partitions(answer.topics, f"commit of group {group!r}")

    cluster.retrying(step)


def _check_partitions(topics: Iterable[Any], what: str) -> None:
    """Raise the first failure of a partition; one that lasts before one that passes."""
    failed = [
        (is_retriable(row.error_code), row.error_code, f"{topic.name}-{row.partition_index}")
        for topic in topics
        for row in topic.partitions
        if row.error_code
    ]
    for _, code, name in sorted(failed):
        check_code(code, f"{what}: {name}")


def delete_group(cluster: Cluster, group: str) -> None:
    """Remove a group that has no members, with its offsets.

    Raises: GroupIdNotFound, NonEmptyGroup; what the broker answers.
    """

    def step() -> None:
        connection = cluster.connect(cluster.coordinator(group))
        answer = connection.call(apis.DELETE_GROUPS, {"groups_names": [group]})
        for result in answer.results:
            check_code(result.error_code, f"group {group!r}")

    cluster.retrying(step)


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Forget what a group has committed for partitions of topics that no member reads.

    Raises: GroupIdNotFound, GroupSubscribedToTopic; what the broker answers.
    """
    topics = [
        {"name": name, "partitions": [{"partition_index": p} for p in some]}
        for name, some in _by_topic(partitions).items()
    ]

    def step() -> None:
        connection = cluster.connect(cluster.coordinator(group))
        answer = connection.call(apis.OFFSET_DELETE, {"group_id": group, "topics": topics})
        check_code(answer.error_code, f"group {group!r}")
        _check_partitions(answer.topics, f"offsets of group {group!r}")

    cluster.retrying(step)
