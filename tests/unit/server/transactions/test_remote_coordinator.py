"""Events between a question to a coordinator on another node and its answer.

The broker leads the data and the group's offsets.  The coordinator is a peer, whose answers wait
until the test lets them go.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kafkalog.coordinator.step import Producer
from kafkalog.log.log import handle_of
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.dispatch import Dispatch
from kafkalog.server.handlers import routes_of
from kafkalog.server.journal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
from kafkalog.server.transactions.markers import Markers
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import joined, led_by
from tests.support.raw import Raw
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import Client, committed, ends, ready

Wait = Callable[..., None]
OK = ErrorCode.NONE
ENDED = ErrorCode.INVALID_TXN_STATE
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
SETTINGS = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
WRITER = 5000
"""A producer id that the coordinator has given."""


class Coordinator(Peer):
    """Node 7, which coordinates each transactional id."""

    def __init__(self) -> None:
        super().__init__()
        self.error = 0
        """The error code of its answers."""
        self.let = threading.Event()
        """Its answers wait for that."""
        self.on(apis.ADD_PARTITIONS_TO_TXN, self._allow)

    @property
    def asked(self) -> int:
        return self.count(apis.ADD_PARTITIONS_TO_TXN)

    def _allow(self, request: Any, _version: int) -> Any:
        error = self.error
        self.let.wait(LIMIT_S)
        return {
            "error_code": 0,
            "results_by_transaction": [
                {
                    "transactional_id": one.transactional_id,
                    "topic_results": [
                        {
                            "name": topic.name,
                            "results_by_partition": [
                                {"partition_index": number, "partition_error_code": error}
                                for number in topic.partitions
                            ],
                        }
                        for topic in one.topics
                    ],
                }
                for one in request.transactions
            ],
        }


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker(**SETTINGS)


@pytest.fixture
def coordinator(broker: Broker) -> Iterator[Coordinator]:
    peer = Coordinator()
    with joined({7: peer}) as member:
        led_by(member, {7: peer}, TRANSACTIONS_TOPIC, 7)
        client = InterBrokerClient(member, "test")
        broker._faults._reroute(Dispatch(node_of(broker)._replace(peers=client), routes_of()))
        yield peer
        peer.let.set()
        peer.__exit__()
        client.stop()
        assert not node_of(broker).guards.any(), "a guard is left"


@pytest.fixture
def raw(broker: Broker, coordinator: Coordinator) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as connection:
        connection.create("t", 1)
        yield connection


class Writer(Client):
    """A producer with the given epoch; its connection is its own, because its requests wait."""

    def __init__(self, broker: Broker, epoch: int = 0) -> None:
        self.raw, self.name = Raw(broker.bootstrap_servers), "x"
        self.producer_id, self.epoch, self.sequence = WRITER, epoch, 0

    def begin(self, version: int = 11) -> None:
        """Send a batch."""
        self.raw.send(apis.PRODUCE, version, self.produce_body("t", b"late", version=version))

    def written(self, version: int = 11) -> ErrorCode:
        """The outcome of the batch."""
        found = self.raw.receive(apis.PRODUCE, version).responses[0].partition_responses[0]
        return ErrorCode(found.error_code)


@pytest.fixture
def writer(broker: Broker) -> Iterator[Writer]:
    found = Writer(broker)
    yield found
    found.raw.close()


def marked(
    raw: Raw, epoch: int, version: int = 0, commit: bool = False, topic: str = "t"
) -> ErrorCode:
    """Let the coordinator's marker arrive."""
    marker = {
        "producer_id": WRITER, "producer_epoch": epoch, "transaction_result": commit,
        "coordinator_epoch": 0, "transaction_version": version,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }  # fmt: skip
    (found,) = raw.call(apis.WRITE_TXN_MARKERS, markers=[marker]).markers
    return ErrorCode(found.topics[0].partitions[0].error_code)


def under_way(coordinator: Coordinator, count: int = 1) -> None:
    wait_for(lambda: coordinator.asked == count, "the coordinator is asked")


ENDS = [
    pytest.param(0, 0, False, id="abort"),
    pytest.param(0, 0, True, id="commit"),
    pytest.param(1, 0, False, id="fenced"),
    pytest.param(1, 2, False, id="abort-v2"),
    pytest.param(1, 2, True, id="commit-v2"),
]


