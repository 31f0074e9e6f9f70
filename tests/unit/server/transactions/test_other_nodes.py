"""Requests to other nodes on behalf of a transaction."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalog.coordinator.step import Producer
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.server.transactions.inter_broker_client import IN_FLIGHT_MAX, InterBrokerClient
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import joined
from tests.support.scripted import CLOSE, STALL, Peer
from tests.support.waiting import wait_for

TP = TopicPartition("t", 0)
LIMIT_S = 60
Told = queue.SimpleQueue[Any]


@contextmanager
def asking(**others: Peer) -> Iterator[InterBrokerClient]:
    with joined({int(name[1:]): peer for name, peer in others.items()}) as member:
        client = InterBrokerClient(member, "test")
        yield client
        for peer in others.values():
            peer.__exit__()  # the end waits for a silent peer
        client.stop()


def marked(request: Any, version: int) -> Any:
    """Answer that each marker was written."""
    return {
        "markers": [
            {
                "producer_id": one.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": n, "error_code": 0} for n in topic.partition_indexes
                        ],
                    }
                    for topic in one.topics
                ],
            }
            for one in request.markers
        ]
    }


def test_a_node_that_is_silent_holds_up_no_other() -> None:
    silent, answers = Peer(), Peer()
    silent.on(apis.ADD_PARTITIONS_TO_TXN, STALL)
    answers.on(apis.WRITE_TXN_MARKERS, marked)
    found: Told = queue.SimpleQueue()
    with asking(_7=silent, _8=answers) as client:
        client.allow(
            7, ProducerClaim("id", 1, 0), [TP], True, lambda results: found.put(("7", results))
        )
        client.end(8, TP, Producer(1, 0, True, 0), lambda error: found.put(("8", error)))
        assert found.get(timeout=LIMIT_S) == ("8", ErrorCode.NONE)
        assert found.empty()
    assert found.get(timeout=LIMIT_S) == ("7", {TP: ErrorCode.COORDINATOR_NOT_AVAILABLE})


def test_all_get_their_answers_in_order() -> None:
    """More requests than may be in flight."""
    peer, count = Peer(), 3 * IN_FLIGHT_MAX
    peer.on(apis.WRITE_TXN_MARKERS, marked)
    found: Told = queue.SimpleQueue()
    with asking(_7=peer) as client:
        for number in range(count):
            client.end(7, TP, Producer(number, 0, True, 0), lambda error, n=number: found.put(n))
        assert [found.get(timeout=LIMIT_S) for _ in range(count)] == list(range(count))
    assert [one.markers[0].producer_id for one in peer.sent(apis.WRITE_TXN_MARKERS)] == [
        *range(count)
    ]


def test_a_node_that_hangs_up_fails_its_requests() -> None:
    """Later requests are sent again."""
    peer = Peer()
    peer.on(apis.WRITE_TXN_MARKERS, CLOSE, marked)
    found: Told = queue.SimpleQueue()
    with asking(_7=peer) as client:
        for _ in range(2):
            client.end(7, TP, Producer(1, 0, True, 0), found.put)
            error = found.get(timeout=LIMIT_S)
            if error is ErrorCode.NONE:
                break
            assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            raise AssertionError("it is not asked again")


@pytest.mark.parametrize(("bound", "value"), [("WAITING_MAX", 2), ("WAITING_BYTES_MAX", 1)])
def test_no_more_than_that_wait_for_a_node_that_is_silent(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """Each names a topic of one byte."""
    monkeypatch.setattr(f"kafkalog.server.transactions.inter_broker_client.{bound}", value)
    silent = Peer()
    silent.on(apis.WRITE_TXN_MARKERS, STALL)
    found: Told = queue.SimpleQueue()

    def end(client: InterBrokerClient, number: int) -> None:
        client.end(7, TP, Producer(number, 0, True, 0), lambda error: found.put((number, error)))

    with asking(_7=silent) as client:
        end(client, 0)
        wait_for(lambda: silent.count(apis.WRITE_TXN_MARKERS), "one is in flight")
        for number in (1, 2, 3):
            end(client, number)
        assert found.get(timeout=LIMIT_S) == (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert found.empty()


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12_345, ErrorCode.UNKNOWN_SERVER_ERROR),
        (None, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_each_marker_has_its_outcome(number: int | None, error: ErrorCode) -> None:
    """Also with an error that only later versions know, and without a word about the partition."""
    row = {"partition_index": 0 if number is not None else 1, "error_code": number or 0}
    topics = [{"name": "t", "partitions": [row]}]
    peer, found = Peer(), queue.SimpleQueue[Any]()
    peer.on(apis.WRITE_TXN_MARKERS, lambda *_: {"markers": [{"producer_id": 1, "topics": topics}]})
    with asking(_7=peer) as client:
        client.end(7, TP, Producer(1, 0, True, 0), found.put)
        assert found.get(timeout=LIMIT_S) is error


def test_after_the_end_nobody_is_asked() -> None:
    peer = Peer()
    found: Told = queue.SimpleQueue()
    with asking(_7=peer) as client:
        pass
    client.end(7, TP, Producer(1, 0, True, 0), found.put)
    assert found.get(timeout=LIMIT_S) is ErrorCode.NOT_LEADER_OR_FOLLOWER
