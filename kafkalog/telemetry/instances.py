"""The clients that send metrics to a broker: when each may send, and what it sent.  Pure.

The answers are Kafka's (ClientMetricsManager, ClientMetricsInstance).  A client has an id of its
own choice, so everything that is kept of clients has a bound.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from kafkalog.batch.codecs import CODECS
from kafkalog.telemetry.otlp import Kind, Point
from kafkalog.telemetry.subscriptions import Client, Matched, Subscription, Subscriptions, wants
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "CONNECTION_MAX", "INSTANCES_MAX", "RESERVED", "Instance", "Instances", "Kept", "Key", "Limits",
    "Push", "Series",
]  # fmt: skip

INSTANCES_MAX = 16_384
"""Clients that are remembered.  With more, those of closed connections are forgotten, then those
without series, then those that were silent for longest, until there is room for a sixteenth."""
CONNECTION_MAX = 16
"""Clients of one connection that are remembered: a client has its own connections, but ids cost
nothing."""
EXPIRY_MS = 60_000
"""A client that was silent for so long, and for three of its intervals, is forgotten; so is a
series that all pushes of such a time lack."""
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


class Series(NamedTuple):
    """The last value that a client sent under a name and labels."""

    value: float
    grows: bool
    """True: a count since the broker first heard of it, or since the client's start."""
    at_ms: float
    """When it was sent."""


Key = tuple[str, tuple[tuple[str, str], ...]]
"""A name, and the labels."""


class Kept(NamedTuple):
    """A client and its series, at one moment."""

    client: Client
    interval_ms: int
    silent_ms: float
    """Time since its last request about metrics."""
    series: dict[Key, Series]
    """The reader's own."""


class Instance:
    """One client."""

    def __init__(self, client: Client, connection: int, matched: Matched) -> None:
        self.client = client
        self.connection = connection
        self.version = matched.version
        """The number of the subscriptions that it was compared with."""
        self.wanted = matched.wanted
        self.got_ms = self.pushed_ms = -math.inf
        """When it last asked, and when it last pushed, without being refused."""
        self.seen_ms = 0.0
        self.terminating = False
        self.error = ErrorCode.NONE
        """The last answer."""
        self.series: dict[Key, Series] = {}
        self.bytes = 0
        self.kept_ms = self.swept_ms = -math.inf
        """When values of it were kept last, and when the series that it does not send any more were
        looked for."""

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
    def patience_ms(self) -> float:
        """The longest that it, or one of its series, may be silent."""
        return max(EXPIRY_MS, INTERVALS * self.wanted.interval_ms)

    @property
    def expiry_ms(self) -> float:
        """When it is forgotten."""
        return self.seen_ms + self.patience_ms


