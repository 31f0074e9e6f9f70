"""The answer to a request whose handler failed: see kafkalog.server.failed_answers."""

import logging
from contextlib import suppress

from kafkalog.errors import KafkalogError, for_clients
from kafkalog.server.failed_answers import UNEXPECTED, failed_answer
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["answer_failure", "handler_failed"]

_logger = logging.getLogger(__name__)


def answer_failure(request: Request, code: ErrorCode, message: str = UNEXPECTED) -> None:
    """Answer a request with an error, or close its connection if no response can hold one.

    Harmless if the request was already answered.
    """
    with suppress(KafkalogError):  # it may have been answered before it failed
        silent = request.api is apis.PRODUCE and request.body.acks == 0
        answer = failed_answer(request.api, request.version, request.body, code, message)
        if answer is not None and not silent:
            request.answer(answer)
        else:
            request.drop()


def handler_failed(request: Request, problem: Exception) -> None:
    """Log what a handler raised, once and with its request, and answer it."""
    if isinstance(problem, KafkalogError) and problem.code is not None:
        _logger.warning("%r: %s: %s", request, type(problem).__name__, problem)
        answer_failure(request, ErrorCode(problem.code), for_clients(problem))
    else:
        _logger.error("%r failed", request, exc_info=problem)
        answer_failure(request, ErrorCode.UNKNOWN_SERVER_ERROR)
