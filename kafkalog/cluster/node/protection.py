"""The protection of a cluster on ZooKeeper: its ACLs, SCRAM credentials, quotas of clients and
delegation tokens, read from the tree into the metadata's image, and changed there at clients'
request.

As with Kafka, every broker reads all of it at its start, then what notifications name, and any
broker may change it: each write names the version of the znode that it replaces.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kafkalog.cluster.node.tokens import TreeTokens
from kafkalog.errors import BadZnode, InvalidRequest, Timeout
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.metadata.source import Planned
from kafkalog.security.acls import WILDCARD, Acl, Pattern
from kafkalog.security.permissions import Kind
from kafkalog.zookeeper import acls, entities, protecting, tokens, users
from kafkalog.zookeeper.acls import Resource
from kafkalog.zookeeper.loading import Znode, load
from kafkalog.zookeeper.notifications import Notifications
from kafkalog.zookeeper.reading import CLIENTS
from kafkalog.zookeeper.session import Found, Operation, Session

__all__ = ["Protection"]

_logger = limited(__name__)

ATTEMPTS = 30
"""Writes of one znode that others' writes may come before; each of these has succeeded."""
LOST_RACES = ("BadVersion", "NodeExists", "NoNode")
SAID_MAX = 1000
"""Different problems that are logged."""
_IDS = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
"""Names the ids of ACLs, which the tree has none of."""
Acls = dict[uuid.UUID, Acl]


