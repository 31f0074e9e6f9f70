"""From a request to its handler: versions, decoding, what is answered when that fails."""

import logging
from typing import Any

from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.server import handlers
from kafkalog.server.handlers import api_versions
from kafkalog.server.node import Node
from kafkalog.server.threads.requests import Request
from kafkalog.wire import apis

__all__ = ["Dispatch"]

_logger = logging.getLogger(__name__)


class Dispatch:
    """Routes requests to the handlers of one node."""

    def __init__(self, node: Node) -> None:
        """All handlers answer for `node`."""
        self._node = node

    def __call__(self, request: Request) -> None:
        """Answer, or see to it that it will be answered."""
        if not handlers.served(request.api, request.version):
            if request.api is apis.API_VERSIONS:
                # KIP-511: version 0 is what every client can read.
                data, header_version = api_versions.refusal()
                request.answer_bytes(data, header_version)
            else:
                _logger.info("%r is not served; its connection is closed", request)
                request.drop()
            return
        try:
            request.body = request.api.decode_request(request.version, request.body)
        except (InvalidRequest, UnsupportedVersion) as problem:
            _logger.info("%r: %s; its connection is closed", request, problem)
            request.drop()
            return
        response: Any = handlers.HANDLERS[request.api.key](self._node, request)
        if response is not None:
            request.answer(response)
