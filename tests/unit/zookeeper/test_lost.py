"""The losses of a controller at each step, with its real driver, session, election and senders:
docs/replication.md has the table."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.zookeeper import driver, tree
from kafkalog.zookeeper.registering import patiently, register
from kafkalog.zookeeper.session import Committed, Create, Seen, Set, open_session
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.zookeeper import reigning
from tests.unit.zookeeper.reigning import Scene, ask, ask_for_ids, led, session_of

DONE = pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
T = tree.partition_path("t", 0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(driver, "RETRY_S", 0.01)
    with reigning.scene() as made:
        yield made


# ---- the controller's znode, and its epoch -------------------------------------------------------


@DONE
def test_the_answer_about_the_controllers_place_is_lost(scene: Scene, done: bool) -> None:
    """The znode's owner shows whether it is ours; one write creates it and raises the epoch."""
    scene.stand_in.lose(tree.CONTROLLER, done)
    node = scene.node(1)
    scene.reigns(node, 1)


@DONE
def test_the_answer_about_the_first_epoch_is_lost(scene: Scene, done: bool) -> None:
    """/controller_epoch is created before the first election."""
    scene.stand_in.lose(tree.CONTROLLER_EPOCH, done)
    scene.reigns(scene.node(1), 1)


@DONE
def test_another_is_elected_while_the_answer_is_lost(scene: Scene, done: bool) -> None:
    """The first candidate's session ends before it could look at the znode."""
    node, others = scene.node(1, begin=False), []

    def lost(commit: Callable[[], Any]) -> None:
        if done:
            assert commit().done
        scene.stand_in.expire(session_of(node))
        others.append(scene.node(2))
        scene.reigns(others[0], 2 if done else 1)
        raise errors.ZooKeeperAway("as said")

    scene.before(tree.CONTROLLER, lost)
    node.start()
    wait_for(lambda: others, "another is elected")
    scene.reigns(others[0], 2 if done else 1)
    scene.settled(node)
    assert not node.is_active
    others[0].stop()
    scene.reigns(node, 3 if done else 2)


def test_an_earlier_life_of_the_node_is_another(scene: Scene) -> None:
    """It has the same number; the znode belongs to its old session, which has not expired yet."""
    with open_session(scene.stand_in.hosts, lambda _: None) as before:
        before.commit([Create(tree.CONTROLLER_EPOCH, tree.write_epoch(4))])
        place = tree.write_controller(tree.ControllerNode(1, 0))
        assert before.commit([Create(tree.CONTROLLER, place, ephemeral=True)]).done
        node = scene.node(1)
        scene.settled(node)
        assert not node.is_active and scene.epoch == 4
    scene.reigns(node, 5)


def test_a_session_that_ends_ends_the_reign(scene: Scene) -> None:
    node = scene.node(1)
    scene.reigns(node, 1)
    scene.stand_in.expire(session_of(node))
    scene.reigns(node, 2)


@DONE
def test_a_place_of_an_epoch_that_is_over_is_given_up(scene: Scene, done: bool) -> None:
    """Somebody wrote another epoch: the controller is refused and deletes its znode, whatever the
    outcome; otherwise there would be no controller as long as its session lives."""
    broker = scene.broker(7)
    node = scene.node(1)
    scene.reigns(node, 1)
    scene.settled(node)
    scene.stand_in.lose(tree.CONTROLLER, done)
    epoch = tree.write_epoch(5)
    assert scene.session.commit([Set(tree.CONTROLLER_EPOCH, epoch)]).done
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ask_for_ids(node, broker, answers.put)
    assert answers.get(timeout=LIMIT_S) is None
    scene.reigns(node, 6)


@pytest.mark.parametrize("path", [tree.CONTROLLER_EPOCH, tree.CONTROLLER])
@pytest.mark.parametrize(
    ("why", "waits"), [("NoNode", True), ("NoAuth", True), ("NodeExists", False)]
)
def test_a_refused_candidate_waits(
    scene: Scene, caplog: pytest.LogCaptureFixture, path: str, why: str, waits: bool
) -> None:
    """It logs the reason and stands again after a pause, in which it can be stopped. If another
    node was quicker, it just looks again."""
    left = 3

    def refuses(operations: Any, commit: Callable[[], Any]) -> Any:
        nonlocal left
        if left and operations[0].path == path:
            left -= 1
            return Committed(False, 0, why)
        return commit()

    scene.stand_in.on_the_way = refuses
    scene.reigns(scene.node(1), 1)
    said = f"{path}: ZooKeeper refused a controller's election: {why}"
    assert caplog.text.count(said) == (1 if waits else 0) and left == 0


