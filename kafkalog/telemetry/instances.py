"""The clients that send metrics to a broker: when each may send, and what it sent.  Pure.

The answers are Kafka's (ClientMetricsManager, ClientMetricsInstance).  A client has an id of its
own choice, so everything that is kept of clients has a bound.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from kafkalog.batch.codecs import CODECS
from kafkalog.telemetry.otlp import Kind, Point
from kafkalog.telemetry.subscriptions import Client, Subscription, Wanted, wanted, wants
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["INSTANCES_MAX", "RESERVED", "Instance", "Instances", "Limits", "Push", "Series"]

INSTANCES_MAX = 16_384
"""Clients that are remembered; with more, the one that was silent for longest is forgotten."""
EXPIRY_MS = 60_000
"""A client that was silent for so long, and for three of its intervals, is forgotten."""
INTERVALS = 3
SERIES_BYTES, LABEL_BYTES = 300, 150
"""Approximate memory of a series and of each of its labels, without their texts."""
RESERVED = (UUID(int=0), UUID(int=1))
"""Ids that no client has."""
_EXCUSES = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client may ask again at once."""


class Push(NamedTuple):
    """A PushTelemetry, without its payload."""

    subscription_id: int
    terminating: bool
    codec: int
    bytes: int


class Limits(NamedTuple):
    """How much may be sent, and how much is kept."""

    push_bytes: int
    """Bytes of one push."""
    series: int
    """Series of one client."""
    bytes: int
    """Approximate memory for the series of all clients."""


class Series:
    """The last value that a client sent under a name and labels."""

    __slots__ = ("grows", "value")

    def __init__(self, grows: bool) -> None:
        self.grows = grows
        """True: a count since the broker first heard of it, or since the client's start."""
        self.value = 0.0

    def take(self, point: Point) -> None:
        """A new value has come."""
        self.value = point.value + (self.value if point.kind is Kind.DELTA else 0.0)


Key = tuple[str, tuple[tuple[str, str], ...]]
"""A name, and the labels."""


class Instance:
    """One client."""

    def __init__(self, client: Client, connection: int, version: int, asked: Wanted) -> None:
        self.client = client
        self.connection = connection
        self.version = version
        """The number of the subscriptions that it was compared with."""
        self.wanted = asked
        self.got_ms = self.pushed_ms = -math.inf
        """When it last asked, and when it last pushed, without being refused."""
        self.seen_ms = 0.0
        self.terminating = False
        self.error = ErrorCode.NONE
        """The last answer."""
        self.series: dict[Key, Series] = {}
        self.bytes = 0

    def may_ask(self, now_ms: float) -> bool:
        """True if enough time has passed for a GetTelemetrySubscriptions, which counts then."""
        if now_ms - max(self.got_ms, self.pushed_ms) < self.wanted.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        """True if enough time has passed for a PushTelemetry, which counts then; the first one
        after an answer to GetTelemetrySubscriptions may come at any time."""
        if self.got_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.wanted.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True

    @property
    def expiry_ms(self) -> float:
        """When it is forgotten."""
        return self.seen_ms + max(EXPIRY_MS, INTERVALS * self.wanted.interval_ms)


