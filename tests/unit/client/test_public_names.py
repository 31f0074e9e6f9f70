"""Types that clients take or return are exported; asyncio's clients take the same arguments."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import aio
from kafkalog.client.producer.producer import Interceptor, OutgoingRecord

KINDS = ("Producer", "Consumer", "Admin")
INNER = {"Batch", "Membership"}
"""Only our own constructors take these; a Membership is anything with a GroupMetadata's fields."""


def annotations_of(thing: type) -> Iterator[tuple[str, str]]:
    """(module, annotation) of its fields, and of what its public members take and return."""
    if issubclass(thing, tuple):
        yield from ((thing.__module__, str(one)) for one in thing.__annotations__.values())
    for name, member in inspect.getmembers(thing):
        call = member.fget if isinstance(member, property) else member
        if inspect.isfunction(call) and (not name.startswith("_") or name == "__init__"):
            yield from ((call.__module__, str(one)) for one in call.__annotations__.values())


def named(thing: type) -> Iterator[type]:
    """Our classes that these annotations name."""
    for module, annotation in annotations_of(thing):
        for words in re.findall(r"[A-Za-z_][\w.]*", annotation):
            first, *rest = words.split(".")
            found: Any = vars(sys.modules[module]).get(first)
            for word in rest:
                found = getattr(found, word, None)
            if inspect.isclass(found) and found.__module__.startswith("kafkalog."):
                yield found


def test_all_that_is_taken_or_returned_is_exported() -> None:
    found: set[type] = set()
    left: list[type] = [*(getattr(kafkalog, kind) for kind in KINDS), Interceptor, OutgoingRecord]
    while left:
        for one in {left[-1], *named(left.pop())} - found:
            found.add(one)
            if one.__name__ not in INNER:
                left.append(one)
    assert len(found) > 30
    private = {one.__name__ for one in found if one.__name__ not in kafkalog.__all__}
    assert private == INNER
    assert all(getattr(kafkalog, one.__name__) is one for one in found if one.__name__ not in INNER)


OLDER = {
    ("Producer", "flush", "timeout"), ("Producer", "close", "timeout"),
    ("Mirror", "__init__", "refresh_s"),
}  # fmt: skip
FUTURES = {
    (kind, name, "timeout") for kind in ("Future", "ManyFuture") for name in ("result", "exception")
}
"""Named as in concurrent.futures, whose functions accept these futures."""


def test_every_time_is_in_milliseconds_and_says_so() -> None:
    """Except in methods that concurrent.futures calls, and in older spellings, which stay valid."""
    found = {
        (kind, name, one.name)
        for kind in kafkalog.__all__
        if inspect.isclass(getattr(kafkalog, kind)) and kind != "Clock"  # time.monotonic's
        for name, call in inspect.getmembers(getattr(kafkalog, kind), callable)
        if not name.startswith("_") or name == "__init__"
        for one in _signature(call)
        if re.search(
            r"timeout|interval|duration|linger|seconds|(^|_)(s|sec|secs|minutes)$", one.name
        )
        and not one.name.endswith("_ms")
    }
    assert found - FUTURES == OLDER


def _signature(call: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # in C
        return []


def parameters(call: Any) -> list[tuple[str, Any, Any, str]]:
    return [
        (one.name, one.kind, one.default, str(one.annotation))
        for one in inspect.signature(call).parameters.values()
        if one.name != "self"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_asyncios_clients_take_the_same(kind: str) -> None:
    below, above = getattr(kafkalog, kind), getattr(aio, kind)
    assert parameters(below) == parameters(above)
    names = [
        name
        for name, _ in inspect.getmembers(below, inspect.isfunction)
        if not name.startswith("_") and name != "wakeup"  # asyncio cancels the poll instead
    ]
    assert len(names) > 8
    for name in names:
        assert parameters(getattr(below, name)) == parameters(getattr(above, name)), name


@pytest.mark.parametrize("kind", KINDS)
def test_asyncios_clients_have_the_same_properties(kind: str) -> None:
    below, above = getattr(kafkalog, kind), getattr(aio, kind)
    for name, _ in inspect.getmembers(below, lambda one: isinstance(one, property)):
        assert isinstance(getattr(above, name), property), name
