"""A model of ZooKeeper: znodes, versions, sessions, ephemeral znodes, watches that fire once.

It has the interface of kafkalog.zookeeper.session, and answers as a real ZooKeeper does:
tests/kafka/cluster/test_model.py makes the same calls to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import (
    ANY_VERSION,
    Check,
    Committed,
    Create,
    Delete,
    Life,
    Operation,
    Seen,
    Set,
)

__all__ = ["Asking", "Tree"]

Told = Callable[[Life | Seen], None]


class _Refused(Exception):
    """The name of a ZooKeeper error."""


class Tree:
    """All znodes, and the sessions."""

    def __init__(self) -> None:
        self.znodes: dict[str, Znode] = {"/": Znode(b"")}
        self.transactions = 0
        self.now_ms = 0
        """When znodes are created that are created from now on."""
        self.sessions: dict[int, Told] = {}
        self.on_commit: Callable[[Sequence[Operation]], None] = lambda _: None
        """Called after each successful commit."""
        self._children: dict[str, dict[str, None]] = {"/": {}}
        self._made: dict[str, int] = {}  # children created so far, by parent
        self._watches: dict[tuple[str, bool], list[int]] = {}
        self._last_session = 0

    # ---- sessions --------------------------------------------------------------------------

    def begin(self, told: Told) -> int:
        """Begin a session; returns its number, above 0."""
        self.transactions += 1
        self._last_session += 1
        self.sessions[self._last_session] = told
        return self._last_session

    def end(self, session: int) -> None:
        """End a session: its ephemeral znodes are removed, and it gets no more notifications."""
        if self.sessions.pop(session, None) is None:
            return
        self.transactions += 1
        self.forget(session)
        gone = [path for path, znode in self.znodes.items() if znode.owner == session]
        for path in gone:
            self._remove(path)
            self._fire(path, deleted=True)

    def forget(self, session: int) -> None:
        """Drop a session's watches: it has another connection."""
        for watchers in self._watches.values():
            watchers[:] = [one for one in watchers if one != session]

    # ---- reading ---------------------------------------------------------------------------

    def read(self, path: str, watcher: int = 0) -> Znode | None:
        """A znode; `watcher`: the session that is notified, once, when it changes."""
        if watcher:
            self._watch(path, False, watcher)
        return self.znodes.get(path)

    def children(self, path: str, watcher: int = 0) -> list[str] | None:
        """The children's names; None: no such znode, and no watch is set."""
        found = self._children.get(path)
        if found is None:
            return None
        if watcher:
            self._watch(path, True, watcher)
        return sorted(found)

    def _watch(self, path: str, children: bool, watcher: int) -> None:
        """A watcher that reads twice is notified once, as with Session."""
        found = self._watches.setdefault((path, children), [])
        if watcher not in found:
            found.append(watcher)

    def all(self) -> dict[str, Znode]:
        """Every znode."""
        return dict(self.znodes)

    # ---- writing ---------------------------------------------------------------------------

    def ensure(self, paths: Iterable[str], session: int = 0) -> None:
        """Create these znodes, and their parents, where they are missing."""
        for path in paths:
            parts = path.strip("/").split("/")
            for end in range(1, len(parts) + 1):
                outer = "/" + "/".join(parts[:end])
                if outer not in self.znodes:
                    self.commit([Create(outer)], session)

    def commit(self, operations: Sequence[Operation], session: int = 0) -> Committed:
        """Do all operations, in order, or none."""
        self.transactions += 1
        kept = dict(self.znodes), {p: dict(c) for p, c in self._touched(operations)}
        made = dict(self._made)
        paths, events = [], []
        for at, one in enumerate(operations):
            try:
                path = self._do(one, session)
            except _Refused as why:
                self.znodes = kept[0]
                for parent, children in kept[1].items():
                    self._children[parent] = children
                for path in [path for path in self._children if path not in self.znodes]:
                    del self._children[path]
                self._made = made
                return Committed(False, at, str(why))
            if isinstance(one, Create):
                paths.append(path)
            if not isinstance(one, Check):
                events.append((path, one))
        for path, one in events:
            self._fire(path, created=isinstance(one, Create), deleted=isinstance(one, Delete))
        self.on_commit(operations)
        return Committed(True, paths=tuple(paths))

    def _touched(self, operations: Sequence[Operation]) -> list[tuple[str, dict[str, None]]]:
        found = {}
        for one in operations:
            for path in (one.path, _parent(one.path)):
                if path in self._children:
                    found[path] = self._children[path]
        return list(found.items())

    def _do(self, one: Operation, session: int) -> str:
        if isinstance(one, Create):
            return self._create(one, session)
        found = self.znodes.get(one.path)
        if found is None:
            raise _Refused("NoNode")
        if one.version not in (ANY_VERSION, found.version):
            raise _Refused("BadVersion")
        if isinstance(one, Set):
            self.znodes[one.path] = found._replace(
                data=one.data, version=found.version + 1, changed=self.transactions
            )
        elif isinstance(one, Delete):
            if self._children[one.path]:
                raise _Refused("NotEmpty")
            self._remove(one.path)
        return one.path

    def _create(self, one: Create, session: int) -> str:
        parent, path = _parent(one.path), one.path
        above = self.znodes.get(parent)
        if above is None:
            raise _Refused("NoNode")
        if one.sequence:
            path += f"{self._made.get(parent, 0):010d}"
        if path in self.znodes:
            raise _Refused("NodeExists")
        if above.owner:
            raise _Refused("NoChildrenForEphemerals")
        owner = session if one.ephemeral else 0
        at = self.transactions
        self.znodes[path] = Znode(one.data, 0, at, owner, at, self.now_ms)
        self._children[path] = {}
        self._children[parent][path.rpartition("/")[2]] = None
        self._made[parent] = self._made.get(parent, 0) + 1
        return path

    def _remove(self, path: str) -> None:
        del self.znodes[path], self._children[path]
        self._made.pop(path, None)
        del self._children[_parent(path)][path.rpartition("/")[2]]

    # ---- watches ---------------------------------------------------------------------------

    def _fire(self, path: str, created: bool = False, deleted: bool = False) -> None:
        self._tell(path, False)
        if deleted:
            self._tell(path, True)
        if created or deleted:
            self._tell(_parent(path), True)

    def _tell(self, path: str, children: bool) -> None:
        for session in self._watches.pop((path, children), ()):
            self.sessions[session](Seen(path, children))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Asking:
    """One session of a tree, with immediate answers: the interface of Session."""

    def __init__(self, tree: Tree, told: Told) -> None:
        self._tree = tree
        self.id = tree.begin(told)
        told(Life.CONNECTED)

    def close(self) -> None:
        """End the session."""
        self._tree.end(self.id)

    def read(self, path: str, watch: bool = False) -> Znode | None:
        """As Session.read."""
        return self._tree.read(path, self.id if watch else 0)

    def children(self, path: str, watch: bool = False) -> list[str] | None:
        """As Session.children."""
        return self._tree.children(path, self.id if watch else 0)

    def tree(self, *roots: str) -> dict[str, Znode]:
        """As Session.tree."""
        return {
            path: znode
            for path, znode in sorted(self._tree.znodes.items())
            if any(_within(path, root) for root in roots)
        }

    def ensure(self, paths: Iterable[str]) -> None:
        """As Session.ensure."""
        self._tree.ensure(paths, self.id)

    def commit(self, operations: Sequence[Operation]) -> Committed:
        """As Session.commit."""
        return self._tree.commit(operations, self.id)


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
