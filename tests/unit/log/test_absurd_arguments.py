"""Wrong arguments of every public method of a Log, generated from its signatures."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log
from kafkalog.errors import KafkalogError

ABSURD: list[Any] = [
    None, True, -1, 1.5, float("nan"), 1 << 70, "x", b"x", [], {}, object(), (1,), [None], "\ud800",
]  # fmt: skip
RIGHT: dict[str, Any] = {
    "value": b"v", "values": [b"v"], "buffer": b"", "offset": 0, "start": 0, "stop": 1, "time": 0,
    "epoch": 0, "producer_id": 1, "producer_epoch": 0, "commit": True,
}  # fmt: skip
# Methods that close the log, wait forever, or need a socket.
SKIPPED = {"close", "follow", "follow_arrow", "send_to", "wait"}


def methods() -> Iterator[tuple[str, list[inspect.Parameter]]]:
    """The public methods and their parameters."""
    for name, method in inspect.getmembers(Log, inspect.isroutine):
        if not name.startswith("_") and name not in SKIPPED:
            parameters = list(inspect.signature(method).parameters.values())[1:]
            named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            yield name, [one for one in parameters if one.kind in named]


def call(method: Any, **arguments: Any) -> None:
    """Call a method, and start to read its result."""
    found = method(**arguments)
    if hasattr(found, "__next__"):
        next(found, None)
    elif hasattr(found, "record_blocks"):
        found.count()


def raw_errors(method: Any, name: str, parameters: list[inspect.Parameter]) -> Iterator[str]:
    """A method's errors for absurd arguments, one at a time, that are not a KafkalogError."""
    for one in parameters:
        for absurd in ABSURD:
            others = {p.name: RIGHT[p.name] for p in parameters if p.default is p.empty}
            try:
                call(method, **{**others, one.name: absurd})
            except KafkalogError:
                continue
            except Exception as error:
                yield f"{name}({one.name}={absurd!r}): {type(error).__name__}: {error}"


def test_wrong_arguments_are_told_by_an_error_of_ours(tmp_path: Path) -> None:
    """Each of several thousand calls succeeds or raises a KafkalogError."""
    with Log(tmp_path / "a-0") as log:
        log.append(b"x")
        found = [line for name, parameters in methods()
                 for line in raw_errors(getattr(log, name), name, parameters)]  # fmt: skip
    assert found == []


def test_wrong_arguments_of_the_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a path of one letter is created in the current directory
    parameters = list(inspect.signature(Log).parameters.values())
    RIGHT["path"] = tmp_path / "b-0"

    def opened(**how: Any) -> None:
        Log(**how).close()

    wanted = [one for one in parameters if one.name != "clock"]
    assert list(raw_errors(opened, "Log", wanted)) == []


@pytest.mark.parametrize(
    ("name", "how", "told"),
    [
        ("truncate", {"offset": "1"}, "offset: found '1' of type str, wanted an int"),
        ("read_batches", {"offset": 0, "max_bytes": -1}, "max_bytes: found -1, wanted 0 or more"),
        ("epoch_end", {"epoch": 1 << 40}, "epoch: found 1099511627776, wanted -1 to 2147483647"),
        ("append_batches", {"buffer": "x"}, "buffer: found str, wanted contiguous bytes"),
        (
            "append_many",
            {"values": [b"v"], "batch_bytes": 0},
            "batch_bytes: found 0, wanted 1 or more",
        ),
        ("apply_retention", {"now_ms": b"x"}, "now_ms: found b'x' of type bytes"),
        ("scan", {"columns": 5}, "columns: found 5, wanted a list of names"),
    ],
)
def test_the_error_names_argument_found_and_wanted(
    tmp_path: Path, name: str, how: dict[str, Any], told: str
) -> None:
    with Log(tmp_path / "a-0") as log, pytest.raises(KafkalogError) as error:
        getattr(log, name)(**how)
    assert str(error.value).startswith(told)


def test_a_read_allocates_only_existing_bytes(tmp_path: Path) -> None:
    """Three gigabytes are requested from a small log."""
    import tracemalloc

    with Log(tmp_path / "a-0") as log:
        log.append(b"x")
        tracemalloc.start()
        try:
            assert len(log.read_batches(0, 3 << 30)) == log.size_bytes
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
