"""Where records without a key go when some partitions are slow (KIP-794)."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from typing import Any

import pytest

from kafkalog._native import direct
from kafkalog.client.buffer.accumulator import Accumulator, Bounds
from kafkalog.client.buffer.adaptive_partitioning import WEIGHED_S, WEIGHED_S_MAX, Balance
from kafkalog.client.buffer.delivery import Future
from kafkalog.client.buffer.partitioners import cumulative
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import PRODUCER_ID


def weights(partitions: int, queued: dict[int, int], out: tuple[int, ...] = ()) -> list[int]:
    sums = array("q", cumulative(partitions, queued, out))
    return [after - before for before, after in zip([0, *sums], sums, strict=False)]


def test_one_with_a_longer_queue_is_chosen_less() -> None:
    """As in the KIP: queues 0, 3, 1 have the weights 4, 1, 3."""
    assert weights(3, {1: 3, 2: 1}) == [4, 1, 3]


def test_where_all_are_alike_there_are_no_weights() -> None:
    assert cumulative(3, {}, ()) == b""
    assert cumulative(2, {0: 5, 1: 5}, ()) == b""


def test_unavailable_leaders_are_chosen_last() -> None:
    assert weights(3, {0: 9, 1: 1}, (0,)) == [0, 1, 2]
    assert weights(3, {}, (1,)) == [1, 0, 1]
    assert cumulative(2, {0: 1}, (0, 1)) == b""


def test_a_node_is_given_up_after_the_timeout_and_until_it_takes_something() -> None:
    balance = Balance(True, 2.0)
    balance.stalled([1], 10.0)
    balance.stalled([1], 11.5)
    assert (balance.gone(12.0), balance.gone(12.1)) == (set(), {1})
    balance.took(1)
    assert balance.gone(99.0) == set()
    balance.stalled([1, 2], 20.0)
    balance.stalled([2], 30.0)  # records for the other node are gone
    assert balance.gone(99.0) == {2}


def test_without_a_timeout_no_node_is_given_up() -> None:
    balance = Balance(True, 0.0)
    balance.stalled([1], 10.0)
    assert balance.gone(1e6) == set()


def test_the_pause_after_weighing_is_of_its_work() -> None:
    """A wait for the buffer's lock is none, and no pause is longer than a second."""
    worked_s, costs_s, weighed = 0.0, 0.0, 0

    class Waiting(Accumulator):
        def weigh(self, unavailable: Any) -> None:
            nonlocal worked_s, weighed
            worked_s, weighed = worked_s + costs_s, weighed + 1
            super().weigh(unavailable)

    balance = Balance(True, 0.0, lambda: worked_s)
    with Cluster("127.0.0.1:1") as cluster:
        waiting = Waiting(Bounds(100, 1_000, 0.0), (False, False), lambda: None)
        now_s = 100.0
        cases = ((0.0, WEIGHED_S), (0.01, 0.5), (30.0, WEIGHED_S_MAX))
        for costs_s, pause_s in cases:  # noqa: B007
            before = weighed
            for at_s in (now_s, now_s + pause_s * 0.99, now_s + pause_s):
                balance.weigh(at_s, cluster, waiting)
            assert weighed - before == 2
            now_s += pause_s + WEIGHED_S_MAX


def test_c_chooses_by_the_weights() -> None:
    new, load = direct("intake_new"), direct("intake_load")
    open_, memory, send = direct("intake_open"), direct("growing_new"), direct("intake_send")
    intake = new(4, Future, 7, 1, False, False)  # the partition may change with each record
    batches = [object() for _ in range(4)]
    memories = [memory(1 << 20, None) for _ in batches]  # each batch keeps its own
    for place, batch in enumerate(batches):
        open_(intake, place, batch, memories[place])

    def chosen(count: int) -> Counter[int]:
        return Counter(
            batches.index(send(intake, b"x", None, 1, -1, None)._batch) for _ in range(count)
        )

    load(intake, cumulative(4, {1: 3, 2: 3, 3: 3}, (3,)))
    chosen(1)  # the partition chosen earlier
    found = chosen(6_000)
    assert found[3] == 0
    assert 3_700 < found[0] < 4_300 and 800 < found[1] < 1_200 and 800 < found[2] < 1_200
    load(intake, b"")
    assert all(1_200 < some < 1_800 for some in chosen(6_000).values())


@pytest.mark.parametrize("wrong", [b"1234567", b"\0" * 40, array("q", [3, 1]).tobytes(),
                                   array("q", [0, 0]).tobytes()])  # fmt: skip
def test_c_refuses_weights_that_are_none(wrong: bytes) -> None:
    intake = direct("intake_new")(2, Future, 7, 1, False, False)
    with pytest.raises(ValueError, match="weights"):
        direct("intake_load")(intake, wrong)


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_leader_that_answers_nothing_gets_less(peer: Peer, adaptive: bool) -> None:
    """One of two leaders accepts its requests in flight and no more; the producer avoids it."""
    hold = threading.Event()

    def held(request: Any, version: int) -> Any:
        assert hold.wait(LIMIT_S)
        return produced([])(request, version)

    with Peer() as slow:
        metadata = peer.metadata({"t": 2})
        metadata["brokers"].append({"node_id": 2, "host": "127.0.0.1", "port": slow.port})
        metadata["topics"][0]["partitions"][1]["leader_id"] = 2
        for one in (peer, slow):
            one.on(apis.METADATA, metadata)
            one.on(apis.INIT_PRODUCER_ID, PRODUCER_ID)
        peer.on(apis.PRODUCE, produced([]))
        slow.on(apis.PRODUCE, held)
        config = {
            "partitioner.adaptive.partitioning.enable": adaptive,
            # Long enough that the other leader, on a busy machine, is not given up, too.
            "partitioner.availability.timeout.ms": 500,
        }
        with Producer(
            peer.servers, linger_ms=0, batch_bytes=200, in_flight=1, config=config
        ) as producer:
            stuck = producer.send("t", bytes(150), partition=1)
            wait_for(lambda: slow.count(apis.PRODUCE) == 1, "it has one")
            more = producer.send("t", bytes(150), partition=1)
            sender = producer._sender
            if adaptive:
                wait_for(lambda: sender.balance.unavailable == {2}, "it is given up")
            futures = [producer.send("t", bytes(150)) for _ in range(200)]
            hold.set()
            places = Counter(future.result(LIMIT_S).partition for future in futures)
            assert stuck.result(LIMIT_S).partition == more.result(LIMIT_S).partition == 1
    assert places[0] >= 190 if adaptive else places[1] > 50
