"""PLAIN, the broker's side: a name and a password in one message.

Source: RFC 4616; Kafka's PlainSaslServer.
"""

import hmac
import secrets
from collections.abc import Mapping

from kafkalog.errors import SaslAuthenticationFailed

__all__ = ["PlainExchange", "PlainUsers"]

PREFIX = "user_"
PARTS = 3
"""The parts of a message."""


class PlainUsers:
    """The passwords of users.  Whether a name exists makes no difference to the time of a check."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: of a login module; user_NAME has the password of NAME."""
        self._key = secrets.token_bytes(32)
        self._digests = {
            name.removeprefix(PREFIX): self._digest(password)
            for name, password in options.items()
            if name.startswith(PREFIX)
        }
        self._nobody = secrets.token_bytes(32)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(errors="surrogatepass"), "sha256")

    def has(self, name: str, password: str) -> bool:
        """True if this is the password of the user."""
        wanted = self._digests.get(name, self._nobody)
        return hmac.compare_digest(self._digest(password), wanted)

    def __repr__(self) -> str:
        return f"PlainUsers({len(self._digests)} users)"


class PlainExchange:
    """One exchange: one message in, an empty one out.  One thread only."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.done = False
        """True once the password was right."""
        self.user = ""

    def step(self, message: bytes) -> bytes:
        """Take the client's message: [authorization id] NUL name NUL password.

        Raises: SaslAuthenticationFailed.
        """
        parts = message.decode(errors="replace").split("\0")
        if len(parts) != PARTS:
            raise SaslAuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got "
                f"{min(len(parts), PARTS + 1)}"
            )
        authorization, self.user, password = parts
        for what, found in (("username", self.user), ("password", password)):
            if not found:
                raise SaslAuthenticationFailed(f"Authentication failed: {what} not specified")
        if not self._users.has(self.user, password):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization not in ("", self.user):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.done = True
        return b""

    def __repr__(self) -> str:
        return f"PlainExchange(done={self.done})"
