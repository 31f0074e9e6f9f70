"""A controller's thread, over a stand-in for ZooKeeper, answers open requests when it stops."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog.controller.events import ClientRequest, Options
from kafkalog.errors import BadZnode, Timeout
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA
from kafkalog.zookeeper import sender, tree
from kafkalog.zookeeper.driver import ASKED_BYTES_MAX, Driver
from kafkalog.zookeeper.session import USUAL, Create, Delete, Set, open_session
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.zookeeper import reigning

NODE = 1


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


class Slow(Driver):
    """Its thread takes a request out of the queue, then waits until `goes_on` is set."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(stand_in.hosts, NODE, Options("PLAINTEXT"), USUAL)
        self.taken, self.goes_on = threading.Event(), threading.Event()

    def _next(self) -> Any:
        event = super()._next()
        if isinstance(event, ClientRequest):
            self.taken.set()
            assert self.goes_on.wait(LIMIT_S)
        return event


class Counted(Driver):
    """Releases `stood` each time that it stands for election."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(stand_in.hosts, NODE, Options("PLAINTEXT", rebalances=False), USUAL)
        self.stood = threading.Semaphore(0)

    def _stand(self) -> None:
        self.stood.release()
        super()._stand()


def test_requests_that_wait_are_bounded_in_bytes(stand_in: StandIn) -> None:
    """Until they are answered."""
    driver = Slow(stand_in)
    driver.start()
    wait_for(lambda: driver.is_active, "it is elected")
    answers = queue.Queue[Any]()

    def ask(size: int) -> None:
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.put, size=size)

    ask(ASKED_BYTES_MAX // 2)
    assert driver.taken.wait(LIMIT_S)
    ask(ASKED_BYTES_MAX)
    with pytest.raises(Timeout, match=r"bytes wait for the controller$"):
        ask(1)
    driver.goes_on.set()
    for _ in range(2):
        answers.get(timeout=LIMIT_S)
    ask(1)
    answers.get(timeout=LIMIT_S)
    driver.stop()


def test_requests_during_the_end_are_answered(stand_in: StandIn) -> None:
    """The request that the thread has taken, those in the queue, and later ones."""
    driver = Slow(stand_in)
    driver.start()
    wait_for(lambda: driver.is_active, "it is elected")
    answers: list[Mapping[str, Any] | None] = []
    for _ in range(2):
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.append)
    assert driver.taken.wait(LIMIT_S)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(driver.stop)
        wait_for(lambda: not driver.takes, "it is stopping")
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.append)
        driver.goes_on.set()
        ending.result(LIMIT_S)
    assert answers == [None, None, None]


def test_failed_deletions_are_retried_without_events(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else happens in the cluster, and leaders are not balanced."""
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
            wait_for(lambda: session.read(deleted) is None, "the deletion is retried")
            assert session.read(topic) is None
        finally:
            driver.stop()


def test_writes_of_many_partitions_are_pipelined() -> None:
    """All writes are sent before the first is answered: no round trip for each."""
    count = 50
    with reigning.scene() as scene:
        of = reigning.led(scene, count)
        scene.stand_in.in_flight_max = 0
        of.brokers[0].session.close()
        for number in range(count):
            scene.led("t", 2, number)
        assert scene.stand_in.in_flight_max == count


def test_writes_after_a_refused_one_are_done() -> None:
    """Writes stay in the order of the decisions; a refused one is read and decided again."""
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


