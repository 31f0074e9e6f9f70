"""A request on its way through Python: decoded, and answered once, by any thread."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalog.logs.limit import limited
from kafkalog.server.decoded_bytes import COUNTED_BYTES, DecodedBytes
from kafkalog.server.failed_answers import UNEXPECTED, failed_answer
from kafkalog.server.network.repeats import Repeat
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.wire.values import Rows

if TYPE_CHECKING:
    from kafkalog.server.error_counts import ErrorCounts
    from kafkalog.server.network.raw_request import Answers, RawRequest

__all__ = ["Meter", "Peer", "Request"]

_logger = limited(__name__)

Answer = Mapping[str, Any]
_CONTROLS = (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN)
ADDRESSES_KEPT = 4_096
"""Addresses of connections that are taken apart once."""
SHOWN_MAX = 256
"""Characters of a client id that log lines show."""
_WAIT_IN_GROUPS = (
    apis.JOIN_GROUP, apis.SYNC_GROUP, apis.CONSUMER_GROUP_HEARTBEAT, apis.SHARE_GROUP_HEARTBEAT,
    apis.STREAMS_GROUP_HEARTBEAT,
)  # fmt: skip
"""Answered when other members have acted, which may take minutes, or after their turn: the group
counts what it keeps."""
SMALL_BYTES = 2_000
"""A body up to this size stays in the memory that a connection has for its next request: to free it
would take as long as all else, as other threads want the GIL."""
KNOWN = {**{api.key: api for api in _CONTROLS}, **apis.BY_KEY}
"""Clients' requests to a controller, a controller's commands, and brokers' requests to it."""


class Peer(NamedTuple):
    """The caller."""

    client_id: str | None
    host: str
    """As Kafka writes it: `/10.0.0.1`; `unix` of a Unix socket, `inside` of this process."""
    listener: int
    """The number of the listener in the order of `listeners`, or INSIDE."""
    principal: int
    """The principal of its connection: a number of `Admission`, ANONYMOUS before authentication."""
    port: int = 0
    """Its port; 0 without one."""


class Meter(Protocol):
    """Measures what a request uses of its client's quotas, until it is answered."""

    def pause(self) -> None:
        """The thread has left the request: another one answers it later."""

    def fetch(self, count: int) -> None:
        """Count bytes of records that the answer has."""

    def mutate(self, count: int) -> None:
        """Count partitions that the request creates or deletes.

        Raises: Refused.
        """

    @property
    def has_mutation_rate(self) -> bool:
        """True if the client has a quota of such partitions."""

    def hand_back(self) -> None:
        """C answers it, and counts the rest."""

    def end(self, silent: bool = False) -> int:
        """How long the client must wait after the answer, in ms; `silent`: there is none."""


