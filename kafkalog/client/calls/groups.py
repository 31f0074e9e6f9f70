"""Consumer groups from outside: their members and committed offsets, and changes of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.calls.results import Results, each, only
from kafkalog.client.link.chunks import by_topic, portions, topic_rows
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure, outcome
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "CommittedOffset",
    "GroupInfo",
    "GroupListing",
    "GroupMetadata",
    "Ids",
    "MemberInfo",
    "commit_offsets",
    "committed_offsets",
    "delete_groups",
    "delete_offsets",
    "describe_group",
    "describe_groups",
    "list_groups",
    "put_offsets",
    "remove_members",
]

Ids = Mapping[str, UUID]
"""Topic ids by name."""
IDS_SINCE = 10
"""From this version on, OffsetCommit and OffsetFetch have topic ids instead of names."""


NOT_NEWER = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Answers to ConsumerGroupDescribe about a group that is not there, or is of another type."""
NEWER = (
    (apis.CONSUMER_GROUP_DESCRIBE, "consumer"), (apis.SHARE_GROUP_DESCRIBE, "share"),
    (apis.STREAMS_GROUP_DESCRIBE, "streams"),
)  # fmt: skip
"""The APIs that describe groups whose members heartbeat, and the types of these groups."""


class GroupListing(NamedTuple):
    """A group in a list."""

    group: str
    protocol_type: str
    state: str
    """Empty if the broker is too old to report it."""
    kind: str
    """classic, consumer, ...; empty if the broker is too old to report it."""


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
    """The group member that commits: for transactions, see `Producer.send_offsets`."""

    group: str
    generation: int = -1
    """-1: not a member now, or a commit from outside the group."""
    member_id: str = ""
    instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """A group's committed offset for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


def list_groups(
    cluster: Cluster, states: Collection[str] = (), kinds: Collection[str] = ()
) -> list[GroupListing]:
    """The groups of every node, sorted by name; only those in these states, of these kinds, if
    any are given.

    Raises: UnsupportedVersion: `states` for a broker before 2.6, `kinds` for one before 3.8; what
    a broker answers.
    """
    body = {"states_filter": list(states), "types_filter": list(kinds)}
    needed = 5 if kinds else 4 if states else 0

    def step() -> list[GroupListing]:
        cluster.refresh([])
        found = {}
        for node in sorted(cluster.nodes):
            connection = cluster.connect(node)
            version = connection.version_of(apis.LIST_GROUPS)
            if version < needed:
                raise errors.UnsupportedVersion(
                    f"{connection.address}: ListGroups: version {version}, wanted {needed} to "
                    "for this filter"
                )
            answer = connection.call(apis.LIST_GROUPS, body, version)
            check_code(answer.error_code, f"groups of node {node}")
            for g in answer.groups:
                found[g.group_id] = GroupListing(
                    g.group_id, g.protocol_type, g.group_state, g.group_type
                )
        return [found[name] for name in sorted(found)]

    return cluster.retrying(step)


def describe_group(cluster: Cluster, group: str) -> GroupInfo:
    """`describe_groups` of one.  Raises: its failure."""
    return only(describe_groups(cluster, [group]))


def describe_groups(
    cluster: Cluster, groups: Iterable[str], timeout_ms: int | None = None
) -> Results[str, GroupInfo]:
    """Groups and their members; the state of an unknown group is Dead.

    Failures: what the broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, GroupInfo | errors.KafkalogError]]:
        answer = connection.call(apis.DESCRIBE_GROUPS, {"groups": some}, timeout_ms=wait_ms)
        found = {one.group_id: _group(cluster, one) for one in answer.groups}
        others = [name for name, one in found.items() if getattr(one, "state", "") == "Dead"]
        for api, kind in NEWER:
            if not others or api.key not in connection.ranges:
                continue
            body = {"group_ids": others, "include_authorized_operations": False}
            newer = connection.call(api, body, timeout_ms=wait_ms)
            for row in newer.groups:
                if row.error_code not in NOT_NEWER:
                    found[row.group_id] = _newer_group(cluster, row, kind)
                    others.remove(row.group_id)
        return found.items()

    return each(cluster, groups, cluster.coordinator, ask, timeout_ms)


def _newer_group(cluster: Cluster, found: Any, kind: str) -> GroupInfo | errors.KafkalogError:
    """A group whose members heartbeat (KIP-848, KIP-932, KIP-1071).  The tasks of a streams group
    are not shown as partitions."""
    name = found.group_id
    if found.error_code:
        return failure(found.error_code, f"group {name!r}", found.error_message)
    members = tuple(sorted(
        MemberInfo(
            one.member_id, getattr(one, "instance_id", None), one.client_id, one.client_host,
            tuple(sorted(
                TopicPartition(row.topic_name, number)
                for row in getattr(one.assignment, "topic_partitions", ())
                for number in row.partitions
            )),
        )
        for one in found.members
    ))  # fmt: skip
    return GroupInfo(
        name, found.group_state, kind, found.assignor_name or "", members,
        cluster.coordinator(name),
    )  # fmt: skip


