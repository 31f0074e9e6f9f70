"""The thread of a controller, over what stands for ZooKeeper: who asks is answered at its end."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog.cluster.controller.driver import Driver
from kafkalog.cluster.controller.events import Asked, Options
from kafkalog.metadata.zookeeper import tree
from kafkalog.metadata.zookeeper.session import USUAL, Create, Delete, open_session
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.cluster import reigning

NODE = 1


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


class Slow(Driver):
    """Its thread takes a question out of the queue, and goes on when it is let."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(stand_in.hosts, NODE, Options("PLAINTEXT"), USUAL)
        self.taken, self.goes_on = threading.Event(), threading.Event()

    def _next(self) -> Any:
        event = super()._next()
        if isinstance(event, Asked):
            self.taken.set()
            assert self.goes_on.wait(LIMIT_S)
        return event


def test_what_is_asked_while_it_ends_is_answered(stand_in: StandIn) -> None:
    """What the thread had taken out of the queue by then, what is in it, and what comes later."""
    driver = Slow(stand_in)
    driver.start()
    wait_for(lambda: driver.reigns, "it is elected")
    answers: list[Mapping[str, Any] | None] = []
    for _ in range(2):
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.append)
    assert driver.taken.wait(LIMIT_S)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(driver.stop)
        wait_for(lambda: not driver.takes, "its end has begun")
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.append)
        driver.goes_on.set()
        ending.result(LIMIT_S)
    assert answers == [None, None, None]


def test_what_cannot_be_deleted_now_is_tried_again_by_itself(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else happens in the cluster, and leaderships are not balanced."""
    topic, below = tree.topic_path("t"), f"{tree.topic_path('t')}/other"
    deleted = f"{tree.DELETE_TOPICS}/t"
    data = tree.write_topic(tree.TopicNode(uuid.UUID(int=7), {}, {}, {}))
    driver = Driver(stand_in.hosts, NODE, Options("PLAINTEXT", rebalances=False), USUAL)
    caplog.set_level(logging.WARNING)
    with open_session(stand_in.hosts, lambda _: None) as session:
        session.ensure(tree.PERSISTENT)
        wanted = [Create(topic, data), Create(below), Create(deleted)]
        assert session.commit(wanted).done
        driver.start()
        try:
            wait_for(
                lambda: "topic t cannot be deleted now: /brokers/topics/t: NotEmpty" in caplog.text,
                "it is refused",
            )
            assert session.read(topic) and session.read(deleted)
            assert session.commit([Delete(below)]).done
            wait_for(lambda: session.read(deleted) is None, "it is tried again")
            assert session.read(topic) is None
        finally:
            driver.stop()


def test_what_is_written_of_many_partitions_is_on_its_way_together() -> None:
    """All before the first is answered: not a round trip each."""
    count = 50
    with reigning.scene() as scene:
        of = reigning.led(scene, count)
        scene.stand_in.in_flight_max = 0
        of.brokers[0].session.close()
        for number in range(count):
            scene.led("t", 2, number)
        assert scene.stand_in.in_flight_max == count


def test_what_is_written_behind_what_is_refused_is_done() -> None:
    """In the order in which it was decided; what was refused is read again, and decided again."""
    with reigning.scene() as scene:
        of = reigning.led(scene, 3)
        other = tree.PartitionState(1, 0, (1, 3), 1)
        scene.before(tree.partition_path("t", 0), lambda _: scene.meddles("t", other, 1))
        of.brokers[0].session.close()
        states = [scene.led("t", leader, number) for number, leader in enumerate((2, 3, 2))]
        assert [one.isr for one in states] == [(2, 3), (3,), (2, 3)]
        assert {one.leader_epoch for one in states} == {1}
        wrote = [scene.znode("t", number).changed for number in range(3)]
        assert wrote[0] < wrote[2] < wrote[1]