class Instances:
    """All clients of a broker.  One thread at a time; times are of any clock that only advances."""

    def __init__(
        self, limits: Limits, connected: Callable[[Sequence[int]], Sequence[tuple[bool, bool]]]
    ) -> None:
        """`connected`: for connections by their numbers: True if one is open; True if its peer may
        still send requests."""
        self._limits = limits
        self._connected = connected
        self._all: OrderedDict[UUID, Instance] = OrderedDict()  # the longest silent first
        self._by_connection: dict[int, set[UUID]] = {}
        self.subscriptions = Subscriptions(0, ())
        """Those in effect: never changed, but replaced."""
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
        self.subscriptions = Subscriptions(self.subscriptions.version + 1, tuple(subscriptions))

    def find(
        self, now_ms: float, client: Client, connection: int, matched: Matched | None = None
    ) -> Instance | None:
        """The state of the client of a request.  It begins again with a new connection after the
        one before was closed, as in Kafka.

        `matched`: the subscriptions that match the client.  None is returned only without it: it is
        needed, and takes too long to be found here.
        """
        self._sweep(now_ms)
        found = self._all.get(client.instance_id)
        if found is None or self._begins_again(found, connection):
            if matched is None:
                return None
            found = self._begun(found, client, connection, matched)
        found.seen_ms = now_ms
        self._all.move_to_end(client.instance_id)
        return found

    def _begins_again(self, found: Instance, connection: int) -> bool:
        moved = found.connection != connection and not self._connected([found.connection])[0][0]
        return moved or found.version < self.subscriptions.version

    def _begun(
        self, before: Instance | None, client: Client, connection: int, matched: Matched
    ) -> Instance:
        """A client's state, without what it did before except the values that it sent, as far as
        it is still asked for them."""
        fresh = Instance(client, connection, matched)
        if before is None:
            if len(self._all) >= INSTANCES_MAX:
                self._make_room()
            self._all[client.instance_id] = fresh
            self._join(fresh)
            return fresh
        self._part(before)
        fresh.series, fresh.bytes = before.series, before.bytes
        fresh.kept_ms, fresh.swept_ms = before.kept_ms, before.swept_ms
        before.__dict__.update(fresh.__dict__)
        self._join(before)
        self._forget(
            before, [key for key in before.series if not wants(before.wanted.metrics, key[0])]
        )
        return before

    def _join(self, one: Instance) -> None:
        """It is a client of its connection, which may displace another one of that."""
        others = self._by_connection.get(one.connection, ())
        if len(others) >= CONNECTION_MAX:
            self._drop(min((self._all[number] for number in others), key=_worth))
        self._by_connection.setdefault(one.connection, set()).add(one.client.instance_id)

    def _part(self, one: Instance) -> None:
        numbers = self._by_connection[one.connection]
        numbers.discard(one.client.instance_id)
        if not numbers:
            del self._by_connection[one.connection]

    def _make_room(self) -> None:
        """For so many that it is seldom looked for."""
        self._drop_closed(self._all.values())
        count = len(self._all) - INSTANCES_MAX + max(1, INSTANCES_MAX // 16)
        for one in sorted(self._all.values(), key=_worth)[: max(0, count)]:
            self._drop(one)

    def _drop_closed(self, some: Iterable[Instance]) -> None:
        """Forget those of these whose connections are closed."""
        those = list(some)
        found = self._connected([one.connection for one in those]) if those else ()
        for one, (is_open, _) in zip(those, found, strict=True):
            if not is_open:
                self._drop(one)

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

    def keep(self, now_ms: float, one: Instance, points: Iterable[Point], left_out: int) -> None:
        """Keep what a client has pushed and was asked for; `left_out`: so much was not read."""
        self.counts["plugin-export"] += 1
        if self._all.get(one.client.instance_id) is not one:  # forgotten in the meantime
            self.counts["series-left-out"] += left_out + sum(1 for _ in points)
            return
        self._forget_silent(now_ms, one)
        one.kept_ms = now_ms
        for point in points:
            key = point.name, point.labels
            before = one.series.get(key)
            after = _after(before, point, now_ms)
            fits = after is not None and wants(one.wanted.metrics, point.name)
            if after is not None and fits and (before is not None or self._takes(one, key)):
                one.series[key] = after
            else:
                left_out += 1
        self.counts["series-left-out"] += left_out

    def _takes(self, one: Instance, key: Key) -> bool:
        """Count a new series of a client, unless there is no room for it."""
        count = _bytes(key)
        full = len(one.series) >= self._limits.series or self._bytes + count > self._limits.bytes
        if full:
            return False
        one.bytes += count
        self._bytes += count
        return True

    def _forget_silent(self, now_ms: float, one: Instance) -> None:
        """Forget the series of a client that its pushes have lacked for long; looked for as often
        as that takes."""
        if now_ms - one.swept_ms >= one.patience_ms:
            one.swept_ms = now_ms
            late_ms = one.kept_ms - one.patience_ms
            self._forget(
                one, [key for key, series in one.series.items() if series.at_ms <= late_ms]
            )

    def _forget(self, one: Instance, keys: Iterable[Key]) -> None:
        """Forget series of a client."""
        for key in keys:
            del one.series[key]
            count = _bytes(key)
            one.bytes -= count
            self._bytes -= count

    def _drop(self, one: Instance) -> None:
        del self._all[one.client.instance_id]
        self._part(one)
        self._bytes -= one.bytes

    def _sweep(self, now_ms: float) -> None:
        """Forget clients that were silent for long, and those without series whose connections are
        closed; looked at as often as the shortest time."""
        if now_ms - self._swept_ms >= EXPIRY_MS:
            self._swept_ms = now_ms
            for one in [one for one in self._all.values() if one.expiry_ms <= now_ms]:
                self._drop(one)
            self._drop_closed(one for one in self._all.values() if not one.series)

    def all(self) -> list[Instance]:
        """Those that were not forgotten yet, the longest silent first; some may be due for it."""
        return list(self._all.values())

    def kept(self, now_ms: float, instance_id: UUID) -> Kept | None:
        """A copy of a client's state; None: it is forgotten, or due for it."""
        one = self._all.get(instance_id)
        if one is None or one.expiry_ms <= now_ms:
            return None
        series = one.series.copy()
        return Kept(one.client, one.wanted.interval_ms, now_ms - one.seen_ms, series)


def _worth(one: Instance) -> tuple[bool, float]:
    """Lower for those that are forgotten first."""
    return bool(one.series), one.seen_ms


def _after(before: Series | None, point: Point, now_ms: float) -> Series | None:
    """A series once a value has come; None: a count that is no number, or below 0, which would
    spoil all later ones."""
    grows = point.kind is not Kind.GAUGE
    value = point.value
    if point.kind is Kind.DELTA and before is not None and before.grows:
        value += before.value
    if grows and not (math.isfinite(value) and point.value >= 0):
        return None
    return Series(value, grows, now_ms)


def _bytes(key: Key) -> int:
    """Approximate memory of a series."""
    name, labels = key
    texts = sum(LABEL_BYTES + _text_bytes(a) + _text_bytes(b) for a, b in labels)
    return SERIES_BYTES + _text_bytes(name) + texts


def _text_bytes(text: str) -> int:
    """Memory of a text's characters: each takes as much as the widest, up to four bytes."""
    widest = max(text, default="")
    return len(text) * (1 if widest < "\u0100" else 2 if widest < "\U00010000" else 4)
