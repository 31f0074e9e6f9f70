"""The states of share partitions, as a broker serves them and keeps them for itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import Admin
from kafkalog.coordinator import thread
from kafkalog.coordinator.share_state.persister import (
    ACKNOWLEDGED,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateBatch,
    WriteState,
)
from kafkalog.coordinator.share_state.state import SharePartition
from kafkalog.server import share_persister
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.journal import SHARE_STATE_TOPIC
from kafkalog.server.share_effects import PartitionEnds
from kafkalog.server.share_persister import SharePersister
from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import joined, led_by
from tests.support.raw import Raw
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.controllers.test_cluster import Cluster

NONE, GONE = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
ONE = {"share_coordinator_state_topic_num_partitions": 1}
BATCH = StateBatch(4, 5, ACKNOWLEDGED, 1)
SOME_TOPIC = UUID(int=9)


def told(call: Callable[..., None], *asked: Any, group: str = "g") -> list[Any]:
    """The results of a call of a persister."""
    found: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    call(group, asked, found.put)
    return found.get(timeout=LIMIT_S)


def one(call: Callable[..., None], asked: Any) -> Any:
    (result,) = told(call, asked)
    return result


def made(broker: Broker, topic: str = "t", partitions: int = 1) -> UUID:
    """Create a topic; its id."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([(topic, partitions, -1)]).check()
    return node_of(broker).image.topics[topic].id


def states(broker: Broker) -> set[SharePartition]:
    """The share partitions whose states are kept."""
    core = node_of(broker).share_states.core
    return {where for shard in list(core.shards.values()) for where in list(shard.live())}


# ---- one broker --------------------------------------------------------------------------------


def test_a_broker_keeps_states_over_a_restart(make_broker: MakeBroker) -> None:
    """The first call creates the topic, with Kafka's settings."""
    with make_broker(**ONE) as broker:
        topic = made(broker)
        keeper = node_of(broker).persister
        assert SHARE_STATE_TOPIC not in node_of(broker).image.topics
        assert one(keeper.initialize, InitializeState(topic, 0, 1, -1)).error is NONE
        written = WriteState(topic, 0, 1, 0, 4, 2, (BATCH,))
        assert one(keeper.write, written).error is NONE
        assert told(keeper.read) == []
    with make_broker(**ONE) as broker:
        keeper = node_of(broker).persister
        found = one(keeper.read, ReadState(topic, 0, 3))
        assert found[2:] == (NONE, None, 1, 4, (BATCH,))
        assert one(keeper.write, written).error is ErrorCode.FENCED_LEADER_EPOCH
        assert one(keeper.read_summary, ReadSummary(topic, 0, -1))[2:] == (NONE, None, 1, 3, 4, 2)
        missing, known = told(keeper.delete, DeleteState(SOME_TOPIC, 0), DeleteState(topic, 0))
        assert missing.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert known.error is NONE
        assert states(broker) == set()


def test_states_of_deleted_topics_are_forgotten(make_broker: MakeBroker) -> None:
    broker = make_broker(**ONE)
    keeper = node_of(broker).persister
    topics = [made(broker, name) for name in ("t", "u")]
    told(keeper.initialize, *(InitializeState(topic, 0, 0, 0) for topic in topics))
    assert len(states(broker)) == 2
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics(["t"]).check()
    wait_for(lambda: states(broker) == {SharePartition("g", topics[1], 0)}, "it is forgotten")


def test_records_that_later_ones_replace_are_deleted(make_broker: MakeBroker) -> None:
    broker = make_broker(
        **ONE, share_coordinator_snapshot_update_records_per_snapshot=0,
        share_coordinator_state_topic_prune_interval_ms=20,
    )  # fmt: skip
    keeper, topic = node_of(broker).persister, made(broker)
    one(keeper.initialize, InitializeState(topic, 0, 0, 0))
    for _ in range(3):
        one(keeper.write, WriteState(topic, 0, 0, 0, 4, 2, (BATCH,)))
    log = node_of(broker).partitions.log(SHARE_STATE_TOPIC, 0)
    wait_for(lambda: log.start_offset == 3, "only the last snapshot is left")
    broker.close()
    broker = make_broker(**ONE)
    found = one(node_of(broker).persister.read, ReadState(topic, 0, 0))
    assert found.state_batches == (BATCH,)


