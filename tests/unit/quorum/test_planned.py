"""Requests whose changes are planned on the image, a controller's clocks, and its first records.

tests/kafka/quorum/test_decisions.py compares the records with Apache Kafka's.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.config.server import ServerConfig
from kafkalog.controller.events import Caller, Clock
from kafkalog.errors import InvalidRequest, MessageTooLarge
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import BROKER, ELIGIBLE_REPLICAS, METADATA_VERSION
from kafkalog.metadata.levels import LEVEL
from kafkalog.quorum import store
from kafkalog.quorum.activation import in_batches
from kafkalog.security.principal import Principal
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.later.quorum import CONTROLLER_REGISTRATION
from tests.unit.quorum.driven import Driven

FIRST = [
    ("FeatureLevelRecord", {"name": METADATA_VERSION, "feature_level": LEVEL}),
    ("FeatureLevelRecord", {"name": ELIGIBLE_REPLICAS, "feature_level": 1}),
]
SECRET = ServerConfig({"delegation.token.secret.key": "a secret of the cluster"})


def names(cluster: Driven, since: int = 0) -> list[str]:
    """The records that were written."""
    return [name for name, _ in cluster.log[since:]]


@pytest.fixture
def cluster() -> Driven:
    return Driven()


# ---- first records -----------------------------------------------------------------------------


def test_a_new_cluster_begins_with_a_transaction_of_its_first_records() -> None:
    cluster = Driven(0, bootstrap=FIRST)
    assert names(cluster) == [
        "BeginTransactionRecord", "FeatureLevelRecord", "FeatureLevelRecord",
        "EndTransactionRecord",
    ]  # fmt: skip
    assert cluster.image.features == {METADATA_VERSION: LEVEL, ELIGIBLE_REPLICAS: 1}
    cluster.elect()
    assert len(cluster.log) == 4, "they are written once"


def test_a_new_controller_aborts_another_ones_transaction(cluster: Driven) -> None:
    cluster.append(("BeginTransactionRecord", {"name": "n"}), ("TopicRecord", {
        "name": "half", "topic_id": next(iter(cluster.image.brokers.values())).incarnation_id,
    }))  # fmt: skip
    cluster.elect()
    assert names(cluster)[-1] == "AbortTransactionRecord"
    assert "half" not in cluster.image.topics
    assert not cluster.replay.in_transaction


def test_first_records_that_were_not_finished_are_written_again() -> None:
    cluster = Driven(0, bootstrap=FIRST, begun=FIRST[:1])
    assert names(cluster)[2:] == [
        "AbortTransactionRecord", "BeginTransactionRecord", "FeatureLevelRecord",
        "FeatureLevelRecord", "EndTransactionRecord",
    ]  # fmt: skip
    assert cluster.image.features == {METADATA_VERSION: LEVEL, ELIGIBLE_REPLICAS: 1}


def test_more_records_than_fit_are_a_transaction() -> None:
    records: list[Any] = [("NoOpRecord", {})] * 5
    pieces = in_batches(LEVEL, records, atomic=True, most=3)
    assert [len(one) for one in pieces] == [3, 3, 1]
    assert (pieces[0][0][0], pieces[-1][-1][0]) == (
        "BeginTransactionRecord",
        "EndTransactionRecord",
    )
    assert [len(one) for one in in_batches(LEVEL, records, atomic=False, most=3)] == [3, 2]
    assert [len(one) for one in in_batches(LEVEL, records, atomic=True, most=5)] == [5]
    assert in_batches(LEVEL, [], atomic=True, most=5) == []
    assert [len(one) for one in in_batches(7, records, atomic=True, most=3)] == [5]


# ---- clocks --------------------------------------------------------------------------------------


def test_an_idle_controller_writes_something(cluster: Driven) -> None:
    before = len(cluster.log)
    cluster.tick(Clock.IDLE)
    cluster.tick(Clock.IDLE)
    assert names(cluster, before) == ["NoOpRecord"] * 2


def test_leaderships_are_balanced(cluster: Driven) -> None:
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "configs": [],
             "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}]}  # fmt: skip
    cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False)
    one = cluster.image.topics["t"]
    change = {"topic_id": one.id, "partition_id": 0, "leader": 2}
    cluster.append(("PartitionChangeRecord", change))
    cluster.elect()
    cluster.tick(Clock.BALANCE)
    assert cluster.partition("t").leader == 1


# ---- delegation tokens --------------------------------------------------------------------------


def token(cluster: Driven, **other: Any) -> Any:
    fields = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [],
              "max_lifetime_ms": -1}  # fmt: skip
    return cluster.ask(apis.CREATE_DELEGATION_TOKEN, **{**fields, **other})


def test_a_token_is_created_renewed_and_expires() -> None:
    cluster = Driven(config=SECRET)
    cluster.caller = Caller(Principal("User", "alice"))
    made = token(cluster, max_lifetime_ms=10_000)
    assert made.error_code == ErrorCode.NONE
    found = cluster.image.tokens[made.token_id]
    assert (str(found.owner), found.max_ms) == ("User:alice", cluster.now_ms + 10_000)
    renewed = cluster.ask(apis.RENEW_DELEGATION_TOKEN, hmac=made.hmac, renew_period_ms=2_000)
    assert renewed.expiry_timestamp_ms == cluster.now_ms + 2_000
    cluster.tick(Clock.TOKENS)
    assert not cluster.image.tokens
    gone = cluster.ask(apis.EXPIRE_DELEGATION_TOKEN, hmac=made.hmac, expiry_time_period_ms=-1)
    assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize("caller", [None, Caller(Principal("User", "alice", by_token=True))])
def test_a_caller_without_a_name_of_its_own_gets_no_token(caller: Caller | None) -> None:
    cluster = Driven(config=SECRET)
    cluster.caller = caller
    assert token(cluster).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    answer = cluster.ask(apis.RENEW_DELEGATION_TOKEN, hmac=b"h", renew_period_ms=1)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# ---- features, controllers, quotas --------------------------------------------------------------


def feature(cluster: Driven, name: str, level: int, kind: int = 1) -> Any:
    row = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    return cluster.ask(
        apis.UPDATE_FEATURES, feature_updates=[row], validate_only=False, timeout_ms=1
    )


def register_controller(cluster: Driven, number: int, highest: int) -> Any:
    row = {"name": "transaction.version", "min_supported_version": 0,
           "max_supported_version": highest}  # fmt: skip
    listener = {"name": "CONTROLLER", "host": "h", "port": 9093, "security_protocol": 0}
    life = next(iter(cluster.image.brokers.values())).incarnation_id
    return cluster.ask(
        CONTROLLER_REGISTRATION, controller_id=number, incarnation_id=life,
        zk_migration_ready=False, listeners=[listener], features=[row],
    )  # fmt: skip


def test_a_feature_waits_for_every_node_to_support_it(cluster: Driven) -> None:
    assert register_controller(cluster, 9, 1).error_code == ErrorCode.NONE
    assert cluster.image.controllers[9].controller_id == 9
    refused = feature(cluster, "transaction.version", 2)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Controller 9 only supports versions 0-1" in refused.error_message
    assert feature(cluster, "transaction.version", 1).error_code == ErrorCode.NONE
    left = cluster.ask(apis.UNREGISTER_CONTROLLER, controller_id=9)
    assert left.error_code == ErrorCode.NONE
    assert feature(cluster, "transaction.version", 2).error_code == ErrorCode.NONE
    assert cluster.image.features["transaction.version"] == 2


def test_the_version_of_raft_is_for_raft_to_change(cluster: Driven) -> None:
    assert feature(cluster, "kraft.version", 1).error_code == ErrorCode.NONE
    assert cluster.kraft_versions == [1]
    assert "kraft.version" not in cluster.image.features


def test_eligible_leader_replicas_bring_a_min_isr_for_all(cluster: Driven) -> None:
    assert feature(cluster, ELIGIBLE_REPLICAS, 1).error_code == ErrorCode.NONE
    assert cluster.image.config(BROKER, "") == {"min.insync.replicas": "1"}


def test_created_partitions_count_against_the_clients_quota(cluster: Driven) -> None:
    counted: list[int] = []

    def charge(count: int) -> None:
        counted.append(count)
        if sum(counted) > 3:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")

    cluster.caller = Caller(charge=charge)
    topics = [{"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": [],
               "configs": []} for name in ("t", "u")]  # fmt: skip
    answer = cluster.ask(apis.CREATE_TOPICS, topics=topics, timeout_ms=1, validate_only=False)
    assert [one.error_code for one in answer.topics] == [
        ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]  # fmt: skip
    assert (counted, list(cluster.image.topics)) == ([3, 3], ["t"])


def test_a_controller_looks_up_no_names(cluster: Driven) -> None:
    rows = [{"entity": [{"entity_type": "ip", "entity_name": name}],
             "ops": [{"key": "connection_creation_rate", "value": 5.0, "remove": False}]}
            for name in ("10.0.0.1", "localhost")]  # fmt: skip
    answer = cluster.ask(apis.ALTER_CLIENT_QUOTAS, entries=rows, validate_only=False)
    assert [one.error_code for one in answer.entries] == [
        ErrorCode.NONE, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip
    assert list(cluster.image.quotas) == [(("ip", "10.0.0.1"),)]


def test_settings_of_a_node_that_never_registered_are_refused(cluster: Driven) -> None:
    rows = [{"resource_type": BROKER, "resource_name": name,
             "configs": [{"name": "log.cleaner.threads", "config_operation": 0, "value": "2"}]}
            for name in ("2", "77", "x", "9" * 5_000)]  # fmt: skip
    answer = cluster.ask(apis.INCREMENTAL_ALTER_CONFIGS, resources=rows, validate_only=False)
    assert [one.error_code for one in answer.responses] == [
        ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


def test_a_fenced_broker_gets_replicas_only_if_the_others_are_too_few(cluster: Driven) -> None:
    cluster.fence(3)
    topics = [{"name": name, "num_partitions": 2, "replication_factor": factor, "assignments": [],
               "configs": []} for name, factor in (("t", 2), ("u", 3), ("v", 4))]  # fmt: skip
    answer = cluster.ask(apis.CREATE_TOPICS, topics=topics, timeout_ms=1, validate_only=False)
    assert [one.error_code for one in answer.topics] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR,
    ]  # fmt: skip
    for number in (0, 1):
        assert 3 not in cluster.partition("t", number).replicas
        one = cluster.partition("u", number)
        assert (one.replicas[-1], set(one.isr), one.leader) == (3, {1, 2}, one.replicas[0])


def test_a_transaction_that_cannot_go_on_is_aborted(
    cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "RECORDS_MAX", 4)
    topic = {"name": "t", "num_partitions": 6, "replication_factor": 1, "assignments": [],
             "configs": []}  # fmt: skip
    asked = {"topics": [topic], "timeout_ms": 1, "validate_only": False}
    before = len(cluster.log)
    cluster.failing = 2
    with pytest.raises(InvalidRequest):
        cluster.ask(apis.CREATE_TOPICS, **asked)
    assert names(cluster, before)[0] == "BeginTransactionRecord"
    assert names(cluster)[-1] == "AbortTransactionRecord"
    assert not cluster.image.topics
    assert cluster.ask(apis.CREATE_TOPICS, **asked).topics[0].error_code == ErrorCode.NONE
    assert len(cluster.image.topics["t"].partitions) == 6
    assert names(cluster)[-1] == "EndTransactionRecord"


@pytest.mark.parametrize("together", [2, 4, 10_000])
def test_records_with_too_many_bytes_for_one_append_are_a_transaction(
    cluster: Driven, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """However many of them the number alone would allow."""
    monkeypatch.setattr(store, "RECORDS_MAX", together)
    topic = {"name": "t", "num_partitions": 6, "replication_factor": 1, "assignments": [],
             "configs": []}  # fmt: skip
    asked = {"topics": [topic], "timeout_ms": 1, "validate_only": False}
    before, cluster.fitting = len(cluster.log), 1
    assert cluster.ask(apis.CREATE_TOPICS, **asked).topics[0].error_code == ErrorCode.NONE
    found = names(cluster, before)
    assert (found[0], found[-1]) == ("BeginTransactionRecord", "EndTransactionRecord")
    assert found[1:-1] == ["TopicRecord", *["PartitionRecord"] * 6]
    assert len(cluster.image.topics["t"].partitions) == 6


def test_one_record_with_too_many_bytes_is_refused(cluster: Driven) -> None:
    """Nothing of its request stays."""
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [],
             "configs": []}  # fmt: skip
    cluster.too_large = "PartitionRecord"
    with pytest.raises(MessageTooLarge):
        cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False)
    assert names(cluster)[-1] == "AbortTransactionRecord"
    assert not cluster.image.topics
