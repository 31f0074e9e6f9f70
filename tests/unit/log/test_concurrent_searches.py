"""Searches for times while the log's owner is busy: each sees the old state or the new one."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kafkalog
from kafkalog import FoundOffset, Log
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.unit.log.test_held_disk import NotHeld, held

Wait = Callable[..., None]
CONFIG = {"file.delete.delay.ms": 0, "index.interval.bytes": 100}
CALLS_MAX = 40
"""More calls than a search makes."""


@pytest.fixture
def hooks(native_test: tuple[Any, Any]) -> Iterator[Any]:
    _, lib = native_test
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


def batch(log: Log, first_ms: int, value_bytes: int) -> None:
    """Append three records in a compressed batch, each of about so many incompressible bytes."""
    values = [b"-" * 200 + random.Random(first_ms + i).randbytes(value_bytes) for i in range(3)]
    log.append_many(values, timestamps_ms=range(first_ms, first_ms + 3), compression="zstd")


def longer(log: Log) -> None:
    log.truncate(3)
    batch(log, 30, 4000)


def shorter(log: Log) -> None:
    log.truncate(3)
    batch(log, 30, 5)


def sealed(log: Log) -> None:
    longer(log)
    log.roll()
    batch(log, 40, 700)


def gone(log: Log) -> None:
    truncate_fully(handle_of(log), 100)
    batch(log, 50, 3000)


def largest(log: Log) -> FoundOffset | None:
    return log.find_largest_time()


def at(log: Log) -> int | None:
    return log.offset_at(21)


@pytest.mark.parametrize("beside", ["its owner", "a reader"])
@pytest.mark.parametrize("search", [largest, at])
@pytest.mark.parametrize("change", [longer, shorter, sealed, gone])
def test_a_search_is_held_in_each_of_its_reads(
    hooks: Any, tmp_path: Path, wait_until: Wait, beside: str,
    search: Callable[[Log], object], change: Callable[[Log], None],
) -> None:  # fmt: skip
    """The batch that it found is replaced."""
    for nth in range(1, CALLS_MAX):
        path = tmp_path / f"{nth}" / "log-0"
        with Log(path, config=CONFIG) as log:
            batch(log, 10, 50)
            batch(log, 20, 50)
            with Log(path, mode="r") as reader:
                seen = log if beside == "its owner" else reader
                before, found = search(seen), []

                def work(seen: Log = seen, found: list[object] = found) -> None:
                    found.append(search(seen))

                try:
                    with held(hooks, b"pread", work, wait_until, nth):
                        change(log)
                except NotHeld:
                    assert nth > 1, "it reads nothing"
                    break
                assert found[0] in (before, search(log))
    else:
        raise AssertionError(f"more than {CALLS_MAX} reads")
    assert kafkalog.Log(path, mode="r").verify().clean


@pytest.mark.parametrize("search", [largest, at])
@pytest.mark.parametrize("change", [longer, shorter, sealed, gone])
def test_a_search_that_is_overtaken_between_its_calls(
    tmp_path: Path, search: Callable[[Log], object], change: Callable[[Log], None]
) -> None:
    """It knows a batch's position and size, but another batch is there when it looks."""
    with Log(tmp_path / "log-0", config=CONFIG) as log:
        batch(log, 10, 50)
        batch(log, 20, 50)
        with Log(tmp_path / "log-0", mode="r") as reader:
            search(reader)
            changed: list[bool] = []

            def overtake(frame: FrameType, event: str, _: object) -> None:
                if event == "call" and frame.f_code.co_name == "_look_into" and not changed:
                    changed.append(True)
                    change(log)

            sys.setprofile(overtake)
            try:
                found = search(reader)
            finally:
                sys.setprofile(None)
            assert changed and found == search(log)
