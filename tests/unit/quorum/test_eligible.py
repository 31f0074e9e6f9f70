"""Eligible leader replicas (KIP-966): elections after the ISR was too small, or empty.

tests/kafka/quorum/test_decisions.py compares the records with Apache Kafka's.
"""

from __future__ import annotations

import uuid

import pytest

from kafkalog.controller.events import Clock
from kafkalog.metadata.image import BROKER, ELIGIBLE_REPLICAS, NO_LEADER, TOPIC
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.cluster import UNREGISTER_BROKER
from tests.unit.quorum.driven import Driven


@pytest.fixture
def cluster() -> Driven:
    return Driven(features={ELIGIBLE_REPLICAS: 1})


def create(cluster: Driven, *replicas: int, **configs: str) -> None:
    """Create topic `t` of one partition."""
    settings = [{"name": name.replace("_", "."), "value": value}
                for name, value in configs.items()]  # fmt: skip
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "configs": settings,
             "assignments": [{"partition_index": 0, "broker_ids": list(replicas)}]}  # fmt: skip
    answer = cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def state(cluster: Driven) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The leader, the ISR, the eligible replicas and the last known leader."""
    one = cluster.partition("t")
    return one.leader, one.isr, one.eligible_leader_replicas, one.last_known_elr


def dies(cluster: Driven, number: int) -> None:
    """A broker restarts without having ended in order."""
    cluster.fence(number)
    assert cluster.register(number).error_code == ErrorCode.NONE


def test_brokers_that_leave_a_small_isr_are_eligible(cluster: Driven) -> None:
    create(cluster, 1, 2, 3, min_insync_replicas="2")
    cluster.fence(3)
    assert state(cluster) == (1, (1, 2), (), ()), "the ISR can still acknowledge"
    cluster.fence(2)
    assert state(cluster) == (1, (1,), (2,), ())
    cluster.fence(1)
    assert state(cluster) == (NO_LEADER, (), (1, 2), (1,))


def test_an_eligible_replica_leads_and_nothing_is_lost(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    assert state(cluster) == (2, (2,), (1,), ())
    assert cluster.partition("t").leader_recovery_state == 0


def test_a_broker_that_lost_records_is_not_eligible(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    dies(cluster, 2)
    assert state(cluster) == (1, (1,), (), ())


def test_the_last_leader_leads_if_no_other_replica_is_eligible(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    dies(cluster, 2)
    dies(cluster, 1)
    assert state(cluster) == (NO_LEADER, (), (), (1,))
    cluster.beat(2)
    assert state(cluster)[0] == NO_LEADER, "it knows less than the last leader"
    cluster.beat(1)
    assert state(cluster) == (1, (1,), (), ())
    assert cluster.partition("t").leader_recovery_state == 1


def test_a_topic_may_prefer_any_leader_to_none(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    dies(cluster, 2)
    dies(cluster, 1)
    cluster.beat(2)
    setting = "unclean.leader.election.enable"
    topic = {"resource_type": TOPIC, "resource_name": "t", "name": setting, "value": "true"}
    cluster.append(("ConfigRecord", topic))
    cluster.elect()
    cluster.tick(Clock.UNCLEAN)
    assert state(cluster) == (2, (2,), (), ())


def test_a_broker_that_ended_in_order_stays_eligible(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    epoch = cluster.image.brokers[2].epoch
    assert cluster.register(2, previous_broker_epoch=epoch).error_code == ErrorCode.NONE
    assert state(cluster) == (1, (1,), (2,), ())


def test_another_min_isr_forgets_the_eligible_replicas(cluster: Driven) -> None:
    create(cluster, 1, 2, 3, min_insync_replicas="3")
    cluster.fence(3)
    assert state(cluster) == (1, (1, 2), (3,), ())
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": "2"}
    row = {"resource_type": TOPIC, "resource_name": "t", "configs": [config]}
    cluster.ask(apis.INCREMENTAL_ALTER_CONFIGS, resources=[row], validate_only=False)
    assert state(cluster) == (1, (1, 2), (), ())


def test_brokers_cannot_have_a_min_isr_of_their_own(cluster: Driven) -> None:
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": "2"}
    row = {"resource_type": BROKER, "resource_name": "2", "configs": [config]}
    answer = cluster.ask(apis.INCREMENTAL_ALTER_CONFIGS, resources=[row], validate_only=False)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG


def test_an_unregistered_broker_leaves_the_isr(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.ask(UNREGISTER_BROKER, broker_id=2)
    assert state(cluster) == (1, (1,), (2,), ())


def test_a_replica_that_moves_away_is_not_eligible_for_long(cluster: Driven) -> None:
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    topic = {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}
    cluster.ask(apis.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=1, topics=[topic])
    assert cluster.partition("t").replicas == (1,)
    assert state(cluster)[:2] == (1, (1,))


def test_without_the_feature_the_last_member_stays() -> None:
    cluster = Driven()
    create(cluster, 1, 2, min_insync_replicas="2")
    cluster.fence(2)
    cluster.fence(1)
    assert state(cluster) == (NO_LEADER, (1,), (), ())
    assert isinstance(cluster.image.topics["t"].id, uuid.UUID)
