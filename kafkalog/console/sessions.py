"""Sessions of the console and attempts to log in: pure state, which takes the time."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Generic, TypeVar

__all__ = ["Attempts", "Passes", "Session", "Sessions", "same"]

P = TypeVar("P")

SESSIONS_MAX = 64
OF_USER_MAX = 8
"""Sessions of one user, so that nobody ends those of others by logging in again and again."""
IDLE_S = 15 * 60.0
"""A session ends when it was not used for this time."""
LIFE_S = 12 * 60 * 60.0
"""A session ends this long after its login."""

WINDOW_S = 60.0
FAILURES_MAX = 10
"""Failed logins of one address, and of one user, in a window."""
FAILURES_OF_ALL_MAX = 100
"""Failed logins of all in a window; it also bounds the addresses and users remembered."""
TOKEN_CHARS_MAX = 64


class Session(Generic[P]):
    """A browser that was let in."""

    def __init__(self, user: str, csrf: str, person: P, now_s: float) -> None:
        self.user = user
        """Empty: anonymous."""
        self.csrf = csrf
        """Every change must repeat it."""
        self.person = person
        self.begun_s = self.used_s = now_s


class Sessions(Generic[P]):
    """The sessions of one console.  One thread."""

    def __init__(self, token: Callable[[], str]) -> None:
        """`token`: a new unguessable text each time."""
        self._token = token
        self._open: dict[bytes, Session[P]] = {}  # by the digest of the token, least used first

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, user: str, person: P, now_s: float) -> tuple[str, list[P]]:
        """A new session's token, and the persons of the sessions that had to end for it."""
        gone = self.expire(now_s)
        of_user = [key for key, one in self._open.items() if one.user == user and user]
        crowd = of_user[: max(0, len(of_user) - OF_USER_MAX + 1)]
        rest = [key for key in self._open if key not in crowd]
        crowd += rest[: max(0, len(rest) - SESSIONS_MAX + 1)]
        gone += [self._open.pop(key).person for key in crowd]
        token = self._token()
        self._open[_digest(token)] = Session(user, self._token(), person, now_s)
        return token, gone

    def use(self, token: str, now_s: float) -> Session[P] | None:
        """The session of a token, used now; None: there is none, or it has ended."""
        if len(token) > TOKEN_CHARS_MAX:
            return None
        key = _digest(token)
        found = self._open.pop(key, None)
        if found is None:
            return None
        if _over(found, now_s):
            self._open[key] = found  # `expire` returns its person
            return None
        found.used_s = now_s
        self._open[key] = found
        return found

    def end(self, token: str) -> list[P]:
        """End a session; its person, if there was one."""
        found = self._open.pop(_digest(token), None)
        return [] if found is None else [found.person]

    def end_of(self, csrf: str) -> list[P]:
        """End the session that repeats this; its person, if there was one."""
        found = [key for key, one in self._open.items() if one.csrf == csrf]
        return [self._open.pop(key).person for key in found]

    def expire(self, now_s: float) -> list[P]:
        """Remove the sessions that ended by now; their persons."""
        over = [key for key, one in self._open.items() if _over(one, now_s)]
        return [self._open.pop(key).person for key in over]

    def persons(self) -> list[P]:
        """Those of all sessions.  Any thread."""
        return [one.person for one in tuple(self._open.values())]


class Passes:
    """Tokens of browsers of an open cluster: nothing is kept of them, so nobody ends those of
    others by asking for many."""

    def __init__(self, token: Callable[[], str]) -> None:
        """`token`: a new unguessable text each time."""
        self._token = token
        self._key = token().encode()

    def begin(self) -> str:
        """A new token."""
        seed = self._token()
        return f"{seed}.{self._mac('token', seed)}"

    def csrf(self, token: str) -> str | None:
        """The text that changes of a token's browser must repeat; None: it is not one of these."""
        seed, _, mac = token.partition(".")
        return self._mac("csrf", seed) if same(mac, self._mac("token", seed)) else None

    def _mac(self, purpose: str, seed: str) -> str:
        text = f"{purpose} {seed}".encode("utf-8", "replace")
        return hmac.new(self._key, text, sha256).hexdigest()


def _over(one: Session[P], now_s: float) -> bool:
    return now_s - one.used_s >= IDLE_S or now_s - one.begun_s >= LIFE_S


def _digest(token: str) -> bytes:
    """Tokens are looked up by this, so that the time of a look-up tells nothing of them."""
    return sha256(token.encode("utf-8", "replace")).digest()


def same(given: str, wanted: str) -> bool:
    """Compare secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


class Attempts:
    """Failed logins of the last minute.  One thread."""

    def __init__(self) -> None:
        """Nobody has failed."""
        self._failed: list[tuple[float, str, str]] = []

    def wait_s(self, address: str, user: str, now_s: float) -> float:
        """How long a login from this address, or of this user, is still refused; 0: it is not."""
        self._failed = [one for one in self._failed if now_s - one[0] < WINDOW_S]
        of_address = [one for one in self._failed if one[1] == address]
        of_user = [one for one in self._failed if one[2] == user]
        waits = [0.0]
        for some, most in (
            (of_address, FAILURES_MAX), (of_user, FAILURES_MAX),
            (self._failed, FAILURES_OF_ALL_MAX),
        ):  # fmt: skip
            if len(some) >= most:
                waits.append(some[-most][0] + WINDOW_S - now_s)
        return max(waits)

    def begin(self, address: str, user: str, now_s: float) -> None:
        """A login counts as failed until `succeed`, so that many at once are limited, too."""
        self._failed.append((now_s, address, user))

    def succeed(self, address: str, user: str) -> None:
        """The last one of this user from this address was right."""
        for index in reversed(range(len(self._failed))):
            if self._failed[index][1:] == (address, user):
                del self._failed[index]
                return