def _group(cluster: Cluster, found: Any) -> GroupInfo | errors.KafkalogError:
    name = found.group_id
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupInfo(name, "Dead", "", "", (), cluster.coordinator(name))
    if found.error_code:
        return failure(found.error_code, f"group {name!r}", found.error_message)
    plain = found.protocol_type == "consumer"
    members = tuple(sorted(_member(one, plain) for one in found.members))
    return GroupInfo(
        name, found.group_state, found.protocol_type, found.protocol_data, members,
        cluster.coordinator(name),
    )  # fmt: skip


def _member(found: Any, plain: bool) -> MemberInfo:
    """`plain`: the member of a consumer group, whose assignment is a list of partitions."""
    assignment: list[TopicPartition] = []
    if plain and found.member_assignment:
        try:
            _, assigned = CONSUMER_PROTOCOL.decode_assignment(found.member_assignment)
        except errors.KafkalogError:
            assigned = None  # of a client with another format
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
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    member: GroupMetadata | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that a group has committed; `partitions` None: everything.  `member`: who asks,
    with its epoch.

    A partition for which it has committed nothing is left out.

    Raises: what the broker answers.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    for some in (None,) if partitions is None else portions(sorted(set(partitions))):
        found |= _committed_of(cluster, group, some, member)
    return found


def _committed_of(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    member: GroupMetadata | None,
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets that one request can return."""
    topics = None if partitions is None else by_topic(partitions)

    def step() -> dict[TopicPartition, CommittedOffset]:
        connection = cluster.connect(cluster.coordinator(group))
        ids = cluster.patience.once("ids", lambda: _known_ids(cluster, topics or ()))
        version = _version(connection, apis.OFFSET_FETCH, topics or (), ids)
        rows = None if topics is None else [
            {"name": name, "topic_id": ids.get(name, ZERO_UUID), "partition_indexes": sorted(some)}
            for name, some in topics.items()
        ]  # fmt: skip
        if version >= 8:
            one: dict[str, Any] = {"group_id": group, "topics": rows}
            if member is not None:
                one |= {"member_id": member.member_id, "member_epoch": member.generation}
            body: dict[str, Any] = {"groups": [one]}
        else:
            body = {"group_id": group, "topics": rows}
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
        return _committed(found, group, _names(ids, version))

    return cluster.retrying(step)


def _known_ids(cluster: Cluster, names: Iterable[str]) -> Ids:
    found = {name: cluster.topics.get(name) for name in names}
    return {name: info.topic_id for name, info in found.items() if info is not None}


def _version(connection: Connection, api: Any, names: Iterable[str], ids: Ids) -> int:
    """The version of OffsetCommit or OffsetFetch: with ids if the broker supports them and all are
    known."""
    named = [ids.get(name, ZERO_UUID) for name in names]
    by_id = bool(named) and ZERO_UUID not in named
    return connection.version_of(api, at_most=IDS_SINCE if by_id else IDS_SINCE - 1)


def _names(ids: Ids, version: int) -> Mapping[UUID, str]:
    """Topic names by id, if answers of this version have no names."""
    return {topic_id: name for name, topic_id in ids.items()} if version >= IDS_SINCE else {}


def _name(topic: Any, names: Mapping[UUID, str]) -> str:
    """The name of a topic in an answer.  Raises: BadAnswer: it has an id that was not requested."""
    if not names:
        return str(topic.name)
    if topic.topic_id not in names:
        raise errors.BadAnswer(f"committed offsets: found topic id {topic.topic_id}, not asked for")
    return names[topic.topic_id]


def _committed(
    found: Any, group: str, names: Mapping[UUID, str]
) -> dict[TopicPartition, CommittedOffset]:
    """Raises: the first failure.  UnknownTopicId is transient: the next request has current ids."""
    out = {}
    for topic in found.topics:
        name = _name(topic, names)
        for row in topic.partitions:
            tp = TopicPartition(name, row.partition_index)
            check_code(row.error_code, f"offset of group {group!r} in {tp.topic}-{tp.partition}")
            if row.committed_offset >= 0:
                out[tp] = CommittedOffset(
                    row.committed_offset, row.committed_leader_epoch, row.metadata
                )
    return dict(sorted(out.items()))


def offset_row(tp: TopicPartition, one: CommittedOffset) -> dict[str, Any]:
    """A partition of OffsetCommit or TxnOffsetCommit."""
    return {
        "partition_index": tp.partition,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "committed_metadata": one.metadata,
    }


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> None:
    """`put_offsets`, all or nothing.  Raises: the first failure; as `put_offsets`."""
    put_offsets(cluster, group, offsets, generation, member_id, instance_id).check()


def put_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    timeout_ms: int | None = None,
    ids: Ids | None = None,
) -> Results[TopicPartition, None]:
    """Commit offsets for a group; without a member id only for a group without members.

    `ids`: of the topics that are meant, if known: a recreated topic with the same name is refused.

    Failures: UnknownMemberId if the group has members; UnknownTopicOrPartition: the topic was
    recreated; what the broker answers.
    Raises: as `each`.
    """
    known, doubted = dict(ids or {}), set[str]()

    def place(tp: TopicPartition) -> int:
        meant = known.get(tp.topic)
        if tp.topic in doubted and meant and cluster.topic(tp.topic).topic_id != meant:
            found = f"found the id {cluster.topic(tp.topic).topic_id}, wanted {meant}"
            why = f"topic {tp.topic!r} was deleted and recreated: {found}"
            raise errors.UnknownTopicOrPartition(f"commit of group {group!r}: {why}")
        return cluster.coordinator(group)

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, errors.KafkalogError | None]]:
        topics = by_topic((tp.topic, offset_row(tp, offsets[tp])) for tp in some)
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "topics": [
                {"name": name, "topic_id": known.get(name, ZERO_UUID), "partitions": rows}
                for name, rows in topics.items()
            ],
        }
        version = _version(connection, apis.OFFSET_COMMIT, topics, known)
        answer = connection.call(apis.OFFSET_COMMIT, body, version, wait_ms)
        found = _outcomes(answer.topics, f"commit of group {group!r}", _names(known, version))
        unknown = ErrorCode.UNKNOWN_TOPIC_ID  # the coordinator lags, or the topic is gone
        doubted.update(tp.topic for tp, problem in found if problem and problem.code == unknown)
        return found

    return each(cluster, offsets, place, ask, timeout_ms)


def _outcomes(
    topics: Iterable[Any], what: str, names: Mapping[UUID, str] = MappingProxyType({})
) -> list[tuple[TopicPartition, errors.KafkalogError | None]]:
    """The outcome for each partition; None: success.  `names`: of topics by their ids."""
    found = []
    for topic in topics:
        name = _name(topic, names)
        for row in topic.partitions:
            where = f"{what}: {name}-{row.partition_index}"
            found.append(
                (TopicPartition(name, row.partition_index), outcome(row.error_code, where))
            )
    return found


def delete_groups(
    cluster: Cluster, groups: Iterable[str], timeout_ms: int | None = None
) -> Results[str, None]:
    """Remove groups that have no members, with their offsets.

    Failures: GroupIdNotFound, NonEmptyGroup; what the broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, errors.KafkalogError | None]]:
        body = {"groups_names": some}
        answer = connection.call(apis.DELETE_GROUPS, body, timeout_ms=wait_ms)
        return [
            (row.group_id, outcome(row.error_code, f"group {row.group_id!r}", row.error_message))
            for row in answer.results
        ]

    return each(cluster, groups, cluster.coordinator, ask, timeout_ms)