def test_a_write_is_carried_out_in_the_thread_that_brings_it(make_broker: MakeBroker) -> None:
    """To switch threads takes longer.  The coordinator may have something else to do just then,
    after which its own thread goes on."""
    broker = make_broker(**ONE)
    keeper, topic = node_of(broker).persister, made(broker)
    one(keeper.initialize, InitializeState(topic, 0, 0, 0))
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    written = WriteState(topic, 0, 0, 0, 4, 2, (BATCH,))

    def here() -> bool:
        keeper.write("g", [written], lambda results: found.put((results, threading.get_ident())))
        (result,), number = found.get(timeout=LIMIT_S)
        assert result.error is NONE
        return bool(number == threading.get_ident())

    wait_for(here, "a write in this thread")


def test_a_result_may_be_followed_by_the_next_call_while_the_queue_is_full(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's thread makes that call, and only it can make room."""
    broker = make_broker(**ONE)
    keeper, topic = node_of(broker).persister, made(broker)
    one(keeper.initialize, InitializeState(topic, 0, 0, 0))
    monkeypatch.setattr(thread, "QUEUED_BYTES_MAX", 1)
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    written = WriteState(topic, 0, 0, 0, 4, 2, (BATCH,))

    def next_one(_results: Any) -> None:
        keeper.write("g", [written], found.put)

    keeper.read_summary("g", [ReadSummary(topic, 0, -1)], next_one)
    (result,) = found.get(timeout=LIMIT_S)
    assert result.error is NONE


def test_other_brokers_use_the_same_apis(make_broker: MakeBroker) -> None:
    broker = make_broker(**ONE)
    topic = made(broker)
    with Raw(broker.bootstrap_servers) as raw:
        key = SharePartition("g", topic, 0).key
        for version, wanted in ((6, NONE), (5, ErrorCode.INVALID_REQUEST)):
            (found,) = raw.call(
                apis.FIND_COORDINATOR, version, key_type=2, coordinator_keys=[key]
            ).coordinators
            assert found.error_code == wanted

        def asked(api: Any, **row: Any) -> Any:
            topics = [{"topic_id": topic, "partitions": [{"partition": 0, **row}]}]
            ((found,),) = (
                one.partitions for one in raw.call(api, 0, group_id="g", topics=topics).results
            )
            return found

        loads = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        wait_for(
            lambda: asked(apis.READ_SHARE_GROUP_STATE_SUMMARY, leader_epoch=0).error_code != loads,
            "it is loaded",
        )
        begun = asked(apis.INITIALIZE_SHARE_GROUP_STATE, state_epoch=0, start_offset=7)
        assert begun.error_code == NONE
        assert asked(apis.READ_SHARE_GROUP_STATE, leader_epoch=0).start_offset == 7


# ---- several brokers ---------------------------------------------------------------------------


@contextmanager
def asking(peer: Peer) -> Iterator[SharePersister]:
    """The persister of node 1; node 7 coordinates everything."""
    with joined({7: peer}) as member:
        led_by(member, {7: peer}, SHARE_STATE_TOPIC, 7)
        client = InterBrokerClient(member, "test")
        nobody: Any = None  # this node coordinates nothing
        keeper = SharePersister(nobody, member, client, lambda: None, "test")
        yield keeper
        keeper.stop()
        peer.__exit__()
        client.stop()


def answered(error: ErrorCode) -> Callable[[Any, int], Any]:
    def answer(request: Any, _version: int) -> Any:
        return {"results": [
            {"topic_id": topic.topic_id,
             "partitions": [{"partition": row.partition, "error_code": error}
                            for row in topic.partitions]}
            for topic in request.topics
        ]}  # fmt: skip

    return answer


def test_another_broker_is_asked_again_while_it_is_not_ready() -> None:
    """It moves, loads, or ends; and only what failed is sent again."""
    peer = Peer()
    mixed = {"results": [{"topic_id": SOME_TOPIC, "partitions": [
        {"partition": 0, "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS},
        {"partition": 1, "error_code": ErrorCode.FENCED_STATE_EPOCH, "error_message": "m"},
    ]}]}  # fmt: skip
    peer.on(
        apis.INITIALIZE_SHARE_GROUP_STATE, answered(ErrorCode.NOT_COORDINATOR), CLOSE, mixed,
        answered(NONE),
    )  # fmt: skip
    with asking(peer) as keeper:
        found = told(keeper.initialize, *(InitializeState(SOME_TOPIC, n, 0, 0) for n in (0, 1)))
        assert [(row.partition, row.error) for row in found] == [
            (0, NONE), (1, ErrorCode.FENCED_STATE_EPOCH),
        ]  # fmt: skip
        assert found[1].message == "m"
        sent = peer.sent(apis.INITIALIZE_SHARE_GROUP_STATE)
        assert [len(one.topics[0].partitions) for one in sent] == [2, 2, 2, 1]


def test_a_result_that_is_missing_is_an_error() -> None:
    peer = Peer()
    peer.on(apis.READ_SHARE_GROUP_STATE, {"results": []})
    with asking(peer) as keeper:
        found = one(keeper.read, ReadState(SOME_TOPIC, 0, 0))
        assert found.error is ErrorCode.UNKNOWN_SERVER_ERROR


def no_threads(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """So many times the thread for requests to broker 7 cannot be started."""
    start, left = threading.Thread.start, [failures]

    def refuse(one: threading.Thread) -> None:
        if one.name.endswith("to broker 7") and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(one)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_request_that_cannot_be_passed_on_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_threads(monkeypatch, 2)
    peer = Peer()
    peer.on(apis.DELETE_SHARE_GROUP_STATE, answered(NONE))
    with asking(peer) as keeper:
        assert one(keeper.delete, DeleteState(SOME_TOPIC, 0)).error is NONE


def test_a_request_that_is_never_passed_on_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_persister, "PATIENCE_S", 0.1)
    no_threads(monkeypatch, 1_000)
    with asking(Peer()) as keeper:
        assert one(keeper.delete, DeleteState(SOME_TOPIC, 0)).error is GONE
        assert keeper._held_bytes == 0


def test_ends_that_cannot_be_asked_for_are_missing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_threads(monkeypatch, 1)
    topic, peer = made(broker), Peer()
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with joined({7: peer}) as member:
        led_by(member, {7: peer}, "t", 7)
        client = InterBrokerClient(member, "test")
        PartitionEnds(node_of(broker).partitions, client).latest([(topic, 0)], found.put)
        assert found.get(timeout=LIMIT_S) == {}
        peer.__exit__()
        client.stop()


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_persister, "PATIENCE_S", 0.2)
    peer = Peer()
    peer.on(apis.DELETE_SHARE_GROUP_STATE, answered(ErrorCode.NOT_COORDINATOR))
    with asking(peer) as keeper:
        found = one(keeper.delete, DeleteState(SOME_TOPIC, 0))
        assert found.error is ErrorCode.NOT_COORDINATOR
        assert peer.count(apis.DELETE_SHARE_GROUP_STATE) > 1


def test_requests_that_wait_are_bounded_and_end_with_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Peer()
    peer.on(apis.DELETE_SHARE_GROUP_STATE, answered(ErrorCode.NOT_COORDINATOR))
    waits: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with asking(peer) as keeper:
        keeper.delete("g", [DeleteState(SOME_TOPIC, 0)], waits.put)
        monkeypatch.setattr(share_persister, "HELD_BYTES_MAX", 100)
        assert one(keeper.delete, DeleteState(SOME_TOPIC, 1)).error is GONE
    (found,) = waits.get(timeout=LIMIT_S)
    assert found.error in (ErrorCode.NOT_COORDINATOR, GONE)
    assert one(keeper.delete, DeleteState(SOME_TOPIC, 2)).error is GONE


def test_an_initialization_does_not_overtake_a_deletion() -> None:
    """They are of the same share partition; the deletion has to be tried again."""
    peer = Peer()
    peer.on(
        apis.DELETE_SHARE_GROUP_STATE, answered(ErrorCode.NOT_COORDINATOR),
        answered(ErrorCode.NOT_COORDINATOR), answered(NONE),
    )  # fmt: skip
    peer.on(apis.INITIALIZE_SHARE_GROUP_STATE, answered(NONE))
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with asking(peer) as keeper:
        keeper.delete("g", [DeleteState(SOME_TOPIC, 0)], found.put)
        both = told(keeper.initialize, *(InitializeState(SOME_TOPIC, n, 0, 0) for n in (0, 1)))
        assert [row.error for row in both] == [NONE] * 2
        assert found.get(timeout=LIMIT_S)[0].error is NONE
        names = [name for name, _, request in peer.requests
                 if name.endswith("ShareGroupState")
                 and request.topics[0].partitions[0].partition == 0]  # fmt: skip
        assert names == ["DeleteShareGroupState"] * 3 + ["InitializeShareGroupState"]
        assert keeper._busy == {}


def test_those_that_follow_end_with_the_broker() -> None:
    peer = Peer()
    peer.on(apis.DELETE_SHARE_GROUP_STATE, answered(ErrorCode.NOT_COORDINATOR))
    peer.on(apis.INITIALIZE_SHARE_GROUP_STATE, answered(ErrorCode.NOT_COORDINATOR))
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with asking(peer) as keeper:
        keeper.delete("g", [DeleteState(SOME_TOPIC, 0)], found.put)
        for _ in range(2_000):
            keeper.initialize("g", [InitializeState(SOME_TOPIC, 0, 0, 0)], found.put)
    for _ in range(2_001):
        (row,) = found.get(timeout=LIMIT_S)
        assert row.error in (ErrorCode.NOT_COORDINATOR, GONE)
    assert (keeper._busy, keeper._held_bytes) == ({}, 0)


@pytest.mark.long
def test_states_survive_their_coordinator(tmp_path: Path) -> None:
    """Three nodes: each reads and writes by its own persister, wherever the coordinator is."""
    cluster = Cluster(tmp_path, {"share.coordinator.state.topic.num.partitions": 3})
    try:
        servers = ",".join(node.bootstrap_servers for node in cluster.nodes.values())
        with Admin(servers) as admin:
            admin.create_topics([("t", 6, 3)]).check()
        keepers = {number: node_of(node).persister for number, node in cluster.nodes.items()}
        wait_for(lambda: all("t" in node_of(n).image.topics for n in cluster.nodes.values()), "t")
        topic = node_of(cluster.nodes[1]).image.topics["t"].id
        begun = told(keepers[1].initialize, *(InitializeState(topic, n, 0, 0) for n in range(6)))
        assert {row.error for row in begun} == {NONE}
        for turn, keeper in enumerate(keepers.values()):
            batch = StateBatch(turn * 2, turn * 2, ACKNOWLEDGED, 1)
            rows = [WriteState(topic, n, 0, 0, 0, turn, (batch,)) for n in range(6)]
            assert {row.error for row in told(keeper.write, *rows)} == {NONE}
        image = node_of(cluster.nodes[1]).image
        gone = image.topics[SHARE_STATE_TOPIC].partitions[0].leader
        cluster.nodes.pop(gone).abandon()
        for number in cluster.nodes:
            found = told(keepers[number].read, *(ReadState(topic, n, 0) for n in range(6)))
            assert {row.error for row in found} == {NONE}
            assert {len(row.state_batches) for row in found} == {3}
    finally:
        for node in cluster.nodes.values():
            node.abandon()
