"""A ZooKeeper inside the process, for the nodes of one test: the model that is compared with the
real one, made safe for many threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from kafkalog.errors import ZooKeeperAway
from kafkalog.testing.zookeeper import Asking, Tree
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import (
    STAND_INS,
    Check,
    Committed,
    Found,
    Life,
    Operation,
    Session,
    Told,
)

__all__ = ["StandIn", "changed"]

_numbers = itertools.count(1)
Commit = Callable[[], Committed]


class StandIn:
    """One tree; its nodes use `hosts` as zookeeper.connect.  A context manager."""

    def __init__(self) -> None:
        self.hosts = f"inside.invalid:{next(_numbers)}"
        self.on_the_way: Callable[[Sequence[Operation], Commit], Committed] = _arrive
        """Called for each commit, with the operations and a function that carries them out, in
        the caller's thread, which holds no lock.  See `lose`."""
        self.in_flight_max = 0
        """The most commits of one session that were in flight at a time."""
        self._lock = threading.RLock()
        self._tree = Tree()
        self._sessions: list[_Locked] = []
        STAND_INS[self.hosts] = lambda told: cast(Session, _Locked(self, told))

    def lose(self, path: str, done: bool, after: int = 0) -> None:
        """Lose the next commit that changes this path, after `after` others: its caller never
        learns the outcome.  `done`: it was done, and the answer was lost; False: it never arrived.
        """
        left = list(range(after + 1))

        def meet(operations: Sequence[Operation], commit: Commit) -> Committed:
            if not left or path not in changed(operations) or left.pop():
                return commit()
            if done:
                commit()
            raise ZooKeeperAway(f"ZooKeeper at {self.hosts}: the answer about {path} was lost")

        self.on_the_way = meet

    def expire(self, session: int) -> None:
        """End a session, as if nothing had been heard of it for too long, and begin its client's
        next one.  The client is notified after all earlier notifications."""
        with self._lock:
            for one in self._sessions:
                if one.id == session:
                    one._expire()

    @property
    def now_ms(self) -> int:
        """The time at which znodes are created; 0: they have none."""
        return self._tree.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._tree.now_ms = now_ms

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No new session begins here.  Idempotent."""
        STAND_INS.pop(self.hosts, None)


def changed(operations: Sequence[Operation]) -> set[str]:
    """The paths that operations change."""
    return {one.path for one in operations if not isinstance(one, Check)}


def _arrive(_: Sequence[Operation], commit: Commit) -> Committed:
    return commit()


class _Locked:
    """A session that makes one call at a time, among all sessions."""

    def __init__(self, stand_in: StandIn, told: Told) -> None:
        self.hosts = stand_in.hosts
        self._stand_in, self._told = stand_in, told
        self._lock = stand_in._lock
        with self._lock:
            self._asking = Asking(stand_in._tree, told)
            stand_in._sessions.append(self)

    @property
    def id(self) -> int:
        return self._asking.id

    def close(self) -> None:
        with self._lock:
            self._asking.close()
            with suppress(ValueError):
                self._stand_in._sessions.remove(self)

    def _expire(self) -> None:
        self._asking.close()
        self._told(Life.EXPIRED)
        self._asking = Asking(self._stand_in._tree, self._told)

    def read(self, path: str, watch: bool = False) -> Znode | None:
        with self._lock:
            return self._asking.read(path, watch)

    def children(self, path: str, watch: bool = False) -> list[str] | None:
        with self._lock:
            return self._asking.children(path, watch)

    def sync(self, path: str) -> None:
        pass  # every read finds everything

    def look(self, reads: Sequence[tuple[str, bool, bool]]) -> list[Found]:
        with self._lock:
            return [
                self._asking.children(path, watch) if children else self._asking.read(path, watch)
                for path, children, watch in reads
            ]

    def tree(self, *roots: str) -> dict[str, Znode]:
        with self._lock:
            return self._asking.tree(*roots)

    def ensure(self, paths: Iterable[str]) -> None:
        with self._lock:
            self._asking.ensure(paths)

    def commit(self, operations: Sequence[Operation]) -> Committed:
        return self.commits([operations])[0]

    def commits(self, many: Sequence[Sequence[Operation]]) -> list[Committed]:
        with self._lock:
            known = self._stand_in.in_flight_max
            self._stand_in.in_flight_max = max(known, len(many))
        return [
            self._stand_in.on_the_way(operations, partial(self._commit, operations))
            for operations in many
        ]

    def _commit(self, operations: Sequence[Operation]) -> Committed:
        with self._lock:
            return self._asking.commit(operations)

    def __enter__(self) -> _Locked:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
