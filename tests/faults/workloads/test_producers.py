"""Producers of workloads, with any library."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from kafkalog.testing.broker import TestBroker
from tests.faults.history import History, Outcome, Poll, Send
from tests.faults.workloads.queue import ENOUGH, Producer, Queue
from tests.faults.workloads.reading import LAST
from tests.faults.workloads.senders import DELIVERY_MS, offset_told
from tests.support.waiting import wait_for


@pytest.mark.kafkalog(topics={"t": 2})
def test_one_of_librdkafka_that_failed_for_good_begins_again(kafkalog_broker: TestBroker) -> None:
    """A sequence that the leader does not expect stops the whole client, which reports it once."""
    history = History()
    loop = Producer(history, kafkalog_broker.bootstrap_servers, "t", 2, "librdkafka", 0.001)
    loop.start()
    wait_for(lambda: loop.acknowledged[0] and loop.acknowledged[1], "it sends")
    kafkalog_broker.fail("Produce", error="OUT_OF_ORDER_SEQUENCE_NUMBER", times=1)
    wait_for(lambda: loop.lives > 1, "it begins again", 2 * DELIVERY_MS / 1000)
    before = loop.acknowledged.copy()
    wait_for(lambda: all(loop.acknowledged[n] > before[n] for n in (0, 1)), "it goes on")
    loop.end()
    assert {one.outcome for one in history.of(Send)} == {Outcome.OK, Outcome.UNKNOWN}


def test_a_record_of_librdkafka_may_be_acknowledged_without_its_offset() -> None:
    """The answer to a later record acknowledges it: losing it counts against the broker."""
    message = Message(topic="t", value=b"v")
    assert message.offset() is None
    assert offset_told(None, message) == -1
    assert offset_told(KafkaError(KafkaError.REQUEST_TIMED_OUT), message) is None


def test_records_that_were_given_up_are_counted() -> None:
    queue = Queue("nobody:1")
    for number in range(101):
        send = queue.history.begin(Send, "p", partition=0, value=str(number))
        if number:
            queue.history.end(send, Outcome.UNKNOWN if number == 1 else Outcome.OK)
    read = queue.history.begin(Poll, LAST, partition=0)
    queue.history.end(read, records=[(n, str(n)) for n in range(101)])
    assert [one.kind for one in queue.judge(ENOUGH)] == ["given up"]
    assert queue.judge(0.98) == queue.judge() == []
