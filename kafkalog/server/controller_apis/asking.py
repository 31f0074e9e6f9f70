"""Has a controller of this process answer a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.errors import Closed
from kafkalog.server.controller_apis.protection import quotas_asked
from kafkalog.server.controller_apis.settings_requests import SETTINGS_REQUESTS
from kafkalog.server.failures import answer_failure, handler_failed
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.server.request import Request

__all__ = ["ask"]

FAILED = "The controller failed to handle the request; its log says why."


def ask(
    asked: Callable[..., None],
    request: Request,
    refuse: Callable[[Request], None],
    **about_the_caller: Any,
) -> None:
    """Answer a request with what the controller says; `refuse` it if another node is that.

    `asked`: Controlling.ask, or that of a replica of the metadata log.

    Raises: as Controlling.ask.
    """

    def answer(body: Mapping[str, Any] | Exception | None) -> None:
        if body is None:
            refuse(request)
            return
        if isinstance(body, Exception):  # the controller has logged it
            answer_failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, FAILED)
            return
        try:
            request.answer(body)
        except Closed:
            pass  # the client no longer waits for it
        except Exception as problem:
            handler_failed(request, problem)

    convert = CONVERTED.get(request.api.key)
    body = request.body if convert is None else convert(request.body)
    asked(request.api, body, request.version, answer, size=request.size, **about_the_caller)


CONVERTED: Mapping[int, Callable[[Any], Any]] = {
    **{key: one.convert for key, one in SETTINGS_REQUESTS.items()},
    apis.ALTER_CLIENT_QUOTAS.key: quotas_asked,
}
"""The requests that a controller does not get as they were decoded, by API key."""