@pytest.mark.parametrize(("epoch", "version", "commit"), ENDS)
def test_a_marker_overtakes_the_answer(
    coordinator: Coordinator, raw: Raw, writer: Writer, epoch: int, version: int, commit: bool
) -> None:
    """The coordinator allowed the batch and then ended the transaction."""
    writer.begin()
    under_way(coordinator)
    assert marked(raw, epoch, version, commit) is OK
    coordinator.let.set()
    assert writer.written() is ENDED
    stable, end = ends(raw)
    assert stable == end == 1, "nothing is behind the marker"


@pytest.mark.parametrize(("epoch", "version", "commit"), ENDS)
def test_a_marker_overtakes_the_answer_to_an_offset_commit(
    coordinator: Coordinator, raw: Raw, writer: Writer, wait_until: Wait, epoch: int, version: int,
    commit: bool,
) -> None:  # fmt: skip
    ready(raw, wait_until)
    writer.raw.send(apis.TXN_OFFSET_COMMIT, 3, writer.offsets_body(7))
    under_way(coordinator)
    assert marked(raw, epoch, version, commit, OFFSETS_TOPIC) is OK
    coordinator.let.set()
    found = writer.raw.receive(apis.TXN_OFFSET_COMMIT, 3).topics[0].partitions[0]
    assert found.error_code == ENDED
    told = committed(raw, stable=True)
    assert (told.error_code, told.committed_offset) == (OK, -1), "no offset is left open"


@pytest.mark.parametrize("version", [11, 12])
def test_the_marker_of_the_transaction_before_overtakes_the_answer(
    coordinator: Coordinator, raw: Raw, broker: Broker, version: int
) -> None:
    """In version 2 it has the epoch of the next transaction, whose write may have waited for it."""
    writer = Writer(broker, epoch=1)
    writer.begin(version)
    under_way(coordinator)
    assert marked(raw, 1, 2) is OK
    coordinator.let.set()
    assert writer.written(version) is OK
    assert ends(raw) == (1, 2)
    assert marked(raw, 2, 2) is OK
    assert ends(raw) == (3, 3)
    writer.raw.close()


def test_the_next_transaction_of_the_same_epoch_begins(
    coordinator: Coordinator, raw: Raw, writer: Writer, broker: Broker
) -> None:
    """Only version 1 has such transactions.  The answer for the earlier one comes last."""
    writer.begin()
    under_way(coordinator)
    assert marked(raw, 0) is OK
    later = Writer(broker)
    later.begin()
    wait_for(lambda: len(node_of(broker).guards._guards) == 1, "the next transaction writes")
    coordinator.let.set()
    assert [writer.written(), later.written()] == [ENDED, OK]
    assert ends(raw) == (1, 2)
    assert marked(raw, 0) is OK
    assert ends(raw) == (3, 3)
    later.raw.close()


def test_an_earlier_marker_ends_no_later_transaction(
    coordinator: Coordinator, raw: Raw, broker: Broker
) -> None:
    """The producer has a newer epoch than the transaction that ends."""
    writer = Writer(broker, epoch=3)
    writer.begin()
    under_way(coordinator)
    assert marked(raw, 2) is OK
    coordinator.let.set()
    assert writer.written() is OK
    assert marked(raw, 3) is OK
    assert ends(raw) == (3, 3)
    writer.raw.close()


def test_the_topic_is_deleted_and_created_again(
    coordinator: Coordinator, raw: Raw, writer: Writer
) -> None:
    """Its transaction may be over: no marker follows for the new topic."""
    writer.begin()
    under_way(coordinator)
    assert raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=30_000)
    assert raw.create("t", 1).error_code == OK
    coordinator.let.set()
    assert writer.written() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ends(raw) == (0, 0)


def test_the_leader_changes(
    coordinator: Coordinator, raw: Raw, writer: Writer, broker: Broker
) -> None:
    """Another node led in between, and the marker may be in its log."""
    raw.produce("t", b"a")
    writer.begin()
    under_way(coordinator)
    node = node_of(broker)
    log = node.partitions.log("t", 0)
    node.reactor.put_partition(handle_of(log), leader_epoch=log.leader_epoch + 2, durable=False)
    coordinator.let.set()
    assert writer.written() is not OK
    assert ends(raw) == (1, 1)


