"""Metadata and DescribeTopicPartitions: what is asked for, in each version."""

from __future__ import annotations

import uuid

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker


def test_version_0_takes_an_empty_list_for_all_topics_and_1_for_none(raw: Raw) -> None:
    raw.create("one")
    assert [t.name for t in raw.call(apis.METADATA, 0, topics=[]).topics] == ["one"]
    assert raw.call(apis.METADATA, 1, topics=[]).topics == []
    assert [t.name for t in raw.call(apis.METADATA, 1, topics=None).topics] == ["one"]


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_the_broker_and_the_partitions(
    broker: Broker, raw: Raw, version: int
) -> None:
    raw.create("t", 3)
    found = raw.call(apis.METADATA, version, topics=[{"name": "t"}])
    (one,) = found.brokers
    assert f"{one.host}:{one.port}" == broker.bootstrap_servers
    (topic,) = found.topics
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    assert {p.leader_id for p in topic.partitions} == {one.node_id}
    if version >= 10:
        assert topic.topic_id.int != 0


def test_topics_are_found_by_id(raw: Raw) -> None:
    created = raw.create("t")
    known, unknown = created.topic_id, uuid.uuid4()
    asked = [{"topic_id": known, "name": None}, {"topic_id": unknown, "name": None}]
    found, missing = raw.call(apis.METADATA, 12, topics=asked).topics
    assert (found.name, found.error_code) == ("t", ErrorCode.NONE)
    assert (missing.topic_id, missing.error_code) == (unknown, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_topic_is_made_when_both_sides_allow_it(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions=2)
    with Raw(broker.bootstrap_servers) as raw:
        ask = {"topics": [{"name": "t"}]}
        (topic,) = raw.call(apis.METADATA, allow_auto_topic_creation=False, **ask).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (topic,) = raw.call(apis.METADATA, allow_auto_topic_creation=True, **ask).topics
        leaders = [(row.error_code, row.leader_id) for row in topic.partitions]
        assert (topic.error_code, leaders) == (ErrorCode.NONE, [(ErrorCode.NONE, 1)] * 2)
    broker.close()
    broker = make_broker(auto_create_topics_enable=False)
    with Raw(broker.bootstrap_servers) as raw:
        (topic,) = raw.call(apis.METADATA, topics=[{"name": "u"}]).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_of_a_topic_without_a_name_is_invalid(raw: Raw, version: int) -> None:
    asked = [{"topic_id": uuid.UUID(int=5), "name": None}, {"name": "t"}]
    found = raw.call(apis.METADATA, version, topics=asked).topics
    assert [t.error_code for t in found] == [ErrorCode.INVALID_REQUEST] * 2


def test_names_that_no_topic_may_have_are_told(raw: Raw) -> None:
    names = ["a b", "..", "x" * 250, ""]
    found = raw.call(apis.METADATA, topics=[{"name": name} for name in names]).topics
    assert [t.error_code for t in found] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 4


def test_the_metadata_log_is_nobodys_topic(raw: Raw) -> None:
    assert raw.call(apis.METADATA, topics=None).topics == []
    (topic,) = raw.call(apis.METADATA, topics=[{"name": "__cluster_metadata"}]).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_of_transactions_are_not_made_by_asking(raw: Raw) -> None:
    """Otherwise they would get the settings of an ordinary topic."""
    (topic,) = raw.call(apis.METADATA, topics=[{"name": "__transaction_state"}]).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.is_internal
    assert raw.call(apis.METADATA, topics=None).topics == []


def test_allowed_operations_of_missing_topics(raw: Raw) -> None:
    """kafka-python 2.3 fails on the value that means "not requested"."""
    ask = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    for asked in (False, True):
        (topic,) = raw.call(
            apis.METADATA, 12, include_topic_authorized_operations=asked, **ask
        ).topics
        assert (topic.topic_authorized_operations != -(1 << 31)) == asked


def test_internal_topics_are_marked(raw: Raw) -> None:
    raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
    (topic,) = raw.call(apis.METADATA, topics=None).topics
    assert (topic.name, topic.is_internal, len(topic.partitions)) == (
        "__consumer_offsets", True, 50,
    )  # fmt: skip


def test_partitions_come_by_pages(raw: Raw) -> None:
    for name, count in (("a", 2), ("b", 3)):
        raw.create(name, count)
    seen, cursor = [], None
    for _ in range(5):
        found = raw.call(
            apis.DESCRIBE_TOPIC_PARTITIONS, topics=[], response_partition_limit=2, cursor=cursor
        )
        seen += [(t.name, p.partition_index) for t in found.topics for p in t.partitions]
        if found.next_cursor is None:
            break
        cursor = dict(found.next_cursor)
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
