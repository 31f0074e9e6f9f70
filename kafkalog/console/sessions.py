"""Sessions of the console and attempts to log in: pure state, which takes the time."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
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
FAILURES_MAX, OF_ADDRESS_MAX = 10, 30
"""Failed logins in a window: of one user from one address, and of all users from one address.  A
user's failures elsewhere do not count, so that nobody locks others out."""
ADDRESSES_MAX = 1_000
"""Addresses with failures that are remembered, those that failed last."""
HOST_BITS = 64
"""Bits at the end of an IPv6 address: one host may have all that differ only in these."""
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
        # When, and which user; by network, the one that failed last comes last.
        self._failed: dict[str, list[tuple[float, str]]] = {}

    def __len__(self) -> int:
        """Networks that are remembered."""
        return len(self._failed)

    def wait_s(self, address: str, user: str, now_s: float) -> float:
        """How long a login of this user from this address is still refused; 0: it is not."""
        for network, failed in list(self._failed.items()):
            if now_s - failed[-1][0] < WINDOW_S:
                break
            del self._failed[network]
        recent = [
            one for one in self._failed.get(_network(address), ()) if now_s - one[0] < WINDOW_S
        ]
        of_user = [one for one in recent if one[1] == user]
        waits = [
            some[-most][0] + WINDOW_S - now_s
            for some, most in ((of_user, FAILURES_MAX), (recent, OF_ADDRESS_MAX))
            if len(some) >= most
        ]
        return max(waits, default=0.0)

    def begin(self, address: str, user: str, now_s: float) -> None:
        """A login counts as failed until `succeed`, so that many at once are limited, too."""
        network = _network(address)
        failed = self._failed.pop(network, [])
        self._failed[network] = [*failed[1 - OF_ADDRESS_MAX :], (now_s, user)]
        if len(self._failed) > ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]

    def succeed(self, address: str, user: str) -> None:
        """The last one of this user from this address was right."""
        network = _network(address)
        failed = self._failed.get(network, [])
        for index in reversed(range(len(failed))):
            if failed[index][1] == user:
                del failed[index]
                break
        if not failed:
            self._failed.pop(network, None)


def _network(address: str) -> str:
    """The addresses that one host may have, as a text."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> HOST_BITS:x}"
