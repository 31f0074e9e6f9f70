"""Failures of handlers: the error codes that clients get for them, and the answers with those."""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalog.errors import Closed, KafkalogError, NotFound, StaleLog, for_clients
from kafkalog.logs.limit import limited
from kafkalog.server.failed_answers import UNEXPECTED, failed_answer
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.requests import Result

__all__ = ["answer_failure", "code_of", "codes_by_name", "handler_failed", "known_code"]

_logger = limited(__name__)


def known_code(problem: BaseException) -> ErrorCode | None:
    """Kafka's error code for a failure; None if Kafka has no code for it."""
    if isinstance(problem, (Closed, NotFound)):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # its log is gone: so is the partition
    if isinstance(problem, StaleLog):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it was truncated since: the client asks again
    if isinstance(problem, KafkalogError) and problem.code is not None:
        return ErrorCode(problem.code)
    return None


def code_of(problem: BaseException) -> ErrorCode:
    """Kafka's error code for a failure; a failure without one is logged."""
    found = known_code(problem)
    if found is not None:
        return found
    _logger.error("answered UNKNOWN_SERVER_ERROR: %s: %s", type(problem).__name__, problem)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def codes_by_name(results: "Iterable[Result]") -> dict[str, ErrorCode]:
    """The outcome of CreateTopics, by topic."""
    return {one["name"]: ErrorCode(one["error_code"]) for one in results}


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
