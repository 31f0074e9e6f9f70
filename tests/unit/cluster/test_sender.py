"""What tells one broker the controller's requests, over a real socket."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest

from kafkalog.client.transport import Address
from kafkalog.cluster.controller.events import Answered, Behind
from kafkalog.cluster.controller.requests import Send
from kafkalog.cluster.controller.sender import Sender
from kafkalog.wire import apis
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import LIMIT_S

API = apis.ALLOCATE_PRODUCER_IDS
BROKER = 7
ANSWER = {"producer_id_start": 5, "producer_id_len": 1}

Begin = Callable[[Callable[[Answered | Behind], None]], Sender]


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

    def new(told: Callable[[Answered | Behind], None]) -> Sender:
        made.append(Sender(Address("127.0.0.1", peer.port), BROKER, 1, told))
        return made[-1]

    yield new
    for one in made:
        one.stop()
        one.join()


def test_each_is_asked_until_it_is_answered(peer: Peer, begin: Begin) -> None:
    """In the order in which they were sent."""
    peer.on(API, CLOSE, ANSWER)
    heard: queue.SimpleQueue[Answered | Behind] = queue.SimpleQueue()
    sender = begin(heard.put)
    requests = [say(number) for number in range(3)]
    for request in requests:
        sender.send(request)
    told = [heard.get(timeout=LIMIT_S) for _ in requests]
    assert [one.send for one in told if isinstance(one, Answered)] == requests
    assert [one.broker_id for one in peer.sent(API)] == [0, 0, 1, 2]


def test_what_nobody_thought_of_does_not_end_it(
    peer: Peer, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """It says what it was, and asks again."""
    heard: queue.SimpleQueue[Answered | Behind] = queue.SimpleQueue()
    failing = [RuntimeError("unheard of")]

    def told(event: Answered | Behind) -> None:
        if failing:
            raise failing.pop()
        heard.put(event)

    sender = begin(told)
    for number in range(2):
        sender.send(say(number))
        event = heard.get(timeout=LIMIT_S)
        assert isinstance(event, Answered) and event.send == say(number)
    (line,) = [one for one in caplog.records if one.exc_info]
    assert line.message == "broker 7: AllocateProducerIds"
    assert "unheard of" in caplog.text
