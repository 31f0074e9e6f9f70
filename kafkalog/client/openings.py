"""How connections are made: at once, or in a thread of their own while somebody may give up."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from weakref import WeakSet

from kafkalog import errors
from kafkalog.client.connection import Connection
from kafkalog.client.patience import NotYet, Patience
from kafkalog.client.transport import Address, Options, Transport

__all__ = ["Opening", "Openings"]


class Opening:
    """A connection that is being made in a thread of its own, which nobody waits for at an end."""

    def __init__(
        self, address: Address, options: Options, transport: Transport, ring: Callable[[], None]
    ) -> None:
        """`ring`: it was made, or cannot be."""
        self.done = False
        self._where = address, options, transport
        self._ring = ring
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
        try:
            made = Connection(*self._where)
        except errors.KafkalogError as problem:
            self._problem = problem
        except BaseException as problem:
            self._problem = errors.PeerGone(f"{self._where[0]}: {problem!r}")
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
        if os.getpid() != self._pid:  # a child: the thread is not there, and may have held it
            self._lock = threading.Lock()
        with self._lock:
            self._unwanted = True
            if self._made is not None:
                self._made.close()


class Openings:
    """The connections of one thread, whose waits another thread may end."""

    def __init__(self, options: Options, transport: Transport, patience: Patience) -> None:
        """Nothing is connected yet."""
        self.apart = False
        """A wait for one that is being made can be ended, too; it costs a thread each."""
        self.ring: Callable[[], None] = lambda: None
        """Ends a wait of `patience`: a connection was made, or cannot be."""
        self._options = options
        self._transport = transport
        self._patience = patience
        self._begun: dict[Address, Opening] = {}
        """Those for which a later call waits."""
        self._lock = threading.Condition()  # guards what follows
        self._made: WeakSet[Connection] = WeakSet()
        self.over = False

    def connect(self, address: Address) -> Connection:
        """A connection.  Raises: PeerGone, Timeout, BadAnswer, UnsupportedVersion; Closed; NotYet:
        a later call is given it.
        """
        patience = self._patience
        if not self.apart and patience.wait is None:
            left_ms = min(self._options.connect_timeout_ms, patience.left_s() * 1000)
            options = self._options._replace(connect_timeout_ms=max(1, int(left_ms)))
            return Connection(address, options, self._transport, patience)
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
        return Opening(address, self._options, self._transport, ring)

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
