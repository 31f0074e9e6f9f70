"""The controller's decisions as records of a metadata log."""

from __future__ import annotations

import pytest

from kafkalog.controller.events import ClientRequest
from kafkalog.metadata import translation
from kafkalog.metadata.image import NO_LEADER
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from tests.unit.quorum.driven import Driven, directory


@pytest.fixture
def cluster() -> Driven:
    return Driven()


def create(cluster: Driven, *replicas: tuple[int, ...], **configs: str) -> None:
    """Create topic `t`, a partition for each tuple of replicas."""
    rows = [{"partition_index": number, "broker_ids": list(one)}
            for number, one in enumerate(replicas)]  # fmt: skip
    settings = [{"name": name.replace("_", "."), "value": value}
                for name, value in configs.items()]  # fmt: skip
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "assignments": rows,
             "configs": settings}  # fmt: skip
    answer = cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def alter_isr(cluster: Driven, *isr: int) -> int:
    """The leader of t-0 asks for an ISR; returns the partition's error."""
    one = cluster.partition("t")
    epochs = {number: broker.epoch for number, broker in cluster.image.brokers.items()}
    row = {
        "partition_index": 0, "leader_epoch": one.leader_epoch, "leader_recovery_state": 0,
        "partition_epoch": one.partition_epoch,
        "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": epochs[each]} for each in isr],
    }  # fmt: skip
    topic = {"topic_id": cluster.image.topics["t"].id, "partitions": [row]}
    answer = cluster.ask(
        ALTER_PARTITION, broker_id=one.leader, broker_epoch=epochs[one.leader], topics=[topic]
    )
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


def move(cluster: Driven, *replicas: int) -> None:
    topic = {"name": "t", "partitions": [{"partition_index": 0, "replicas": list(replicas)}]}
    answer = cluster.ask(apis.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=1, topics=[topic])
    assert answer.responses[0].partitions[0].error_code == 0


def test_a_topic_is_created_with_its_leaders_in_one_append(cluster: Driven) -> None:
    before = len(cluster.log)
    create(cluster, (1, 2), (2, 3), retention_ms="5")
    names = [name for name, _ in cluster.log[before:]]
    assert names == ["TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord"]
    one = cluster.partition("t", 1)
    assert (one.leader, one.isr, one.leader_epoch, one.partition_epoch) == (2, (2, 3), 0, 0)
    assert one.directories == (directory(2), directory(3))
    assert cluster.image.config(2, "t") == {"retention.ms": "5"}


def test_replicas_are_placed_on_live_brokers(cluster: Driven) -> None:
    cluster.fence(2)
    topic = {"name": "t", "num_partitions": 4, "replication_factor": 2, "assignments": [],
             "configs": []}  # fmt: skip
    cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False)
    assert {frozenset(cluster.partition("t", number).replicas) for number in range(4)} == {
        frozenset((1, 3))
    }


def test_a_fenced_leader_is_replaced_and_leaves_the_isr(cluster: Driven) -> None:
    create(cluster, (1, 2, 3))
    cluster.fence(1)
    one = cluster.partition("t")
    assert (one.leader, one.isr, one.leader_epoch, one.partition_epoch) == (2, (2, 3), 1, 1)
    cluster.unfence(1)
    assert cluster.partition("t") == one


