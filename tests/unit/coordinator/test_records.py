"""The records of groups: written as docs/format.md says, and read back in every version."""

from __future__ import annotations

import pytest

from kafkalog.coordinator.groups.group import CommittedOffset, Group, Member, State
from kafkalog.coordinator.groups.records import (
    FOREIGN,
    foreign_tombstones,
    group_record,
    loaded_group,
    loaded_offset,
    offset_records,
    topics_of,
)
from kafkalog.types import TopicPartition
from kafkalog.wire.records import OFFSETS
from tests.support import golden
from tests.unit.coordinator.group_calls import subscription

WALL_MS = 1_700_000_000_000
T1 = TopicPartition("t", 1)


def example() -> Group:
    """The group of docs/format.md."""
    group = Group("app", WALL_MS)
    member = Member("c-1", "host-1", "c", "/127.0.0.1")
    member.rebalance_timeout_ms, member.session_timeout_ms = 60_000, 45_000
    member.protocols = (("range", b"\1\2"),)
    group.add(member, "consumer")
    group.generation, group.protocol = 3, "range"
    return group


def test_a_group_is_written_as_the_format_says() -> None:
    key, value = group_record(example(), {"c-1": b"\3"})
    assert key == golden.data("group-metadata-key")
    assert value == golden.data("group-metadata-value")


def test_a_commit_is_written_as_the_format_says() -> None:
    offset = CommittedOffset(42, 5, "m", WALL_MS, -1, 0)
    ((key, value),) = offset_records("app", {T1: offset})
    assert key == golden.data("offset-commit-key")
    assert value == golden.data("offset-commit-value")


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    _, written = group_record(example(), {"c-1": b"\3"})
    assert written is not None
    _, fields = OFFSETS.decode_value("GroupMetadata", written)
    value = OFFSETS.encode_value("GroupMetadata", version, fields)
    group = Group("app", 5)
    loaded_group(group, OFFSETS.decode_value("GroupMetadata", value)[1])
    (member,) = group.members.values()
    assert (group.state, group.generation, group.leader) == (State.STABLE, 3, "c-1")
    assert group.state_ms == (WALL_MS if version >= 2 else -1)
    assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 45_000)
    assert member.instance_id == ("host-1" if version >= 3 else None)
    assert (member.metadata("range"), member.assignment) == (b"\1\2", b"\3")


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version_are_read(version: int) -> None:
    fields = {"offset": 42, "leader_epoch": 5, "metadata": "m", "commit_timestamp": WALL_MS,
              "expire_timestamp": WALL_MS + 1}  # fmt: skip
    value = OFFSETS.encode_value("OffsetCommit", version, fields)
    found = loaded_offset(OFFSETS.decode_value("OffsetCommit", value)[1], 9)
    epoch = 5 if version >= 3 else -1
    expires = WALL_MS + 1 if version == 1 else -1
    assert found == CommittedOffset(42, epoch, "m", WALL_MS, expires, 9)


def test_a_leader_that_is_nobody() -> None:
    """An existing member leads instead."""
    _, written = group_record(example(), {})
    assert written is not None
    _, fields = OFFSETS.decode_value("GroupMetadata", written)
    fields.leader = "somebody else"
    group = Group("app", 5)
    loaded_group(group, fields)
    assert group.leader == "c-1"


def test_tombstones_of_newer_groups_end_assignments_first() -> None:
    for kinds in FOREIGN.values():
        keys = {bytes([0, kind]): kind for kind in sorted(kinds)}
        ended = [key[1] for key, value in foreign_tombstones(keys) if value is None]
        assert ended == [*kinds]


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff", b"\0\0\x7f\xff\xff\xff"])
def test_subscriptions_that_cannot_be_read(metadata: bytes) -> None:
    """They count as absent, and no memory is allocated for the length they claim."""
    assert topics_of(metadata) is None
    assert topics_of(subscription("a", "b")) == {"a", "b"}
