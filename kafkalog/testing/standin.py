"""A ZooKeeper inside the process, for the nodes of one test: the model that is checked against the
real one, for many threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import Any, cast

from kafkalog.metadata.zookeeper.loading import Znode
from kafkalog.metadata.zookeeper.session import STAND_INS, Committed, Operation, Session, Told
from kafkalog.testing.zookeeper import Asking, Tree

__all__ = ["StandIn"]

_numbers = itertools.count(1)


class StandIn:
    """One tree; `hosts` is what its nodes have as zookeeper.connect.  A context manager."""

    def __init__(self) -> None:
        self.hosts = f"inside.invalid:{next(_numbers)}"
        self._lock = threading.RLock()
        self._tree = Tree()
        STAND_INS[self.hosts] = lambda told: cast(Session, _Locked(self, told))

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No session begins here any more.  Idempotent."""
        STAND_INS.pop(self.hosts, None)


class _Locked:
    """A session: one call at a time, over all of them."""

    def __init__(self, stand_in: StandIn, told: Told) -> None:
        self.hosts = stand_in.hosts
        self._lock = stand_in._lock
        with self._lock:
            self._asking = Asking(stand_in._tree, told)
        self.id = self._asking.id

    def close(self) -> None:
        with self._lock:
            self._asking.close()

    def read(self, path: str, watch: bool = False) -> Znode | None:
        with self._lock:
            return self._asking.read(path, watch)

    def children(self, path: str, watch: bool = False) -> list[str] | None:
        with self._lock:
            return self._asking.children(path, watch)

    def look(self, reads: Sequence[tuple[str, bool, bool]]) -> list[Znode | list[str] | None]:
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
        with self._lock:
            return self._asking.commit(operations)

    def commits(self, many: Sequence[Sequence[Operation]]) -> list[Committed]:
        with self._lock:
            return [self._asking.commit(operations) for operations in many]

    def __enter__(self) -> _Locked:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
