"""ACLs in the tree, as Kafka's AclAuthorizer keeps them: one znode for each resource that has some,
and notifications that name a changed resource.

Pure, as `tree`.  Source: the znodes that Kafka 3.9.2 makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from kafkalog.errors import BadZnode, InvalidRequest
from kafkalog.security.acls import ALL, WILDCARD, Acl, Pattern, Permission
from kafkalog.security.authorizer import EVERYONE
from kafkalog.security.permissions import Kind, Operation
from kafkalog.zookeeper import entities
from kafkalog.zookeeper.documents import ZNODE_BYTES_MAX, Document, document
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Create, Delete, Set
from kafkalog.zookeeper.session import Operation as Write

__all__ = [
    "CHANGE", "CHANGES", "ROOTS", "Resource", "check_resource", "denial", "folders_of",
    "kind_named", "operations", "path_of", "read_acls", "read_change", "write_acls", "write_change",
]  # fmt: skip

ROOTS: Mapping[int, str] = {
    Pattern.LITERAL: "/kafka-acl", Pattern.PREFIXED: "/kafka-acl-extended/prefixed",
}  # fmt: skip
"""By pattern.  Their children are kinds of resources; the children of these are names."""
CHANGES: Mapping[int, str] = {
    Pattern.LITERAL: "/kafka-acl-changes", Pattern.PREFIXED: "/kafka-acl-extended-changes",
}  # fmt: skip
"""By pattern: the folder of the notifications."""
CHANGE = "acl_changes_"
"""The prefix of their names."""
REQUEST_BYTES = 1024
"""The rest of the request that writes ACLs, without the path and the name of the resource.
jute.maxbuffer limits all of it: ZooKeeper ends the connection of a client that sends more."""
_NAME = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]+")
"""Names that a znode can have."""


def _word(name: str) -> str:
    """TRANSACTIONAL_ID as Kafka writes it here: TransactionalId."""
    return "".join(part.title() for part in name.split("_"))


_KINDS: Mapping[int, str] = {kind: _word(kind.name) for kind in Kind}
_OPERATIONS: Mapping[int, str] = {
    ALL: "All",
    **{one: _word(one.name) for one in Operation if one is not Operation.TWO_PHASE_COMMIT},
}
"""Kafka 3.9 knows no other."""
_PERMISSIONS: Mapping[int, str] = {one: _word(one.name) for one in Permission}


def _by_word(words: Mapping[int, str]) -> dict[str, int]:
    return {word.lower(): number for number, word in words.items()}


_KINDS_NAMED = _by_word(_KINDS)
_OPERATIONS_NAMED, _PERMISSIONS_NAMED = _by_word(_OPERATIONS), _by_word(_PERMISSIONS)


class Resource(NamedTuple):
    """A resource that ACLs name; the fields are those of Acl."""

    kind: int
    pattern: int
    name: str

    @classmethod
    def of(cls, acl: Acl) -> Resource:
        """The resource of an ACL."""
        return cls(acl.kind, acl.pattern, acl.name)


def kind_named(word: str) -> int | None:
    """The kind of the resources in a folder of this name, or in a notification: Topic, TOPIC."""
    return _KINDS_NAMED.get(word.replace("_", "").lower())


def path_of(resource: Resource) -> str:
    """The path of a resource's ACLs."""
    return f"{ROOTS[resource.pattern]}/{_KINDS[resource.kind]}/{resource.name}"


def folders_of(resource: Resource) -> tuple[str, ...]:
    """The znodes without data that must exist before a resource's ACLs are written."""
    return path_of(resource).rpartition("/")[0], CHANGES[resource.pattern]


def check_resource(acl: Acl) -> None:
    """Refuse an ACL that the tree, or Kafka 3.9, cannot hold.

    Raises: InvalidRequest.
    """
    if not _NAME.fullmatch(acl.name) or acl.name in entities.RELATIVE:
        raise InvalidRequest(
            f"resource name: found {acl.name!r:.80}, which ZooKeeper cannot store; wanted a name "
            "without slashes and control characters"
        )
    if acl.operation not in _OPERATIONS:
        raise InvalidRequest("operation: Kafka on ZooKeeper does not have TWO_PHASE_COMMIT")


# ---- a resource's ACLs -------------------------------------------------------------------------


