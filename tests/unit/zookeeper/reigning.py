"""Nodes that may be the controller, over a stand-in for ZooKeeper, and brokers on real sockets.

Driver, session, election and senders are the real ones.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from kafkalog.controller.events import Options
from kafkalog.testing.standin import StandIn, changed
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.driver import Driver
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.registering import register
from kafkalog.zookeeper.session import USUAL, Create, Session, Set, open_session
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S, wait_for

LISTENER = "PLAINTEXT"
OBEYED: Mapping[Any, Mapping[str, Any]] = {
    LEADER_AND_ISR: {"error_code": 0, "topics": []},
    UPDATE_METADATA: {"error_code": 0},
    STOP_REPLICA: {"error_code": 0, "partition_errors": []},
}


class Held:
    """An answer of a peer that is held back until `goes_on` is set."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self.came, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> Mapping[str, Any]:
        self.came.set()
        assert self.goes_on.wait(LIMIT_S)
        return self._body


class Broker(Peer):
    """A registered broker that obeys every controller."""

    def __init__(self, stand_in: StandIn, number: int) -> None:
        super().__init__()
        for api, body in OBEYED.items():
            self.on(api, body)
        self.number = number
        self.session = open_session(stand_in.hosts, lambda _: None)
        endpoint = tree.Endpoint(LISTENER, "127.0.0.1", self.port, LISTENER)
        self.epoch = register(self.session, number, [endpoint], None, 0)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()
        super().__exit__()

    def led(self, topic: str) -> list[tuple[int, int, int]]:
        """For each LeaderAndIsr about partition 0 of a topic: controller epoch, leader, leader
        epoch."""
        return [
            (request.controller_epoch, row.leader, row.leader_epoch)
            for request in list(self.sent(LEADER_AND_ISR))
            for one in request.topic_states if one.topic_name == topic
            for row in one.partition_states if row.partition_index == 0
        ]  # fmt: skip


class Scene:
    """One tree, and the nodes that use it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.stand_in = stack.enter_context(StandIn())
        self.session: Session = open_session(self.stand_in.hosts, lambda _: None)
        """A session of none of the nodes."""
        stack.callback(self.session.close)
        self.session.ensure(tree.PERSISTENT)

    def node(self, number: int, begin: bool = True) -> Driver:
        """A node that stands for election and is no broker; `begin` False: the test starts it
        itself."""
        made = Driver(self.stand_in.hosts, number, Options(LISTENER, rebalances=False), USUAL)
        self._stack.callback(made.stop)
        if begin:
            made.start()
        return made

    def broker(self, number: int) -> Broker:
        return self._stack.enter_context(Broker(self.stand_in, number))

    def topic(
        self, name: str, replicas: Mapping[int, tuple[int, ...]], topic_id: uuid.UUID | None = None
    ) -> None:
        """Write a topic into the tree; by default its id follows from its name."""
        topic_id = topic_id or uuid.uuid5(uuid.NAMESPACE_DNS, name)
        node = tree.TopicNode(topic_id, replicas, {}, {})
        assert self.session.commit([Create(tree.topic_path(name), tree.write_topic(node))]).done

    # ---- the state -------------------------------------------------------------------------------

    def reigns(self, node: Driver, epoch: int) -> None:
        """Wait until the node is the controller of that epoch, by its own state and by the tree."""

        def so() -> bool:
            active = node._controller.active
            return active is not None and active.context.claim.epoch == epoch

        wait_for(so, f"the controller of epoch {epoch}")
        assert self.epoch == epoch
        found = self.session.read(tree.CONTROLLER)
        assert found is not None and found.owner == session_of(node)

    def settled(self, node: Driver) -> None:
        """Wait until a node has handled all earlier requests."""
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        ask(node, apis.LIST_PARTITION_REASSIGNMENTS, answers.put, timeout_ms=0, topics=None)
        answers.get(timeout=LIMIT_S)

    @property
    def epoch(self) -> int:
        """The controller epoch in the tree."""
        found = self.session.read(tree.CONTROLLER_EPOCH)
        return 0 if found is None else tree.read_epoch(found.data)

    def znode(self, topic: str, partition: int = 0) -> Znode:
        """The znode of a partition's state, once it exists."""
        path = tree.partition_path(topic, partition)
        found = wait_for(lambda: self.session.read(path), f"{path} is written")
        assert isinstance(found, Znode)
        return found

    def state(self, topic: str, partition: int = 0) -> tree.PartitionState:
        """A partition's state, once it has one."""
        return tree.read_partition(topic, partition, self.znode(topic, partition).data)

    def led(self, topic: str, leader: int, partition: int = 0) -> tree.PartitionState:
        """A partition's state, once it has that leader."""
        wait_for(lambda: self.state(topic, partition).leader == leader, f"{leader} leads {topic}")
        return self.state(topic, partition)

    def meddles(self, topic: str, state: tree.PartitionState, partition: int = 0) -> None:
        """Write a partition's state as another process would."""
        change = Set(tree.partition_path(topic, partition), tree.write_partition(state))
        assert self.session.commit([change]).done

    def before(self, path: str, happens: Callable[[Callable[[], Any]], None]) -> None:
        """Call `happens` once, before the next commit that changes this path; it gets a function
        that does the commit."""
        left = [happens]

        def meet(operations: Any, commit: Callable[[], Any]) -> Any:
            if left and path in changed(operations):
                left.pop()(commit)
            return commit()

        self.stand_in.on_the_way = meet


class Led(NamedTuple):
    """A controller and three brokers; the first one leads topic t."""

    node: Driver
    brokers: Sequence[Broker]


def led(scene: Scene, partitions: int = 1) -> Led:
    """Create topic t with that number of partitions, and wait until nothing is left to do."""
    brokers = [scene.broker(number) for number in (1, 2, 3)]
    node = scene.node(11)
    scene.reigns(node, 1)
    scene.topic("t", dict.fromkeys(range(partitions), (1, 2, 3)))
    for number in range(partitions):
        scene.led("t", 1, number)
    scene.settled(node)
    return Led(node, brokers)


def session_of(node: Driver) -> int:
    """The id of a node's session."""
    return node._session.id


def ask(
    node: Driver, api: Api, answer: Callable[[Any], None], version: int = -1, **fields: Any
) -> None:
    """Send a request through the wire format; by default of the last version."""
    version = api.max_version if version < 0 else version
    request = api.decode_request(version, api.encode_request(version, fields))
    node.ask(api, request, version, answer)


def ask_for_ids(node: Driver, broker: Broker, answer: Callable[[Any], None]) -> None:
    """Ask for a block of producer ids, as a broker does."""
    ask(node, apis.ALLOCATE_PRODUCER_IDS, answer, broker_id=broker.number,
        broker_epoch=broker.epoch)  # fmt: skip


@contextmanager
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)
