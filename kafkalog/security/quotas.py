"""Which quota a client has, and which clients share it.  Pure.

Source: Kafka's ClientQuotaManager.DefaultQuotaCallback, TokenBucket.
"""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Quotas", "Shared", "TokenBucket"]

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of a type and a name (None: the default), sorted by type."""


class Shared(NamedTuple):
    """The clients that share a quota: all of a user, all with a client id, or those with both."""

    user: str
    """Empty: any."""
    client_id: str
    """Empty: any."""


def _user(name: str | None) -> Entity:
    return (("user", name),)


def _client(name: str | None) -> Entity:
    return (("client-id", name),)


def _both(user: str | None, client_id: str | None) -> Entity:
    return (("client-id", client_id), ("user", user))


class Quotas:
    """The quotas of one kind, such as producer_byte_rate, by entity."""

    def __init__(self, limits: Mapping[Entity, float]) -> None:
        """`limits`: by entity; those of addresses do not count."""
        self._limits = dict(limits)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def shared(self, user: str, client_id: str) -> Shared:
        """The clients that share the quota of this one; the most specific entity decides."""
        known = self._limits
        if _both(user, client_id) in known or _both(user, None) in known:
            return Shared(user, client_id)
        if _user(user) in known:
            return Shared(user, "")
        if _both(None, client_id) in known or _both(None, None) in known:
            return Shared(user, client_id)
        if _user(None) in known:
            return Shared(user, "")
        return Shared("", client_id)

    def limit(self, shared: Shared) -> float | None:
        """The quota that they share; None: they have none."""
        user, client_id = shared
        entities: tuple[Entity, ...]
        if user and client_id:
            entities = (
                _both(user, client_id), _both(user, None), _both(None, client_id), _both(None, None)
            )  # fmt: skip
        elif user:
            entities = (_user(user), _user(None))
        else:
            entities = (_client(client_id), _client(None)) if client_id else ()
        return next((self._limits[one] for one in entities if one in self._limits), None)


class TokenBucket:
    """How many changes a client may still make: full at first, refilled at a rate.

    Not safe to use from several threads.
    """

    def __init__(self, rate: float, window_s: float, now_s: float) -> None:
        """`rate`: tokens per second; `window_s`: the rate in this time fills it."""
        self.rate = rate
        self._window_s = window_s
        self._tokens = rate * window_s
        self._at_s = now_s

    def _refill(self, now_s: float) -> None:
        more = self.rate * max(now_s - self._at_s, 0.0)
        self._tokens = min(self._tokens + more, self.rate * self._window_s)
        self._at_s = now_s

    def take(self, count: float, now_s: float) -> None:
        """Take tokens, even if there are not so many left."""
        self._refill(now_s)
        self._tokens -= count

    def wait_ms(self, now_s: float) -> int:
        """How long it takes until no token is missing; 0: none is."""
        self._refill(now_s)
        return max(round(-self._tokens / self.rate * 1000), 1) if self._tokens < 0 else 0