def read_acls(resource: Resource, data: bytes | None) -> tuple[Acl, ...]:
    """The ACLs of a resource, version 1, each once; a znode without data has none.

    Raises: BadZnode: not all of them are readable.
    """
    if not data:
        return ()
    found = Document.parse(path_of(resource), data, range(1, 2))
    return tuple(dict.fromkeys(found.each("acls", partial(_acl, resource))))


def _acl(resource: Resource, row: Document) -> Acl:
    principal = row.text("principal")
    if ":" not in principal:
        raise row.wrong("principal", principal, "a type and a name, such as User:alice")
    host = row.text("host")
    if not host:
        raise row.wrong("host", host, "an address, or *")
    operation = _number(row, "operation", _OPERATIONS_NAMED, _OPERATIONS)
    permission = _number(row, "permissionType", _PERMISSIONS_NAMED, _PERMISSIONS)
    return Acl(
        resource.kind, resource.name, resource.pattern, principal, host, operation, permission
    )


def _number(row: Document, name: str, numbers: Mapping[str, int], words: Mapping[int, str]) -> int:
    text = row.text(name)
    found = numbers.get(text.lower())
    if found is None:
        raise row.wrong(name, text, f"one of {', '.join(words.values())}")
    return found


def write_acls(acls: Iterable[Acl]) -> bytes:
    """The ACLs of one resource, version 1."""
    rows = [
        {
            "principal": acl.principal,
            "permissionType": _PERMISSIONS[acl.permission],
            "host": acl.host,
            "operation": _OPERATIONS[acl.operation],
        }
        for acl in acls
    ]
    return document({"acls": rows, "version": 1})


def denial(resource: Resource) -> Acl:
    """The ACL that replaces unreadable ones: nobody may do anything."""
    return Acl(
        resource.kind, resource.name, resource.pattern, EVERYONE, WILDCARD, ALL, Permission.DENY
    )


def operations(
    resource: Resource, znode: Znode | None, wanted: Mapping[Acl, bool]
) -> tuple[Write, ...]:
    """Adds ACLs to a resource (True) and removes them (False), if the znode is as it was read, and
    announces it; empty if nothing changes.  A resource without ACLs has no znode.

    Raises: BadZnode: those that the resource has are unreadable; InvalidRequest: it would have too
    many.
    """
    path = path_of(resource)
    known = () if znode is None else read_acls(resource, znode.data)
    added = [acl for acl, is_added in wanted.items() if is_added and acl not in known]
    left = [*(acl for acl in known if wanted.get(acl, True)), *added]
    if len(left) == len(known) and not added:
        return ()
    told = Create(f"{CHANGES[resource.pattern]}/{CHANGE}", write_change(resource), sequence=True)
    if not left:
        assert znode is not None
        return Delete(path, znode.version), told
    data = write_acls(left)
    most = ZNODE_BYTES_MAX - REQUEST_BYTES - 3 * len(path.encode())
    if len(data) > most:
        raise InvalidRequest(
            f"{path}: found {len(data)} bytes of ACLs, wanted {most} at most: ZooKeeper "
            "stores no more for one resource"
        )
    return (Create(path, data) if znode is None else Set(path, data, znode.version)), told


# ---- notifications -----------------------------------------------------------------------------


def read_change(pattern: int, path: str, data: bytes | None) -> Resource:
    """The resource that a notification in CHANGES[pattern] names: `TOPIC:name`, or a document of
    version 1 for prefixes.

    Raises: BadZnode.
    """
    if pattern == Pattern.LITERAL:
        try:
            word, _, name = (data or b"").decode().partition(":")
        except UnicodeDecodeError:
            word = name = ""
    else:
        found = Document.parse(path, data, range(1, 2))
        word, name = found.text("resourceType"), found.text("name")
        if found.text("patternType").upper() != Pattern.PREFIXED.name:
            raise found.wrong("patternType", found.text("patternType"), Pattern.PREFIXED.name)
    kind = kind_named(word)
    if kind is None or not _NAME.fullmatch(name) or name in entities.RELATIVE:
        raise BadZnode(f"{path}: found {word!r:.40} and {name!r:.80}, wanted a resource's type and "
                       "name")  # fmt: skip
    return Resource(kind, pattern, name)


def write_change(resource: Resource) -> bytes:
    """A notification in CHANGES[resource.pattern]."""
    kind = Kind(resource.kind).name
    if resource.pattern == Pattern.LITERAL:
        return f"{kind}:{resource.name}".encode()
    return document({
        "version": 1, "resourceType": kind, "name": resource.name,
        "patternType": Pattern.PREFIXED.name,
    })  # fmt: skip
