"""Drives the controller of a node: its events come from the virtual ZooKeeper and network, its
effects go there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafkalog.controller.context import Claim
from kafkalog.controller.events import (
    BrokerResponse,
    ClientRequest,
    Deposed,
    Elected,
    Options,
    Reply,
    Resign,
    Send,
    StoreResult,
    Tick,
    Timer,
)
from kafkalog.simulate.around import Around
from kafkalog.simulate.world import Violated
from kafkalog.testing.zookeeper import Tree
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.events import Commit, Read, ReadZnodes, Seen
from kafkalog.zookeeper.loading import load
from kafkalog.zookeeper.session import Create, Set
from kafkalog.zookeeper.watches import controller

__all__ = ["LISTENER", "SimulatedController"]

LISTENER = "PLAINTEXT"
ELECT_AGAIN_MS, SEND_AGAIN_MS = 100.0, 50.0


class SimulatedController:
    """Election and actions of the controller on a node."""

    def __init__(self, node: Around) -> None:
        self._node = node
        self._core = controller(Options(LISTENER, check_ms=int(node.setup.balance_ms)))
        self._waiting: dict[int, deque[Send]] = {}
        self._sending: set[int] = set()
        self._connected = 0
        """Different for each connection to ZooKeeper: requests on an earlier one are void."""
        self._reading = False
        """The tree is about to be read, or was: once per claim, before anything is written."""

    @property
    def is_active(self) -> bool:
        """True if the node is the controller, as far as it knows."""
        return self._core.is_active

    # ---- elections --------------------------------------------------------------------------

    def away(self) -> None:
        """Nothing is known of the tree any more."""
        self._connected += 1
        self._reading = False
        self._handle(Deposed())
        self._waiting.clear()

    def stand(self) -> None:
        """With a session and a registration: become the controller if there is none."""
        connected = self._connected

        def read(there: Tree, session: int) -> tuple[Any, Any]:
            return there.read(tree.CONTROLLER, session), there.read(tree.CONTROLLER_EPOCH)

        self._node.link.ask(read, lambda found: self._stood(connected, *found), self._lost)

    def _stood(self, connected: int, holder: Any, epoch: Any) -> None:
        if connected != self._connected or self._reading:
            return
        if holder is None:
            self._claim(epoch)
        elif holder.owner == self._node.link.session:
            number = tree.read_epoch(epoch.data)
            self._read_all(Claim(self._node.number, number, epoch.version))

    def _claim(self, epoch: Any) -> None:
        number = tree.read_epoch(epoch.data) + 1
        node = tree.ControllerNode(self._node.number, 0)
        claim = [
            Create(tree.CONTROLLER, tree.write_controller(node), ephemeral=True),
            Set(tree.CONTROLLER_EPOCH, tree.write_epoch(number), epoch.version),
        ]
        connected = self._connected

        def claimed(outcome: Any) -> None:
            if connected == self._connected and outcome.done:
                self._node.note(f"node {self._node.number} is the controller, epoch {number}")
                self._node.checks.elected(self._node.number, number)
                self._read_all(Claim(self._node.number, number, epoch.version + 1))
            elif connected == self._connected:
                self._node.after(ELECT_AGAIN_MS, self.stand)

        self._node.link.ask(partial(_commit, claim), claimed, self._lost)

    def _read_all(self, claim: Claim) -> None:
        connected = self._connected
        if self._reading:
            return
        self._reading = True
        claim = claim._replace(unclean=self._node.setup.unclean)

        def read(znodes: Any) -> None:
            if connected == self._connected:
                self._waiting.clear()
                self._handle(Elected(claim, load(znodes, self._node.number)))

        self._node.link.ask(lambda there, _: there.all(), read, self._lost)

    def _lost(self) -> None:
        """Nothing to do: the link reports that it is away, and then that it is back."""

    # ---- events -----------------------------------------------------------------------------

    def seen(self, seen: Seen) -> None:
        """A watch fired."""
        if seen.path == tree.CONTROLLER:
            if self.is_active:
                self.away()
            self._node.after(1.0, self.stand)
        else:
            self._handle(seen)

    def request(self, api: Any, data: bytes, version: int, reply: Callable[[Any], None]) -> None:
        """A node asks; `reply` gets the answer's bytes, None if another node is the controller."""

        def told(body: Any) -> None:
            reply(None if body is None else api.encode_response(version, body))

        self._handle(ClientRequest(told, api, api.decode_request(version, data), version))

    def _handle(self, event: Any) -> None:
        for effect in self._core.handle(event, int(self._node.now_ms())):
            self._do(effect)
        if self._core.problems:
            raise Violated(f"decides: {self._core.problems}")

    # ---- effects ----------------------------------------------------------------------------

    def _do(self, effect: Any) -> None:
        node = self._node
        if isinstance(effect, Commit):
            rules = node.rules
            deeds = [partial(_commit, rules.operations(multi)) for multi in effect.multis]
            self._gather(effect.number, deeds, 0)
        elif isinstance(effect, ReadZnodes):
            self._gather(effect.number, [partial(_read, read) for read in effect.reads], 0)
        elif isinstance(effect, Send):
            self._waiting.setdefault(effect.broker, deque()).append(effect)
            self._send(effect.broker)
        elif isinstance(effect, Reply):
            effect.token(effect.body)
        elif isinstance(effect, Timer):
            connected, tick = self._connected, Tick(effect.clock)
            wait_ms = effect.at_ms - node.now_ms()
            node.after(
                wait_ms, lambda: self._handle(tick) if connected == self._connected else None
            )
        elif isinstance(effect, Resign):
            node.note(f"node {node.number} resigns")
            self.away()
            self.stand()

    def _gather(self, number: int, deeds: Sequence[Any], _: int) -> None:
        """Ask for all at once, on one connection; the outcomes come in the same order."""
        results: list[Any] = []
        connected = self._connected

        def done(found: Any) -> None:
            results.append(found)
            if len(results) == len(deeds) and connected == self._connected:
                self._handle(StoreResult(number, results))

        for deed in deeds:
            self._node.link.ask(deed, done, self._lost)

    def _send(self, broker: int) -> None:
        """Send a broker the next waiting request: one after another, each retried if it failed."""
        active, waiting = self._core.active, self._waiting.get(broker)
        if broker in self._sending or not waiting or active is None:
            return
        send = waiting[0]
        known = active.context.brokers.get(broker)
        if known is None or known.epoch != send.body["broker_epoch"]:
            waiting.popleft()
            self._send(broker)
            return
        version = send.api.max_version
        body = self._node.rules.controls(send.api, send.body)
        data = send.api.encode_request(version, body)
        self._sending.add(broker)

        def answered(data: bytes) -> None:
            self._sending.discard(broker)
            if self._waiting.get(broker) and self._waiting[broker][0] is send:
                self._waiting[broker].popleft()
                self._handle(BrokerResponse(send, send.api.decode_response(version, data)))
            self._send(broker)

        def failed() -> None:
            self._sending.discard(broker)
            self._node.after(SEND_AGAIN_MS, lambda: self._send(broker))

        self._node.ask(
            broker, (send.api, version, data), answered, failed, self._node.setup.answer_ms,
            "control",
        )  # fmt: skip


def _commit(multi: Any, there: Tree, session: int) -> Any:
    return there.commit(multi, session)


def _read(read: Read, there: Tree, session: int) -> Any:
    watcher = session if read.watch else 0
    if read.children:
        return there.children(read.path, watcher)
    return there.read(read.path, watcher)
