"""A thread that follows a ZooKeeper session: it reports changed settings and the session's end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafkalog.errors import BadZnode, KafkalogError, ZooKeeperAway
from kafkalog.zookeeper import entities
from kafkalog.zookeeper.entities import CHANGES
from kafkalog.zookeeper.session import Life, Seen, Session

__all__ = ["SessionWatch"]

_logger = logging.getLogger(__name__)

RETRY_S = 0.5


class SessionWatch:
    """Reports which settings changed, once each, and that a new session has begun."""

    def __init__(
        self,
        session: Session,
        told: queue.SimpleQueue[Life | Seen | None],
        changed: Callable[[Sequence[entities.Entity]], None],
        begun: Callable[[], None],
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        """Writes from here on are reported, but none before `start`.

        `told`: the session's reports.  `begun`: a session ended, with everything ephemeral in it,
        and another began.  `looked`: after each look, also one that `look` asked for.  They are
        called in the thread, and again if they raise.

        Raises: ZooKeeperAway.
        """
        self._session = session
        self._told = told
        self._changed, self._begun, self._looked = changed, begun, looked
        self._expired = False
        self._due = False
        self._waiting: list[threading.Event] = []  # for the next complete look
        self._said = ""
        self._last = max(session.children(CHANGES, watch=True) or [""])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="zookeeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def look(self) -> None:
        """Look now."""
        self._told.put(Seen(CHANGES, True))

    def looked(self, timeout_s: float) -> bool:
        """Look now, and wait until everything that was found is in effect; False: not in time.
        Not to be called in the thread of this object."""
        done = threading.Event()
        self._waiting.append(done)
        self.look()
        return done.wait(timeout_s) and not self._ended.is_set()

    def stop(self) -> None:
        """End; after the return there are no more reports."""
        self._ended.set()
        self._told.put(None)
        for done in list(self._waiting):
            done.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _loop(self) -> None:
        while not self._ended.is_set():
            self._hear()
            try:
                self._do()
            except ZooKeeperAway as problem:
                self._say(logging.INFO, problem)
            except KafkalogError as problem:
                self._say(logging.ERROR, problem)
            except Exception as problem:  # without this thread no session would be followed
                self._say(logging.ERROR, problem, traceback=True)

    def _hear(self) -> None:
        """The next notification; waits only briefly while something is left to do."""
        with suppress(queue.Empty):
            event = self._told.get(timeout=RETRY_S if self._due else None)
            self._expired = self._expired or event is Life.EXPIRED
            self._due = event not in (Life.AWAY, Life.EXPIRED)  # it is due once connected again

    def _do(self) -> None:
        """Do what is due; what fails stays due, and new notifications are still taken."""
        if not self._due or self._ended.is_set():
            return
        waiting = list(self._waiting)
        if self._expired:
            self._begun()
            self._expired = False
        self._look()  # watches fire once; those of another session never
        self._looked()
        for done in waiting:
            self._waiting.remove(done)
            done.set()
        self._due = False
        self._said = ""

    def _say(self, level: int, problem: Exception, traceback: bool = False) -> None:
        """Log a problem once, however often it is retried."""
        if self._said != (said := repr(problem)):
            self._said = said
            _logger.log(
                level, "could not follow a change in ZooKeeper: %s", problem, exc_info=traceback
            )

    def _look(self) -> None:
        names = self._session.children(CHANGES, watch=True) or []
        found = []
        for name in (name for name in names if name > self._last):
            path = f"{CHANGES}/{name}"
            znode = self._session.read(path)
            try:
                if znode is not None:
                    found.append(entities.read_change(path, znode.data))
            except BadZnode as problem:
                _logger.warning("%s", problem)
        if found:
            self._changed(list(dict.fromkeys(found)))
        self._last = max([self._last, *names])
