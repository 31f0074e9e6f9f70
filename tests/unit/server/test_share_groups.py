"""A broker with share groups: members get partitions whose state its share coordinator keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog.metadata.levels import SHARE_VERSION, SUPPORTED
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for

GROUP_KIND = 32
UNREADY = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}  # fmt: skip


@pytest.fixture
def shared(raw: Raw, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Raw]:
    """A connection to a broker whose cluster has share groups."""
    monkeypatch.setitem(SUPPORTED, SHARE_VERSION, (0, 1))  # type: ignore[arg-type]
    update = {"feature": SHARE_VERSION, "max_version_level": 1, "upgrade_type": 1}
    done = raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    assert not done.error_code, done
    raw.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["s"])
    return raw


def ready(raw: Raw, api: Any, version: int, **fields: Any) -> Any:
    """The answer, once the coordinators are there."""
    found: list[Any] = []

    def answered() -> bool:
        found.append(raw.call(api, version, **fields))
        rows = getattr(found[-1], "groups", None) or getattr(found[-1], "results", None)
        codes = [one.error_code for one in rows or [found[-1]]]
        return not UNREADY.intersection(codes)

    wait_for(answered, "the coordinators")
    return found[-1]


def say(raw: Raw, member: str, epoch: int, group: str = "s", **fields: Any) -> Any:
    body = {"group_id": group, "member_id": member, "member_epoch": epoch, **fields}
    return ready(raw, apis.SHARE_GROUP_HEARTBEAT, 1, **body)


def assigned(raw: Raw, member: str, epoch: int) -> dict[Any, list[int]]:
    """The partitions of a member, once it has any."""
    now = [epoch]
    found: dict[Any, list[int]] = {}

    def has() -> bool:
        answer = say(raw, member, now[0])
        assert not answer.error_code, answer
        now[0] = answer.member_epoch
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            found.update({one.topic_id: one.partitions for one in parts})
        return bool(found)

    wait_for(has, "partitions")
    return found


def described(raw: Raw, group: str = "s") -> Any:
    (found,) = ready(raw, apis.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    return found


def offsets(raw: Raw, **topics: list[int]) -> dict[int, tuple[int, int]]:
    asked = [{"topic_name": name, "partitions": numbers} for name, numbers in topics.items()]
    body = {"group_id": "s", "topics": asked or None}
    (found,) = ready(raw, apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[body]).groups
    assert not found.error_code, found
    parts = [one for topic in found.topics for one in topic.partitions]
    assert not any(one.error_code for one in parts), parts
    return {one.partition_index: (one.start_offset, one.lag) for one in parts}


def alter(raw: Raw, **starts: int) -> Any:
    parts = [{"partition_index": int(n[1:]), "start_offset": at} for n, at in starts.items()]
    topics = [{"topic_name": "t", "partitions": parts}]
    found = ready(raw, apis.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="s", topics=topics)
    assert not found.error_code, found
    return [one.error_code for topic in found.responses for one in topic.partitions]


def test_members_share_partitions_whose_state_is_kept(shared: Raw) -> None:
    shared.create("t", 2)
    first = say(shared, "a", 0, subscribed_topic_names=["t"])
    assert not first.error_code, first
    assert [sorted(some) for some in assigned(shared, "a", first.member_epoch).values()] == [[0, 1]]
    second = say(shared, "b", 0, subscribed_topic_names=["t"])
    assert len(next(iter(assigned(shared, "b", second.member_epoch).values()))) == 1
    found = described(shared)
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert offsets(shared) == {0: (-1, -1), 1: (-1, -1)}
    listed = shared.call(apis.LIST_GROUPS, 5, types_filter=["share"]).groups
    assert [(one.group_id, one.group_state) for one in listed] == [("s", "Stable")]


def test_an_administrator_moves_the_start_of_an_empty_group(shared: Raw) -> None:
    shared.create("t", 2)
    shared.produce("t", b"1", b"2", b"3", partition=1)
    assert alter(shared, p0=0, p1=2) == [0, 0]
    assert offsets(shared) == {0: (0, 0), 1: (2, 1)}
    assert offsets(shared, t=[1]) == {1: (2, 1)}
    body = {"group_id": "s", "topics": [{"topic_name": "t"}]}
    found = ready(shared, apis.DELETE_SHARE_GROUP_OFFSETS, 0, **body)
    assert [one.error_code for one in found.responses] == [0]
    assert offsets(shared) == {}
    deleted = ready(shared, apis.DELETE_GROUPS, 2, groups_names=["s"])
    assert [one.error_code for one in deleted.results] == [0]
    assert described(shared).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_leaves_the_group(shared: Raw) -> None:
    shared.create("t", 1)
    assert alter(shared, p0=0) == [0]
    shared.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=9_000)
    wait_for(lambda: offsets(shared) == {}, "the topic's end")


def test_a_groups_own_settings_are_in_effect(shared: Raw) -> None:
    name = "share.heartbeat.interval.ms"
    assert not shared.alter(GROUP_KIND, "s", share_heartbeat_interval_ms="7000").error_code
    shared.create("t", 1)
    found = say(shared, "a", 0, subscribed_topic_names=["t"])
    assert found.heartbeat_interval_ms == 7_000
    asked = [{"resource_type": GROUP_KIND, "resource_name": "s", "configuration_keys": [name]}]
    (row,) = shared.call(apis.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True).results
    (entry,) = row.configs
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (name, "7000", 8), (f"group.{name}", "5000", 5),
    ]  # fmt: skip
    refused = shared.alter(GROUP_KIND, "s", share_session_timeout_ms="1")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "group.share.min.session" in refused.error_message


def test_a_cluster_without_the_feature_refuses_share_groups(raw: Raw) -> None:
    update = {"feature": SHARE_VERSION, "max_version_level": 0, "upgrade_type": 2}
    raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    refused = ErrorCode.UNSUPPORTED_VERSION
    body = {"group_id": "s", "member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    assert raw.call(apis.SHARE_GROUP_HEARTBEAT, 1, **body).error_code == refused
    (row,) = raw.call(apis.SHARE_GROUP_DESCRIBE, 1, group_ids=["s"]).groups
    assert (row.group_id, row.error_code) == ("s", refused)
    asked = [{"group_id": "s", "topics": None}]
    (row,) = raw.call(apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked).groups
    assert row.error_code == refused
    for api in (apis.ALTER_SHARE_GROUP_OFFSETS, apis.DELETE_SHARE_GROUP_OFFSETS):
        assert raw.call(api, 0, group_id="s", topics=[]).error_code == refused


def test_an_administrator_sees_and_moves_share_groups(shared: Raw, broker: Broker) -> None:
    shared.create("t", 2)
    say(shared, "a", 0, subscribed_topic_names=["t"])
    assigned(shared, "a", 2)
    with kafkalog.Admin(broker.store) as admin:
        assert [(one.group, one.kind) for one in admin.list_groups(kinds=["share"])] == [
            ("s", "share")
        ]
        one = admin.describe_groups(["s", "none"])["s"]
        assert (one.state, one.protocol_type, one.assignor) == ("Stable", "share", "simple")
        assert [(m.member_id, m.assignment) for m in one.members] == [("a", (("t", 0), ("t", 1)))]
        moved = admin.alter_share_group_offsets("s", {("t", 0): 1})
        assert moved.errors["t", 0].code == ErrorCode.NON_EMPTY_GROUP
        say(shared, "a", -1)
        admin.alter_share_group_offsets("s", {("t", 0): 0}).check()
        assert admin.list_share_group_offsets("s") == {("t", 0): (0, 0, 0)}
        assert admin.list_share_group_offsets("s", [("t", 1)]) == {}
        found = admin.delete_share_group_offsets("s", ["t", "none"])
        assert found.done == {"t": None}
        assert found.errors["none"].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        admin.delete_groups(["s"]).check()
        assert admin.list_groups(kinds=["share"]) == []
