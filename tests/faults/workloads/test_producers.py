"""A producer of a workload, whatever its library."""

from __future__ import annotations

import pytest

from kafkalog.testing.broker import TestBroker
from tests.faults.history import History, Outcome, Send
from tests.faults.workloads.queue import Producer
from tests.faults.workloads.senders import DELIVERY_MS
from tests.support.waiting import wait_for


@pytest.mark.kafkalog(topics={"t": 2})
def test_one_of_librdkafka_that_failed_for_good_begins_again(kafkalog_broker: TestBroker) -> None:
    """A sequence that a leader does not expect ends the whole client, which says so once."""
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
