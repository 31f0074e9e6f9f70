"""Serializers and deserializers of keys and values: JSON, text and numbers.

For `Producer(value_serializer=to_json)` and `Consumer(value_deserializer=from_json)`; any other
callable with one argument works, too.  They write the bytes of Java's serializers of these names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.arguments import called
from kafkalog.errors import ArgumentError

__all__ = [
    "Deserializer",
    "Serializer",
    "from_double",
    "from_int",
    "from_json",
    "from_long",
    "from_string",
    "to_double",
    "to_int",
    "to_json",
    "to_long",
    "to_string",
]

# The types that a producer's serializers, and so its `send`, take: bytes without a serializer.
if TYPE_CHECKING:
    from typing_extensions import TypeVar  # typing's has no default before Python 3.13

    KeyT = TypeVar("KeyT", default=bytes)
    ValueT = TypeVar("ValueT", default=bytes)
else:
    from typing import TypeVar

    KeyT, ValueT = TypeVar("KeyT"), TypeVar("ValueT")

Serializer = Callable[[Any], "bytes | None"]
Deserializer = Callable[[bytes], Any]
_INT, _LONG, _DOUBLE = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d")


def serializers(
    kind: str, key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None
) -> Mapping[str, Callable[[Any], Any]]:
    """The given ones, by `key` and `value`.  Raises: ArgumentError for other than a function."""
    for name, found in (("key", key), ("value", value)):
        called(f"{name}_{kind}", found)
    return {name: one for name, one in (("key", key), ("value", value)) if one is not None}


def to_json(value: object) -> bytes:
    """JSON in UTF-8, without spaces.  Raises: TypeError, ValueError."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(data: bytes) -> Any:
    """The value in JSON.  Raises: ValueError."""
    return json.loads(data)


def to_string(value: str) -> bytes:
    """UTF-8.  Raises: ArgumentError, UnicodeEncodeError."""
    if not isinstance(value, str):
        raise ArgumentError(f"to_string: found {type(value).__name__}, wanted a str")
    return value.encode()


def from_string(data: bytes) -> str:
    """The text in UTF-8.  Raises: UnicodeDecodeError."""
    return bytes(data).decode()


def to_int(value: int) -> bytes:
    """4 bytes, big-endian.  Raises: ArgumentError."""
    return _packed("to_int", _INT, value)


def from_int(data: bytes) -> int:
    """The int in 4 bytes, big-endian.  Raises: ArgumentError."""
    return int(_unpacked("from_int", _INT, data))


def to_long(value: int) -> bytes:
    """8 bytes, big-endian.  Raises: ArgumentError."""
    return _packed("to_long", _LONG, value)


def from_long(data: bytes) -> int:
    """The int in 8 bytes, big-endian.  Raises: ArgumentError."""
    return int(_unpacked("from_long", _LONG, data))


def to_double(value: float) -> bytes:
    """8 bytes, IEEE 754, big-endian.  Raises: ArgumentError."""
    return _packed("to_double", _DOUBLE, value)


def from_double(data: bytes) -> float:
    """The float in 8 bytes, IEEE 754, big-endian.  Raises: ArgumentError."""
    return float(_unpacked("from_double", _DOUBLE, data))


def _packed(name: str, form: struct.Struct, value: Any) -> bytes:
    try:
        return form.pack(value)
    except struct.error as problem:
        raise ArgumentError(f"{name}: found {value!r}: {problem}") from None


def _unpacked(name: str, form: struct.Struct, data: bytes) -> Any:
    if len(data) != form.size:
        raise ArgumentError(f"{name}: found {len(data)} bytes, wanted {form.size}")
    return form.unpack(data)[0]
