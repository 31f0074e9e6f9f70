"""Counts the error codes in answers of Python, by API."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.wire.values import Struct

if TYPE_CHECKING:
    from kafkalog.wire.api import Api
    from kafkalog.wire.notation import Field

__all__ = ["ErrorCounts"]


class _Places(NamedTuple):
    """Where a struct has error codes."""

    codes: tuple[str, ...]
    inner: tuple[tuple[str, _Places], ...]
    """Fields with structs, or lists of structs, that have some."""


def _places(fields: Iterable[Field]) -> _Places:
    codes, inner = [], []
    for field in fields:
        if field.name.endswith("error_code"):
            codes.append(field.name)
        elif (found := _places(field.fields)) != _NOWHERE:
            inner.append((field.name, found))
    return _Places(tuple(codes), tuple(inner))


_NOWHERE = _Places((), ())


def _add_codes(value: Any, places: _Places, codes: list[int]) -> None:
    """Add the codes in a struct; pieces that are encoded already have none."""
    get = value.get if isinstance(value, (dict, Mapping)) else value.__dict__.get
    for name in places.codes:
        codes.append(int(get(name) or 0))
    for name, inner in places.inner:
        found = get(name)
        if not found:
            continue
        for one in found if isinstance(found, (list, tuple)) else (found,):
            if isinstance(one, (dict, Struct, Mapping)):
                _add_codes(one, inner, codes)


class ErrorCounts:
    """How many answers, or parts of answers, had each error code.  Safe to use from many
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows; held for a moment
        self._counts: dict[str, dict[int, int]] = {}
        self._places: dict[str, _Places] = {}

    def add(self, api: Api, answer: Mapping[str, Any]) -> None:
        """Count the codes of an answer; one without any counts as one without an error."""
        places = self._places.get(api.name)
        if places is None:
            places = self._places[api.name] = _places(api.response.fields)
        found: list[int] = []
        _add_codes(answer, places, found)
        with self._lock:
            counts = self._counts.setdefault(api.name, {})
            for code in found or (0,):
                counts[code] = counts.get(code, 0) + 1

    def counts(self) -> dict[str, dict[int, int]]:
        """By the API's name and error code."""
        with self._lock:
            return {name: dict(counts) for name, counts in self._counts.items()}
