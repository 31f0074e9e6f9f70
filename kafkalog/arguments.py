"""Checks callers' arguments where they come in: each error names the argument, what was found and
what was wanted."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kafkalog.errors import ArgumentError
from kafkalog.types import TopicPartition

__all__ = [
    "INT16_MAX",
    "INT32_MAX",
    "INT64_MAX",
    "bytes_like",
    "called",
    "flag",
    "mapping",
    "methods_called",
    "node",
    "nodes",
    "one_of",
    "partition",
    "partitions",
    "patience",
    "text",
    "texts",
    "things",
    "topic_partition",
    "wait_ms",
    "whole_number",
]

INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
PATIENCE_MS_MAX = 1 << 40
"""Some decades: a clock cannot take much more."""
TEXT_BYTES_MAX = (1 << 15) - 1
"""The longest string of the protocol."""


def _shown(value: object) -> str:
    return f"{value!r} of type {type(value).__name__}"


def whole_number(name: str, value: Any, low: int = -INT64_MAX - 1, high: int = INT64_MAX) -> int:
    """An int from `low` to `high`, from any integer type.

    Raises: ArgumentError, naming it.
    """
    try:
        number = int(operator.index(value))  # makes True a 1, which in a file would be a word
    except TypeError:
        raise ArgumentError(f"{name}: found {_shown(value)}, wanted an int") from None
    if not low <= number <= high:
        wanted = f"{low} or more" if number < low and high == INT64_MAX else f"{low} to {high}"
        raise ArgumentError(f"{name}: found {number}, wanted {wanted}")
    return number


def bytes_like(name: str, value: Any) -> memoryview:
    """The bytes of anything that has a buffer.

    Raises: ArgumentError, naming it.
    """
    try:
        return memoryview(value).cast("B")
    except TypeError:
        raise ArgumentError(
            f"{name}: found {type(value).__name__}, wanted contiguous bytes"
        ) from None


def text(name: str, value: Any) -> str:
    """A str that the protocol can carry.  Raises: ArgumentError, naming it."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: found {_shown(value)}, wanted a str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ArgumentError(f"{name}: found {value!r}, which is not valid UTF-8 text") from None
    if size > TEXT_BYTES_MAX:
        raise ArgumentError(f"{name}: found {size} bytes, wanted at most {TEXT_BYTES_MAX}")
    return value


def called(name: str, function: Any, awaited_by: str = "") -> None:
    """A function whose result is not awaited, or None.  `awaited_by`: what accepts an async one.

    Raises: ArgumentError, naming it, for what cannot be called and for an async function.
    """
    if function is None:
        return
    from inspect import isasyncgenfunction, iscoroutinefunction  # slow to load: a Log needs none

    if not callable(function):
        raise ArgumentError(f"{name}: found {_shown(function)}, wanted a function")
    for one in (function, getattr(type(function), "__call__", None)):  # noqa: B004
        if iscoroutinefunction(one) or isasyncgenfunction(one):
            hint = f"; {awaited_by} awaits it" if awaited_by else ""
            raise ArgumentError(
                f"{name}: found an async function, {function!r}, wanted one that need not be "
                f"awaited{hint}"
            )


def methods_called(name: str, objects: Iterable[object], *methods: str) -> None:
    """Check, as `called`, those of the methods that the objects have.  Raises: ArgumentError."""
    for one in objects:
        for method in methods:
            called(f"{name}: {type(one).__name__}.{method}", getattr(one, method, None))


def things(name: str, values: Any) -> list[Any]:
    """A list of anything; a str is not taken for a list of its letters.  Raises: ArgumentError."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name}: found {_shown(values)}, wanted a list")
    return list(values)


def texts(name: str, values: Any) -> list[str]:
    """A list of str.  Raises: ArgumentError, naming it."""
    return [text(name, value) for value in things(name, values)]


def mapping(name: str, value: Any) -> dict[Any, Any]:
    """A mapping, copied.  Raises: ArgumentError, naming it."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name}: found {_shown(value)}, wanted a dict")
    return dict(value)


def flag(name: str, value: Any) -> bool:
    """True or False.  Raises: ArgumentError, naming it."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: found {_shown(value)}, wanted True or False")
    return value


def one_of(name: str, value: Any, words: Collection[str]) -> str:
    """One of some words.  Raises: ArgumentError, naming it."""
    if not isinstance(value, str) or value not in words:
        raise ArgumentError(f"{name}: found {value!r}, wanted one of {', '.join(words)}")
    return value


def node(name: str, value: Any) -> int:
    """A node's id.  Raises: ArgumentError, naming it."""
    return whole_number(name, value, 0, INT32_MAX)


def nodes(name: str, values: Any) -> list[int]:
    """Ids of nodes.  Raises: ArgumentError, naming it."""
    return [node(name, one) for one in things(name, values)]


def patience(name: str, value: Any) -> int | None:
    """Milliseconds to wait, or None.  Raises: ArgumentError, naming it."""
    return None if value is None else min(whole_number(name, value, 1), PATIENCE_MS_MAX)


def wait_ms(name: str, value: Any) -> float | None:
    """The longest wait in milliseconds, 0 included, or None.  Raises: ArgumentError, naming it."""
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not value >= 0:
        raise ArgumentError(f"{name}: found {_shown(value)}, wanted milliseconds or None")
    return min(value, PATIENCE_MS_MAX)


def time_of(name: str, value_ms: Any, seconds: Any, named: str) -> float | None:
    """`value_ms`, or the `seconds` of its older spelling `named`, in milliseconds.

    Raises: ArgumentError if both are given, or as `wait_ms`.
    """
    if seconds is None:
        return wait_ms(name, value_ms)
    if value_ms is not None:
        raise ArgumentError(f"{named}: found it and {name}, wanted only {name}")
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ArgumentError(f"{named}: found {_shown(seconds)}, wanted seconds or None")
    return wait_ms(name, seconds * 1000)


def partition(name: str, value: Any) -> TopicPartition:
    """A partition from any pair of topic and number.  Raises: ArgumentError, naming it."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArgumentError(f"{name}: found {_shown(value)}, wanted (topic, partition)")
    return TopicPartition(text(name, value[0]), whole_number(name, value[1], 0, INT32_MAX))


def partitions(name: str, values: Any) -> list[TopicPartition]:
    """A list of partitions.  Raises: ArgumentError, naming it."""
    return [partition(name, value) for value in things(name, values)]


def topic_partition(topic: Any, partition: Any) -> TopicPartition:
    """A partition from two arguments of these names, whether or not it can exist.

    Raises: ArgumentError, naming the one that is not a str or an int.
    """
    return TopicPartition(text("topic", topic), whole_number("partition", partition))
