"""A controller with a tree instead of ZooKeeper, and no brokers on the network."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kafkalog.controller.context import Claim
from kafkalog.controller.events import (
    BrokerResponse,
    ClientRequest,
    Elected,
    Options,
    Reply,
    Resign,
    Send,
    StoreResult,
    Timer,
)
from kafkalog.wire.api import Api
from kafkalog.wire.tables.controller import STOP_REPLICA
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.events import Commit, Event, Read, ReadZnodes, Seen
from kafkalog.zookeeper.loading import Znode, load
from kafkalog.zookeeper.session import Check, Committed, Create, Delete, Operation, Set
from kafkalog.zookeeper.watches import controller

US = 1
EVENTS_MAX = 5_000
"""Events after which a controller must have nothing left to do."""
T_ID = uuid.uuid5(uuid.NAMESPACE_DNS, "t")


class Driven:
    """Carries out each effect immediately; requests are kept until the test answers them."""

    def __init__(self, options: Options | None = None) -> None:
        self.znodes = {tree.CONTROLLER_EPOCH: Znode(tree.write_epoch(1), 0)}
        self.watches: set[tuple[str, bool]] = set()
        self.transaction = 100
        for path in (*tree.PERSISTENT, "/config/changes"):
            self.make(path)
        self.controller = controller(options or Options("PLAINTEXT"))
        self.events: deque[Event] = deque()
        self.sent: list[Send] = []
        self.replies: dict[Any, Any] = {}
        self.timers: list[Timer] = []
        self.resigned = False
        self.before: Callable[[Commit], None] = lambda _: None
        """Called before each write."""

    # ---- the tree ----------------------------------------------------------------------------

    def make(self, path: str, data: bytes = b"") -> None:
        """Create a znode and its parents."""
        parent = path.rpartition("/")[0]
        if parent and parent not in self.znodes:
            self.make(parent)
        if path not in self.znodes:
            assert self.commit([Create(path, data)]).done

    def commit(self, operations: Sequence[Operation]) -> Committed:
        """Commit as ZooKeeper does, all or nothing, and fire the watches."""
        done, fired = dict(self.znodes), list[tuple[str, bool]]()
        for at, one in enumerate(operations):
            found, parent = done.get(one.path), one.path.rpartition("/")[0]
            if isinstance(one, Create):
                if found or (parent and parent not in done):
                    return Committed(False, at, "NodeExists" if found else "NoNode")
                self.transaction += 1
                path = f"{one.path}{self.transaction:010}" if one.sequence else one.path
                done[path] = Znode(one.data, 0, self.transaction, 0, self.transaction)
                fired += [(path, False), (parent, True)]
                continue
            if found is None:
                return Committed(False, at, "NoNode")
            if one.version not in (-1, found.version):
                return Committed(False, at, "BadVersion")
            if isinstance(one, Delete):
                if any(path.startswith(f"{one.path}/") for path in done):
                    return Committed(False, at, "NotEmpty")
                del done[one.path]
                fired += [(one.path, False), (parent, True)]
            elif isinstance(one, Set):
                done[one.path] = found._replace(
                    data=one.data, version=found.version + 1, changed=self.transaction
                )
                fired.append((one.path, False))
            else:
                assert isinstance(one, Check)
        self.znodes = done
        for watch in fired:
            if watch in self.watches:
                self.watches.discard(watch)
                self.events.append(Seen(*watch))
        return Committed(True)

    def _read(self, one: Read) -> Znode | list[str] | None:
        if one.children:
            if one.path not in self.znodes:
                return None
            found = sorted(
                path.rpartition("/")[2] for path in self.znodes
                if path.rpartition("/")[0] == one.path
            )  # fmt: skip
        if one.watch:
            self.watches.add((one.path, one.children))
        return found if one.children else self.znodes.get(one.path)

    def register(self, *brokers: int) -> None:
        """Register brokers, each as newly started."""
        for number in brokers:
            endpoint = tree.Endpoint("PLAINTEXT", f"host{number}", 9092, "PLAINTEXT")
            data = tree.write_broker(tree.BrokerNode((endpoint,), None, 0, {}))
            self.die(number)
            assert self.commit([Create(tree.broker_path(number), data)]).done
        self.run()

    def die(self, *brokers: int) -> None:
        """End brokers' sessions; the controller does not handle that yet."""
        for number in brokers:
            if tree.broker_path(number) in self.znodes:
                assert self.commit([Delete(tree.broker_path(number))]).done

    # ---- the controller ------------------------------------------------------------------------

    def elect(self) -> None:
        """Make it the controller."""
        znode = self.znodes[tree.CONTROLLER_EPOCH]
        epoch = tree.read_epoch(znode.data) + 1
        done = self.commit([Set(tree.CONTROLLER_EPOCH, tree.write_epoch(epoch), znode.version)])
        assert done.done
        claim = Claim(US, epoch, znode.version + 1)
        self.events.append(Elected(claim, load(self.znodes, US)))
        self.run()

    def ask(self, token: str, api: Api, version: int, **fields: Any) -> Any:
        """Send a request through the wire format; returns the answer, if there is one by now."""
        request = api.decode_request(version, api.encode_request(version, fields))
        self.events.append(ClientRequest(token, api, request, version))
        self.run()
        body = self.replies.get(token)
        if body is None:
            return None
        return api.decode_response(version, api.encode_response(version, body))

    def answer(self, wanted: Callable[[Send], bool], **fields: Any) -> None:
        """Answer the requests that `wanted` selects."""
        sent, self.sent = self.sent, []
        for one in sent:
            if wanted(one):
                version = one.api.versions.stop - 1
                data = one.api.encode_response(version, {"error_code": 0, **fields})
                response = one.api.decode_response(version, data)
                self.events.append(BrokerResponse(one, response))
            else:
                self.sent.append(one)
        self.run()

    def send(self, send: Send) -> None:
        """Keep a request, which every version can encode."""
        for version in send.api.versions:
            send.api.encode_request(version, send.body)
        self.sent.append(send)

    def run(self) -> None:
        """Handle events until none is left."""
        for _ in range(EVENTS_MAX):
            if not self.events:
                return
            for effect in self.controller.handle(self.events.popleft(), 0):
                if isinstance(effect, Commit):
                    self.before(effect)
                    found = [self.commit(each) for each in effect.multis]
                    self.events.append(StoreResult(effect.number, found))
                elif isinstance(effect, ReadZnodes):
                    self.events.append(
                        StoreResult(effect.number, [self._read(each) for each in effect.reads])
                    )
                elif isinstance(effect, Send):
                    self.send(effect)
                elif isinstance(effect, Reply):
                    assert effect.token not in self.replies
                    self.replies[effect.token] = effect.body
                elif isinstance(effect, Timer):
                    self.timers.append(effect)
                else:
                    assert isinstance(effect, Resign)
                    self.resigned = True
        raise AssertionError(f"not done after {EVENTS_MAX} events")

    def state(self, topic: str, partition: int) -> tuple[int, int, tuple[int, ...]] | None:
        """A partition's leader, leader epoch and ISR, which tree and controller agree on."""
        znode = self.znodes.get(tree.partition_path(topic, partition))
        if znode is None:
            return None
        found = tree.read_partition(topic, partition, znode.data)
        active = self.controller.active
        if active is not None:
            one = active.context.partitions[topic, partition]
            assert one.partition_epoch == znode.version
            assert (one.leader, one.leader_epoch, one.isr) == found[:3]
        return found[:3]


def topic(of: Driven, replicas: dict[int, tuple[int, ...]], name: str = "t") -> None:
    """Write a topic into the tree, or add partitions to it."""
    node = tree.TopicNode(uuid.uuid5(uuid.NAMESPACE_DNS, name), replicas, {}, {})
    path, data = tree.topic_path(name), tree.write_topic(node)
    change = Set(path, data) if path in of.znodes else Create(path, data)
    assert of.commit([change]).done
    of.run()


def kinds(of: Driven) -> list[tuple[int, str]]:
    """The broker and the kind of each request that was sent."""
    return [(one.broker, one.api.name) for one in of.sent]


def stops(broker: int, send: Send) -> bool:
    """True if a request is StopReplica to this broker."""
    return send.broker == broker and send.api is STOP_REPLICA


def broker_epoch(of: Driven, broker: int) -> int:
    """The epoch of a broker's registration."""
    return of.znodes[tree.broker_path(broker)].created