def test_the_last_member_stays_in_the_isr_and_leads_again(cluster: Driven) -> None:
    create(cluster, (1, 2))
    cluster.fence(2)
    cluster.fence(1)
    one = cluster.partition("t")
    assert (one.leader, one.isr) == (NO_LEADER, (1,))
    cluster.unfence(2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.unfence(1)
    assert cluster.partition("t").leader == 1


def test_an_unclean_election_says_that_the_leader_recovers(cluster: Driven) -> None:
    create(cluster, (1, 2), unclean_leader_election_enable="true")
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    one = cluster.partition("t")
    assert (one.leader, one.isr, one.leader_recovery_state) == (2, (2,), 1)


def test_a_broker_that_is_back_is_not_in_sync_before_its_leader_says_so(cluster: Driven) -> None:
    create(cluster, (1, 2, 3))
    cluster.fence(3)
    cluster.restart(3)
    assert cluster.partition("t").isr == (1, 2)
    assert alter_isr(cluster, 1, 2, 3) == ErrorCode.NONE
    assert cluster.partition("t").isr == (1, 2, 3)


def test_a_leader_changes_its_isr_without_another_leader_epoch(cluster: Driven) -> None:
    create(cluster, (1, 2, 3))
    assert alter_isr(cluster, 1, 2) == ErrorCode.NONE
    one = cluster.partition("t")
    assert (one.isr, one.leader_epoch, one.partition_epoch) == ((1, 2), 0, 1)
    cluster.fence(3)
    assert alter_isr(cluster, 1, 2, 3) == ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_that_shuts_down_hands_over(cluster: Driven) -> None:
    create(cluster, (1, 2))
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    one = cluster.partition("t")
    assert (one.leader, one.isr) == (2, (2,))
    assert alter_isr(cluster, 2, 1) == ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(2, current_metadata_offset=5)
    cluster.beat(3)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down  # 2 may not know yet
    cluster.beat(2)
    answer = cluster.beat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert cluster.image.brokers[1].fenced


def test_a_move_ends_when_the_new_replicas_are_in_sync(cluster: Driven) -> None:
    create(cluster, (1, 2))
    move(cluster, 3, 2)
    one = cluster.partition("t")
    assert (one.replicas, one.adding_replicas, one.removing_replicas) == ((3, 2, 1), (3,), (1,))
    assert one.directories == (directory(3), directory(2), directory(1))
    assert alter_isr(cluster, 1, 2, 3) == ErrorCode.NEW_LEADER_ELECTED
    one = cluster.partition("t")
    assert (one.replicas, one.adding_replicas, one.removing_replicas) == ((3, 2), (), ())
    assert (set(one.isr), one.directories) == ({2, 3}, (directory(3), directory(2)))


def test_a_cancelled_move_leaves_the_partition_as_it_was(cluster: Driven) -> None:
    create(cluster, (1, 2))
    move(cluster, 3, 2)
    topic = {"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}
    cluster.ask(apis.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=1, topics=[topic])
    one = cluster.partition("t")
    assert (set(one.replicas), one.adding_replicas, one.isr) == ({1, 2}, (), (1, 2))


def test_a_deleted_topic_is_gone_at_once_and_its_name_is_free(cluster: Driven) -> None:
    create(cluster, (1, 2))
    first = cluster.image.topics["t"].id
    cluster.fence(2)  # brokers drop their copies when they are back
    cluster.ask(apis.DELETE_TOPICS, topics=[{"name": None, "topic_id": first}], timeout_ms=1)
    assert "t" not in cluster.image.topics
    create(cluster, (1,))
    assert cluster.image.topics["t"].id != first


def test_more_partitions_get_leaders(cluster: Driven) -> None:
    create(cluster, (1, 2))
    topic = {"name": "t", "count": 2, "assignments": [{"broker_ids": [3, 1]}]}
    cluster.ask(apis.CREATE_PARTITIONS, topics=[topic], timeout_ms=1, validate_only=False)
    assert (cluster.partition("t", 1).leader, cluster.partition("t", 1).isr) == (3, (3, 1))


def test_settings_are_changed_and_removed(cluster: Driven) -> None:
    create(cluster, (1,), retention_ms="5")
    for operation, value, wanted in ((0, "7", {"retention.ms": "7"}), (1, None, {})):
        config = {"name": "retention.ms", "config_operation": operation, "value": value}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [config]}
        request = apis.INCREMENTAL_ALTER_CONFIGS
        data = request.encode_request(1, {"resources": [resource], "validate_only": False})
        asked = translation.some_settings(request.decode_request(1, data))
        cluster.give(ClientRequest("s", request, asked, 1))
        assert cluster.replies.pop("s")["responses"][0]["error_code"] == 0
        assert cluster.image.config(2, "t") == wanted


def test_no_block_of_producer_ids_is_given_twice(cluster: Driven) -> None:
    firsts = []
    for broker in (1, 2, 1):
        epoch = cluster.image.brokers[broker].epoch
        answer = cluster.ask(ALLOCATE_PRODUCER_IDS, broker_id=broker, broker_epoch=epoch)
        firsts.append((answer.producer_id_start, answer.producer_id_len))
    assert firsts == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert cluster.image.next_producer_id == 3000


def test_the_next_controller_knows_the_same_and_goes_on(cluster: Driven) -> None:
    create(cluster, (1, 2, 3))
    before = cluster.partition("t")
    cluster.elect()
    assert cluster.partition("t") == before
    cluster.fence(1)
    assert cluster.partition("t").leader == 2


def test_a_deposed_controller_writes_nothing_and_resigns(cluster: Driven) -> None:
    create(cluster, (1, 2))
    before = list(cluster.log)
    cluster.deposed = True
    topic = {"name": "u", "num_partitions": 1, "replication_factor": 1, "assignments": [],
             "configs": []}  # fmt: skip
    assert (
        cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False) is None
    )
    assert cluster.log == before
    assert not cluster.controller.is_active
