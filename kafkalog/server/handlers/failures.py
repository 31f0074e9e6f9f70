"""An error as the answer to any request: Kafka's code, wherever the API's answer has a place.

Kafka has a getErrorResponse of each request.  Here the answer's shape says it: a code of the
whole, or one for each item of the request, which is named as the request named it.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kafkalog.errors import KafkalogError, for_clients
from kafkalog.server.threads.requests import Request
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.notation import Field

__all__ = ["answer_failure", "failed_answer", "handler_failed"]

_logger = logging.getLogger(__name__)

UNEXPECTED = "The server experienced an unexpected error when processing the request."
"""Kafka's sentence; ours is in the broker's log, which no stranger reads."""

_ASKED = {
    "coordinators": ("coordinator_keys",),
    "groups": ("groups", "group_ids"),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "groups_names"),
}
"""Lists of answers, and the lists of requests that they answer, where the names differ."""
_SAME = {"partition": "partition_index", "partition_index": "partition", "topic_name": "name"}
_FIRST = ("partition_index", "partition_id", "group_id", "key", "name")
"""What an item is called that is a bare number or text in the request."""


def failed_answer(
    api: Api, version: int, body: Any, code: ErrorCode, message: str
) -> dict[str, Any] | None:
    """The fields of a response that says `code`; None where it has no place for one."""
    fields = [field for field in api.response.fields if version in field.versions]
    found = _filled(fields, version, body, (code, message))
    return found if _says(found) else None


def _says(found: dict[str, Any]) -> bool:
    lists = (value for value in found.values() if isinstance(value, list))
    return "error_code" in found or any(_says(one) for items in lists for one in items)


def _filled(
    fields: Iterable[Field], version: int, asked: Any, error: tuple[ErrorCode, str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions:
            continue
        if field.name == "error_code":
            found["error_code"] = error[0]
        elif field.name == "error_message":
            found["error_message"] = error[1]
        elif field.array and field.kind == "struct":
            if _has_code(field, version):
                items = _items(field.name, asked)
                found[field.name] = [_filled(field.fields, version, one, error) for one in items]
        elif (value := _named(field.name, asked)) is not None:
            found[field.name] = value
    return found


def _has_code(field: Field, version: int) -> bool:
    return any(
        version in inner.versions and (inner.name == "error_code" or _has_code(inner, version))
        for inner in field.fields
    )


def _items(name: str, asked: Any) -> list[Any]:
    if directories := getattr(asked, "dirs", None):  # AlterReplicaLogDirs answers without them
        return [topic for directory in directories for topic in directory.topics]
    for source in _ASKED.get(name, (name,)):
        if found := getattr(asked, source, None):
            return list(found)
    return []


def _named(name: str, asked: Any) -> Any:
    """What the request says of the item, if it says it."""
    if isinstance(asked, (int, str)):
        return asked if name in _FIRST else None
    found = getattr(asked, name, None)
    return getattr(asked, _SAME[name], None) if found is None and name in _SAME else found


def answer_failure(request: Request, code: ErrorCode, message: str = UNEXPECTED) -> None:
    """Answer a request with an error, or close its connection where no answer can say it.

    Harmless where the request has been answered.
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