class Request:
    """One request from the network threads; it is answered exactly once."""

    __slots__ = (
        "_adjust", "_change", "_counted", "_id", "_reactor", "_repeat", "api", "body", "connection",
        "correlation_id", "cut", "errors", "meter", "peer", "size", "subject", "version",
    )  # fmt: skip

    def __init__(self, reactor: "Answers", raw: "RawRequest") -> None:
        """Its bytes are copied as they are decoded."""
        self._reactor = reactor
        self._id: int = raw.id
        self.api: Any = KNOWN.get(raw.api_key)
        """None for an unknown API key."""
        self.version: int = raw.api_version
        self.connection: int = raw.connection
        """Its connection's number, never reused."""
        self.correlation_id: int = raw.correlation_id
        self.subject: bytes | None = raw.subject
        """DER of the subject of the client's certificate; None: it showed none."""
        host, port = _address(raw.peer)
        self.peer = Peer(raw.client_id, host, raw.listener, raw.principal, port)
        self.body: Any = raw.body
        """The bytes after the header, later the decoded Struct."""
        self.size: int = raw.body_bytes
        """Approximate memory of the body, in bytes."""
        self.cut = False
        """True if the body lacks what the caller may not use; `answer` adds the refusals."""
        self._adjust: Callable[[Answer], Answer] | None = None
        self._change: Callable[[dict[str, Any]], object] | None = None
        self.meter: Meter | None = None
        """Measures it for its client's quotas; None: it has none."""
        self.errors: ErrorCounts | None = None
        """Counts the error codes of the answer."""
        self._counted: DecodedBytes | None = None
        self._repeat: Repeat | None = None

    def decode(self) -> None:
        """Decode `body` into a Struct.

        Raises: InvalidRequest, UnsupportedVersion.
        """
        large = self.api in _WAIT_IN_GROUPS and self.size > SMALL_BYTES
        self.body, self.size = self.api.measured_request(self.version, self.body)
        if large:  # parts that are kept count towards the group's bounds
            self._reactor.read(self._id)

    def keep(self, decoded: DecodedBytes) -> bool:
        """Count a large decoded body until the request ends; False: it must be refused.  Commands
        of a controller are never refused."""
        if self.size < COUNTED_BYTES or self.api in _CONTROLS:
            return True
        if not decoded.add(self.size):
            return False
        self._counted = decoded
        return True

    def _forget(self) -> None:
        counted, self._counted = self._counted, None
        if counted is not None:
            counted.remove(self.size)

    def hand_over(self) -> Any:
        """The decoded body, for another part to keep as long as it needs it: a request that may
        wait in a group keeps only what its own answer to a failure names."""
        body = self.body
        if self.api in _WAIT_IN_GROUPS:
            self._forget()
            self.body = type(body)()
            self.body.member_id = body.member_id
        return body

    def adjust(
        self,
        whole: Callable[[Answer], Answer],
        piece: Callable[[dict[str, Any]], object],
        *,
        cut: bool,
    ) -> None:
        """Pass the fields of the answer through `whole` before they are sent, and each piece of
        `rows` through `piece`, which changes it."""
        if (earlier := self._adjust) is not None:  # of the guards: of no list in pieces
            self._adjust = lambda answer: whole(earlier(answer))
            self.cut |= cut
            return
        self._adjust, self._change, self.cut = whole, piece, cut

    def rows(self, field: str) -> Rows:
        """A list of the answer that is encoded piece by piece."""

        def changed(rows: list[Any]) -> list[Any]:
            if self._change is None:
                return rows
            piece = {field: rows}
            self._change(piece)
            return piece[field]

        found: Rows = self.api.response.rows(self.version, field, changed)
        return found

    def answer(self, response: Answer, wait_ms: int = 0) -> None:
        """Send a response with the fields of the API's schema; if it cannot be encoded, as with a
        name that is too long together with what was added to it, an error instead.

        `wait_ms`: the client must wait at least so long, as another node says.
        """
        ms = self._throttle(wait_ms=wait_ms) if self.meter is not None or wait_ms else 0
        try:
            if self._adjust is not None:
                response = self._adjust(response)
            if ms and self._has_throttle_time():
                response = {**response, "throttle_time_ms": ms}
            data = self.api.encode_response(self.version, response)
        except Exception as problem:
            _logger.error("%r: its answer cannot be encoded", self, exc_info=problem)
            self._repeat = None
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            failed = failed_answer(self.api, self.version, self.body, code, UNEXPECTED)
            if failed is None:
                self.drop()
                return
            data, response = self.api.encode_response(self.version, failed), failed
        if self.errors is not None:
            self.errors.add(self.api, response)
        self.answer_bytes(data, self.api.response_header_version(self.version))

    def answer_bytes(self, data: bytes, header_version: int) -> None:
        """Send an encoded response; header_version -1: none (acks=0)."""
        self._forget()
        ms = 0 if self.meter is None else self._throttle(header_version < 0)
        if ms and header_version >= 0 and self._has_throttle_time():
            response = self.api.decode_response(self.version, data)
            response.throttle_time_ms = ms
            data = self.api.encode_response(self.version, response)
        if self._repeat is not None and header_version >= 0:
            self._repeat.answer(self._id, data, header_version)
        else:
            self._reactor.answer(self._id, data, header_version)

    def repeated(self, mark: int) -> Repeat:
        """Have C repeat the answer, which comes later, to the same request; see Repeat."""
        self._repeat = Repeat(self._reactor, mark)
        return self._repeat

    def again(self) -> None:
        """Hand a Produce or Fetch back to C: what it needed is there now."""
        self._forget()
        if self.meter is not None:
            self.meter.hand_back()
        self._reactor.again(self._id)

    def _throttle(self, silent: bool = False, wait_ms: int = 0) -> int:
        """End the measurement: the connection is muted after the answer if a quota is exceeded;
        returns for how long, in ms."""
        ms = max(0 if self.meter is None else self.meter.end(silent), wait_ms)
        if ms:
            self._reactor.throttle(self._id, ms)
        return ms

    def _has_throttle_time(self) -> bool:
        return any(field.name == "throttle_time_ms" for field in self.api.response.fields)

    def drop(self) -> None:
        """Close the connection, as Kafka does when no answer would be understood."""
        self._forget()
        self._reactor.drop(self._id)

    def identify(self, principal: int, expires_ms: int = -1) -> None:
        """As Reactor.set_principal, for its connection: from the answer on."""
        self._reactor.set_principal(self._id, principal, expires_ms)
        self.peer = self.peer._replace(principal=principal)

    def refuse(self, data: bytes, header_version: int, delay_ms: int) -> None:
        """As answer_bytes, but after delay_ms; then its connection is closed."""
        self._forget()
        self._reactor.refuse(self._id, data, header_version, delay_ms)

    def unheard(self) -> None:
        """From now on, close the connection instead of sending the answer.  For a request that no
        handler has."""
        self._reactor = _Unheard(self._reactor)

    def __repr__(self) -> str:
        name = self.api.name if self.api is not None else "unknown API"
        client = self.peer.client_id and self.peer.client_id[:SHOWN_MAX]
        return f"{name} v{self.version} of {client!r} at {self.peer.host}"


class _Unheard:
    """Replaces the reactor: the request is carried out, and no answer is sent."""

    def __init__(self, reactor: "Answers") -> None:
        self._reactor = reactor

    def answer(self, request_id: int, _body: bytes, _header_version: int) -> None:
        self._reactor.drop(request_id)

    def answer_repeatedly(
        self, request_id: int, _body: bytes, _header_version: int, _mark: int
    ) -> Any:  # fmt: skip
        self._reactor.drop(request_id)

    def again(self, request_id: int, *, heard: bool = False) -> None:
        self._reactor.again(request_id, heard=False)

    def set_principal(self, request_id: int, principal: int, expires_ms: int = -1) -> None:
        self._reactor.set_principal(request_id, principal, expires_ms)

    def refuse(self, request_id: int, _body: bytes, _header_version: int, _delay_ms: int) -> None:
        self._reactor.drop(request_id)

    def read(self, request_id: int) -> None:
        self._reactor.read(request_id)

    def throttle(self, request_id: int, ms: int) -> None:
        pass  # it is closed

    def drop(self, request_id: int) -> None:
        self._reactor.drop(request_id)


@lru_cache(maxsize=ADDRESSES_KEPT)
def _address(peer: str) -> tuple[str, int]:
    """The host and the port of a `Peer`."""
    host, colon, port = peer.rpartition(":")
    if not colon:
        return peer, 0
    return "/" + host.strip("[]"), int(port) if port.isascii() and port.isdigit() else 0
