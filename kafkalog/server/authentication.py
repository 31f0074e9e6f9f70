"""Authenticates the connections of SASL listeners, before their first other request.

Source: Kafka's SaslServerAuthenticator; KIP-43, KIP-152, KIP-368.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.clock import Clock
from kafkalog.config.server import ServerConfig
from kafkalog.errors import (
    InvalidRequest,
    KafkalogError,
    SaslAuthenticationFailed,
    UnsupportedVersion,
)
from kafkalog.logs.limit import limited
from kafkalog.security.principal import ANONYMOUS, Principal
from kafkalog.server.admission import Admission
from kafkalog.server.failed_answers import UNEXPECTED, failed_answer
from kafkalog.server.mechanisms import Exchange
from kafkalog.server.network.listeners import Listener
from kafkalog.server.network.reactor import (
    REAUTHENTICATES,
    TOKEN,
    UNIDENTIFIED,
    UNIDENTIFIED_RAW,
)
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Authentication", "Mechanisms"]

_logger = limited(__name__)

RAW = -1
"""The version of SaslAuthenticate that stands for a token without a header."""
REAUTHENTICATE_MS_MIN = 1_000
"""Kafka: a connection may authenticate again once a second."""
SESSIONS_MAX = 65_536
"""Sessions remembered for re-authentication; without it, the oldest client must connect again."""
Mechanisms = Mapping[str, Callable[[], Exchange]]
Identify = Callable[[int, bytes | None], Principal]
"""The principal of a listener's client, by its number and the subject of the client's certificate
(DER), which is None if it showed none."""


class _Attempt:
    """An authentication that has begun."""

    def __init__(self, session: "_Session | None" = None) -> None:
        """`session`: the one that is renewed."""
        self.session = session
        self.asked_versions = False
        self.mechanism = ""
        """Empty until the handshake."""
        self.raw = False
        self.exchange: Exchange | None = None


class _Session(NamedTuple):
    """An authenticated connection whose session ends."""

    mechanism: str
    principal: Principal
    again_ms: int | None
    """When it authenticated again; None: once only."""


class _Refused(Exception):
    """An authentication ends: the error and the sentence that its client gets, and the one that is
    logged; neither contains anything secret."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Authentication:
    """The connections that have not authenticated.  Safe to use from many threads; requests of one
    connection come one at a time."""

    def __init__(
        self,
        config: ServerConfig,
        listeners: Sequence[Listener],
        mechanisms: Mapping[int, Mechanisms],
        admission: Admission,
        clock: Clock,
        identify: Identify | None = None,
    ) -> None:
        """`mechanisms`: of each SASL listener, by its number; `identify`: for listeners without
        SASL, None: their clients are anonymous."""
        self._config = config
        self._listeners = tuple(listeners)
        self._mechanisms = mechanisms
        self._admission = admission
        self._clock = clock
        self._identify = identify or _anonymous
        self._lock = threading.Lock()  # guards what follows
        self._outcomes: Counter[tuple[int, bool]] = Counter()
        self._attempts: OrderedDict[int, _Attempt] = OrderedDict()  # by connection, oldest first
        self._attempts_max = 2 * config.kafkalog_unauthenticated_connections_max
        self._sessions: OrderedDict[int, _Session] = OrderedDict()

    def __call__(self, request: Request, serve: Callable[[Request], None]) -> None:
        """Take a request of a connection that has not authenticated; `serve` answers it if it may
        be answered, or needs no SASL."""
        if request.peer.listener not in self._mechanisms:
            try:
                principal = self._identify(request.peer.listener, request.subject)
                self._admission.identify(request, principal)
            except KafkalogError as problem:
                _logger.warning("%s: its principal is refused: %s", request.peer.host, problem)
                request.drop()
                return
            serve(request)
            return
        attempt = self._attempt(request.connection)
        try:
            if request.peer.principal == REAUTHENTICATES and attempt.session is None:
                raise _Refused(ErrorCode.ILLEGAL_SASL_STATE, "the session is no longer known")
            if request.api is apis.API_VERSIONS and not attempt.mechanism:
                if attempt.asked_versions:
                    raise _Refused(ErrorCode.ILLEGAL_SASL_STATE, "ApiVersions was sent twice")
                attempt.asked_versions = request.version in request.api.versions
                serve(request)
                return
            self._decode(request)
            if request.api is apis.SASL_HANDSHAKE and not attempt.mechanism:
                self._handshake(request, attempt)
            elif request.api is apis.SASL_AUTHENTICATE and attempt.exchange is not None:
                self._step(request, attempt)
            else:
                name = "an unknown request" if request.api is None else request.api.name
                raise _Refused(ErrorCode.ILLEGAL_SASL_STATE, f"Unexpected request: {name}")
        except _Refused as problem:
            self._fail(request, attempt, problem)
        except Exception as problem:  # its details are in the broker's log
            _logger.error("%r failed", request, exc_info=problem)
            self._fail(request, attempt, _Refused(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))

    def _decode(self, request: Request) -> None:
        if request.api is apis.SASL_AUTHENTICATE and request.version == RAW:
            return
        if request.api is None or request.version not in request.api.versions:
            return
        try:
            request.decode()
        except (InvalidRequest, UnsupportedVersion):
            raise _Refused(ErrorCode.INVALID_REQUEST, "The request cannot be read") from None

    def outcomes(self) -> dict[tuple[int, bool], int]:
        """How many SASL exchanges ended, by listener, and True for those that succeeded."""
        with self._lock:
            return dict(self._outcomes)

    # ---- the steps -----------------------------------------------------------------------------

    def _handshake(self, request: Request, attempt: _Attempt) -> None:
        enabled = self._mechanisms[request.peer.listener]
        if request.version not in request.api.versions:
            raise _Refused(ErrorCode.UNSUPPORTED_VERSION, "Unsupported version of SaslHandshake")
        mechanism = request.body.mechanism
        if mechanism not in enabled:
            raise _Refused(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"Unsupported SASL mechanism {mechanism[:20]!r}",
            )
        attempt.mechanism, attempt.raw = mechanism, request.version == 0
        attempt.exchange = enabled[mechanism]()
        request.identify(UNIDENTIFIED_RAW if attempt.raw else UNIDENTIFIED)
        request.answer({"error_code": ErrorCode.NONE, "mechanisms": list(enabled)})

    def _step(self, request: Request, attempt: _Attempt) -> None:
        assert attempt.exchange is not None
        if request.version != RAW and request.version not in request.api.versions:
            raise _Refused(ErrorCode.UNSUPPORTED_VERSION, "Unsupported version")
        if attempt.session is not None and attempt.mechanism != attempt.session.mechanism:
            raise _Refused(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"SASL mechanism '{attempt.mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{attempt.session.mechanism}'",
            )
        message = request.body if request.version == RAW else request.body.auth_bytes
        try:
            token = attempt.exchange.step(bytes(message))
        except SaslAuthenticationFailed as problem:
            raise _Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, str(problem)) from None
        lifetime_ms = self._finish(request, attempt) if attempt.exchange.done else 0
        if request.version == RAW:
            request.answer_bytes(token, TOKEN)
        else:
            request.answer({"error_code": ErrorCode.NONE, "error_message": "",
                            "auth_bytes": token, "session_lifetime_ms": lifetime_ms})  # fmt: skip

    def _finish(self, request: Request, attempt: _Attempt) -> int:
        """Identify the connection; returns the milliseconds that its session lasts, 0: forever."""
        exchange, number = attempt.exchange, request.peer.listener
        assert exchange is not None
        # With a delegation token, the client acts as the token's owner.
        owner: Principal | None = getattr(exchange, "principal", None)
        principal = owner or Principal("User", exchange.user)
        if attempt.session is not None and attempt.session.principal != principal:
            raise _Refused(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Cannot change principals during re-authentication from "
                f"{attempt.session.principal} to {principal}",
            )
        config = self._config.of_listener(self._listeners[number].name, attempt.mechanism)
        lifetime_ms = config.connections_max_reauth_ms
        expires_ms = getattr(exchange, "expires_ms", None)
        if expires_ms is not None:
            left_ms = max(1, expires_ms - self._clock.now_ms())
            lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms else left_ms
        try:
            self._admission.identify(request, principal, lifetime_ms or -1)
        except KafkalogError as problem:
            _logger.warning("%s: its principal is refused: %s", request.peer.host, problem)
            raise _Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, UNEXPECTED) from None
        with self._lock:
            self._outcomes[number, True] += 1
            self._attempts.pop(request.connection, None)
            if lifetime_ms:
                again_ms = None if attempt.session is None else self._now_ms()
                session = _Session(attempt.mechanism, principal, again_ms)
                self._sessions[request.connection] = session
                while len(self._sessions) > SESSIONS_MAX:
                    self._sessions.popitem(last=False)
        return lifetime_ms

    def again(self, request: Request) -> bool:
        """Begin a re-authentication, with a SaslHandshake; False: the connection may not."""
        with self._lock:
            session = self._sessions.get(request.connection)
            if session is None:
                return False
            at_ms = session.again_ms
            if at_ms is not None and self._now_ms() - at_ms < REAUTHENTICATE_MS_MIN:
                return False
            del self._sessions[request.connection]
            self._keep(request.connection, _Attempt(session=session))
        attempt = self._attempt(request.connection)
        try:
            self._handshake(request, attempt)
        except _Refused as problem:
            self._fail(request, attempt, problem)
        return True

    # ---- failures ------------------------------------------------------------------------------

    def _fail(self, request: Request, attempt: _Attempt, problem: _Refused) -> None:
        """Answer an error, late, and close the connection."""
        with self._lock:
            self._outcomes[request.peer.listener, False] += 1
            self._attempts.pop(request.connection, None)
        mechanism = attempt.mechanism or "no mechanism"
        _logger.warning("%s (%s): authentication failed: %s", request.peer.host, mechanism, problem)
        delay_ms = self._config.connection_failed_authentication_delay_ms
        answer = self._answer(request, attempt, problem)
        if answer is None:
            request.refuse(b"", -1, delay_ms)
            return
        late = problem.code is not ErrorCode.UNSUPPORTED_SASL_MECHANISM  # Kafka: at once
        data = request.api.encode_response(request.version, answer)
        version = request.api.response_header_version(request.version)
        request.refuse(data, version, delay_ms if late else 0)

    def _answer(
        self, request: Request, attempt: _Attempt, problem: _Refused
    ) -> Mapping[str, Any] | None:
        """The answer with the error; None: its client gets none, as in Kafka."""
        api, version = request.api, request.version
        if api is None or version not in api.versions:
            return None
        if api is apis.SASL_HANDSHAKE and problem.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = list(self._mechanisms[request.peer.listener])
            return {"error_code": problem.code, "mechanisms": enabled}
        if not attempt.mechanism or attempt.raw or problem.code is ErrorCode.INVALID_REQUEST:
            return None
        if api is apis.SASL_AUTHENTICATE:
            return {"error_code": problem.code, "error_message": str(problem), "auth_bytes": b"",
                    "session_lifetime_ms": 0}  # fmt: skip
        return failed_answer(api, version, request.body, problem.code, str(problem))

    # ---- memory --------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)

    def _attempt(self, connection: int) -> _Attempt:
        with self._lock:
            found = self._attempts.get(connection)
            if found is None:
                found = self._keep(connection, _Attempt())
            return found

    def _keep(self, connection: int, attempt: _Attempt) -> _Attempt:
        self._attempts[connection] = attempt
        while len(self._attempts) > self._attempts_max:  # those of closed connections are oldest
            self._attempts.popitem(last=False)
        return attempt


def _anonymous(_listener: int, _subject: bytes | None) -> Principal:
    return ANONYMOUS
