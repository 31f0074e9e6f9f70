"""Each API that Python answers, over a real socket."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker

TOPIC, BROKER = 2, 4
"""Types of resources with settings."""


# ---- ApiVersions ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_every_served_api(raw: Raw, version: int) -> None:
    found = raw.call(
        apis.API_VERSIONS, version, client_software_name="test", client_software_version="1"
    )
    assert found.error_code == ErrorCode.NONE
    ranges = {key.api_key: range(key.min_version, key.max_version + 1) for key in found.api_keys}
    assert ranges == apis.SERVED
    # metadata.version as in Kafka 4: from 3.3 on; its tools have no names for lower ones.
    told = [("metadata.version", 7)] if version >= 3 else []
    zero = (
        "eligible.leader.replicas.version", "kraft.version", "transaction.version",
        "group.version", "share.version", "streams.version",
    )  # fmt: skip
    told += [(name, 0) for name in zero] if version >= 4 else []
    assert [(f.name, f.min_version) for f in found.supported_features] == told


def test_an_unknown_version_is_answered_in_version_0_with_the_range(raw: Raw) -> None:
    """KIP-511, so that newer clients fall back."""
    raw.send_bytes(apis.API_VERSIONS, 99, b"")
    found = raw.receive(apis.API_VERSIONS, 0)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = found.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (18, 0, 5)
    assert raw.call(apis.API_VERSIONS, 0).error_code == ErrorCode.NONE  # it stays open


def test_software_names_have_their_form(raw: Raw) -> None:
    for name, version in (("-x", "1"), ("x", ""), ("a b", "1")):
        found = raw.call(
            apis.API_VERSIONS, 3, client_software_name=name, client_software_version=version
        )
        assert found.error_code == ErrorCode.INVALID_REQUEST


def test_features_in_use_are_announced(raw: Raw) -> None:
    found = raw.call(apis.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    told = {one.name: one.max_version_level for one in found.finalized_features}
    assert told == {
        "metadata.version": 27, "eligible.leader.replicas.version": 1, "transaction.version": 2,
        "group.version": 1, "share.version": 1, "streams.version": 1,
    }  # fmt: skip


def test_a_changed_feature_is_in_the_next_answer(broker: Broker, raw: Raw) -> None:
    def told() -> tuple[int, dict[str, int]]:
        found = raw.call(
            apis.API_VERSIONS, 4, client_software_name="test", client_software_version="1"
        )
        on = {one.name: one.max_version_level for one in found.finalized_features}
        return found.finalized_features_epoch, on

    first, on = told()
    assert on["eligible.leader.replicas.version"] == 1
    gone = {"name": "eligible.leader.replicas.version", "feature_level": 0}
    broker._metadata.write([("FeatureLevelRecord", gone)])
    second, on = told()
    assert second > first
    assert "eligible.leader.replicas.version" not in on


# ---- invalid requests ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "version", "data"),
    [
        (apis.METADATA, 99, b""),
        (apis.LIST_OFFSETS, 5, b"\xff" * 20),
        (apis.METADATA, 12, b"\xff\xff\xff\xff\x0f"),
        (apis.DESCRIBE_ACLS, 1, b""),
        (apis.PRODUCE, 2, b""),
    ],
    ids=["version", "garbage", "count", "not served", "old produce"],
)
def test_unanswerable_requests_close_only_their_connection(
    broker: Broker, raw: Raw, api: Any, version: int, data: bytes
) -> None:
    with Raw(broker.bootstrap_servers) as bad:
        bad.send_bytes(api, version, data)
        with pytest.raises(ConnectionError):
            bad.receive_frame()
    assert raw.call(apis.API_VERSIONS, 0).error_code == ErrorCode.NONE


# ---- topics --------------------------------------------------------------------------------


def test_a_created_topic_answers_its_properties(raw: Raw) -> None:
    found = raw.create("t", 2, retention_ms="1000")
    assert (found.error_code, found.num_partitions, found.replication_factor) == (0, 2, 1)
    configs = {config.name: config.value for config in found.configs}
    assert configs["retention.ms"] == "1000"
    assert raw.create("t").error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_deleted_topic_ends_waiting_fetches(broker: Broker, raw: Raw) -> None:
    raw.create("t")
    assert raw.fetch("t").error_code == 0
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    with Raw(broker.bootstrap_servers) as waiting:
        waiting.send(apis.FETCH, 11, {
            "max_wait_ms": 10_000_000, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [{"topic": "t", "partitions": [part]}],
        })  # fmt: skip
        gone = raw.call(
            apis.DELETE_TOPICS,
            topics=[{"name": "t", "topic_id": uuid.UUID(int=0)}],
            timeout_ms=1000,
        )
        assert gone.responses[0].error_code == 0
        found = waiting.receive(apis.FETCH, 11)
    assert found.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce("t", b"v").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_recreated_topic_is_empty_and_has_another_id(raw: Raw) -> None:
    first = raw.create("t").topic_id
    raw.produce("t", b"old")
    raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000)
    second = raw.create("t").topic_id
    assert first != second
    assert raw.offsets("t", -1).offset == 0
    assert raw.produce("t", b"new").base_offset == 0


def test_deletion_can_be_forbidden(make_broker: MakeBroker) -> None:
    broker = make_broker(delete_topic_enable=False)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        for version, code in (
            (5, ErrorCode.TOPIC_DELETION_DISABLED),
            (2, ErrorCode.INVALID_REQUEST),
        ):
            found = raw.call(apis.DELETE_TOPICS, version, topic_names=["t"], timeout_ms=1000)
            assert found.responses[0].error_code == code


def test_more_partitions_are_written_at_once(raw: Raw) -> None:
    raw.create("t")
    raw.produce("t", b"v")
    asked = {"name": "t", "count": 3, "assignments": None}
    found = raw.call(apis.CREATE_PARTITIONS, topics=[asked], timeout_ms=1000)
    assert found.results[0].error_code == 0
    assert raw.produce("t", b"v", partition=2).error_code == 0
    again = raw.call(apis.CREATE_PARTITIONS, topics=[asked], timeout_ms=1000)
    assert again.results[0].error_code == ErrorCode.INVALID_PARTITIONS


# ---- ListOffsets, epochs ---------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_offsets_by_time(raw: Raw, codec: str) -> None:
    raw.create("t")
    rows = [batches.Row(b"v", b"k", ms) for ms in (1000, 3000, 2000)]
    raw.produce_batch("t", batches.batch(rows, codec=codec))
    found = {ms: raw.offsets("t", ms) for ms in (0, 1001, 3000, 3001)}
    assert {ms: (one.timestamp, one.offset) for ms, one in found.items()} == {
        0: (1000, 0), 1001: (3000, 1), 3000: (3000, 1), 3001: (-1, -1),
    }  # fmt: skip
    assert found[0].leader_epoch == 0
    largest = raw.offsets("t", -3)
    assert (largest.timestamp, largest.offset) == (3000, 1)


def test_special_times(raw: Raw) -> None:
    raw.create("t")
    raw.produce("t", b"a", b"b", b"c")
    found = {special: raw.offsets("t", special) for special in (-1, -2, -4, -5)}
    assert {special: one.offset for special, one in found.items()} == {-1: 3, -2: 0, -4: 0, -5: -1}
    assert {one.timestamp for one in found.values()} == {-1}


@pytest.mark.parametrize(("special", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, None), (-99, None)])
def test_a_special_time_that_a_version_does_not_know_is_refused(
    raw: Raw, special: int, since: int | None
) -> None:
    raw.create("t")
    part = {"partition_index": 0, "timestamp": special}
    for version in range(1, 10):
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": [part]}]}
        found = raw.call(apis.LIST_OFFSETS, version, **body).topics[0].partitions[0]
        known = since is not None and version >= since
        assert found.error_code == (ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION)


def test_a_partition_that_is_asked_for_twice_is_refused(raw: Raw) -> None:
    raw.create("t")
    part = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": [part, part]}]}
    found = raw.call(apis.LIST_OFFSETS, **body).topics[0].partitions
    assert [one.error_code for one in found] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_leader_epoch_that_is_not_ours_is_told(raw: Raw) -> None:
    raw.create("t")
    for epoch, code in ((0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": [part]}]}
        assert raw.call(apis.LIST_OFFSETS, **body).topics[0].partitions[0].error_code == code


def test_where_an_epoch_ended(raw: Raw) -> None:
    raw.create("t")
    raw.produce("t", b"a", b"b")

    def ask(topic: str, epoch: int) -> Any:
        part = {"partition": 0, "leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
        return raw.call(apis.OFFSET_FOR_LEADER_EPOCH, **body).topics[0].partitions[0]

    assert (ask("t", 0).leader_epoch, ask("t", 0).end_offset) == (0, 2)
    assert (ask("t", 7).leader_epoch, ask("t", 7).end_offset) == (-1, -1)
    assert ask("u", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("written", [False, True])
def test_negative_leader_epochs_are_unknown(raw: Raw, written: bool) -> None:
    raw.create("t")
    if written:
        raw.produce("t", b"v")
    for epoch in (-1, -2, -(1 << 31)):
        asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        topics = [{"topic": "t", "partitions": [asked]}]
        found = raw.call(apis.OFFSET_FOR_LEADER_EPOCH, 3, replica_id=-1, topics=topics)
        (one,) = found.topics[0].partitions
        assert (one.error_code, one.leader_epoch, one.end_offset) == (ErrorCode.NONE, -1, -1)


# ---- DeleteRecords ---------------------------------------------------------------------------


def test_records_below_an_offset_go(raw: Raw) -> None:
    raw.create("t")
    for value in (b"a", b"b", b"c"):
        raw.produce("t", value)

    def delete(offset: int, topic: str = "t") -> Any:
        part = {"partition_index": 0, "offset": offset}
        body = {"topics": [{"name": topic, "partitions": [part]}], "timeout_ms": 1000}
        return raw.call(apis.DELETE_RECORDS, **body).topics[0].partitions[0]

    assert delete(2).low_watermark == 2
    assert raw.offsets("t", -2).offset == 2
    assert delete(1).low_watermark == 2  # there is nothing to do
    assert raw.fetch("t", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-1).low_watermark == 3
    assert delete(0, "u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- producers -------------------------------------------------------------------------------


def test_producer_ids_are_given_once_over_restarts(make_broker: MakeBroker) -> None:
    seen: list[int] = []
    for _ in range(2):
        broker = make_broker()
        with Raw(broker.bootstrap_servers) as raw:
            for version in range(5):
                found = raw.call(
                    apis.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=0
                )
                assert (found.error_code, found.producer_epoch) == (0, 0)
                seen.append(found.producer_id)
        broker.close()
    assert len(set(seen)) == len(seen)


def test_idempotent_producers_are_shown(raw: Raw) -> None:
    raw.create("t")
    data = batches.batch(
        [batches.Row(b"v")] * 3, producer_id=7000, producer_epoch=2, base_sequence=0
    )
    first = raw.produce_batch("t", data)
    again = raw.produce_batch("t", data)  # a duplicate succeeds, and is written once
    assert (first.base_offset, again.base_offset, again.error_code) == (0, 0, 0)
    asked = [{"name": "t", "partition_indexes": [0, 9]}]
    here, missing = raw.call(apis.DESCRIBE_PRODUCERS, topics=asked).topics[0].partitions
    (one,) = here.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (7000, 2, 2)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- the cluster of one ------------------------------------------------------------------------


def test_the_cluster_is_described(broker: Broker, raw: Raw) -> None:
    found = raw.call(apis.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
    (one,) = found.brokers
    assert f"{one.host}:{one.port}" == broker.bootstrap_servers
    assert found.controller_id == one.broker_id
    assert found.cluster_authorized_operations == 8096
    wrong = raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=2)
    assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_the_data_directory_is_described(broker: Broker, raw: Raw) -> None:
    raw.create("t", 2)
    raw.produce("t", b"v" * 1000)
    (one,) = raw.call(apis.DESCRIBE_LOG_DIRS, topics=None).results
    assert one.log_dir == broker.path
    assert one.total_bytes > one.usable_bytes > 0
    (topic,) = one.topics
    sizes = {p.partition_index: p.partition_size for p in topic.partitions}
    assert sizes[0] > 1000 and sizes[1] == 0


def test_elections_and_reassignments_are_answered_honestly(raw: Raw) -> None:
    raw.create("t")
    asked = [{"topic": "t", "partitions": [0, 1]}]
    (topic,) = raw.call(
        apis.ELECT_LEADERS, election_type=0, topic_partitions=asked, timeout_ms=1000
    ).replica_election_results
    assert [p.error_code for p in topic.partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert topic.partition_result[1].error_message == "No such partition as t-1"
    move = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}]
    (topic,) = raw.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=move).responses
    assert topic.partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert raw.call(apis.LIST_PARTITION_REASSIGNMENTS, topics=None).topics == []


# ---- settings ----------------------------------------------------------------------------------


def described(raw: Raw, kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name,
                "configuration_keys": list(keys) or None}  # fmt: skip
    found = raw.call(apis.DESCRIBE_CONFIGS, resources=[resource], include_synonyms=True,
                     include_documentation=True)  # fmt: skip
    return {config.name: config for config in found.results[0].configs}


def test_a_setting_says_where_its_value_comes_from(make_broker: MakeBroker) -> None:
    broker = make_broker(log_retention_hours=5)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", segment_bytes="2000000")
        assert raw.alter(BROKER, "", log_segment_bytes="3000000").error_code == 0
        found = described(raw, TOPIC, "t")
        segment = found["segment.bytes"]
        assert (segment.value, segment.config_source) == ("2000000", 1)
        assert [(s.value, s.source) for s in segment.synonyms] == [
            ("2000000", 1), ("3000000", 3), ("1073741824", 5),
        ]  # fmt: skip
        retention = found["retention.ms"]
        assert (retention.value, retention.config_source) == (str(5 * 3_600_000), 4)
        assert found["max.message.bytes"].config_source == 5
        assert all(config.documentation for config in found.values())
        one = described(raw, TOPIC, "t", "segment.bytes")
        assert list(one) == ["segment.bytes"]


def test_a_topics_default_changes_at_run_time(raw: Raw) -> None:
    raw.create("t")
    assert raw.produce("t", b"x" * 5000).error_code == 0
    assert raw.alter(BROKER, "1", message_max_bytes="2000").error_code == 0
    assert raw.produce("t", b"x" * 5000).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert raw.alter(BROKER, "1", message_max_bytes=None).error_code == 0
    assert raw.produce("t", b"x" * 5000).error_code == 0


def test_read_only_settings_cannot_be_altered(raw: Raw) -> None:
    assert raw.alter(BROKER, "1", node_id="7").error_code == ErrorCode.INVALID_REQUEST
    assert described(raw, BROKER, "1")["node.id"].read_only
    assert raw.alter(BROKER, "9", message_max_bytes="1").error_code == ErrorCode.INVALID_REQUEST


def test_threads_and_the_cleaner_follow_their_settings(broker: Broker, raw: Raw) -> None:
    def io_threads() -> int:
        return sum(" io " in thread.name for thread in threading.enumerate())

    before, own = io_threads(), broker.config.num_io_threads
    assert raw.alter(BROKER, "1", num_io_threads=str(own + 3)).error_code == 0
    assert io_threads() == before + 3
    # One change at most halves or doubles the number: nobody starts a million by mistake.
    for resource, wrong in (("1", "1000000"), ("", "0"), ("1", "4")):
        assert raw.alter(BROKER, resource, num_io_threads=wrong).error_code == 42
    assert io_threads() == before + 3
    coordinators = broker._node.coordinator, broker._node.transactions
    for count in (6, 3, 2, 1):
        assert raw.alter(BROKER, "1", num_io_threads=str(count)).error_code == 0
        # So that a stalled disk keeps none of the others' requests waiting.
        assert [one.borrows for one in coordinators] == [count > 2] * 2
    found = raw.alter(BROKER, "", log_cleaner_io_buffer_load_factor="0.5",
                      producer_id_expiration_ms="1000")  # fmt: skip
    assert found.error_code == 0
    assert broker._manager.config.log_cleaner_io_buffer_load_factor == 0.5
    assert broker._manager.config.producer_id_expiration_ms == 1000
    assert raw.call(apis.METADATA, topics=[]).brokers  # one thread still serves


def test_network_threads_follow_their_setting(make_broker: MakeBroker) -> None:
    """Immediately, and after a restart."""

    def running(broker: Broker, count: int) -> None:
        found = broker._node.reactor.stats
        wait_for(lambda: found().network_threads == count, f"{count} network threads run")

    broker = make_broker()
    own = broker.config.num_network_threads
    with Raw(broker.bootstrap_servers) as raw, Raw(broker.bootstrap_servers) as other:
        assert raw.alter(BROKER, "1", num_network_threads=str(own + 2)).error_code == 0
        running(broker, own + 2)
        for wrong in ("1000", "0", str(own // 2 - 1), "257"):
            found = raw.alter(BROKER, "1", num_network_threads=wrong)
            assert found.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
        for count in (3, 2, 1, 2):
            assert raw.alter(BROKER, "", num_network_threads="3").error_code == 0
            assert raw.alter(BROKER, "1", num_network_threads=str(count)).error_code == 0
            running(broker, count)
            assert other.call(apis.METADATA, topics=[]).brokers
    broker.close()
    running(make_broker(), 2)


def test_settings_survive_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", max_message_bytes="2000")
    broker.close()
    with Raw(make_broker().bootstrap_servers) as raw:
        assert raw.produce("t", b"x" * 5000).error_code == ErrorCode.MESSAGE_TOO_LARGE


# ---- groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_every_group_is_coordinated_here(broker: Broker, raw: Raw, version: int) -> None:
    keys = {"coordinator_keys": ["g", "h"]} if version >= 4 else {"key": "g"}
    found = raw.call(apis.FIND_COORDINATOR, version, key_type=0, **keys)
    for one in found.coordinators if version >= 4 else [found]:
        assert one.error_code == 0
        assert f"{one.host}:{one.port}" == broker.bootstrap_servers


def commit(raw: Raw, offset: int) -> Any:
    """A commit outside the group protocol; retried while the group is loading."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
    body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"name": "t", "partitions": [part]}]}  # fmt: skip
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while True:
        found = raw.call(apis.OFFSET_COMMIT, 8, **body).topics[0].partitions[0]
        if found.error_code != loading:
            return found


def committed(raw: Raw) -> Any:
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while True:
        found = raw.call(apis.OFFSET_FETCH, 8, groups=[asked]).groups[0]
        if found.error_code != loading:
            return found.topics[0].partitions[0]


def test_a_commit_survives_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
        assert commit(raw, 42).error_code == 0
    broker.close()
    with Raw(make_broker().bootstrap_servers) as raw:
        found = committed(raw)
        assert (found.committed_offset, found.metadata) == (42, "note")


def test_a_topic_with_settings_may_go_and_come_again(make_broker: MakeBroker) -> None:
    """A restart replays all of it as successive changes."""
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        for size in ("2000", "3000"):
            raw.create("t", max_message_bytes=size)
            raw.alter(TOPIC, "t", internal_segment_bytes=size)
            if size == "2000":
                raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000)
    broker.close()
    with Raw(make_broker().bootstrap_servers) as raw:
        found = described(raw, TOPIC, "t", "max.message.bytes", "internal.segment.bytes")
        assert {config.value for config in found.values()} == {"3000"}