def test_the_batch_is_sent_again_on_another_connection(
    coordinator: Coordinator, raw: Raw, writer: Writer, broker: Broker
) -> None:
    """Both attempts are allowed; the second is recognized."""
    again = Writer(broker)
    writer.begin()
    under_way(coordinator)
    writer.raw.close()
    again.begin()
    coordinator.let.set()
    assert again.written() is OK
    wait_for(lambda: not node_of(broker).guards.any(), "both attempts are over")
    assert ends(raw) == (0, 1)
    assert marked(raw, 0) is OK
    assert ends(raw) == (2, 2)
    again.raw.close()


def test_a_request_names_a_partition_twice(
    coordinator: Coordinator, raw: Raw, writer: Writer
) -> None:
    """No guard is left over, as the fixture checks."""
    coordinator.let.set()
    body, again = writer.produce_body("t", b"a"), writer.produce_body("t", b"b", sequence=1)
    body["topic_data"] += again["topic_data"]
    found = writer.raw.call(apis.PRODUCE, 11, **body).responses
    assert [one.partition_responses[0].error_code for one in found] == [OK, OK]
    assert ends(raw) == (0, 2)


def test_the_answer_is_lost(coordinator: Coordinator, raw: Raw, writer: Writer) -> None:
    """The producer sends the batch again, and the coordinator is asked again."""
    coordinator.on(apis.ADD_PARTITIONS_TO_TXN, CLOSE)
    writer.begin()
    assert writer.written() is AGAIN
    coordinator.on(apis.ADD_PARTITIONS_TO_TXN, coordinator._allow)
    coordinator.let.set()
    writer.begin()
    assert writer.written() is OK
    assert marked(raw, 0) is OK
    assert ends(raw) == (2, 2)


ANSWERS = [
    (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    (ErrorCode.CONCURRENT_TRANSACTIONS, AGAIN),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, AGAIN),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, AGAIN),
    (ErrorCode.NOT_COORDINATOR, AGAIN),
    (ErrorCode.OPERATION_NOT_ATTEMPTED, AGAIN),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (12_345, ErrorCode.UNKNOWN_SERVER_ERROR),
]


@pytest.mark.parametrize(("met", "told"), ANSWERS, ids=[str(int(met)) for met, _ in ANSWERS])
def test_each_error_of_the_coordinator(
    coordinator: Coordinator, raw: Raw, writer: Writer, met: int, told: ErrorCode
) -> None:
    """A later version may have errors that this one does not know."""
    coordinator.error = int(met)
    coordinator.let.set()
    writer.begin()
    assert writer.written() is told
    assert ends(raw) == (0, 0)


def test_errors_of_another_leader_are_logged_as_they_change(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """An election is no error; a marker that cannot be written is one, until it is written."""
    node, peer = node_of(broker), Peer()
    codes = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE,
    ]  # fmt: skip

    def answered(code: ErrorCode, _request: Any, _version: int) -> Any:
        row = {"partition_index": 0, "error_code": code}
        return {"markers": [{"producer_id": 1, "topics": [{"name": "t", "partitions": [row]}]}]}

    peer.on(apis.WRITE_TXN_MARKERS, *(partial(answered, code) for code in codes))
    with joined({7: peer}) as member, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 1)
        led_by(member, {7: peer}, "t", 7)
        client = InterBrokerClient(member, "test")
        appends = node.markers._appends
        markers = Markers(node.partitions, appends, node.coordinator, node.guards, "test", client)
        found = queue.SimpleQueue[ErrorCode]()
        with caplog.at_level("INFO", "kafkalog.server.transactions.markers"):
            for code in codes:
                markers.write(TopicPartition("t", 0), Producer(1, 0, True), found.put)
                assert found.get(timeout=LIMIT_S) is code
        peer.__exit__()
        client.stop()
        markers.stop()
    assert caplog.messages == [
        "t-0: a transaction is not ended yet: broker 7: KAFKA_STORAGE_ERROR",
        "t-0: transactions can be ended again",
    ]


OFFSET_ANSWERS = [
    (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
]


@pytest.mark.parametrize(
    ("met", "told"), OFFSET_ANSWERS, ids=[met.name for met, _ in OFFSET_ANSWERS]
)
def test_each_error_of_the_coordinator_to_an_offset_commit(
    coordinator: Coordinator, raw: Raw, writer: Writer, wait_until: Wait, met: ErrorCode,
    told: ErrorCode,
) -> None:  # fmt: skip
    ready(raw, wait_until)
    coordinator.error = met
    coordinator.let.set()
    assert writer.commit_offsets(7) is told
    assert committed(raw, stable=True).committed_offset == -1
