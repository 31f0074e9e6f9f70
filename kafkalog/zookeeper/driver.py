"""Drives a controller: one thread between a session with ZooKeeper, brokers, and callers.

The session is the controller's own.  A fired watch, an answer and a request only enter a queue;
the thread hands them to the controller one after another, and carries out its effects.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kafkalog.client.link.transport import Address
from kafkalog.client.link.transport import Options as ConnectionOptions
from kafkalog.controller.events import (
    Caller,
    ClientRequest,
    Clock,
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
from kafkalog.errors import KafkalogError, Timeout, ZooKeeperAway
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import Broker
from kafkalog.wire.api import Api
from kafkalog.zookeeper import tree, watches
from kafkalog.zookeeper.controller_election import Election
from kafkalog.zookeeper.events import Commit, Effect, Event, ReadZnodes, Seen, WatchesLost
from kafkalog.zookeeper.reading import read_tree
from kafkalog.zookeeper.security import ZooKeeperSecurity
from kafkalog.zookeeper.sender import Sender
from kafkalog.zookeeper.session import Life, Timeouts, open_session

__all__ = ["Driver"]

_logger = limited(__name__)

RETRY_S, RETRY_MAX_S = 0.5, 60.0
"""Until this node stands again: ZooKeeper was away, or, doubled each time, another error came."""
ASKED_BYTES_MAX = 67_108_864
"""Limit for requests without an answer; beyond it any more must be sent again."""
REQUEST_BYTES = 2_000
"""Bytes of a request besides its decoded body."""
Answer = Callable[[Mapping[str, Any] | Exception | None], None]
"""Takes the fields of a response; None: this node is not the controller; an exception: the request
failed with it."""


class Driver:
    """One of the nodes that may be the controller.  Any thread; ended by `stop`."""

    def __init__(
        self, hosts: str, node: int, options: Options, timeouts: Timeouts, unclean: bool = False,
        connecting: ConnectionOptions | None = None, security: ZooKeeperSecurity | None = None,
    ) -> None:  # fmt: skip
        """`hosts`, `timeouts`, `security`: as in Session.  `connecting`: how it connects to
        brokers; None: in plain text.  Nothing happens before `start`.

        Raises: ZooKeeperAway, MissingPackage.
        """
        self._node = node
        self._listener = options.control_listener or options.listener
        self._connecting = connecting or ConnectionOptions(client_id=str(node))
        self._events: queue.SimpleQueue[Life | Event | None] = queue.SimpleQueue()
        self._session = open_session(hosts, self._events.put, timeouts, security)
        self._election = Election(self._session, node, unclean)
        self._controller = watches.controller(options)
        self._senders: dict[int, tuple[int, Sender]] = {}  # by broker, with the broker's epoch
        self._ticks_s: dict[Clock, float] = {}
        self._stand_s: float | None = None  # when to stand again, after ZooKeeper was away
        self._retry_s = RETRY_S
        self._lost_s = -2 * RETRY_MAX_S  # when the last other error came
        self._gives_way = False  # until this node stands again
        self._away = False
        self._said = ""  # the last problem that was logged
        self._unplaced: dict[int, int] = {}  # brokers without the listener, with their epochs
        self._asking = threading.Lock()  # a request is queued before the end, or refused
        self._asked_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"controller {node}", daemon=True)

    def start(self) -> None:
        """Begin to stand for election."""
        self._stand_s = 0.0
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """True if this node is the controller, as far as it knows."""
        return self._controller.is_active

    @property
    def takes(self) -> bool:
        """True if it takes requests: its end has not begun."""
        return not self._ended.is_set()

    def ask(
        self, api: Api, request: Any, version: int, answer: Answer, *, size: int = 0,
        context: Caller | None = None,
    ) -> None:  # fmt: skip
        """Ask the controller; `answer` is called once, in its thread, and must return at once.
        `size`: the request's memory, in bytes; `context`: the caller, if it matters.

        After `stop` it is called here, with None.

        Raises: Timeout: requests of ASKED_BYTES_MAX wait.
        """
        size += REQUEST_BYTES

        def answered(body: Mapping[str, Any] | Exception | None) -> None:
            with self._asking:
                self._asked_bytes -= size
            answer(body)

        with self._asking:
            takes = self.takes
            if takes and self._asked_bytes >= ASKED_BYTES_MAX:
                raise Timeout(f"node {self._node}: requests of {self._asked_bytes} bytes wait for "
                              "the controller")  # fmt: skip
            if takes:
                self._asked_bytes += size
                self._events.put(ClientRequest(answered, api, request, version, context))
        if not takes:
            answer(None)

    def stop(self) -> None:
        """End: resign if this node is the controller, and answer waiting requests.  Idempotent."""
        with self._asking:
            if self._ended.is_set():
                return
            self._ended.set()
        self._events.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._session.close()  # which also removes /controller
        self._do(self._controller.handle(Deposed(), 0))
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, ClientRequest):
                event.token(None)
        senders = [sender for _, sender in self._senders.values()]
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.join()

    # ---- the thread ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._ended.is_set():
            try:
                event = self._next()
                if event is not None and self.takes:
                    self._take(event)
                elif isinstance(event, ClientRequest):
                    event.token(None)
            except ZooKeeperAway as problem:
                self._say(problem)
                self._lose(RETRY_S)
            except Exception as problem:
                self._say(problem)
                self._give_way()

    def _say(self, problem: Exception) -> None:
        """Log a problem once, however often it is met again."""
        if self._said != (said := repr(problem)):
            self._said = said
            if isinstance(problem, KafkalogError):
                _logger.warning("the controller's node %d: %s", self._node, problem)
            else:
                _logger.exception("the controller's node %d resigns", self._node)

    def _lose(self, pause_s: float) -> None:
        """The outcome of a write, or the effect of an event, is unknown: start over."""
        self._do(self._controller.handle(Deposed(), _now_ms()))
        self._stand_s = time.monotonic() + pause_s

    def _give_way(self) -> None:
        """This node met an error that it may meet again: another one may do better."""
        now_s = time.monotonic()
        again = now_s - self._lost_s < 2 * RETRY_MAX_S
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S) if again else RETRY_S
        self._lost_s, self._gives_way = now_s, True
        self._lose(self._retry_s)
        try:
            self._election.leave()
        except KafkalogError as problem:  # it is given up when this node stands again
            self._say(problem)

    def _next(self) -> Life | Event | None:
        """The next event, or a Tick that is due; None: nothing."""
        due = [*self._ticks_s.values(), *([] if self._stand_s is None else [self._stand_s])]
        try:
            wait_s = max(0.0, min(due) - time.monotonic()) if due else None
            return self._events.get(timeout=wait_s)
        except queue.Empty:
            pass
        now_s = time.monotonic()
        if self._stand_s is not None and self._stand_s <= now_s:
            self._stand()
            return None
        for clock, at_s in self._ticks_s.items():
            if at_s <= now_s:
                del self._ticks_s[clock]
                return Tick(clock)
        return None

    def _take(self, event: Life | Event) -> None:
        if event is Life.EXPIRED:
            _logger.warning("the controller's node %d: its session ended", self._node)
            self._do(self._controller.handle(Deposed(), _now_ms()))
            self._away = True
        elif event is Life.AWAY:
            self._away = True
        elif event is Life.CONNECTED:
            if self._away:  # otherwise the session has just begun
                self._away = False
                self._do(self._controller.handle(WatchesLost(), _now_ms()))
                self._stand()
        elif isinstance(event, Seen) and event.path == tree.CONTROLLER:
            if not self._gives_way:
                self._stand()
        else:
            assert not isinstance(event, Life)
            self._do(self._controller.handle(event, _now_ms()))

    def _stand(self) -> None:
        self._stand_s, self._gives_way = None, False
        claim = self._election.stand()
        active = self._controller.active
        if active is not None and active.context.claim == claim:
            return
        if active is not None:
            self._do(self._controller.handle(Deposed(), _now_ms()))
        if claim is not None:
            _logger.info("node %d is the controller of epoch %d", self._node, claim.epoch)
            self._session.ensure(tree.PERSISTENT)
            loaded = read_tree(self._session, self._node)
            self._do(self._controller.handle(Elected(claim, loaded), _now_ms()))
            self._said = ""

    # ---- what is to be done ----------------------------------------------------------------------

    def _do(self, effects: list[Effect]) -> None:
        left = deque(effects)
        while left:
            effect = left.popleft()
            if isinstance(effect, Commit):
                done = StoreResult(effect.number, self._session.commits(effect.multis))
                left.extend(self._controller.handle(done, _now_ms()))
            elif isinstance(effect, ReadZnodes):
                found = StoreResult(effect.number, self._session.look(effect.reads))
                left.extend(self._controller.handle(found, _now_ms()))
            elif isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Reply):
                self._reply(effect)
            elif isinstance(effect, Timer):
                at_s = time.monotonic() + (effect.at_ms - _now_ms()) / 1000
                self._ticks_s[effect.clock] = at_s
            else:
                assert isinstance(effect, Resign)
                self._election.resign()
                self._stand()
        self._let_go()

    def _reply(self, effect: Reply) -> None:
        try:
            effect.token(effect.body)
        except Exception:  # it is the caller's
            _logger.exception("the controller's node %d could not answer", self._node)

    def _brokers(self) -> Mapping[int, Broker]:
        active = self._controller.active
        return {} if active is None else active.context.brokers

    def _send(self, request: Send) -> None:
        known = self._brokers().get(request.broker)
        epoch = request.body["broker_epoch"]
        if known is None or known.epoch != epoch:
            return  # for an earlier life of the broker
        address = self._place(known)
        found = self._senders.get(request.broker)
        if found is None or found[0] != epoch or found[1].address != address:
            if found is not None:
                found[1].stop()
            if address is None:
                if self._unplaced.get(request.broker) != epoch:
                    self._unplaced[request.broker] = epoch
                    _logger.error("broker %d has no listener %s", request.broker, self._listener)
                self._senders.pop(request.broker, None)
                return
            made = Sender(address, request.broker, self._connecting, self._events.put)
            self._senders[request.broker] = found = epoch, made
        found[1].send(request)

    def _place(self, broker: Broker) -> Address | None:
        for name, host, port, _ in broker.endpoints:
            if name == self._listener:
                return Address(host, port)
        return None

    def _let_go(self) -> None:
        """Send nothing more to brokers that are gone or that were addressed in an earlier epoch."""
        brokers = self._brokers()
        for number, (epoch, sender) in list(self._senders.items()):
            known = brokers.get(number)
            if known is None or known.epoch != epoch:
                sender.stop()
                del self._senders[number]


def _now_ms() -> int:
    """For timers alone."""
    return int(time.monotonic() * 1000)
