"""A thread that follows a ZooKeeper session: it reports changed settings and the session's end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from kafkalog.errors import BadZnode, KafkalogError, ZooKeeperAway
from kafkalog.logs.limit import limited
from kafkalog.zookeeper import entities
from kafkalog.zookeeper.entities import CHANGES
from kafkalog.zookeeper.notifications import new_numbers, numbered
from kafkalog.zookeeper.session import Life, Seen, Session

__all__ = ["SessionWatch"]

_logger = limited(__name__)

RETRY_S = 0.5
INCOMPLETE_RETRY_S = 30.0
"""Until what could not be read, though ZooKeeper answered, is read again."""
_GONE = "gone"


class SessionWatch:
    """Reports which settings changed, once each, and that a new session has begun."""

    def __init__(
        self,
        session: Session,
        told: queue.SimpleQueue[Life | Seen | None],
        changed: Callable[[Sequence[entities.Entity]], None],
        begun: Callable[[], None],
        looked: Callable[[], bool] = lambda: True,
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        """Writes from here on are reported, but none before `start`.

        `told`: the session's reports.  `begun`: a session ended, with everything ephemeral in it,
        and another began.  `looked`: after each look, also one that `look` asked for; it returns
        False if it is to be called again some time, as something was unreadable.  `missed`: some
        changes were missed; any settings may be others.  They are called in the thread, and again
        if they raise.

        Raises: ZooKeeperAway.
        """
        self._session = session
        self._told = told
        self._changed, self._begun, self._looked, self._missed = changed, begun, looked, missed
        self._expired = False
        self._due = False
        self._again_s: float | None = None  # None: only after a notification
        self._pending: dict[entities.Entity, None] = {}  # not reported yet
        self._waiting: list[threading.Event] = []  # for the next complete look
        self._said = ""
        self._last = max(self._there(), default=-1)
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
        try:
            event = self._told.get(timeout=RETRY_S if self._due else self._again_s)
        except queue.Empty:
            self._due = True
        else:
            self._expired = self._expired or event is Life.EXPIRED
            if event in (Life.AWAY, Life.EXPIRED):
                self._again_s = None
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
        failed: Exception | None = None
        try:
            self._report()
        except ZooKeeperAway:
            raise
        except Exception as problem:
            failed = problem
        self._again_s = None if self._looked() else INCOMPLETE_RETRY_S
        for done in waiting:
            self._waiting.remove(done)
            done.set()
        if failed is not None:
            raise failed
        self._due = False
        self._said = ""

    def _say(self, level: int, problem: Exception, traceback: bool = False) -> None:
        """Log a problem once, however often it is retried."""
        if self._said != (said := repr(problem)):
            self._said = said
            _logger.log(
                level, "could not follow a change in ZooKeeper: %s", problem, exc_info=traceback
            )

    def _there(self) -> dict[int, str]:
        names = self._session.children(CHANGES, watch=True) or []
        return numbered(names, entities.CHANGE_PREFIX)

    def _look(self) -> None:
        """Raises: what `missed` raises; ZooKeeperAway."""
        there = self._there()
        new = new_numbers(there, self._last)
        found = [] if not new else [self._entity(there[number]) for number in new]
        if new is None or _GONE in found:
            self._missed()
            self._last = max(there, default=-1)
            self._pending.clear()
            return
        self._pending |= dict.fromkeys(one for one in found if isinstance(one, tuple))
        self._last = max([self._last, *new])

    def _entity(self, name: str) -> entities.Entity | str | None:
        """The entity that a notification names; None: it is unreadable; or _GONE."""
        path = f"{CHANGES}/{name}"
        znode = self._session.read(path)
        try:
            return _GONE if znode is None else entities.read_change(path, znode.data)
        except BadZnode as problem:
            _logger.warning("%s", problem)
            return None

    def _report(self) -> None:
        """Report the changed settings.  An entity that fails stays, and holds up no others."""
        if not self._pending:
            return
        try:
            self._changed([*self._pending])
            self._pending.clear()
            return
        except ZooKeeperAway:
            raise
        except Exception:
            if len(self._pending) == 1:
                raise
        failed: Exception | None = None
        for entity in list(self._pending):
            try:
                self._changed([entity])
                del self._pending[entity]
            except ZooKeeperAway:
                raise
            except Exception as problem:
                failed = problem
        if failed is not None:
            raise failed
