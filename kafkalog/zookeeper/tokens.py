"""Delegation tokens in the tree: one znode for each, and notifications that name a changed one.

Pure, as `tree`.  Source: the znodes that Kafka 3.9.2 makes.
"""

from __future__ import annotations

import re

from kafkalog.errors import BadZnode
from kafkalog.security.principal import Principal, parse_principal
from kafkalog.security.tokens import Token
from kafkalog.zookeeper import entities, tree
from kafkalog.zookeeper.documents import Document, document
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Create, Delete, Operation, Set

__all__ = [
    "CHANGE", "CHANGES", "FOLDERS", "is_id", "operations", "path_of", "read_change", "read_token",
    "write_token",
]  # fmt: skip

CHANGES = "/delegation_token/token_changes"
"""The folder of the notifications."""
CHANGE = "token_change_"
"""The prefix of their names."""
FOLDERS = (tree.DELEGATION_TOKENS, CHANGES)
"""The znodes without data that must exist before a token is written."""
VERSION = 3
REQUESTER_SINCE = 3
_ID = re.compile(r"[A-Za-z0-9_\-]{1,100}")


def is_id(name: str) -> bool:
    """True for the id of a token."""
    return _ID.fullmatch(name) is not None


def path_of(token_id: str) -> str:
    """The path of a token."""
    return f"{tree.DELEGATION_TOKENS}/{token_id}"


def read_token(token_id: str, data: bytes | None) -> Token | None:
    """A token, version 1 to 3; None: the znode has no data, as for Kafka.

    Raises: BadZnode.
    """
    if not data:
        return None
    found = Document.parse(path_of(token_id), data, range(1, VERSION + 1))
    if (named := found.text("tokenId")) != token_id:
        raise found.wrong("tokenId", named, f"{token_id}, the name of the znode")
    owner = _principal(found, "owner", found.text("owner"))
    asked = owner
    if found.whole("version") >= REQUESTER_SINCE:
        asked = _principal(found, "tokenRequester", found.text("tokenRequester"))
    renewers = tuple(_principal(found, "renewers", one) for one in found.texts("renewers"))
    times = (found.long(name) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp"))
    return Token(token_id, owner, asked, renewers, *times)


def _principal(found: Document, name: str, text: str) -> Principal:
    plain = entities.unsanitized(text) or ""
    if ":" not in plain:
        raise found.wrong(name, text, "a type and a name, such as User%3Aalice")
    return parse_principal(plain)


def write_token(token: Token) -> bytes:
    """A token, version 3."""
    return document({
        "version": VERSION,
        "owner": entities.sanitized(str(token.owner)),
        "tokenRequester": entities.sanitized(str(token.requester)),
        "renewers": [entities.sanitized(str(one)) for one in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.id,
    })  # fmt: skip


def operations(token_id: str, znode: Znode | None, wanted: Token | None) -> tuple[Operation, ...]:
    """Writes a token, None: removes it, if the znode is as it was read, and announces it; empty if
    nothing changes."""
    data = None if wanted is None else write_token(wanted)
    if (None if znode is None else znode.data) == data:
        return ()
    path, told = path_of(token_id), Create(f"{CHANGES}/{CHANGE}", token_id.encode(), sequence=True)
    if data is None:
        assert znode is not None
        return Delete(path, znode.version), told
    return (Create(path, data) if znode is None else Set(path, data, znode.version)), told


def read_change(path: str, data: bytes | None) -> str:
    """The id that a notification names.

    Raises: BadZnode.
    """
    text = (data or b"").decode(errors="replace")
    if not is_id(text):
        raise BadZnode(f"{path}: found {text!r:.120}, wanted the id of a token")
    return text
