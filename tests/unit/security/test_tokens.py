"""Delegation tokens are found by their passwords."""

from __future__ import annotations

import pytest

from kafkalog.config.declare import Password
from kafkalog.security import tokens
from kafkalog.security.principal import Principal
from kafkalog.security.tokens import Token, hmac_of, token_with

SECRET, ALICE = Password("key"), Principal("User", "alice")


def made(*ids: str) -> dict[str, Token]:
    return {one: Token(one, ALICE, ALICE, (), 0, 1000, 1000) for one in ids}


def test_a_token_is_found_by_its_password_alone() -> None:
    """Also new ones, and none that was removed, or is of another secret."""
    known = made("a", "b")
    assert token_with(known, SECRET, hmac_of(SECRET, "a")) == known["a"]
    assert token_with(known, SECRET, hmac_of(SECRET, "c")) is None
    known |= made("c")
    del known["a"]
    assert token_with(known, SECRET, hmac_of(SECRET, "c")) == known["c"]
    assert token_with(known, SECRET, hmac_of(SECRET, "a")) is None
    assert token_with(known, SECRET, hmac_of(Password("other"), "c")) is None
    assert token_with(known, Password("other"), hmac_of(Password("other"), "c")) == known["c"]
    for wrong in (b"", b"a", hmac_of(SECRET, "c")[:-1], hmac_of(SECRET, "c") + b"\0"):
        assert token_with(known, SECRET, wrong) is None


def test_passwords_are_computed_once_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted, not time."""
    computed: list[str] = []
    secret = Password("counted")

    def counted(key: Password, token_id: str) -> bytes:
        computed.append(token_id)
        return hmac_of(key, token_id)

    monkeypatch.setattr(tokens, "hmac_of", counted)
    known = made(*(f"{number}" for number in range(2_000)))
    for _ in range(100):
        assert token_with(known, secret, hmac_of(secret, "7")) == known["7"]
        assert token_with(known, secret, b"wrong") is None
    assert len(computed) == 2_000
    few = made("7")
    assert token_with(few, secret, hmac_of(secret, "7")) == few["7"]
    assert len(tokens._index(secret)._known) == 1
