"""The subscriptions of a client: its metrics, and how often they are sent.  Pure.

Source: KIP-714; Kafka's ClientMetricsConfigs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalog.config.client_metrics import SELECTORS, SubscriptionSettings
from kafkalog.disk.layout import uuid_text
from kafkalog.errors import ArgumentError, InvalidSetting
from kafkalog.pattern import Pattern

__all__ = ["ALL", "Client", "Matched", "Subscription", "Subscriptions", "Wanted", "wanted", "wants"]

ALL = "*"
"""Stands for all metrics."""
CACHED_MAX = 2_000
"""The size of a pattern's cache, as of CACHED_MAX in kafkalog.pattern: about 200 kB."""


class Client(NamedTuple):
    """The client of a request, as `match` sees it: in the order of SELECTORS."""

    instance_id: UUID
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def properties(self) -> Mapping[str, str]:
        """By the names that `match` has."""
        return dict(zip(SELECTORS, (uuid_text(self.instance_id), *map(str, self[1:])), strict=True))


class Subscription:
    """One resource of type CLIENT_METRICS.  `matches`: one thread at a time."""

    def __init__(self, own: Mapping[str, str]) -> None:
        """`own`: its settings; unknown ones have no effect.

        Raises: InvalidSetting.
        """
        known = {name: text for name, text in own.items() if name in SubscriptionSettings.table}
        settings = SubscriptionSettings(known)
        self.metrics = settings.metrics
        self.interval_ms = settings.interval_ms
        self._match: dict[str, Pattern] = {}
        for one in settings.match:
            name, _, pattern = (part.strip() for part in one.partition("="))
            try:
                self._match[name] = Pattern(pattern, cached_max=CACHED_MAX)
            except ArgumentError as problem:
                raise InvalidSetting(f"match: found {one!r}: {problem}") from None

    def matches(self, client: Client) -> bool:
        """True if it is for this client.  A pattern that needs too much work matches nobody."""
        found = client.properties()
        try:
            return all(one.matches_alone(found[name]) for name, one in self._match.items())
        except ArgumentError:
            return False


class Wanted(NamedTuple):
    """The subscriptions of one client, taken together."""

    subscription_id: int
    """Signed, of 32 bits: it changes with the others, and differs between clients."""
    metrics: tuple[str, ...]
    """Beginnings of names, sorted; (ALL,): all of them; empty: none."""
    interval_ms: int


def wants(metrics: tuple[str, ...], name: str) -> bool:
    """True for the name of a metric that was asked for by these beginnings."""
    return metrics == (ALL,) or name.startswith(metrics)


def wanted(client: Client, subscriptions: Iterable[Subscription]) -> Wanted:
    """The request to a client: the metrics of all subscriptions that match, at the shortest
    interval."""
    mine = [one for one in subscriptions if one.matches(client)]
    names = {name for one in mine for name in one.metrics}
    metrics = (ALL,) if ALL in names else tuple(sorted(names))
    usual_ms = SubscriptionSettings.interval_ms.default
    interval_ms = min((one.interval_ms for one in mine), default=usual_ms)
    interval_ms = min(interval_ms, usual_ms)
    number = client.instance_id.int
    mixed = zlib.crc32(f"{','.join(metrics)} {interval_ms}".encode())
    for shift in range(0, 128, 32):
        mixed ^= number >> shift & 0xFFFFFFFF
    return Wanted(mixed - (mixed >> 31 << 32), metrics, interval_ms)


class Matched(NamedTuple):
    """The outcome for one client."""

    version: int
    """The number of the subscriptions that it was compared with."""
    wanted: Wanted


class Subscriptions(NamedTuple):
    """All subscriptions at one moment."""

    version: int
    """Their number: it grows with each change."""
    all: tuple[Subscription, ...]

    def matched(self, client: Client) -> Matched:
        """Those of a client.  One thread at a time."""
        return Matched(self.version, wanted(client, self.all))
