"""How connections are opened: at once, or in a thread of their own so that a wait can be ended."""

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
from kafkalog.client.metrics import Tally

__all__ = ["Opening", "Openings", "Rests"]

LOOK_S = 1.0
"""How often idle connections are looked for."""
RESTS_MAX = 1_000
"""How many addresses are remembered, the unreachable ones and those whose times are measured; a
cluster has fewer nodes."""


class Rests:
    """Reconnect backoffs: brokers that could not be reached, and when each may be tried again.

    The backoff doubles with each failure, with a fifth of jitter as in Java's clients.  Safe to use
    from many threads.
    """

    def __init__(self, first_ms: int, most_ms: int) -> None:
        """`first_ms`, `most_ms`: the first backoff, and the longest."""
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)
        self._lock = threading.Lock()  # guards what follows
        self._rests: dict[Address, tuple[float, float, errors.KafkalogError]] = {}
        """(until when, the next backoff in ms, the last failure)."""

    def left_s(self, address: Address) -> float:
        """How long its backoff still lasts; 0: it may be tried."""
        rest = self._rests.get(address)
        return max(rest[0] - time.monotonic(), 0.0) if rest else 0.0

    def problem(self, address: Address) -> errors.KafkalogError | None:
        """The failure that it backs off for; None: it does not."""
        rest = self._rests.get(address)
        return rest[2].with_traceback(None) if rest else None

    def soonest_s(self, now_s: float) -> float:
        """When the next backoff ends; infinite: there is none."""
        with self._lock:
            return min((at for at, _, _ in self._rests.values() if at > now_s), default=math.inf)

    def failed(self, address: Address, problem: errors.KafkalogError) -> None:
        """It could not be reached."""
        with self._lock:
            rest = self._rests.pop(address, None)
            pause_ms = rest[1] if rest else float(self._first_ms)
            if len(self._rests) >= RESTS_MAX:
                del self._rests[next(iter(self._rests))]
            until_s = time.monotonic() + pause_ms * random.uniform(0.8, 1.2) / 1000
            self._rests[address] = until_s, min(pause_ms * 2, self._most_ms), copy(problem)

    def reached(self, address: Address) -> None:
        """It was reached."""
        with self._lock:
            self._rests.pop(address, None)


class Opening:
    """A connection that is being opened in a thread of its own; nothing waits for the thread."""

    def __init__(
        self,
        address: Address,
        options: Options,
        transport: Transport,
        ring: Callable[[], None],
        rests: Rests,
    ) -> None:
        """`ring`: called when it was opened, or has failed."""
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
        except RuntimeError:  # no thread can start any more: the interpreter is shutting down
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
        """The connection, once `done`.  Raises: why it failed."""
        if self._problem is not None:
            raise self._problem
        assert self._made is not None
        return self._made

    def give_up(self) -> None:
        """Close the connection, now or when it is there."""
        if os.getpid() != self._pid:  # a child: the thread is gone, and may have held them
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
    """A connection; the outcome counts for the backoff.  Raises: as Connection."""
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
    """The connections of one thread, whose waits another thread can end."""

    def __init__(
        self,
        options: Options,
        transport: Transport,
        patience: Patience,
        rests: Rests | None = None,
    ) -> None:
        """Nothing is connected yet.  `rests`: the same client's, shared by other connections."""
        self.apart = False
        """True if waits for a connection can be ended, too; this costs a thread for each."""
        self.ring: Callable[[], None] = lambda: None
        """Ends a wait of `patience`: a connection was opened, or has failed."""
        self.rests = rests or Rests(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms)
        self._options = options
        self._transport = transport
        self._patience = patience
        self._started: dict[Address, Opening] = {}
        """Those that a later call will wait for."""
        self._lock = threading.Condition()  # guards what follows
        self._made: WeakSet[Connection] = WeakSet()
        self._look_s = 0.0
        self.over = False
        self.count = 0
        """Connections that were opened."""
        self.times: dict[Address, Tally] = {}
        """The times of calls, by broker."""

    def connect(self, address: Address) -> Connection:
        """A connection.  Raises: PeerGone, Timeout, BadAnswer, UnsupportedVersion; Closed; NotYet:
        a later call gets it.
        """
        patience = self._patience
        if not self.apart and patience.wait is None:
            self._rest(address)
            left_ms = min(self._options.connect_timeout_ms, patience.left_s() * 1000)
            options = self._options._replace(connect_timeout_ms=max(1, int(left_ms)))
            made = _reach(address, options, self._transport, self.rests, patience)
            with self._lock:
                self._count(made)
            return made
        opening = self._started.pop(address, None) or self.begin(address, self._notice)
        try:
            self._await(opening, address)
            return self.take(opening)
        except BaseException as problem:
            if patience.errand and isinstance(problem, (NotYet, errors.WakeUp)):
                self._started[address] = opening
            else:
                opening.give_up()
            raise

    def _rest(self, address: Address) -> None:
        """Wait until the backoff of a broker has ended.

        Raises: the failure that it backs off for, if the call is over first; Closed.
        """
        patience = self._patience
        while (rest_s := self.rests.left_s(address)) and not self.over:
            with self._lock:
                self._lock.wait_for(lambda: self.over, min(rest_s, patience.left_s()))
            if not patience.left_s():
                raise self.rests.problem(address) or errors.Timeout(
                    f"{address}: no connection within the time limit of the call"
                )
        if self.over:
            raise errors.Closed("the client was closed before it was connected")

    def close_idle(self) -> None:
        """Close connections idle for connections.max.idle.ms; checked now and then."""
        now_s, idle_ms = time.monotonic(), self._options.idle_ms
        if idle_ms < 0 or now_s < self._look_s:
            return
        self._look_s = now_s + min(LOOK_S, idle_ms / 1000)
        with self._lock:
            for connection in list(self._made):
                connection.close_idle(now_s)

    def _await(self, opening: Opening, address: Address) -> None:
        """Wait until done.  Raises: Timeout: the call is over; NotYet: a later call gets it."""
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
            raise kind(f"{address}: no connection within the time limit of the call")

    def begin(self, address: Address, ring: Callable[[], None]) -> Opening:
        """Open a connection, for `take` once `ring` has been called."""
        return Opening(address, self._options, self._transport, ring, self.rests)

    def take(self, opening: Opening) -> Connection:
        """The connection.  Raises: as `connect`."""
        with self._lock:
            if self.over:
                opening.give_up()
                raise errors.Closed("the client was closed before it was connected")
            made = opening.take()
            made.patience = self._patience
            self._count(made)
            return made

    def _count(self, made: Connection) -> None:
        """A connection was opened; the lock is held."""
        self._made.add(made)
        self.count += 1
        if made.address in self.times or len(self.times) < RESTS_MAX:
            made.answer_ms = self.times.setdefault(made.address, made.answer_ms)

    def close(self) -> None:
        """Give up connections that no call will wait for any more."""
        for opening in self._started.values():
            opening.give_up()
        self._started.clear()

    def interrupt(self) -> None:
        """End all waits, now and later: they fail.  From any thread."""
        with self._lock:
            self.over = True
            for connection in self._made:
                connection.interrupt()
            self._lock.notify_all()

    def _notice(self) -> None:
        with self._lock:
            self._lock.notify_all()
        self.ring()
