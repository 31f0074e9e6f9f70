"""How connections are made: at once, or in a thread of their own while somebody may give up."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable
from copy import copy
from weakref import WeakSet

from kafkalog import errors
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.patience import NotYet, Patience
from kafkalog.client.link.transport import Address, Options, Transport

__all__ = ["Opening", "Openings", "Rests"]

LOOK_S = 1.0
"""How often it is looked for connections that nobody uses."""
RESTS_MAX = 1_000
"""So many addresses that could not be reached are remembered; a cluster has fewer nodes."""


class Rests:
    """Brokers that could not be reached, by address: when each may be tried again.

    The pause doubles with each failure, and a fifth of it is left to chance, as Java's clients do
    it.  Safe to use from many threads.
    """

    def __init__(self, first_ms: int, most_ms: int) -> None:
        """`first_ms`, `most_ms`: the first pause, and the longest."""
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)
        self._lock = threading.Lock()  # guards what follows
        self._rests: dict[Address, tuple[float, float, errors.KafkalogError]] = {}
        """(until when, the next pause in ms, the last failure)."""

    def left_s(self, address: Address) -> float:
        """How long it is to be left alone yet; 0: it is not."""
        rest = self._rests.get(address)
        return max(rest[0] - time.monotonic(), 0.0) if rest else 0.0

    def problem(self, address: Address) -> errors.KafkalogError | None:
        """Why it is left alone; None: it is not."""
        rest = self._rests.get(address)
        return rest[2].with_traceback(None) if rest else None

    def soonest_s(self, now_s: float) -> float:
        """When the next one may be tried again; infinite: none waits."""
        with self._lock:
            return min((at for at, _, _ in self._rests.values() if at > now_s), default=math.inf)

    def failed(self, address: Address, problem: errors.KafkalogError) -> None:
        """It could not be reached now."""
        with self._lock:
            rest = self._rests.pop(address, None)
            pause_ms = rest[1] if rest else float(self._first_ms)
            if len(self._rests) >= RESTS_MAX:
                del self._rests[next(iter(self._rests))]
            until_s = time.monotonic() + pause_ms * random.uniform(0.8, 1.2) / 1000
            self._rests[address] = until_s, min(pause_ms * 2, self._most_ms), copy(problem)

    def reached(self, address: Address) -> None:
        """It could."""
        with self._lock:
            self._rests.pop(address, None)


class Opening:
    """A connection that is being made in a thread of its own, which nobody waits for at an end."""

    def __init__(
        self,
        address: Address,
        options: Options,
        transport: Transport,
        ring: Callable[[], None],
        rests: Rests,
    ) -> None:
        """`ring`: it was made, or cannot be."""
        self.done = False
        self._where = address, options, transport
        self._ring = ring
        self._rests = rests
        self._given_up = threading.Event()
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards what follows
        self._made: Connection | None = None
        self._problem: errors.KafkalogError | None = None
        self._unwanted = False
        thread = threading.Thread(target=self._run, name="kafkalog-connect", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can start any more: the interpreter ends
            self._run()

    def _run(self) -> None:
        address, options, transport = self._where
        try:
            if rest_s := self._rests.left_s(address):
                self._given_up.wait(rest_s)
            if self._unwanted:
                raise errors.Closed(f"{address}: the connection is not wanted any more")
            made = _reach(address, options, transport, self._rests)
        except errors.KafkalogError as problem:
            self._problem = problem
        except BaseException as problem:
            self._problem = errors.PeerGone(f"{address}: {problem!r}")
        else:
            with self._lock:
                if self._unwanted:
                    made.close()
                self._made = made
        self.done = True
        self._ring()

    def take(self) -> Connection:
        """What was made, once it is done.  Raises: why it cannot be."""
        if self._problem is not None:
            raise self._problem
        assert self._made is not None
        return self._made

    def give_up(self) -> None:
        """It is closed, now or when it comes."""
        if os.getpid() != self._pid:  # a child: the thread is not there, and may have held them
            self._lock, self._given_up = threading.Lock(), threading.Event()
        with self._lock:
            self._unwanted = True
            self._given_up.set()
            if self._made is not None:
                self._made.close()


def _reach(
    address: Address, options: Options, transport: Transport, rests: Rests,
    patience: Patience | None = None,
) -> Connection:  # fmt: skip
    """A connection, and whether there is one is noted.  Raises: as Connection."""
    try:
        made = Connection(address, options, transport, patience)
    except (NotYet, errors.WakeUp, errors.Closed):
        raise
    except errors.KafkalogError as problem:
        rests.failed(address, problem)
        raise
    rests.reached(address)
    return made


class Openings:
    """The connections of one thread, whose waits another thread may end."""

    def __init__(
        self,
        options: Options,
        transport: Transport,
        patience: Patience,
        rests: Rests | None = None,
    ) -> None:
        """Nothing is connected yet.  `rests`: of the same client's other connections."""
        self.apart = False
        """A wait for one that is being made can be ended, too; it costs a thread each."""
        self.ring: Callable[[], None] = lambda: None
        """Ends a wait of `patience`: a connection was made, or cannot be."""
        self.rests = rests or Rests(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms)
        self._options = options
        self._transport = transport
        self._patience = patience
        self._begun: dict[Address, Opening] = {}
        """Those for which a later call waits."""
        self._lock = threading.Condition()  # guards what follows
        self._made: WeakSet[Connection] = WeakSet()
        self._look_s = 0.0
        self.over = False

    def connect(self, address: Address) -> Connection:
        """A connection.  Raises: PeerGone, Timeout, BadAnswer, UnsupportedVersion; Closed; NotYet:
        a later call is given it.
        """
        patience = self._patience
        if not self.apart and patience.wait is None:
            self._rest(address)
            left_ms = min(self._options.connect_timeout_ms, patience.left_s() * 1000)
            options = self._options._replace(connect_timeout_ms=max(1, int(left_ms)))
            made = _reach(address, options, self._transport, self.rests, patience)
            with self._lock:
                self._made.add(made)
            return made
        opening = self._begun.pop(address, None) or self.begin(address, self._told)
        try:
            self._await(opening, address)
            return self.take(opening)
        except BaseException as problem:
            if patience.errand and isinstance(problem, (NotYet, errors.WakeUp)):
                self._begun[address] = opening
            else:
                opening.give_up()
            raise

    def _rest(self, address: Address) -> None:
        """Leave one alone that could not be reached a moment ago.

        Raises: the failure that it rests for: the call is over; Closed.
        """
        patience = self._patience
        while (rest_s := self.rests.left_s(address)) and not self.over:
            with self._lock:
                self._lock.wait_for(lambda: self.over, min(rest_s, patience.left_s()))
            if not patience.left_s():
                raise self.rests.problem(address) or errors.Timeout(
                    f"{address}: no connection in the time of the call"
                )
        if self.over:
            raise errors.Closed("the client was closed before it was connected")

    def close_idle(self) -> None:
        """Close those that were not used for connections.max.idle.ms; looked at now and then."""
        now_s, idle_ms = time.monotonic(), self._options.idle_ms
        if idle_ms < 0 or now_s < self._look_s:
            return
        self._look_s = now_s + min(LOOK_S, idle_ms / 1000)
        with self._lock:
            for connection in list(self._made):
                connection.close_idle(now_s)

    def _await(self, opening: Opening, address: Address) -> None:
        """Until it is done.  Raises: Timeout: the call is over; NotYet: it goes on later."""
        patience = self._patience
        if patience.wait is None:
            left_s = None if patience.until_s == math.inf else patience.left_s()
            with self._lock:
                self._lock.wait_for(lambda: opening.done or self.over, left_s)
        else:
            while not opening.done and (left_s := patience.left_s()):
                patience.wait([], left_s)
        if not (opening.done or self.over):
            kind = NotYet if patience.errand else errors.Timeout
            raise kind(f"{address}: no connection in the time of the call")

    def begin(self, address: Address, ring: Callable[[], None]) -> Opening:
        """A connection for `take`, once `ring` has been called."""
        return Opening(address, self._options, self._transport, ring, self.rests)

    def take(self, opening: Opening) -> Connection:
        """What was made.  Raises: as `connect`."""
        with self._lock:
            if self.over:
                opening.give_up()
                raise errors.Closed("the client was closed before it was connected")
            made = opening.take()
            made.patience = self._patience
            self._made.add(made)
            return made

    def close(self) -> None:
        """What no call will wait for any more is given up."""
        for opening in self._begun.values():
            opening.give_up()
        self._begun.clear()

    def interrupt(self) -> None:
        """Nothing is waited for any more, now and later: it fails.  From any thread."""
        with self._lock:
            self.over = True
            for connection in self._made:
                connection.interrupt()
            self._lock.notify_all()

    def _told(self) -> None:
        with self._lock:
            self._lock.notify_all()
        self.ring()
