"""A producer whose principal lacks a right: what fails, and what works once it has the right."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kafkalog import Consumer, Producer, errors
from kafkalog.client.link.metadata import NO_NODE
from kafkalog.wire import apis
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import PRODUCER_ID

DENIED = {**PRODUCER_ID, "error_code": 31}


@pytest.fixture
def orders(peer: Peer) -> Peer:
    peer.on(apis.METADATA, lambda request, version: peer.metadata({"orders": 1}))
    peer.on(apis.PRODUCE, produced([0]))
    return peer


def test_an_idempotent_producer_works_once_it_may_write(orders: Peer) -> None:
    """As Java's: records fail while it gets no producer id, and it asks for one again."""
    orders.on(apis.INIT_PRODUCER_ID, DENIED)
    producer = Producer(orders.servers, config={"retry.backoff.max.ms": 5})
    with pytest.raises(errors.ClusterAuthorizationFailed) as told:
        producer.send("orders", b"1").result(LIMIT_S)
    assert not told.value.fatal and orders.count(apis.PRODUCE) == 0
    orders.on(apis.INIT_PRODUCER_ID, PRODUCER_ID)

    def sent() -> bool:
        with suppress(errors.ClusterAuthorizationFailed):
            return producer.send("orders", b"2").result(LIMIT_S) is not None
        return False

    wait_for(sent, "a record that is taken")
    assert orders.count(apis.PRODUCE) == 1
    with pytest.raises(errors.ClusterAuthorizationFailed):  # the records before
        producer.close()


def test_init_transactions_may_be_called_again(orders: Peer) -> None:
    here = {"node_id": 1, "host": "127.0.0.1", "port": orders.port}
    orders.on(apis.FIND_COORDINATOR, {"coordinators": [{"key": "t", **here}]})
    orders.on(apis.INIT_PRODUCER_ID, {**DENIED, "error_code": 53}, PRODUCER_ID)
    with Producer(orders.servers, transactional_id="t") as producer:
        with pytest.raises(errors.TransactionalIdAuthorizationFailed, match="'t'"):
            producer.init_transactions()
        producer.init_transactions()


def test_a_consumer_raises_the_denial_of_its_group(orders: Peer) -> None:
    denied = {"key": "g", "node_id": NO_NODE, "host": "", "port": -1, "error_code": 30}
    orders.on(apis.FIND_COORDINATOR, {"coordinators": [denied]})
    with Consumer(orders.servers, "orders", group="g") as consumer:
        for _ in range(2):  # it can still be used
            with pytest.raises(errors.GroupAuthorizationFailed, match="group 'g'"):
                while True:
                    consumer.poll(100)
