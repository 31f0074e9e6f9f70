"""Requests in envelopes (KIP-590): brokers forward what clients ask of the controller, with the
client's principal and address.

Source: Kafka's EnvelopeUtils, RequestChannel.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.errors import InvalidRequest, Timeout, UnsupportedVersion
from kafkalog.security.principal import Principal
from kafkalog.server.failures import answer_failure
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.headers import decode_request_header
from kafkalog.wire.tables.other_records import PRINCIPAL

if TYPE_CHECKING:
    from kafkalog.server.admission import Admission
    from kafkalog.wire.api import Api

__all__ = ["FORWARDED", "ForwardedRequest", "Unopened", "opened", "refuse_as_not_controller"]

FORWARDED = frozenset(
    api.key
    for api in (
        apis.CREATE_TOPICS, apis.DELETE_TOPICS, apis.CREATE_PARTITIONS, apis.CREATE_ACLS,
        apis.DELETE_ACLS, apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER_CONFIGS,
        apis.CREATE_DELEGATION_TOKEN, apis.RENEW_DELEGATION_TOKEN, apis.EXPIRE_DELEGATION_TOKEN,
        apis.ELECT_LEADERS, apis.ALTER_PARTITION_REASSIGNMENTS, apis.LIST_PARTITION_REASSIGNMENTS,
        apis.ALTER_CLIENT_QUOTAS, apis.ALTER_USER_SCRAM_CREDENTIALS, apis.UPDATE_FEATURES,
        apis.DESCRIBE_QUORUM, apis.UNREGISTER_BROKER, apis.UNREGISTER_CONTROLLER,
        apis.ADD_RAFT_VOTER, apis.REMOVE_RAFT_VOTER,
    )
)  # fmt: skip
"""The requests that a broker may forward, by API key."""
NOT_HERE = "This is not the active controller."
ADDRESS_BYTES = (4, 16)


class _Inner(NamedTuple):
    """As RawRequest."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    peer: str
    connection: int
    listener: int
    principal: int
    subject: bytes | None = None
    id: int = 0

    @property
    def body_bytes(self) -> int:
        return len(self.body)


class _Way:
    """The way of an answer back into its envelope, in place of the reactor."""

    def __init__(self, outer: Request, inner: _Inner, ended: Callable[[], None]) -> None:
        """`ended`: called once."""
        self._outer, self._inner, self._ended = outer, inner, ended

    def answer(self, _: int, body: bytes, header_version: int) -> None:
        header = self._inner.correlation_id.to_bytes(4, "big", signed=True)
        data = header + (b"\0" if header_version > 0 else b"") + bytes(body)
        self.close({"response_data": data, "error_code": ErrorCode.NONE})

    def close(self, fields: Mapping[str, Any]) -> None:
        """Answer the envelope."""
        self._end()
        self._outer.answer(fields)

    def _end(self) -> None:
        ended, self._ended = self._ended, _nothing
        ended()

    def drop(self, _: int) -> None:
        """No response has a place for what went wrong."""
        self.close({"response_data": None, "error_code": ErrorCode.INVALID_REQUEST})

    def refuse(self, request_id: int, body: bytes, header_version: int, delay_ms: int) -> None:
        self.drop(request_id)

    def again(self, request_id: int, *, heard: bool = True) -> None:
        self.drop(request_id)

    def read(self, _: int) -> None:
        pass  # the envelope has its bytes

    def throttle(self, _: int, ms: int) -> None:
        pass  # the connection is a broker's, which lets its client wait

    def set_principal(self, _: int, principal: int, expires_ms: int = -1) -> None:
        raise InvalidRequest("a request in an envelope does not authenticate its connection")


def _nothing() -> None:
    pass


class ForwardedRequest(Request):
    """The request in an envelope."""

    __slots__ = ("_way",)

    def __init__(self, way: _Way, inner: _Inner) -> None:
        super().__init__(way, inner)  # type: ignore[arg-type]
        self._way = way

    def answer(self, response: Mapping[str, Any], wait_ms: int = 0) -> None:
        """As Request.answer."""
        if response.get("error_code") == ErrorCode.NOT_CONTROLLER:
            self.refuse_as_not_controller()
        else:
            super().answer(response, wait_ms)

    def refuse_as_not_controller(self) -> None:
        """Let the broker ask the next controller: its client does not learn of it."""
        self._forget()
        self._way.close({"response_data": None, "error_code": ErrorCode.NOT_CONTROLLER})


def refuse_as_not_controller(request: Request) -> None:
    """Answer that another controller is active, or none."""
    if isinstance(request, ForwardedRequest):
        request.refuse_as_not_controller()
    else:
        answer_failure(request, ErrorCode.NOT_CONTROLLER, NOT_HERE)


class Unopened(Exception):
    """An envelope that cannot be opened: the error that its sender gets."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def opened(outer: Request, admission: Admission) -> ForwardedRequest:
    """The request in an envelope, with its client's principal; its answer is the envelope's.

    Raises: Unopened.
    """
    body = outer.body
    data = bytes(body.request_data)
    try:
        header = decode_request_header(data)
    except InvalidRequest as problem:
        raise Unopened(ErrorCode.INVALID_REQUEST, str(problem)) from None
    api: Api = apis.BY_KEY[header.key]
    if header.key not in FORWARDED:
        raise Unopened(ErrorCode.INVALID_REQUEST, f"{api.name} is not forwarded")
    if header.version not in api.versions:
        raise Unopened(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} v{header.version}")
    principal = _principal(body.request_principal)
    host = _host(bytes(body.client_host_address))
    try:
        number = admission.lend(principal, f"/{host}")
    except Timeout as problem:
        raise Unopened(ErrorCode.REQUEST_TIMED_OUT, str(problem)) from None
    inner = _Inner(
        header.key, header.version, header.correlation_id, header.client_id,
        memoryview(data)[header.pos :], f"[{host}]:0", outer.connection, outer.peer.listener,
        number,
    )  # fmt: skip
    return ForwardedRequest(_Way(outer, inner, lambda: admission.give_back(number)), inner)


def _principal(data: Any) -> Principal:
    """Raises: Unopened."""
    try:
        if data is None:
            raise InvalidRequest("found none")
        raw = bytes(data)
        found, _ = PRINCIPAL.decode(int.from_bytes(raw[:2], "big"), raw, 2)
    except (InvalidRequest, UnsupportedVersion) as problem:
        raise Unopened(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(problem)) from None
    return Principal(found.type, found.name, found.token_authenticated)


def _host(data: bytes) -> str:
    """Raises: Unopened."""
    if len(data) not in ADDRESS_BYTES:
        raise Unopened(ErrorCode.INVALID_REQUEST, f"an address of {len(data)} bytes")
    return str(ipaddress.ip_address(data))