def delete_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int | None = None,
) -> Results[TopicPartition, None]:
    """Delete a group's committed offsets for partitions of topics that no member reads.

    Failures: GroupIdNotFound, GroupSubscribedToTopic; what the broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, errors.KafkalogError | None]]:
        rows = ((tp.topic, {"partition_index": tp.partition}) for tp in some)
        body = {"group_id": group, "topics": topic_rows(rows)}
        answer = connection.call(apis.OFFSET_DELETE, body, timeout_ms=wait_ms)
        check_code(answer.error_code, f"group {group!r}")
        return _outcomes(answer.topics, f"offsets of group {group!r}")

    return each(cluster, partitions, lambda tp: cluster.coordinator(group), ask, timeout_ms)


def remove_members(
    cluster: Cluster,
    group: str,
    instances: Iterable[str] | None = None,
    reason: str = "removed by an administrator",
    timeout_ms: int | None = None,
) -> Results[str, None]:
    """Remove members from a group: the static ones with these instance ids; None: all members.

    The results are by instance id, or by member id for members without one.

    Failures: UnknownMemberId, FencedInstanceId; what the broker answers.  Raises: the failure to
    describe the group; UnsupportedVersion for a broker before 2.4; as `each`.
    """
    if instances is None:
        members = describe_group(cluster, group).members
        rows = {
            m.instance_id or m.member_id: {"member_id": m.member_id,
                                           "group_instance_id": m.instance_id}
            for m in members
        }  # fmt: skip
    else:
        rows = {one: {"member_id": "", "group_instance_id": one} for one in instances}

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, errors.KafkalogError | None]]:
        version = connection.version_of(apis.LEAVE_GROUP)
        if version < 3:
            raise errors.UnsupportedVersion(
                f"{connection.address}: LeaveGroup: version {version}, wanted 3 for other members"
            )
        body = {"group_id": group, "members": [{**rows[one], "reason": reason} for one in some]}
        answer = connection.call(apis.LEAVE_GROUP, body, version, wait_ms)
        check_code(answer.error_code, f"group {group!r}")
        found = []
        for row in answer.members:
            name = row.group_instance_id or row.member_id
            what = f"member {name!r} of group {group!r}"
            found.append((name, outcome(row.error_code, what)))
        return found

    return each(cluster, rows, lambda one: cluster.coordinator(group), ask, timeout_ms)