def test_a_name_that_is_deleted_and_made_again_while_a_broker_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It deletes the old topic before it hears of the new one, and misses nothing else."""
    monkeypatch.setattr(sender, "WAITING_MAX", 10)
    others = [f"other{number}" for number in range(20)]
    new = uuid.UUID(int=9)
    with reigning.scene() as scene:
        of = reigning.led(scene)
        behind = of.brokers[2]
        held = reigning.Held(reigning.OBEYED[LEADER_AND_ISR])
        behind.on(LEADER_AND_ISR, held, reigning.OBEYED[LEADER_AND_ISR])
        scene.topic(others[0], {0: (1, 2, 3)})
        assert held.came.wait(LIMIT_S)
        deleted = f"{tree.DELETE_TOPICS}/t"
        assert scene.session.commit([Create(deleted)]).done
        for name in others[1:]:
            scene.topic(name, {0: (1, 2, 3)})
            scene.led(name, 1)
        scene.settled(of.node)
        assert scene.session.read(deleted), "one broker has not deleted it yet"
        held.goes_on.set()
        wait_for(lambda: scene.session.read(deleted) is None, "the old topic is gone")
        scene.topic("t", {0: (3, 2)}, new)
        told = [(LEADER_AND_ISR.name, "t", new), *((LEADER_AND_ISR.name, name) for name in others)]
        wait_for(lambda: {*told} <= {*heard(behind)}, "it has heard of all topics")
        found = heard(behind)
        stopped = [at for at, one in enumerate(found) if one[:2] == (STOP_REPLICA.name, "t")]
        assert stopped and max(stopped) < found.index(told[0])
        assert len(behind.sent(LEADER_AND_ISR)) < len(others), "one request had many topics"


def heard(broker: reigning.Broker) -> list[tuple[Any, ...]]:
    """(request, topic); LeaderAndIsr about topic t also has the topic's id."""
    return [
        (name, one.topic_name, *([one.topic_id] if one.topic_name == "t" and leads else []))
        for name, _, request in list(broker.requests)
        if (leads := name == LEADER_AND_ISR.name) or name == STOP_REPLICA.name
        for one in request.topic_states
    ]


def test_an_unreadable_controller_epoch_is_logged_once(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can be elected; once it is repaired, this node is."""
    driver = Counted(stand_in)
    with open_session(stand_in.hosts, lambda _: None) as session:
        assert session.commit([Create(tree.CONTROLLER_EPOCH, b"x")]).done
        driver.start()
        try:
            for _ in range(3):
                assert driver.stood.acquire(timeout=LIMIT_S)
            assert session.commit([Set(tree.CONTROLLER_EPOCH, b"7")]).done
            wait_for(lambda: driver.is_active, "it is elected")
        finally:
            driver.stop()
    assert caplog.text.count("/controller_epoch: found 'x'") == 1


def test_a_caller_that_cannot_take_its_answer(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Others get theirs, from the same controller."""
    driver = Driver(stand_in.hosts, NODE, Options("PLAINTEXT", rebalances=False), USUAL)
    driver.start()
    try:
        wait_for(lambda: driver.is_active, "it is elected")
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        api = apis.LIST_PARTITION_REASSIGNMENTS
        request = api.decode_request(0, api.encode_request(0, {"timeout_ms": 0, "topics": None}))

        def fails(_: object) -> None:
            raise RuntimeError("as said")

        driver.ask(api, request, 0, fails)
        driver.ask(api, object(), 0, answers.put)
        driver.ask(api, request, 0, answers.put)
        assert isinstance(answers.get(timeout=LIMIT_S), AttributeError)
        assert answers.get(timeout=LIMIT_S)["error_code"] == 0
        assert driver._election._tried == 1, "it was elected once"
    finally:
        driver.stop()
    assert "as said" in caplog.text


def test_a_node_that_cannot_read_the_tree_gives_way_to_another(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the controller by name alone, and does not stand at once again."""
    one, other = Counted(stand_in), Driver(stand_in.hosts, 2, Options("PLAINTEXT"), USUAL)

    def refused(*_: str) -> Any:
        raise BadZnode("/config/users: as said")

    one._session.tree = refused  # type: ignore[method-assign]
    try:
        one.start()
        assert one.stood.acquire(timeout=LIMIT_S)
        other.start()
        wait_for(lambda: other.is_active, "the other one is elected")
        assert not one.is_active
    finally:
        one.stop()
        other.stop()
    assert caplog.text.count("as said") == 1
