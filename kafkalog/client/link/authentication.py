"""Protects a new connection and logs in: TLS first, SASL before all but the first request."""

from __future__ import annotations

import math
import random
import socket
import time
from typing import Any, Protocol

from kafkalog import errors
from kafkalog.client.link.failures import failure
from kafkalog.client.login.security import Security
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["log_in", "protected"]

ROUNDS_MAX = 8
"""Messages of one login; SCRAM has three."""
RENEWED_MIN_S = 1.05
"""Brokers refuse a second login within one second."""


class Caller(Protocol):
    """A connection, before it can be used."""

    @property
    def address(self) -> object:
        """The broker's."""

    def knows(self, api: Any) -> bool:
        """As Connection.knows."""

    def call(
        self, api: Any, body: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """As Connection.call."""


class Place(Protocol):
    """A broker's address."""

    @property
    def host(self) -> str:
        """Its name or IP address."""


def protected(
    made: socket.socket, security: Security, address: Place, until_s: float
) -> socket.socket:
    """A connected socket after its TLS handshake, or as it is.  `until_s`: in time.monotonic.

    Raises: SslAuthenticationFailed, PeerGone, Timeout; `made` is then closed.
    """
    try:
        return security.protect(made, address.host, str(address), until_s)
    except TimeoutError:
        raise errors.Timeout(f"{address}: no TLS handshake in time; is it a TLS port?") from None
    except OSError as problem:
        raise errors.PeerGone(f"{address}: TLS handshake: {problem.strerror or problem}") from None


def log_in(connection: Caller, security: Security, until_s: float) -> float:
    """Log in; returns when to do so again, infinite: never.  Times are of time.monotonic.

    Raises: AuthenticationFailed; as Connection.call.
    """
    began_s = time.monotonic()
    what = f"{connection.address}: {security.mechanism}"
    if not connection.knows(apis.SASL_HANDSHAKE) or not connection.knows(apis.SASL_AUTHENTICATE):
        raise errors.IllegalSaslState(f"{what}: the listener takes no login")
    answer = connection.call(
        apis.SASL_HANDSHAKE, {"mechanism": security.mechanism}, 1, _left_ms(until_s)
    )
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise errors.UnsupportedSaslMechanism(f"{what}: the broker offers {offered}")
    if answer.error_code:
        raise _refused(answer.error_code, what)
    try:
        lifetime_ms = _exchange(connection, security, what, until_s)
    except errors.SaslAuthenticationFailed as problem:
        if str(problem).startswith(what):
            raise
        raise errors.SaslAuthenticationFailed(f"{what}: {problem}") from problem.__cause__
    if not lifetime_ms:
        return math.inf
    # Not all clients at the same time, and long before the broker closes the connection.
    return began_s + max(lifetime_ms / 1000 * random.uniform(0.85, 0.95), RENEWED_MIN_S)


def _exchange(connection: Caller, security: Security, what: str, until_s: float) -> int:
    """The messages of the mechanism; returns how long the session lasts, in ms; 0: no limit."""
    exchange = security.exchange(until_s - time.monotonic())
    message = exchange.step(b"")
    for _ in range(ROUNDS_MAX):
        answer = connection.call(
            apis.SASL_AUTHENTICATE, {"auth_bytes": message}, timeout_ms=_left_ms(until_s)
        )
        if answer.error_code:
            raise _refused(answer.error_code, what, answer.error_message)
        message = exchange.step(answer.auth_bytes)
        if exchange.done:
            return int(getattr(answer, "session_lifetime_ms", 0))
    raise errors.BadAnswer(f"{what}: {ROUNDS_MAX} messages, and no end")


def _refused(code: int, what: str, detail: str | None = None) -> errors.KafkalogError:
    """The failure of an error code: Kafka's clients do not retry a login that was answered."""
    found = failure(code, what, detail)
    if isinstance(found, errors.AuthenticationFailed) or found.retriable:
        return found
    return errors.SaslAuthenticationFailed(str(found))


def _left_ms(until_s: float) -> int:
    return max(1, int((until_s - time.monotonic()) * 1000))