def test_a_place_is_given_up_only_while_it_is_ours(scene: Scene) -> None:
    """Another is elected between the read and the write."""
    node = scene.node(1)
    scene.reigns(node, 1)
    scene.settled(node)
    assert scene.session.commit([Set(tree.CONTROLLER_EPOCH, tree.write_epoch(5))]).done
    others: list[driver.Driver] = []

    def elected(_: object) -> None:
        scene.stand_in.expire(session_of(node))
        others.append(scene.node(2))
        scene.reigns(others[0], 6)

    scene.before(tree.CONTROLLER, elected)
    node._events.put(Seen(tree.CONTROLLER, False))  # as if somebody had changed it
    wait_for(lambda: others, "another is elected")
    scene.settled(node)
    scene.reigns(others[0], 6)
    assert not node.is_active


# ---- what is written -----------------------------------------------------------------------------


def path_of(partition: int) -> str:
    return tree.partition_path("t", partition)


@DONE
def test_the_answer_about_a_leader_is_lost(scene: Scene, done: bool) -> None:
    """Nothing is sent after the loss: the tree is read again, and has the leader, in one epoch."""
    of = led(scene)
    scene.stand_in.lose(T, done)
    of.brokers[0].session.close()
    state = tree.PartitionState(2, 1, (2, 3), 1)
    assert scene.led("t", 2) == state
    wait_for(lambda: (1, 2, 1) in of.brokers[1].led("t"), "it is asked to lead")
    scene.settled(of.node)
    assert scene.state("t") == state
    assert {*of.brokers[1].led("t")} <= {(1, 1, 0), (1, 2, 1)}
    scene.reigns(of.node, 1)


@DONE
def test_the_answer_about_one_of_many_is_lost(scene: Scene, done: bool) -> None:
    """Earlier writes stay; later ones are made again once the tree was read."""
    of = led(scene, 3)
    scene.stand_in.lose(path_of(1), done)
    of.brokers[0].session.close()
    for number in range(3):
        assert scene.led("t", 2, number) == tree.PartitionState(2, 1, (2, 3), 1)


@DONE
def test_the_answer_about_producer_ids_is_lost(scene: Scene, done: bool) -> None:
    """The caller gets NOT_CONTROLLER and retries; nobody gets the block that was written."""
    of = led(scene)
    scene.stand_in.lose(tree.PRODUCER_IDS, done)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ask_for_ids(of.node, of.brokers[0], answers.put)
    assert answers.get(timeout=LIMIT_S) is None
    scene.reigns(of.node, 1)
    for first in (1000, 2000) if done else (0, 1000):
        ask_for_ids(of.node, of.brokers[0], answers.put)
        assert answers.get(timeout=LIMIT_S)["producer_id_start"] == first


@DONE
def test_the_answer_about_an_isr_is_lost(scene: Scene, done: bool) -> None:
    """The leader gets NOT_CONTROLLER, sends the same request again, and gets the new ISR."""
    of = led(scene)
    scene.stand_in.lose(T, done)
    row = {
        "partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, "leader_recovery_state": 0,
        "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": -1} for n in (1, 2)],
    }  # fmt: skip
    topics = [{"topic_id": uuid.uuid5(uuid.NAMESPACE_DNS, "t"), "partitions": [row]}]
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    heard = []
    for _ in range(2):
        ask(of.node, ALTER_PARTITION, answers.put, broker_id=1, topics=topics,
            broker_epoch=of.brokers[0].epoch)  # fmt: skip
        heard.append(answers.get(timeout=LIMIT_S))
        scene.reigns(of.node, 1)
    assert heard[0] is None
    (topic,) = heard[1]["topics"]
    (found,) = topic["partitions"]
    assert (found["error_code"], found["isr"], found["partition_epoch"]) == (0, [1, 2], 1)
    assert scene.state("t") == tree.PartitionState(1, 0, (1, 2), 1)


