"""A request as it comes up from C."""

from typing import Any, Protocol

from kafkalog._native import ffi, lib

__all__ = ["Answers", "RawRequest"]

COPIED_BYTES_MAX = 262_144
"""Bodies up to this size are copied when the request is taken."""


class Answers(Protocol):
    """The calls that end a request; implemented by the reactor."""

    def answer(self, request_id: int, body: bytes, header_version: int, /) -> None:
        """Send an answer."""

    def answer_repeatedly(
        self, request_id: int, body: bytes, header_version: int, mark: int
    ) -> Any:  # fmt: skip
        """Send an answer, and have it repeated; None: it is not repeated."""

    def again(self, request_id: int, *, heard: bool = True) -> None:
        """Hand it back to C."""

    def read(self, request_id: int) -> None:
        """Free its bytes."""

    def throttle(self, request_id: int, ms: int) -> None:
        """Mute its connection for that time once it is answered."""

    def drop(self, request_id: int) -> None:
        """Close its connection."""

    def set_principal(self, request_id: int, principal: int, expires_ms: int = -1) -> None:
        """Identify its client."""

    def refuse(self, request_id: int, body: bytes, header_version: int, delay_ms: int, /) -> None:
        """Send an answer later, and close its connection."""


class RawRequest:
    """A request for Python, not decoded; it is answered, handed back or dropped exactly once."""

    __slots__ = (
        "_at", "_body", "_reactor", "api_key", "api_version", "body_bytes", "client_id",
        "connection", "correlation_id", "id", "listener", "not_fast", "peer", "principal",
        "subject",
    )  # fmt: skip

    def __init__(self, reactor: Answers, info: Any) -> None:
        """`info`: a kl_request_info that was just filled."""
        self._reactor = reactor
        self.id: int = info.id
        """Never reused."""
        self.connection: int = info.connection
        """Its connection's number, never reused."""
        self.listener: int = info.listener
        """The number that Reactor.listen was given."""
        self.principal: int = info.principal
        """The number that Reactor.set_principal was given; ANONYMOUS, UNIDENTIFIED."""
        self.correlation_id: int = info.correlation_id
        self.api_key: int = info.api_key
        self.api_version: int = info.api_version
        self.not_fast: int = info.why
        """Why C did not answer a Produce, a Fetch or a heartbeat of a consumer group (KL_UP_*);
        KL_UP_API, 0, for all other requests, and for an API that is intercepted."""
        self.client_id: str | None = None
        if info.client_id_bytes >= 0:
            name = ffi.buffer(info.client_id, info.client_id_bytes)[:]
            self.client_id = name.decode("utf-8", "replace")
        self.peer: str = ffi.string(info.peer).decode("ascii")
        """`10.0.0.1:40312`, `[::1]:40312`, `unix`, `inside`."""
        self.subject: bytes | None = None
        """DER of the subject of an unidentified client's certificate; None: it showed none."""
        if info.subject_bytes:
            self.subject = bytes(ffi.buffer(info.subject, info.subject_bytes))
        self.body_bytes: int = info.body_bytes
        self._at = info.body
        self._body: memoryview | None = None
        if self.body_bytes <= COPIED_BYTES_MAX and self.not_fast != lib.KL_UP_QUOTA:
            self._body = self.body

    @property
    def body(self) -> memoryview:
        """The bytes after the request header: a copy, as a handler may keep parts longer than the
        request's own memory lives.

        A large one (COPIED_BYTES_MAX) is copied at the first call, which must come before the
        request is ended or `read`.
        """
        if self._body is None:
            self._body = memoryview(bytes(ffi.buffer(self._at, self.body_bytes)))
        return self._body

    def answer(self, body: bytes, header_version: int) -> None:
        """As Reactor.answer."""
        self._reactor.answer(self.id, body, header_version)

    def again(self) -> None:
        """As Reactor.again."""
        self._reactor.again(self.id)

    def drop(self) -> None:
        """As Reactor.drop."""
        self._reactor.drop(self.id)

    def __repr__(self) -> str:
        return f"RawRequest(key={self.api_key}, version={self.api_version}, peer={self.peer!r})"
