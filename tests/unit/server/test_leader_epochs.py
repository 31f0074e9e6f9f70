"""Records accepted for a partition in one leader epoch are not appended in another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kafkalog
from kafkalog.coordinator.step import Producer
from kafkalog.errors import NotLeaderOrFollower
from kafkalog.log.log import handle_of
from kafkalog.server.appends import Appends
from kafkalog.server.broker import Broker
from kafkalog.server.journal import OFFSETS_TOPIC, Journal
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import Client, ready

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
ROW = (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3" + bytes(24))


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as connection:
        connection.create("t")
        yield connection


def lead_in(broker: Broker, topic: str, epoch: int) -> kafkalog.Log:
    """Give partition 0 a new role of which its owner in Python does not know; returns the
    partition's log."""
    log = broker._node.partitions.log(topic, 0)
    handle = handle_of(log)
    broker._node.reactor.put_partition(handle, leader_epoch=epoch - 1, durable=False, led_by=9)
    broker._node.reactor.put_partition(handle, leader_epoch=epoch, durable=False)
    return log


def journal_of(broker: Broker) -> Journal:
    node = broker._node
    appends = Appends(node.partitions, node.reactor, node.acknowledger, node.clock)
    return Journal(OFFSETS_TOPIC, node.partitions, appends)


def test_a_journal(broker: Broker, raw: Raw) -> None:
    ready(raw, wait_for)
    journal = journal_of(broker)
    told: list[ErrorCode] = []
    offsets: list[int] = []

    def done(error: ErrorCode, base_offset: int) -> None:
        told.append(error)
        offsets.append(base_offset)

    journal.append(0, 0, [ROW], done)
    wait_for(lambda: told == [ErrorCode.NONE], "it is stored")
    log = lead_in(broker, OFFSETS_TOPIC, 2)
    end = log.end_offset
    marker = Producer(7, 0, True)
    for producer in (None, Producer(7, 0), marker):
        journal.append(0, 0, [] if producer is marker else [ROW], done, producer)
    assert told[1:] == [MOVED] * 3, "at once: nothing is waited for"
    assert log.end_offset == end
    with pytest.raises(NotLeaderOrFollower, match=r"__consumer_offsets-0: found leader epoch 2"):
        [*journal.read(0, 0)]
    assert len([*journal.read(0, 2)]) == 1
    journal.append(0, 2, [ROW], done)
    wait_for(lambda: told[4:] == [ErrorCode.NONE], "it is stored")
    assert offsets == [0, -1, -1, -1, 1]


def test_a_coordinator(broker: Broker, raw: Raw) -> None:
    """It answers as if it had lost its partition, and knows only what is stored."""
    ready(raw, wait_for)
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]

    def commit() -> ErrorCode:
        found = raw.call(apis.OFFSET_COMMIT, 8, group_id="g", topics=asked)
        return ErrorCode(found.topics[0].partitions[0].error_code)

    log = lead_in(broker, OFFSETS_TOPIC, 2)
    assert commit() is ErrorCode.NOT_COORDINATOR
    assert log.end_offset == 0
    fields = {"groups": [{"group_id": "g", "topics": None}]}
    (group,) = raw.call(apis.OFFSET_FETCH, 9, **fields).groups
    assert (group.error_code, group.topics) == (0, [])
    broker._node.coordinator.lead_on(0, 2)
    wait_for(lambda: commit() is ErrorCode.NONE, "it leads on")
    assert log.end_offset == 1


def test_a_marker(broker: Broker, raw: Raw) -> None:
    """Its coordinator sends it again; then it is accepted in the present epoch."""
    client = Client(raw)
    client.add("t", 0)
    client.write("t", b"a")
    log = lead_in(broker, "t", 2)
    end = log.end_offset
    told: list[ErrorCode] = []
    marker = Producer(client.producer_id, client.epoch, True, 0)
    for at_once in (False, True):
        broker._node.markers.write(TopicPartition("t", 0), marker, told.append, at_once=at_once)
    wait_for(lambda: told == [MOVED] * 2, "both are refused")
    assert (log.end_offset, log.last_stable_offset) == (end, 0)


def test_a_batch_that_python_looks_into(broker: Broker, raw: Raw) -> None:
    """The response names the leader and its address."""
    raw.create("packed", cleanup_policy="compact")
    data = batch([Row(b"v", b"k", 5)], codec="gzip")
    assert raw.produce_batch("packed", data).error_code == ErrorCode.NONE
    log = lead_in(broker, "packed", 2)
    for version in (9, 10):
        part = [{"name": "packed", "partition_data": [{"index": 0, "records": data}]}]
        found = raw.call(apis.PRODUCE, version, acks=-1, timeout_ms=30_000, topic_data=part)
        (answer,) = found.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (MOVED, -1)
        if version == 10:
            assert answer.current_leader.leader_id == broker._node.node_id
            (node,) = found.node_endpoints
            assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert log.end_offset == 1


def test_a_batch_of_a_transaction(broker: Broker, raw: Raw) -> None:
    """The coordinator's permission was for the epoch in which it was asked."""
    client = Client(raw)
    client.add("t", 0)
    log = lead_in(broker, "t", 2)
    assert client.write("t", b"a").error_code == MOVED
    assert log.end_offset == 0
