"""When a client asks for its subscription, and when it pushes.  Pure.

Source: KIP-714; Kafka's ClientTelemetryReporter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from kafkalog.batch.codecs import CODECS, NONE
from kafkalog.config.client_metrics import SubscriptionSettings
from kafkalog.telemetry.subscriptions import ALL
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Ask", "Asked", "Push", "Schedule"]

USUAL_S = SubscriptionSettings.interval_ms.default / 1000
"""The interval of a client that has not been given one."""
JITTER = (0.5, 1.5)
"""The first push comes after this part of the interval: not all clients' at the same time."""
NO_ID = UUID(int=0)
_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_FOR_GOOD = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD)
"""Errors of a client that does not understand its broker; it stays silent, as Kafka's does."""


class Asked(NamedTuple):
    """The broker's subscription to this client."""

    subscription_id: int
    codec: int
    """For the payload: the best that both know."""
    interval_s: float
    metrics: tuple[str, ...]
    """Beginnings of names; (ALL,): all of them."""
    max_bytes: int
    delta: bool
    """Counts are sent as increases."""


class Ask(NamedTuple):
    """Send GetTelemetrySubscriptions."""

    instance_id: UUID


class Push(NamedTuple):
    """Send PushTelemetry."""

    instance_id: UUID
    asked: Asked
    terminating: bool


class Schedule:
    """The state of one client.  One thread at a time; times are of any clock that only advances."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        """`uniform`: a random number between two."""
        self.instance_id = NO_ID
        """NO_ID until a broker has given one."""
        self.due_s = -math.inf
        """When `next` is to be carried out; infinite: never again."""
        self.subscribed = False
        """True if the last answer asked for metrics, even if no broker has answered since."""
        self._uniform = uniform
        self._asked: Asked | None = None
        self._interval_s = USUAL_S
        """The last answer's: it also holds while no broker answers."""

    def next(self) -> Ask | Push:
        """The request that is due at `due_s`."""
        if self._asked is None:
            return Ask(self.instance_id)
        return Push(self.instance_id, self._asked, terminating=False)

    def asked(self, answer: Any, now_s: float) -> None:
        """The answer to an Ask has come."""
        if answer.error_code:
            self._refused(answer.error_code, now_s)
            return
        self.instance_id = answer.client_instance_id or self.instance_id
        if self.instance_id == NO_ID:
            self.instance_id = uuid4()
        known = (one for one in answer.accepted_compression_types if NONE < one < len(CODECS))
        interval_s = answer.push_interval_ms / 1000 if answer.push_interval_ms > 0 else USUAL_S
        metrics = tuple(answer.requested_metrics)
        asked = Asked(
            answer.subscription_id, next(known, NONE), interval_s,
            (ALL,) if ALL in metrics else metrics, answer.telemetry_max_bytes,
            answer.delta_temporality,
        )  # fmt: skip
        self.subscribed = bool(metrics)
        self._asked = asked if metrics else None
        self._interval_s = interval_s
        part = self._uniform(*JITTER) if self._asked else 1.0
        self.due_s = now_s + interval_s * part

    def pushed(self, code: int, now_s: float) -> None:
        """The answer to a Push has come."""
        if code:
            self._refused(code, now_s)
        else:
            self.due_s = now_s + self._interval_s

    def failed(self, now_s: float) -> None:
        """No broker has answered, or the one that did cannot be asked: another one can, later."""
        self.due_s = now_s + self._interval_s
        self._asked = None

    def _refused(self, code: int, now_s: float) -> None:
        wait_s = 0.0 if code in _AT_ONCE else math.inf if code in _FOR_GOOD else self._interval_s
        self.due_s = now_s + wait_s
        self._asked = None

    def last(self) -> Push | None:
        """The push of a client that ends, and sends nothing more; None: nobody has asked for it."""
        asked, self._asked, self.due_s = self._asked, None, math.inf
        return None if asked is None else Push(self.instance_id, asked, terminating=True)
