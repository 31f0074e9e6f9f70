"""Takes a request to its handler: versions, decoding, and the answer when those fail."""

from typing import Any

from kafkalog.coordinator.groups import core as groups
from kafkalog.coordinator.share_state import messages as share_state
from kafkalog.coordinator.transactions import core as transactions
from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.logs.limit import limited
from kafkalog.server.decoded_bytes import DecodedBytes
from kafkalog.server.error_counts import ErrorCounts
from kafkalog.server.failures import answer_failure, handler_failed
from kafkalog.server.guards import admit
from kafkalog.server.handlers import Routes, api_versions
from kafkalog.server.node import Serving
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Dispatch"]

_logger = limited(__name__)

_COORDINATED = groups.SERVED | transactions.SERVED | share_state.SERVED | {apis.TXN_OFFSET_COMMIT}


class Dispatch:
    """Routes requests to the handlers of one node."""

    def __init__(self, node: Serving, routes: Routes) -> None:
        """All handlers of `routes` work for `node`."""
        self._node, self._routes = node, routes
        self._decoded_bytes = DecodedBytes()
        self.errors = ErrorCounts()
        """The error codes of all answers."""

    def __call__(self, request: Request) -> None:
        """Answer a request, or arrange for it to be answered."""
        request.errors = self.errors
        if request.peer.principal < 0:  # not authenticated
            self._node.authentication(request, self.serve)
        else:
            self.serve(request)

    def serve(self, request: Request) -> None:
        """Answer the request of a caller that is known, or arrange for it to be answered."""
        if not self._routes.served(request.api, request.version):
            self._refuse(request)
            return
        if self._node.quotas.active:
            self._node.quotas.measure(request)
        if self._decoded(request) and self._kept(request):
            try:
                self._answer(request)
            except Exception as problem:
                handler_failed(request, problem)
            if request.meter is not None:
                request.meter.pause()

    def _answer(self, request: Request) -> None:
        route = self._routes.route(request.api)
        node = self._node
        passed_on = request.api.key in self._routes.forwarded
        guarded = not passed_on and node.admission.guards(request.peer)
        if guarded and not admit(node, request, route.needs):
            return
        response: Any = route.handler(node, request)
        if response is not None:
            request.answer(response)

    def _decoded(self, request: Request) -> bool:
        try:
            request.decode()
        except (InvalidRequest, UnsupportedVersion) as problem:
            _logger.info("%r: %s; its connection is closed", request, problem)
            request.drop()
            return False
        return True

    def _kept(self, request: Request) -> bool:
        if request.keep(self._decoded_bytes):
            return True
        # What clients retry; a producer takes other errors of its coordinator for final ones.
        coordinated = request.api in _COORDINATED
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if coordinated else ErrorCode.REQUEST_TIMED_OUT
        message = "too many bytes of decoded requests wait for an answer; retry later"
        _logger.info("%r is refused: %s", request, message)
        answer_failure(request, code, message)
        return False

    def _refuse(self, request: Request) -> None:
        """Refuse an API or version that is not served."""
        if request.api is apis.API_VERSIONS:
            # KIP-511: version 0 is what every client can read.
            data, header_version = api_versions.refusal()
            request.answer_bytes(data, header_version)
            return
        api = request.api
        known = api is not None and request.version in api.versions
        if not known or api.key in self._routes.announced:
            # The response format of an unknown API is unknown, and no client that reads ApiVersions
            # sends one: close the connection, as Kafka does.
            _logger.warning("%r is not served; its connection is closed", request)
            request.drop()
            return
        _logger.warning("%r is not served", request)
        if self._decoded(request):
            message = f"{request.api.name} v{request.version} is not served here"
            answer_failure(request, ErrorCode.UNSUPPORTED_VERSION, message)
