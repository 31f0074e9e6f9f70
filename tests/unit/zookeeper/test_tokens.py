"""Delegation tokens as znodes."""

from __future__ import annotations

import json

import pytest

from kafkalog.errors import BadZnode
from kafkalog.security.principal import Principal
from kafkalog.security.tokens import Token
from kafkalog.zookeeper import tokens
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Create, Delete, Set

ALICE, BOB = Principal("User", "alice"), Principal("User", "b o/b*~é")
TOKEN = Token("mVXHnK3tQ-CjM_4Z", ALICE, BOB, (BOB,), 1, 3, 2)
DATA = (
    b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Ab%20o%2Fb%2A%7E%C3%A9",'
    b'"renewers":["User%3Ab%20o%2Fb%2A%7E%C3%A9"],"issueTimestamp":1,"maxTimestamp":3,'
    b'"expiryTimestamp":2,"tokenId":"mVXHnK3tQ-CjM_4Z"}'
)
"""As Apache Kafka 3.9 writes it; the order of the fields has no meaning."""


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(DATA), **fields}).encode()


def test_a_token_is_read_as_it_was_written() -> None:
    assert tokens.write_token(TOKEN) == DATA
    assert tokens.read_token(TOKEN.id, DATA) == TOKEN
    assert tokens.read_token(TOKEN.id, b"") is None


def test_older_tokens_were_requested_by_their_owner() -> None:
    older = tokens.read_token(TOKEN.id, changed(version=2, tokenRequester=None))
    assert older is not None and older.requester == ALICE


@pytest.mark.parametrize("data", [
    b"{", b"\0denied", changed(version=4), changed(owner="alice"), changed(tokenId="another"),
    changed(renewers="x"), changed(maxTimestamp=1 << 64), changed(expiryTimestamp=None),
])  # fmt: skip
def test_unreadable_tokens_are_named(data: bytes) -> None:
    with pytest.raises(BadZnode, match=r"/delegation_token/tokens/mVXHnK3tQ-CjM_4Z: "):
        tokens.read_token(TOKEN.id, data)


def test_a_change_is_written_together_with_its_notification() -> None:
    """Only if the znode is as it was read, and only if something changes."""
    path, told = (
        tokens.path_of(TOKEN.id),
        Create("/delegation_token/token_changes/token_change_", TOKEN.id.encode(), sequence=True),
    )
    assert tokens.operations(TOKEN.id, None, TOKEN) == (Create(path, DATA), told)
    assert tokens.operations(TOKEN.id, Znode(b"x", 7), TOKEN) == (Set(path, DATA, 7), told)
    assert tokens.operations(TOKEN.id, Znode(b"x", 7), None) == (Delete(path, 7), told)
    assert tokens.operations(TOKEN.id, Znode(DATA, 7), TOKEN) == ()
    assert tokens.operations(TOKEN.id, None, None) == ()
    assert tokens.read_change("/p", TOKEN.id.encode()) == TOKEN.id


@pytest.mark.parametrize("data", [None, b"", b"a/b", b"..", b"x" * 101, b"\xff"])
def test_a_notification_that_names_no_token_is_refused(data: bytes | None) -> None:
    with pytest.raises(BadZnode, match="the id of a token"):
        tokens.read_change("/p", data)
