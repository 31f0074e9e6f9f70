"""The bounds in a predicate on offsets, times, partitions and keys: pure."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

__all__ = ["TURNED", "Narrow", "narrow", "predicate_tree"]

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_US_PER_MS = 1_000
_PER_US = {"Milliseconds": (1_000, 1), "Microseconds": (1, 1), "Nanoseconds": (1, 1_000)}
TURNED = {"Eq": "Eq", "Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq"}
"""Each comparison with its sides exchanged."""


@dataclass
class Narrow:
    """Bounds of a predicate's rows: no row outside matches; rows inside need not match."""

    start: int = 0
    """Offsets, `start` included and `stop` not."""
    stop: int = _INT64_MAX
    partition: int | None = None
    start_time_ms: int = _INT64_MIN
    stop_time_ms: int = _INT64_MAX
    key: bytes | None = None
    key_prefix: bytes | None = None

    def take(self, column: object, op: object, value: object) -> None:
        """Exclude the rows for which `column op value` is not true; `op`: one of TURNED.

        `value`: bytes of a key, a time in microseconds, a number; any other narrows nothing.
        """
        if column == "key":
            if op == "Eq" and isinstance(value, bytes):
                self.key = value
        elif not isinstance(value, int) or isinstance(value, bool):
            return
        elif column == "timestamp":
            self._take_time(op, value)
        elif column == "partition" and op == "Eq":
            self.partition = value
        elif column == "offset":
            if op in ("Eq", "GtEq", "Gt"):
                self.start = max(self.start, value + (op == "Gt"))
            if op in ("Eq", "LtEq", "Lt"):
                self.stop = min(self.stop, value + (op != "Lt"))

    def _take_time(self, op: object, time_us: int) -> None:
        """A column's microseconds are whole milliseconds, except at the ends: times beyond an end
        become that end."""
        if not _INT64_MIN + _US_PER_MS < time_us < _INT64_MAX - _US_PER_MS:
            return
        below = time_us // _US_PER_MS
        at_least = -(-time_us // _US_PER_MS)
        if op in ("Eq", "GtEq", "Gt"):
            first = below + 1 if op == "Gt" else at_least
            self.start_time_ms = max(self.start_time_ms, first)
        if op in ("Eq", "LtEq", "Lt"):
            self.stop_time_ms = min(self.stop_time_ms, at_least if op == "Lt" else below + 1)

    def scan_options(self, given: dict[str, Any]) -> dict[str, Any]:
        """`given` options of a TopicScan, narrowed."""
        made = dict(given)
        for name, ours, better in (
            ("start_time_ms", self.start_time_ms, max),
            ("stop_time_ms", self.stop_time_ms, min),
        ):
            theirs = given.get(name)
            if theirs is None or isinstance(theirs, int):  # else the scan reports it
                made[name] = ours if theirs is None else better(ours, theirs)
        if given.get("key") is None and given.get("key_prefix") is None:
            if self.key is not None:
                made["key"] = self.key
            elif self.key_prefix is not None:
                made["key_prefix"] = self.key_prefix
        return {**made, "within": (self.start, self.stop), "only_partition": self.partition}


def predicate_tree(predicate: polars.Expr) -> Any:
    """A predicate as polars serializes it to JSON; None if it cannot be."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its form may change: then it narrows nothing
            return json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # a Python function, an extension type
        return None


def narrow(tree: Any) -> Narrow:
    """The bounds that a predicate's tree gives, as polars serializes it to JSON.

    They come from comparisons of a column with a constant, alone or joined by `and`.  What is
    not understood narrows nothing.
    """
    found = Narrow()
    for part in _joined(tree):
        _take(found, part)
    return found


def _joined(tree: Any) -> Iterator[Any]:
    """The parts that must all be true."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        binary = part.get("BinaryExpr") if isinstance(part, dict) else None
        if isinstance(binary, dict) and binary.get("op") in ("And", "LogicalAnd"):
            waiting += [binary.get("left"), binary.get("right")]
        else:
            yield part


def _take(found: Narrow, part: Any) -> None:
    if not isinstance(part, dict):
        return
    match part:
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": constant}}}:
            found.take(name, op, _value(name, constant))
        case {"BinaryExpr": {"left": {"Literal": constant}, "op": op, "right": {"Column": name}}}:
            found.take(name, TURNED.get(op), _value(name, constant))
        case {
            "Function": {
                "input": [{"Column": "key"}, {"Literal": constant}],
                "function": {"BinaryExpr": "StartsWith"},
            }
        }:
            prefix = _bytes(constant)
            if prefix is not None and len(prefix) > len(found.key_prefix or b""):
                found.key_prefix = prefix


def _value(name: object, constant: Any) -> bytes | int | None:
    """The constant that a column is compared with; None: it narrows nothing."""
    if name == "key":
        return _bytes(constant)
    return _time_us(constant) if name == "timestamp" else _number(constant)


def _scalar(constant: Any, *kinds: str) -> Any:
    """The value of a constant of one of these types; None if it has another type."""
    scalar = constant.get("Scalar") if isinstance(constant, dict) else None
    if not isinstance(scalar, dict) or len(scalar) != 1:
        return None
    [(kind, value)] = scalar.items()
    return value if kind in kinds else None


def _bytes(constant: Any) -> bytes | None:
    value = _scalar(constant, "Binary")
    return bytes(value) if isinstance(value, list) else None


def _number(constant: Any) -> int | None:
    value = _scalar(constant, "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32")
    return value if isinstance(value, int) else None


def _time_us(constant: Any) -> int | None:
    """A time in microseconds; None also if it is not a whole number of them."""
    match _scalar(constant, "Datetime"):
        case [int(value), str(unit), *_] if unit in _PER_US:
            times, per = _PER_US[unit]
            return value * times // per if value * times % per == 0 else None
    return None