class Instances:
    """All clients of a broker.  One thread at a time; times are of any clock that only advances."""

    def __init__(self, limits: Limits, connected: Callable[[int], bool]) -> None:
        """`connected`: True if the connection with this number is open."""
        self._limits = limits
        self._connected = connected
        self._all: OrderedDict[UUID, Instance] = OrderedDict()  # the longest silent first
        self._subscriptions: list[Subscription] = []
        self._version = 0
        self._swept_ms = -math.inf
        self._bytes = 0
        self.counts: Counter[str] = Counter()
        """Since the start: unknown-subscription-request, throttle, plugin-export, plugin-error (the
        names of Kafka's metrics), and series-left-out."""

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._all

    def subscribe(self, subscriptions: Iterable[Subscription]) -> None:
        """From now on clients are asked for these."""
        self._subscriptions = list(subscriptions)
        self._version += 1

    def find(self, now_ms: float, client: Client, connection: int) -> Instance:
        """The state of the client of a request.  It begins again with a new connection after the
        one before was closed, as in Kafka."""
        self._sweep(now_ms)
        found = self._all.get(client.instance_id)
        moved = found is not None and found.connection != connection
        if found is not None and moved and not self._connected(found.connection):
            self._start(found, client, connection)
        if found is None:
            found = Instance(client, connection, self._version, wanted(client, self._subscriptions))
            self._all[client.instance_id] = found
            while len(self._all) > INSTANCES_MAX:
                self._drop(next(iter(self._all)))
        elif found.version < self._version:
            self._start(found, found.client, connection)
        found.seen_ms = now_ms
        self._all.move_to_end(client.instance_id)
        return found

    def _start(self, one: Instance, client: Client, connection: int) -> None:
        """Forget what a client did, except what it sent."""
        fresh = Instance(client, connection, self._version, wanted(client, self._subscriptions))
        fresh.series, fresh.bytes = one.series, one.bytes
        one.__dict__.update(fresh.__dict__)

    def ask(self, now_ms: float, one: Instance) -> ErrorCode:
        """The outcome of a GetTelemetrySubscriptions."""
        if not one.may_ask(now_ms) and one.error not in _EXCUSES:
            self.counts["throttle"] += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        one.error = ErrorCode.NONE
        return one.error

    def push(self, now_ms: float, one: Instance, asked: Push) -> ErrorCode:
        """The outcome of a PushTelemetry, before its payload is read."""
        was, one.terminating = one.terminating, asked.terminating
        one.error = ErrorCode.NONE
        if was:
            one.error = ErrorCode.INVALID_REQUEST
        elif not one.may_push(now_ms) and not asked.terminating:
            self.counts["throttle"] += 1
            one.error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif asked.subscription_id != one.wanted.subscription_id:
            self.counts["unknown-subscription-request"] += 1
            one.error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        elif not 0 <= asked.codec < len(CODECS):
            one.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif asked.bytes > self._limits.push_bytes:
            one.error = ErrorCode.TELEMETRY_TOO_LARGE
        return one.error

    def fail(self, one: Instance, error: ErrorCode) -> None:
        """The payload of its push could not be read."""
        one.error = error
        self.counts["plugin-error"] += 1

    def keep(self, one: Instance, points: Iterable[Point], left_out: int) -> None:
        """Keep what a client has pushed and was asked for; `left_out`: so much was not read."""
        self.counts["plugin-export"] += 1
        for point in points:
            if not wants(one.wanted.metrics, point.name):
                left_out += 1
                continue
            key = point.name, point.labels
            series = one.series.get(key)
            if series is None:
                texts = sum(LABEL_BYTES + len(a) + len(b) for a, b in point.labels)
                if not self._takes(one, SERIES_BYTES + len(point.name) + texts):
                    left_out += 1
                    continue
                series = one.series[key] = Series(point.kind is not Kind.GAUGE)
            series.take(point)
        self.counts["series-left-out"] += left_out

    def _takes(self, one: Instance, count: int) -> bool:
        """Count a new series of a client, unless there is no room for it."""
        gone = self._all.get(one.client.instance_id) is not one
        full = len(one.series) >= self._limits.series or self._bytes + count > self._limits.bytes
        if gone or full:
            return False
        one.bytes += count
        self._bytes += count
        return True

    def _drop(self, instance_id: UUID) -> None:
        self._bytes -= self._all.pop(instance_id).bytes

    def _sweep(self, now_ms: float) -> None:
        """Forget clients that were silent for long; looked at as often as the shortest time."""
        if now_ms - self._swept_ms >= EXPIRY_MS:
            self._swept_ms = now_ms
            for one in [one for one in self._all.values() if one.expiry_ms <= now_ms]:
                self._drop(one.client.instance_id)

    def all(self, now_ms: float) -> list[Instance]:
        """Those that are not forgotten, in the order of their ids."""
        alive = [one for one in self._all.values() if one.expiry_ms > now_ms]
        return sorted(alive, key=lambda one: one.client.instance_id)