class Protection:
    """One node's view of it.  Safe to use from several threads, one of which waits for another's
    reads and writes."""

    def __init__(
        self, session: Session, known: Callable[[], MetadataImage], use: Callable[..., None],
        with_tokens: bool = False,
    ) -> None:  # fmt: skip
        """`known`: the image, whose credentials and quotas are already those of the tree; `use`:
        called with new parts of it by name, once they differ; `with_tokens`: delegation tokens,
        too."""
        self._session, self._known, self._use = session, known, use
        self._lock = threading.RLock()  # guards what follows; held while the tree is read
        self._stale = True
        """Everything must be read: it never was, or changes may have been missed."""
        self._clients_known = True
        """False if that includes users, clients and addresses."""
        self._rules: dict[Resource, Acls] = {}
        self._notified = {pattern: Notifications(session, folder, acls.CHANGE)
                          for pattern, folder in acls.CHANGES.items()}  # fmt: skip
        self._unreadable: set[Resource] = set()
        self._tokens = TreeTokens(session, known, use, self._say) if with_tokens else None
        self._said: set[str] = set()

    def forget(self) -> None:
        """The session ended, and with it all watches: read everything at the next look."""
        self._stale, self._clients_known = True, False
        if self._tokens is not None:
            self._tokens.forget()

    def forget_clients(self) -> None:
        """Changes of users, clients or addresses were missed: read them all at the next look."""
        self._clients_known = False

    @property
    def is_whole(self) -> bool:
        """False if something was unreadable at the last look: the next one reads it again."""
        tokens = self._tokens is None or self._tokens.is_whole
        return self._clients_known and not self._stale and not self._unreadable and tokens

    def look(self) -> None:
        """Read the ACLs that notifications name; all of them, if some may have been missed.

        Raises: ZooKeeperAway: the next look reads everything.
        """
        with self._lock:
            stale, self._stale = self._stale, True  # until all is read
            whole = (not stale and self._read_notified()) or self._read_all()
            if self._tokens is not None:
                self._tokens.look()
            if not self._clients_known:
                self._clients_known = self._read_clients()
            self._stale = not whole

    # ---- ACLs ----------------------------------------------------------------------------------

    def _read_notified(self) -> bool:
        """Read what was notified; False: that does not say all."""
        changed: dict[Resource, None] = {}
        try:
            for pattern, folder in self._notified.items():
                found = folder.look()
                if found is None:
                    return False
                for path, data in found:
                    changed[acls.read_change(pattern, path, data)] = None
        except BadZnode as problem:
            self._say(f"{problem}: all ACLs are read again")
            return False
        self._read_resources({**changed, **dict.fromkeys(self._unreadable)})
        return True

    def _read_all(self) -> bool:
        """Read all again; False: not all of it can be listed."""
        whole = True
        self._unreadable.clear()
        denied: dict[Resource, Acls] = {}
        for folder in self._notified.values():
            try:
                folder.begin()
            except BadZnode as problem:
                whole = False
                self._say(f"{problem}: until it is readable, all ACLs are read from time to time")
        places: list[Resource] = []
        for pattern in acls.ROOTS:
            try:
                places += self._resources(pattern)
            except BadZnode as problem:
                whole = False
                self._say(f"{problem}: until it is readable, everything is denied")
                denied |= {_unlisted(kind): _all_denied(kind) for kind in Kind}
        rules = self._readable(places) | denied
        self._rules = rules
        self._use_acls({number: acl for some in rules.values() for number, acl in some.items()})
        return whole

    def _resources(self, pattern: int) -> Iterable[Resource]:
        """All resources of one pattern that have a znode.

        Raises: BadZnode.
        """
        root = acls.ROOTS[pattern]
        for word in self._session.children(root) or ():
            kind = acls.kind_named(word)
            if kind is None:
                self._say(f"{root}/{word}: found an unknown type of resource: it is ignored")
                continue
            for name in self._session.children(f"{root}/{word}") or ():
                yield Resource(kind, pattern, name)

    def _read_resources(self, changed: Iterable[Resource]) -> None:
        """Read the ACLs of these again."""
        found = self._readable([*changed])
        if not found:
            return
        whole = dict(self._known().acls)
        for resource, some in found.items():
            for number in self._rules.pop(resource, ()):
                whole.pop(number, None)
            if some:
                self._rules[resource] = some
        for resource in found:
            whole |= self._rules.get(resource, {})
        self._use_acls(whole)

    def _readable(self, places: Sequence[Resource]) -> dict[Resource, Acls]:
        """The ACLs of resources; for those that are unreadable, one that denies everything."""
        wanted = [(acls.path_of(one), False, False) for one in places]
        znodes = self._session.look(wanted)
        return {one: self._read(one, znode) for one, znode in zip(places, znodes, strict=True)}

    def _read(self, resource: Resource, znode: Found) -> Acls:
        self._unreadable.discard(resource)
        try:
            if isinstance(znode, BadZnode):
                raise znode
            data = znode.data if isinstance(znode, Znode) else None
            return {_id(acl): acl for acl in acls.read_acls(resource, data)}
        except BadZnode as problem:
            self._unreadable.add(resource)
            self._say(f"{problem}: until it is readable, everything about this resource is denied")
            return self._denied(resource)

    @staticmethod
    def _denied(resource: Resource) -> Acls:
        acl = acls.denial(resource)
        return {_id(acl): acl}

    def _use_acls(self, whole: Acls) -> None:
        if whole != self._known().acls:
            self._use(acls=whole)

    # ---- users, clients and addresses ----------------------------------------------------------

    def _read_clients(self) -> bool:
        """Read all of them again; False: not all can be listed."""
        try:
            loaded = load(self._session.tree(*CLIENTS), 0, self._known().quotas)
        except BadZnode as problem:
            self._say(f"{problem}: until it is readable, no SCRAM credential is accepted")
            self._use_clients({}, self._known().quotas)
            return False
        for each in loaded.problems:
            self._say(str(each))
        self._use_clients(loaded.image.scram, loaded.image.quotas)
        return True

    def read_clients(self, changed: Iterable[entities.Entity]) -> None:
        """Read the settings of these again: they were changed.

        Raises: ZooKeeperAway.
        """
        with self._lock:
            image = self._known()
            scram, quotas = dict(image.scram), dict(image.quotas)
            for entity in changed:
                znode = self._session.read(entities.config_path(entity))
                found = users.read(entity, None if znode is None else znode.data)
                for problem in found.problems:
                    self._say(str(problem))
                if len(entity) == 2 and entity[0] == "users":
                    user = entities.unsanitized(entity[1])
                    scram = {key: one for key, one in scram.items() if key[0] != user}
                    scram |= users.credentials(entity, found)
                if found.quotas is not None:
                    quotas.pop(entities.quota_entity(entity), None)
                if found.quotas:
                    quotas[entities.quota_entity(entity)] = found.quotas
            self._use_clients(scram, quotas)

    def _use_clients(self, scram: Mapping[Any, Any], quotas: Mapping[Any, Any]) -> None:
        image = self._known()
        parts = {"scram": scram} if scram != image.scram else {}
        parts |= {"quotas": quotas} if quotas != image.quotas else {}
        if parts:
            self._use(**parts)

    # ---- changes -------------------------------------------------------------------------------

    def alter(self, planned: Callable[[MetadataImage], Planned]) -> list[Result]:
        """Carry out a change that is planned on the image; its results.  This node obeys it on
        return, the others once they are notified.

        Each znode is written by itself: after an error, some may have been.  A request that is
        repeated does no harm.

        Raises: ZooKeeperAway; BadZnode: a znode that would change is unreadable; InvalidRequest: a
        name that ZooKeeper cannot store; Timeout: others changed it again and again.
        """
        with self._lock:
            image = protecting.planned_on(self._known())
            records, results = planned(image)
            changes = protecting.changes_of(image, records)
            for resource, wanted in changes.acls.items():
                path, folders = acls.path_of(resource), acls.folders_of(resource)
                self._write(path, folders, partial(acls.operations, resource, wanted=wanted))
            for entity, settings in changes.settings.items():
                path = entities.config_path(entity)
                self._write(
                    path, (path.rpartition("/")[0], entities.CHANGES),
                    partial(protecting.settings_operations, entity, changes=settings),
                )  # fmt: skip
            for token_id, token in changes.tokens.items():
                self._write(
                    tokens.path_of(token_id), tokens.FOLDERS,
                    partial(tokens.operations, token_id, wanted=token),
                )  # fmt: skip
            self._read_resources(changes.acls)
            self.read_clients(changes.settings)
            if self._tokens is not None:
                self._tokens.read(changes.tokens)
            return results

    def _write(
        self, path: str, folders: Sequence[str],
        operations: Callable[[Znode | None], tuple[Operation, ...]],
    ) -> None:  # fmt: skip
        """Write one znode, on top of others' writes."""
        ready = False
        for _ in range(ATTEMPTS):
            wanted = operations(self._session.read(path))
            if not wanted:
                return
            if not ready:
                self._session.ensure(folders)
                ready = True
            outcome = self._session.commit(wanted)
            if outcome.done:
                return
            if outcome.why not in LOST_RACES:
                raise InvalidRequest(f"{path}: ZooKeeper refused the change: {outcome.why}")
        raise Timeout(f"{path}: others changed it {ATTEMPTS} times in between: try again")

    def _say(self, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._said and len(self._said) < SAID_MAX:
            self._said.add(problem)
            _logger.error("%s", problem)


def _all_denied(kind: Kind) -> Acls:
    """Denies everything about all resources of a kind; a stored ACL that does has another id."""
    acl = acls.denial(Resource(kind, Pattern.LITERAL, WILDCARD))
    return {uuid.uuid5(_IDS, f"unlisted {int(kind)}"): acl}


def _unlisted(kind: Kind) -> Resource:
    """The key of the denial of all resources of a kind, which no resource has."""
    return Resource(kind, 0, "")


def _id(acl: Acl) -> uuid.UUID:
    texts = (each if isinstance(each, str) else str(int(each)) for each in acl)
    return uuid.uuid5(_IDS, "\0".join(texts))
