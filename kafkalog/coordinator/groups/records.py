"""The records of __consumer_offsets that store groups.

Formats: docs/format.md, kafkalog.wire.records.  We write GroupMetadataValue version 3, which every
Kafka since 2.3 reads, and OffsetCommitValue version 4, which has the topic's id and which every
Kafka since 3.5 reads (KIP-915); version 3 without an id, 1 if the commit has its own expiry.  We
read all versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from uuid import UUID

from kafkalog.coordinator.groups.group import CONSUMER, CommittedOffset, Group, Member, State
from kafkalog.coordinator.partitions import CACHED_CHARACTERS_MAX
from kafkalog.coordinator.step import JournalRecord
from kafkalog.errors import KafkalogError
from kafkalog.types import TopicPartition
from kafkalog.wire.api import REQUEST_NAMES_MAX
from kafkalog.wire.records import CONSUMER_PROTOCOL, OFFSETS
from kafkalog.wire.values import ZERO_UUID, Struct

__all__ = [
    "CONSUMER",
    "FOREIGN",
    "FOREIGN_KINDS",
    "REBALANCE_FOLLOWS",
    "SHARE",
    "STREAMS",
    "foreign_tombstones",
    "group_key",
    "group_record",
    "is_share",
    "loaded_group",
    "loaded_offset",
    "newer_type",
    "offset_key",
    "offset_records",
    "subscribed_topics",
    "topics_of",
]

GROUP, OFFSET = "GroupMetadata", "OffsetCommit"
GROUP_VERSION = 3
OFFSET_VERSION, EXPIRING_OFFSET_VERSION, ID_OFFSET_VERSION = 3, 1, 4
REBALANCE_FOLLOWS = -2
"""As the time since when a group with members has its state: nobody has the partitions of members
that are gone, so a coordinator that loads the record begins a rebalance.  Kafka uses the time of
groups without members only."""

SHARE, STREAMS = "share", "streams"
FOREIGN = {
    CONSUMER: (8, 7, 6, 5, 16, 4, 3),
    SHARE: (14, 13, 12, 10, 15, 11),
    STREAMS: (22, 21, 20, 19, 17, 23),
}
"""Kinds of records of the groups of KIP-848, KIP-932 and KIP-1071, by the type of group, in the
order in which Kafka writes their tombstones: assignments before members, members before the
group."""
_ORDER = [kind for kinds in FOREIGN.values() for kind in kinds]
FOREIGN_KINDS = frozenset(_ORDER)


# ---- what is written -----------------------------------------------------------------------


def group_key(group_id: str) -> bytes:
    """The key of a group's record."""
    return OFFSETS.encode_key(GROUP, {"group": group_id})


def group_record(group: Group, assignments: Mapping[str, bytes]) -> JournalRecord:
    """A group's current state, with these assignments by member id."""
    protocol = group.protocol or ""
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "session_timeout": member.session_timeout_ms,
            "subscription": member.metadata(protocol),
            "assignment": assignments.get(member.member_id, b""),
        }
        for member in group.members.values()
    ]
    value = {
        "protocol_type": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "current_state_timestamp": group.state_ms,
        "members": members,
    }
    return group_key(group.group_id), OFFSETS.encode_value(GROUP, GROUP_VERSION, value)


def offset_key(group_id: str, where: TopicPartition) -> bytes:
    """The key of a committed offset."""
    short = len(group_id) <= CACHED_CHARACTERS_MAX
    return _cached_offset_key(group_id, where) if short else _offset_key(group_id, where)


def _offset_key(group_id: str, where: TopicPartition) -> bytes:
    fields = {"group": group_id, "topic": where.topic, "partition": where.partition}
    return OFFSETS.encode_key(OFFSET, fields)


_cached_offset_key = lru_cache(maxsize=16_384)(_offset_key)
"""A consumer commits for the same partitions over and over."""


def offset_records(
    group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> list[JournalRecord]:
    """A commit."""
    return [(offset_key(group_id, where), _offset_value(o)) for where, o in offsets.items()]


def _offset_value(offset: CommittedOffset) -> bytes:
    fields = {
        "offset": offset.offset,
        "leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "commit_timestamp": offset.commit_ms,
        "expire_timestamp": offset.expire_ms,
        "topic_id": offset.topic_id,
    }
    version = OFFSET_VERSION if offset.topic_id == ZERO_UUID else ID_OFFSET_VERSION
    version = version if offset.expire_ms < 0 else EXPIRING_OFFSET_VERSION
    return OFFSETS.encode_value(OFFSET, version, fields)


def foreign_tombstones(foreign: Mapping[bytes, int]) -> list[JournalRecord]:
    """Tombstones of a group of a newer type: `foreign` has its keys and their kinds."""
    ordered = sorted(foreign, key=lambda key: _ORDER.index(foreign[key]))
    return [(key, None) for key in ordered]


def newer_type(group: Group) -> str | None:
    """Which type of FOREIGN a group has; None: a classic one."""
    if group.share is not None:
        return SHARE
    if group.streams is not None:
        return STREAMS
    kind = next(iter(group.foreign.values()), None)
    return next((name for name, kinds in FOREIGN.items() if kind in kinds), None)


def is_share(group: Group) -> bool:
    """True if it is a share group: to all who commit offsets it does not exist."""
    return newer_type(group) == SHARE


# ---- what is read --------------------------------------------------------------------------


def loaded_group(group: Group, value: Struct) -> None:
    """Fill `group`, which has no members, from a group record."""
    group.state_ms = value.current_state_timestamp
    group.generation = value.generation
    group.be_of(value.protocol_type or None)
    group.protocol = value.protocol
    group.state = State.STABLE if value.members else State.EMPTY
    for each in value.members:
        member = Member(each.member_id, each.group_instance_id, each.client_id, each.client_host)
        timeout_ms = each.rebalance_timeout
        member.rebalance_timeout_ms = each.session_timeout if timeout_ms < 0 else timeout_ms
        member.session_timeout_ms = each.session_timeout
        member.protocols = ((value.protocol or "", each.subscription),)
        member.assignment = each.assignment
        group.add(member, value.protocol_type)
    if value.leader in group.members:
        group.leader = value.leader
    group.subscribe(subscribed_topics(group))


def loaded_offset(value: Struct, position: int) -> CommittedOffset:
    """A commit from its record."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        position,
        _one_of_each(value.topic_id),
    )


@lru_cache(maxsize=16_384)
def _one_of_each(topic_id: UUID) -> UUID:
    """The same object for equal ids: many offsets have the same."""
    return topic_id


# ---- what members say ----------------------------------------------------------------------


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if it cannot be read, or names more than
    REQUEST_NAMES_MAX."""
    try:
        _, subscription = CONSUMER_PROTOCOL.decode_subscription(metadata, REQUEST_NAMES_MAX)
    except KafkalogError:
        return None
    return frozenset(subscription.topics)


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that the members of a group subscribe to; None: unknown."""
    if group.protocol_type != CONSUMER:
        return None
    found: set[str] = set()
    subscriptions: Iterable[bytes] = (
        member.metadata(group.protocol or "") for member in group.members.values()
    )
    for metadata in set(subscriptions):
        topics = topics_of(metadata)
        if topics is None:
            return None
        found |= topics
    return found
