"""A broker with groups whose members heartbeat."""

from __future__ import annotations

from typing import Any

import pytest

import kafkalog
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for

GROUP_KIND = 32


def beat(raw: Raw, member: str, epoch: int, group: str = "g", **fields: Any) -> Any:
    """A heartbeat, again until the coordinator is there."""
    body = {"group_id": group, "member_id": member, "member_epoch": epoch, **fields}
    found: list[Any] = []

    def answered() -> bool:
        found.append(raw.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, **body))
        unready = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return found[-1].error_code not in unready

    wait_for(answered, "the coordinator")
    return found[-1]


def enter(raw: Raw, member: str, group: str = "g", **fields: Any) -> Any:
    """A member's first heartbeat."""
    raw.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
    body = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], "subscribed_topic_names": ["t"]}
    return beat(raw, member, 0, group, **{**body, **fields})


def test_topics_that_match_a_pattern_are_found(raw: Raw) -> None:
    """Also one that is created later, without delay if it is named."""
    raw.create("tea", 2)
    first = enter(raw, "a", subscribed_topic_names=[], subscribed_topic_regex="t.a")
    assert (first.error_code, first.member_epoch) == (0, 1)
    parts: list[Any] = []

    def assigned() -> bool:
        found = beat(raw, "a", first.member_epoch)
        assert not found.error_code
        if found.assignment is not None:
            parts.extend(found.assignment.topic_partitions)
        return bool(parts)

    wait_for(assigned, "the lookup")
    assert [one.partitions for one in parts] == [[0, 1]]


def test_an_administrator_sees_the_members(raw: Raw, broker: Broker) -> None:
    raw.create("t", 2)
    enter(raw, "a")
    with kafkalog.Admin(broker.store) as admin:
        found = admin.describe_groups(["g", "none"])
    one = found["g"]
    assert (one.state, one.protocol_type, one.assignor) == ("Stable", "consumer", "uniform")
    assert [(member.member_id, member.assignment) for member in one.members] == [
        ("a", (("t", 0), ("t", 1)))
    ]
    assert found["none"].state == "Dead"


def test_a_created_topic_is_shared_out(raw: Raw) -> None:
    joined = enter(raw, "a", subscribed_topic_names=["later"])
    assert joined.assignment.topic_partitions == []
    raw.create("later", 1)
    epoch = joined.member_epoch

    def assigned() -> bool:
        found = beat(raw, "a", epoch)
        return found.assignment is not None and bool(found.assignment.topic_partitions)

    wait_for(assigned, "the topic")


def test_a_groups_own_settings_are_in_effect(raw: Raw) -> None:
    """They stay within the broker's bounds."""
    name = "consumer.heartbeat.interval.ms"
    assert not raw.alter(GROUP_KIND, "g", consumer_heartbeat_interval_ms="7000").error_code
    assert enter(raw, "a").heartbeat_interval_ms == 7_000
    assert enter(raw, "a", "other").heartbeat_interval_ms == 5_000
    asked = [{"resource_type": GROUP_KIND, "resource_name": "g", "configuration_keys": [name]}]
    (found,) = raw.call(apis.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True).results
    (entry,) = found.configs
    assert (entry.name, entry.value, entry.config_source) == (name, "7000", 8)
    synonyms = [(one.name, one.value, one.source) for one in entry.synonyms]
    assert synonyms == [(name, "7000", 8), (f"group.{name}", "5000", 5)]
    assert not raw.alter(GROUP_KIND, "g", consumer_heartbeat_interval_ms=None).error_code
    assert beat(raw, "a", 2).heartbeat_interval_ms == 5_000


def test_all_settings_of_a_group_are_shown(raw: Raw) -> None:
    """Also those that no setting of the broker stands for."""
    shown = raw.describe(GROUP_KIND, "g")
    assert shown["share.auto.offset.reset"].value == "latest"
    assert shown["share.auto.offset.reset"].config_source == 5
    assert shown["share.delivery.count.limit"].value == "5"
    assert not raw.alter(GROUP_KIND, "g", share_isolation_level="read_committed").error_code
    assert raw.describe(GROUP_KIND, "g")["share.isolation.level"].value == "read_committed"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("consumer_heartbeat_interval_ms", "20000", "group.consumer.max.heartbeat"),
        ("consumer_session_timeout_ms", "1", "group.consumer.min.session"),
        ("consumer_session_timeout_ms", "x", "found 'x'"),
        ("consumer_assignor", "range", "Unknown group config name"),
        ("share_delivery_count_limit", "1", "found '1'"),
        ("share_delivery_count_limit", "11", "group.share.max.delivery.count.limit"),
        ("share_record_lock_duration_ms", "1000", "group.share.min.record.lock"),
        ("share_auto_offset_reset", "by_duration:1h", "by_duration:PT1H"),
        ("share_isolation_level", "serializable", "read_uncommitted, read_committed"),
    ],
)
def test_settings_of_a_group_are_refused(raw: Raw, name: str, value: str, why: str) -> None:
    found = raw.alter(GROUP_KIND, "g", **{name: value})
    assert found.error_code == ErrorCode.INVALID_CONFIG
    assert why in found.error_message
    nameless = raw.alter(GROUP_KIND, "", **{name: value})
    assert nameless.error_code == ErrorCode.INVALID_REQUEST


def test_a_cluster_without_the_feature_refuses_heartbeats(broker: Broker, raw: Raw) -> None:
    """As Kafka does, with a code for the whole request."""
    update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
    done = raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    assert not done.error_code, done
    assert enter(raw, "a").error_code == ErrorCode.UNSUPPORTED_VERSION
    (row,) = raw.call(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    assert (row.group_id, row.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)
    refused = raw.alter(GROUP_KIND, "g", consumer_heartbeat_interval_ms="7000")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
