"""A node of `kafkalog_cluster` shuts down in order under load: nothing that was acknowledged is
lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import kafkalog
from kafkalog.server import broker
from kafkalog.testing.cluster import TestCluster

ENOUGH = 200
"""Records acknowledged before the stop, and as many after it."""
IN_FLIGHT = 20
ROUNDS = 3


class Load:
    """Writes with acks=1 to each partition until it is over."""

    def __init__(self, servers: str, partition: int) -> None:
        self.acknowledged: list[bytes] = []
        self.partition = partition
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(servers,), daemon=True)
        self._thread.start()

    def _write(self, servers: str) -> None:
        with kafkalog.Producer(servers, acks=1, linger_ms=0) as producer:
            sent: list[tuple[bytes, kafkalog.Future]] = []
            number = 0
            while sent or not self.over.is_set():
                while len(sent) < IN_FLIGHT and not self.over.is_set():
                    value = b"%d-%d" % (self.partition, number)
                    sent.append((value, producer.send("t", value, partition=self.partition)))
                    number += 1
                value, future = sent.pop(0)
                with suppress(kafkalog.KafkalogError):
                    future.result(60)
                    self.acknowledged.append(value)

    def end(self) -> None:
        self.over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def written(cluster: TestCluster) -> Iterator[list[Load]]:
    loads = [Load(cluster.bootstrap_servers, n) for n in range(3)]
    try:
        yield loads
    finally:
        for one in loads:
            one.end()


def progressed(cluster: TestCluster, loads: list[Load]) -> Callable[[], bool]:
    before = [len(one.acknowledged) for one in loads]
    return lambda: all(
        len(one.acknowledged) >= n + ENOUGH for one, n in zip(loads, before, strict=True)
    )


@pytest.mark.parametrize("here", [False, True], ids=["controller-elsewhere", "controller-here"])
def test_an_orderly_stop_loses_nothing_of_acks_1(kafkalog_cluster: TestCluster, here: bool) -> None:
    cluster = kafkalog_cluster
    cluster.create_topic("t", partitions=3)
    with written(cluster) as loads:
        for _ in range(ROUNDS):
            for n in range(3):
                cluster.wait_until(lambda n=n: cluster.in_sync("t", n) == [1, 2, 3], "in sync")
            cluster.wait_until(progressed(cluster, loads), "records are acknowledged")
            led = {cluster.leader("t", n) for n in range(3)}
            node = cluster.controller
            if not here:
                node = next(one for one in sorted(led) if one != cluster.controller)
            cluster.stop(node)
            cluster.wait_until(progressed(cluster, loads), "and more after the stop")
            cluster.start(node)
    found = {record.value for record in cluster.records("t")}
    for one in loads:
        assert len(one.acknowledged) >= 2 * ENOUGH
        lost = [value for value in one.acknowledged if value not in found]
        assert not lost, f"partition {one.partition}: {len(lost)} lost, first {lost[0]!r}"


def led_apart(cluster: TestCluster) -> tuple[int, int, int]:
    """A partition whose leader is not the controller, that leader, and the third node."""
    for n in range(3):
        leader = cluster.leader("t", n)
        if leader != cluster.controller:
            return n, leader, 6 - leader - cluster.controller
    raise AssertionError("the controller leads all")


@pytest.mark.kafkalog(config={"replica.lag.time.max.ms": 600_000})
def test_a_follower_that_does_not_catch_up_delays_a_stop_for_so_long(
    kafkalog_cluster: TestCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = kafkalog_cluster
    monkeypatch.setattr(broker, "HAND_OVER_S", 0.1)
    cluster.create_topic("t", partitions=3)
    partition, leader, third = led_apart(cluster)
    cluster.wait_until(lambda: cluster.in_sync("t", partition) == [1, 2, 3], "in sync")
    cluster.partition(leader, third)
    with kafkalog.Producer(cluster.bootstrap_servers, acks=1) as producer:
        producer.send("t", b"x", partition=partition).result(60)
    cluster.stop(leader)
    assert f"hands over 1 partitions, first t-{partition}, before all replicas" in caplog.text
    cluster.wait_until(lambda: cluster.leader("t", partition) not in (leader, -1), "led elsewhere")
