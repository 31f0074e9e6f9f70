"""Sending the controller's requests to one broker, over a real socket."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalog.client.link.transport import Address, Options
from kafkalog.controller.events import BrokerResponse, QueueOverflow
from kafkalog.controller.requests import Send
from kafkalog.wire import apis
from kafkalog.wire.tables.controller import STOP_REPLICA, UPDATE_METADATA
from kafkalog.zookeeper.sender import WAITING_MAX, Sender
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import LIMIT_S
from tests.unit.zookeeper.reigning import Held

API = apis.ALLOCATE_PRODUCER_IDS
BROKER = 7
ANSWER = {"producer_id_start": 5, "producer_id_len": 1}

Begin = Callable[[Callable[[BrokerResponse | QueueOverflow], None]], Sender]


def say(number: int) -> Send:
    return Send(BROKER, API, {"broker_id": number, "broker_epoch": 1})


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as made:
        made.on(API, ANSWER)
        yield made


@pytest.fixture
def begin(peer: Peer) -> Iterator[Begin]:
    made: list[Sender] = []

    def new(told: Callable[[BrokerResponse | QueueOverflow], None]) -> Sender:
        made.append(Sender(Address("127.0.0.1", peer.port), BROKER, Options(), told))
        return made[-1]

    yield new
    for one in made:
        one.stop()
        one.join()


def test_each_is_asked_until_it_is_answered(peer: Peer, begin: Begin) -> None:
    """Requests are answered in the order in which they were sent."""
    peer.on(API, CLOSE, ANSWER)
    heard: queue.SimpleQueue[BrokerResponse | QueueOverflow] = queue.SimpleQueue()
    sender = begin(heard.put)
    requests = [say(number) for number in range(3)]
    for request in requests:
        sender.send(request)
    told = [heard.get(timeout=LIMIT_S) for _ in requests]
    assert [one.send for one in told if isinstance(one, BrokerResponse)] == requests
    assert [one.broker_id for one in peer.sent(API)] == [0, 0, 1, 2]


def test_unexpected_errors_do_not_end_the_sender(
    peer: Peer, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """The sender logs the exception and sends again."""
    heard: queue.SimpleQueue[BrokerResponse | QueueOverflow] = queue.SimpleQueue()
    failing = [RuntimeError("unheard of")]

    def told(event: BrokerResponse | QueueOverflow) -> None:
        if failing:
            raise failing.pop()
        heard.put(event)

    sender = begin(told)
    for number in range(2):
        sender.send(say(number))
        event = heard.get(timeout=LIMIT_S)
        assert isinstance(event, BrokerResponse) and event.send == say(number)
    (line,) = [one for one in caplog.records if one.exc_info]
    assert line.message == "broker 7: AllocateProducerIds"
    assert "unheard of" in caplog.text


HEAD = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1}


def stop(topic: str, delete: bool = True, epoch: int = -2) -> Send:
    """StopReplica for partition 0 of a topic."""
    row = {"partition_index": 0, "leader_epoch": epoch, "delete_partition": delete}
    states = [{"topic_name": topic, "partition_states": [row]}]
    return Send(BROKER, STOP_REPLICA, HEAD | {"topic_states": states})


def lives(*brokers: int) -> Send:
    """UpdateMetadata with the live brokers and a partition."""
    row = {"partition_index": 0, "controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1],
           "zk_version": 0, "replicas": [1], "offline_replicas": []}  # fmt: skip
    states = [{"topic_name": "t", "topic_id": uuid.UUID(int=7), "partition_states": [row]}]
    rows: list[dict[str, Any]] = [{"id": one, "endpoints": [], "rack": None} for one in brokers]
    return Send(BROKER, UPDATE_METADATA, HEAD | {"topic_states": states, "live_brokers": rows})


def deleted(topic: str, number: int) -> Send:
    """UpdateMetadata: partition 0 of a topic with that id is being deleted, partition 1 is not."""
    send = lives(1)
    (state,) = send.body["topic_states"]
    (row,) = state["partition_states"]
    rows = [row | {"leader": -2}, row | {"partition_index": 1}]
    state = {"topic_name": topic, "topic_id": uuid.UUID(int=number), "partition_states": rows}
    return send._replace(body=send.body | {"topic_states": [state]})


def shown(peer: Peer) -> list[Any]:
    """The requests that arrived, in order and in short form."""
    short: dict[str, Callable[[Any], Any]] = {
        API.name: lambda request: request.broker_id,
        STOP_REPLICA.name: lambda request: [one.topic_name for one in request.topic_states],
        UPDATE_METADATA.name: lambda request: (
            [one.id for one in request.live_brokers], len(request.topic_states)),
    }  # fmt: skip
    return [short[name](request) for name, _, request in peer.requests if name in short]


def test_a_lagging_broker_gets_the_indispensable_requests(peer: Peer, begin: Begin) -> None:
    """It gets the replicas to stop and the live brokers, in order, and later requests. Then the
    controller learns that it must send everything again. The rest is not sent."""
    held, heard = Held(ANSWER), queue.SimpleQueue[BrokerResponse | QueueOverflow]()
    peer.on(API, held, ANSWER)
    peer.on(STOP_REPLICA, {"error_code": 0, "partition_errors": []})
    peer.on(UPDATE_METADATA, {"error_code": 0})
    sender = begin(heard.put)
    sender.send(say(0))
    assert held.came.wait(LIMIT_S)
    first = [lives(1), stop("t"), *map(say, range(1, 200)), lives(1, 2), stop("u"), stop("t")]
    for request in [*first, *map(say, range(200, 200 + WAITING_MAX - len(first)))]:
        sender.send(request)
    sender.send(say(999))  # one too many
    sender.send(stop("v"))
    sender.send(say(1000))
    held.goes_on.set()
    told = [heard.get(timeout=LIMIT_S) for _ in range(6)]
    assert shown(peer) == [0, ([1, 2], 0), ["t", "u"], ["v"], 1000]
    assert told[-1] == QueueOverflow(BROKER) and all(
        isinstance(one, BrokerResponse) for one in told[:-1]
    )
    sender.send(say(1001))
    again = heard.get(timeout=LIMIT_S)
    assert isinstance(again, BrokerResponse) and again.send == say(1001), "it is behind once"


def test_stop_replica_requests_are_never_dropped(peer: Peer, begin: Begin) -> None:
    """More StopReplica requests than may wait, and nothing else: all are sent, most in one request,
    and the broker is not behind. A later stop without deletion does not undo a deletion."""
    held, heard = Held(ANSWER), queue.SimpleQueue[BrokerResponse | QueueOverflow]()
    peer.on(API, held, ANSWER)
    peer.on(STOP_REPLICA, {"error_code": 0, "partition_errors": []})
    sender = begin(heard.put)
    sender.send(say(0))
    assert held.came.wait(LIMIT_S)
    names = [f"t{number}" for number in range(WAITING_MAX + 10)]
    for name in names[: WAITING_MAX - 1]:
        sender.send(stop(name))
    sender.send(stop("t1", delete=False, epoch=5))
    for name in names[WAITING_MAX - 1 :]:
        sender.send(stop(name))
    held.goes_on.set()
    told = [heard.get(timeout=LIMIT_S) for _ in range(12)]
    assert all(isinstance(one, BrokerResponse) for one in told)
    assert shown(peer) == [0, names[:WAITING_MAX], *([name] for name in names[WAITING_MAX:])]
    (row,) = peer.sent(STOP_REPLICA)[0].topic_states[1].partition_states
    assert (row.leader_epoch, row.delete_partition) == (5, True)


def test_deletions_are_never_dropped(peer: Peer, begin: Begin) -> None:
    """The controller forgets a topic once all brokers have deleted it, so a broker that missed it
    would keep it in its metadata. Ids count: two topics of one name are two."""
    held, heard = Held(ANSWER), queue.SimpleQueue[BrokerResponse | QueueOverflow]()
    peer.on(API, held, ANSWER)
    peer.on(UPDATE_METADATA, {"error_code": 0})
    sender = begin(heard.put)
    sender.send(say(0))
    assert held.came.wait(LIMIT_S)
    first = [deleted("t", 1), deleted("t", 1), lives(1), deleted("t", 2), deleted("u", 3), lives(2)]
    for request in [*first, *map(say, range(2 * WAITING_MAX))]:
        sender.send(request)  # too many, twice
    held.goes_on.set()
    while not isinstance(heard.get(timeout=LIMIT_S), QueueOverflow):
        pass
    (request,) = peer.sent(UPDATE_METADATA)
    assert [one.id for one in request.live_brokers] == [2]
    assert [
        (one.topic_name, one.topic_id.int, [(r.partition_index, r.leader) for r in rows])
        for one in request.topic_states if (rows := one.partition_states)
    ] == [("t", 1, [(0, -2)]), ("t", 2, [(0, -2)]), ("u", 3, [(0, -2)])]  # fmt: skip


def test_a_part_that_cannot_be_encoded_is_left_out(
    peer: Peer, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the request is sent, and what waits after it.  Each part is logged once."""
    heard: queue.SimpleQueue[BrokerResponse | QueueOverflow] = queue.SimpleQueue()
    peer.on(UPDATE_METADATA, {"error_code": 0})
    sender = begin(heard.put)
    send = lives(1, 2)
    (state,) = send.body["topic_states"]
    (row,) = state["partition_states"]
    rows = [row, row | {"partition_index": 1, "leader_epoch": 2**31}]
    brokers = send.body["live_brokers"]
    brokers[1]["rack"] = "\ud800"
    send.body["topic_states"] = [state | {"partition_states": rows}]
    for request in (send, send, say(3)):
        sender.send(request)
    told = [heard.get(timeout=LIMIT_S) for _ in range(3)]
    assert shown(peer) == [([1], 1), ([1], 1), 3]
    for one in told[:2]:
        assert isinstance(one, BrokerResponse)
        (left,) = one.send.body["topic_states"]
        assert left["partition_states"] == [row]
    lines = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == [
        "UpdateMetadata is sent without t-1",
        "UpdateMetadata is sent without broker 2",
    ]


def test_a_request_that_cannot_be_encoded_is_dropped(peer: Peer, begin: Begin) -> None:
    """The next one is sent."""
    heard: queue.SimpleQueue[BrokerResponse | QueueOverflow] = queue.SimpleQueue()
    sender = begin(heard.put)
    for number in (2**40, 1):
        sender.send(say(number))
    event = heard.get(timeout=LIMIT_S)
    assert isinstance(event, BrokerResponse) and event.send == say(1)