@DONE
def test_the_answer_about_a_new_topic_is_lost(scene: Scene, done: bool) -> None:
    """The caller gets NOT_CONTROLLER; a second request shows whether the topic exists."""
    of = led(scene)
    scene.stand_in.lose(tree.topic_path("new"), done)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    row = {"name": "new", "num_partitions": 1, "replication_factor": 3}
    ask(of.node, apis.CREATE_TOPICS, answers.put, topics=[row], timeout_ms=0)
    assert answers.get(timeout=LIMIT_S) is None
    scene.reigns(of.node, 1)
    ask(of.node, apis.CREATE_TOPICS, answers.put, topics=[row], timeout_ms=0)
    (found,) = answers.get(timeout=LIMIT_S)["topics"]
    wanted = ErrorCode.TOPIC_ALREADY_EXISTS if done else ErrorCode.NONE
    assert found["error_code"] == wanted
    assert scene.state("new").isr


@DONE
@pytest.mark.parametrize("path", [T, tree.topic_path("t"), f"{tree.DELETE_TOPICS}/t"])
def test_the_answer_about_a_removal_is_lost(scene: Scene, path: str, done: bool) -> None:
    """A half-deleted topic is deleted, and the next one of its name is another topic."""
    led(scene)
    wanted = f"{tree.DELETE_TOPICS}/t"
    scene.stand_in.lose(path, done, after=int(path == wanted))
    assert scene.session.commit([Create(wanted)]).done
    wait_for(lambda: not scene.session.children(tree.DELETE_TOPICS), "the topic is gone")
    assert scene.session.read(tree.topic_path("t")) is None
    scene.topic("t", {0: (2,)})
    assert scene.led("t", 2) == tree.PartitionState(2, 0, (2,), 1)


# ---- a session ends between a decision and its write ---------------------------------------------


def test_a_session_ends_before_a_write(scene: Scene) -> None:
    """Nobody else was elected: it is written, and the next reign continues from there."""
    of = led(scene)
    scene.before(T, lambda _: scene.stand_in.expire(session_of(of.node)))
    of.brokers[0].session.close()
    scene.reigns(of.node, 2)
    assert scene.led("t", 2) == tree.PartitionState(2, 1, (2, 3), 1)
    wait_for(lambda: (2, 2, 1) in of.brokers[1].led("t"), "the next reign sends it")


def elect_another(scene: Scene, node: driver.Driver) -> driver.Driver:
    """End the controller's session, which it does not notice yet, and elect another node."""
    scene.stand_in.expire(session_of(node))
    other = scene.node(12)
    scene.reigns(other, 2)
    return other


def test_a_deposed_controllers_write_is_refused(scene: Scene) -> None:
    """Another was elected and decided before the write: the controller epoch has changed."""
    of, others = led(scene), []

    def deposed(_: object) -> None:
        others.append(elect_another(scene, of.node))
        assert scene.led("t", 2) == tree.PartitionState(2, 1, (2, 3), 2)

    scene.before(T, deposed)
    of.brokers[0].session.close()
    wait_for(lambda: others and not of.node.is_active, "it resigns")
    scene.settled(of.node)
    assert scene.state("t") == tree.PartitionState(2, 1, (2, 3), 2)
    assert scene.znode("t").version == 1
    wait_for(lambda: (2, 2, 1) in of.brokers[1].led("t"), "the other one sends it")
    assert (1, 2, 1) not in of.brokers[1].led("t")
    scene.reigns(others[0], 2)


def test_a_deposed_controller_says_so(scene: Scene) -> None:
    """Its block of producer ids is not written; the next controller gives the first block."""
    of, others = led(scene), []
    scene.before(tree.PRODUCER_IDS, lambda _: others.append(elect_another(scene, of.node)))
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ask_for_ids(of.node, of.brokers[0], answers.put)
    assert answers.get(timeout=LIMIT_S) is None
    ask_for_ids(others[0], of.brokers[0], answers.put)
    assert answers.get(timeout=LIMIT_S)["producer_id_start"] == 0


def test_a_controller_is_deposed_amid_its_writes(scene: Scene) -> None:
    """Its earlier writes stay, and the next controller sends them; its later ones are refused."""
    of, others = led(scene, 3), []
    scene.before(path_of(1), lambda _: others.append(elect_another(scene, of.node)))
    of.brokers[0].session.close()
    states = [scene.led("t", 2, number) for number in range(3)]
    assert [one.controller_epoch for one in states] == [1, 2, 2]
    assert {one.leader_epoch for one in states} == {1}
    wait_for(lambda: (2, 2, 1) in of.brokers[1].led("t"), "the next reign sends it")
    assert (1, 2, 1) not in of.brokers[1].led("t")


