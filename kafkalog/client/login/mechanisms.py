"""The client's side of SASL's mechanisms: pure state machines over the bytes of an exchange.

Source: RFC 4616 (PLAIN), RFC 7628 (OAUTHBEARER), KIP-255; SCRAM is in kafkalog.security.scram.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from kafkalog import errors

__all__ = ["Exchange", "OAuthBearer", "Plain"]

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]*")


class Exchange(Protocol):
    """One authentication."""

    @property
    def done(self) -> bool:
        """True once the broker's last message was taken."""

    def step(self, message: bytes) -> bytes:
        """Take the broker's message, empty before the first; returns the next one to send.

        Raises: SaslAuthenticationFailed.
        """


class Plain:
    """PLAIN: the name and the password as they are."""

    def __init__(self, user: str, password: str) -> None:
        """Raises: InvalidSetting."""
        for what, text in (("username", user), ("password", password)):
            if not text or "\0" in text:
                raise errors.InvalidSetting(
                    f"sasl.jaas.config: {what}: wanted at least one character, and no NUL"
                )
        self._next = f"\0{user}\0{password}".encode()
        self.done = False

    def step(self, message: bytes) -> bytes:
        """As Exchange.step."""
        said, self._next = self._next, b""
        self.done = not said
        return said


class OAuthBearer:
    """OAUTHBEARER: a token, and extensions."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        """Raises: SaslAuthenticationFailed: the token cannot be one; InvalidSetting."""
        if not _TOKEN.fullmatch(token):
            raise errors.SaslAuthenticationFailed("OAUTHBEARER: the token is not one by RFC 6750")
        for name, value in extensions.items():
            if not _NAME.fullmatch(name) or name == "auth" or not _VALUE.fullmatch(value):
                raise errors.InvalidSetting(
                    f"sasl.jaas.config: extension_{name}: wanted a name of letters other than "
                    "auth, and a value of printable characters"
                )
        more = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._next = f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()
        self.done = False

    def step(self, message: bytes) -> bytes:
        """As Exchange.step."""
        said, self._next = self._next, b""
        if said:
            return said
        if message:  # why the token was refused: after our answer the broker says so itself
            return b"\x01"
        self.done = True
        return b""
