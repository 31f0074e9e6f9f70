"""What callers hand over, checked by name before it reaches the data plane."""

import operator
from typing import Any, Final

from kafkalog.errors import ArgumentError

__all__ = ["INT16_MAX", "INT32_MAX", "INT64_MAX", "bytes_like", "whole_number"]

INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1


def whole_number(name: str, value: Any, low: int = -INT64_MAX - 1, high: int = INT64_MAX) -> int:
    """An int from `low` to `high`, whatever integer type it came as.

    Raises: ArgumentError, naming it.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(
            f"{name}: found {value!r} of type {type(value).__name__}, wanted an int"
        ) from None
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
            f"{name}: found {type(value).__name__}, wanted bytes that lie one after another"
        ) from None
