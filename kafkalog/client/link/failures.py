"""Kafka's error codes as exceptions: one class per failure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from kafkalog import errors
from kafkalog.client.link.handling import RULES, Handling, handling
from kafkalog.types import TopicPartition
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "about",
    "check_code",
    "failure",
    "failure_class",
    "few",
    "in_doubt",
    "is_retriable",
    "name_of",
    "outcome",
    "passing",
    "says_nothing",
]

E = TypeVar("E", bound=errors.KafkalogError)
_NUMBERS = frozenset(int(code) for code in ErrorCode)
NAMED_MAX = 5
"""How many things a message names."""


def name_of(code: int) -> str:
    """Kafka's name of an error code: `NOT_COORDINATOR`; `error 999` for an unknown one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def is_retriable(code: int) -> bool:
    """True if the same request may succeed later."""
    try:
        return bool(ErrorCode(code).retriable)
    except ValueError:
        return False


def says_nothing(code: int) -> bool:
    """True if an error code leaves open what was done: a broker's internal error, or an unknown
    code."""
    return code == ErrorCode.UNKNOWN_SERVER_ERROR or code not in _NUMBERS


def passing(problem: errors.KafkalogError) -> bool:
    """True if a failed call may succeed later."""
    if "retriable" in vars(problem):  # by the rules of its request
        return problem.retriable
    if isinstance(problem, errors.UnknownTopicOrPartition):
        return False  # `Cluster.topic` has waited for it
    if problem.code == ErrorCode.REBOOTSTRAP_REQUIRED:
        return True  # the client then asks other brokers
    return problem.retriable or isinstance(problem, (errors.PeerGone, errors.Closed))


def failure_class(code: int) -> type[errors.KafkalogError]:
    """The exception of an error code: from kafkalog.errors, else one named after Kafka's."""
    return _class_of(int(code))  # an ErrorCode would be a different key than its number


@cache
def _class_of(code: int) -> type[errors.KafkalogError]:
    for cls in vars(errors).values():
        if isinstance(cls, type) and vars(cls).get("code") == code:
            found: type[errors.KafkalogError] = cls
            return found
    name = name_of(code)
    words = "UnknownError" if name.startswith("error ") else name.title().replace("_", "")
    text = {"__doc__": f"Kafka's {name}.", "code": code, "retriable": is_retriable(code)}
    return type(words, (errors.KafkalogError,), {**text, "__module__": __name__})


def failure(
    code: int, what: str, detail: str | None = None, api: Api | None = None
) -> errors.KafkalogError:
    """The failure of an error code other than 0.

    `what` names the thing that was requested, `detail` is the broker's own message.  `api`: the
    request, whose rules say whether it is retriable; None: those of every request.
    """
    more = f": {detail}" if detail else ""
    made = failure_class(code)(f"{what}: {name_of(code)}{more}")
    if api is not None and code in RULES.get(api, ()):
        made.retriable = handling(code, api) in (Handling.RETRY, Handling.AWAIT)
    return made


def outcome(
    code: int, what: str, detail: str | None = None, api: Api | None = None
) -> errors.KafkalogError | None:
    """As `failure`; None for 0."""
    return failure(code, what, detail, api) if code else None


def check_code(code: int, what: str, detail: str | None = None, api: Api | None = None) -> None:
    """Raise the failure of an error code; nothing if it is 0.  See `failure`."""
    if code:
        raise failure(code, what, detail, api)


def few(names: Sequence[str]) -> str:
    """The first of some names, for a message; the rest is counted."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def about(tp: TopicPartition, problem: E) -> E:
    """The same failure, which now names its partition."""
    problem.partition = tp
    return problem


def in_doubt(problem: errors.KafkalogError) -> errors.KafkalogError:
    """The same failure, for a batch that an attempt without an answer may have stored."""
    made = type(problem)(f"{problem}; the records may have been stored")
    made.__cause__ = problem
    return made
