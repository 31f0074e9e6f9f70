"""Requests about the cluster on a broker of a KRaft cluster, which forwards them to the active
controller, in an envelope with the client's principal (KIP-590)."""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalog.errors import (
    InvalidRequest,
    NotController,
    PeerGone,
    Timeout,
    UnsupportedVersion,
    for_clients,
)
from kafkalog.server.controller_apis.topic_creation import TopicCreation
from kafkalog.server.failures import answer_failure, handler_failed
from kafkalog.server.network.listeners import INSIDE
from kafkalog.wire.apis import ENVELOPE
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.headers import decode_response_header, encode_request_header
from kafkalog.wire.tables.other_records import PRINCIPAL
from kafkalog.wire.values import mapped

if TYPE_CHECKING:
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.replication.membership import QuorumMembership
    from kafkalog.server.admission import Admission
    from kafkalog.server.controller_apis.forwarder import ControllerForwarder, Send
    from kafkalog.server.request import Request

__all__ = ["QuorumBroker"]

PATIENCE_S = 15.0
"""How long a request waits for its turn and for an active controller."""
PAUSE_S = 0.05
PRINCIPAL_VERSION = 0
HERE = b"\x7f\0\0\1"
"""The address of a client of this machine that has none, on a Unix socket."""


class QuorumBroker:
    """ControllerApis of a broker whose controllers are other processes."""

    def __init__(
        self, member: QuorumMembership, forwarder: ControllerForwarder, admission: Admission
    ) -> None:
        """`admission`: knows the clients' principals."""
        self._member, self._forwarder, self._admission = member, forwarder, admission
        self._topics = TopicCreation(member, forwarder)

    def handle(self, request: Request) -> None:
        """As ControllerApis.handle: the active controller answers."""
        end_s = time.monotonic() + PATIENCE_S

        def forward(send: Send) -> None:
            try:
                found = mapped(self._sent(send, request, end_s))
                request.answer(found, found.get("throttle_time_ms", 0))
            except NotController as problem:
                answer_failure(request, ErrorCode.REQUEST_TIMED_OUT, for_clients(problem))
            except (PeerGone, Timeout) as problem:  # its outcome is unknown
                answer_failure(request, ErrorCode.REQUEST_TIMED_OUT, for_clients(problem))
            except Exception as problem:
                handler_failed(request, problem)

        self._forwarder.forward(forward, request.size)

    def change(self, request: Request, plan_of: Callable[..., Any]) -> None:
        """As ControllerApis.change."""
        self.handle(request)

    def _sent(self, send: Send, request: Request, end_s: float) -> Any:
        """The active controller's response; a controller that is not active any more has done
        nothing, and the next one is asked until `end_s`.

        Raises: NotController: none is, or it was not this request's turn in time.
        """
        if time.monotonic() >= end_s:
            raise NotController("earlier requests waited for the controller too long")
        if request.peer.listener == INSIDE and self._admission.authorizes:
            # Clients of this process may do everything, under the name of this broker.
            return send(request.api, request.body, request.version)
        envelope = self._envelope(request)
        while True:
            try:
                answer = send(ENVELOPE, envelope, None)
                if answer.error_code != ErrorCode.NOT_CONTROLLER:
                    return _opened(request, answer)
                problem = NotController("the controller resigned")
            except NotController as none:
                problem = none
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self._member.await_controller(left_s):
                raise problem
            time.sleep(min(left_s, PAUSE_S))  # the next one may not know yet that it is active

    def _envelope(self, request: Request) -> dict[str, Any]:
        api, version, peer = request.api, request.version, request.peer
        principal = self._admission.principal(peer.principal)
        header = encode_request_header(api, version, request.correlation_id, peer.client_id)
        fields = {
            "type": principal.type, "name": principal.name,
            "token_authenticated": principal.by_token,
        }  # fmt: skip
        return {
            "request_data": header + api.encode_request(version, request.body),
            "request_principal": struct.pack(">h", PRINCIPAL_VERSION)
            + PRINCIPAL.encode(PRINCIPAL_VERSION, fields),
            "client_host_address": _address(peer.host),
        }

    def handle_command(self, request: Request) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion("no controller of KRaft commands brokers")

    def handle_as_controller(self, request: Request) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion("this broker is no controller")

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """As ControllerApis.create_topics."""
        return self._topics.create(wanted)

    def quorum(self) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion("the leader of the quorum knows its state")


def _address(host: str) -> bytes:
    """A client's address in an envelope."""
    try:
        return ipaddress.ip_address(host.removeprefix("/").partition("%")[0]).packed
    except ValueError:
        return HERE


def _opened(request: Request, answer: Any) -> Any:
    """The response in an envelope's answer.

    Raises: UnsupportedVersion, PeerGone: the controller did not carry out the request.
    """
    if answer.error_code:
        raise UnsupportedVersion(
            f"{request.api.name} v{request.version}: the controller refuses the envelope: "
            f"error {answer.error_code}"
        )
    api, version, data = request.api, request.version, bytes(answer.response_data or b"")
    try:
        found, pos = decode_response_header(api, version, data)
        if found == request.correlation_id:
            return api.decode_response(version, data, pos)
    except InvalidRequest as problem:
        raise PeerGone(f"the controller's answer cannot be read: {problem}") from problem
    raise PeerGone(f"the controller answered request {found}, wanted {request.correlation_id}")