def test_a_deposed_controllers_request_is_refused(scene: Scene) -> None:
    """It was in flight when another was elected, and arrives after that one's first request."""
    with obeying(scene, 7) as (member, obey):
        node = scene.node(11)
        scene.reigns(node, 1)
        wait_for(lambda: member.controller == 11, "it is obeyed")
        scene.settled(node)
        obey.on_its_way = 1
        asks = scene.broker(8)
        wait_for(obey.held.is_set, "its next request has come")
        seen: list[Any] = []

        def deposed(_: object) -> None:
            elect_another(scene, node)
            wait_for(lambda: (member.controller, member.image.epoch) == (12, 2), "the other's")
            obey.goes_on.set()
            seen.append((node.is_active, obey.answers.get(timeout=LIMIT_S)))

        scene.before(tree.PRODUCER_IDS, deposed)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        ask_for_ids(node, asks, answers.put)
        assert answers.get(timeout=LIMIT_S) is None
        assert seen == [(True, (1, ErrorCode.STALE_CONTROLLER_EPOCH))]
        assert (member.controller, member.image.epoch) == (12, 2)


class Obey:
    """A broker's membership behind real senders; requests of one epoch are held in flight."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.on_its_way = -1
        self.held, self.goes_on = threading.Event(), threading.Event()
        self.answers: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        """The answers to requests that were held."""

    def __call__(self, api: Api, request: Any, _: int) -> Any:
        waits = request.controller_epoch == self.on_its_way
        if waits:
            self.held.set()
            assert self.goes_on.wait(LIMIT_S)
        answer = self.member.obey(api, request)
        if waits:
            self.answers.put((request.controller_epoch, answer["error_code"]))
        return answer


@contextmanager
def obeying(scene: Scene, number: int) -> Iterator[tuple[Member, Obey]]:
    member = Member(scene.stand_in.hosts, number, reigning.LISTENER, BrokerConfig())
    obey = Obey(member)
    try:
        with Peer() as peer:
            for api in reigning.OBEYED:
                peer.on(api, partial(obey, api))
            member.register([(reigning.LISTENER, "127.0.0.1", peer.port, 0)])
            yield member, obey
    finally:
        obey.goes_on.set()
        member.close()


# ---- a broker's registration ---------------------------------------------------------------------

PLACE = [tree.Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]


@DONE
def test_the_answer_about_a_registration_is_lost(scene: Scene, done: bool) -> None:
    """The znode's owner shows whether it is this broker's; its epoch is that of its one write."""
    path = tree.broker_path(7)
    scene.stand_in.lose(path, done)
    with open_session(scene.stand_in.hosts, lambda _: None) as session:
        epoch = patiently(lambda: register(session, 7, PLACE, None, 0), LIMIT_S)
        found = session.read(path)
        assert found is not None and (found.owner, found.created) == (session.id, epoch)


@pytest.mark.parametrize("another", [False, True])
def test_the_session_ends_over_a_registration(scene: Scene, another: bool) -> None:
    """The registration is gone with the session, and is made again. `another`: a broker of the
    same number registers first. Nobody else gets its epoch."""
    path = tree.broker_path(7)
    with (
        open_session(scene.stand_in.hosts, lambda _: None) as session,
        open_session(scene.stand_in.hosts, lambda _: None) as other,
    ):

        def ends(commit: Callable[[], Any]) -> Any:
            scene.stand_in.on_the_way = lambda _, commit: commit()
            outcome = commit()
            scene.stand_in.expire(session.id)
            if another:
                register(other, 7, PLACE, None, 0)
            return outcome

        scene.stand_in.on_the_way = lambda _, commit: ends(commit)
        if another:
            with pytest.raises(errors.DuplicateBrokerRegistration, match="broker 7 is registered"):
                register(session, 7, PLACE, None, 0)
            return
        epoch = register(session, 7, PLACE, None, LIMIT_S)
        found = session.read(path)
        assert found is not None and (found.owner, found.created) == (session.id, epoch)


def test_a_registration_that_is_refused_says_why() -> None:
    """The parent znode does not exist."""
    with (
        StandIn() as empty,
        open_session(empty.hosts, lambda _: None) as session,
        pytest.raises(errors.ZooKeeperAway, match="/brokers/ids/7 is not made: NoNode"),
    ):
        register(session, 7, PLACE, None, 0)
