"""Wrong arguments of Broker, Manager and the methods of a Scan, generated from their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Broker, Log
from kafkalog.directory.manager import Manager
from kafkalog.errors import KafkalogError
from kafkalog.log.scan.scan import Scan
from tests.unit.log import test_absurd_arguments as absurd


@pytest.mark.parametrize("kind", [Manager, Broker], ids=lambda kind: kind.__name__)
def test_wrong_arguments_of_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Any]
) -> None:
    """Each is accepted, or refused with a KafkalogError; nothing is left open."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(absurd.RIGHT, "path", tmp_path / "right")
    parameters = [p for p in inspect.signature(kind).parameters.values() if p.name != "clock"]

    def opened(**how: Any) -> None:
        kind(**how).close()

    assert list(absurd.raw_errors(opened, kind.__name__, parameters)) == []


METHODS = sorted(
    name for name, _ in inspect.getmembers(Scan, inspect.isfunction)
    if not name.startswith("_") and name != "close"
)  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_wrong_arguments_of_a_scan(tmp_path: Path, name: str) -> None:
    with Log(tmp_path / "a-0") as log:
        log.append_many([b"x", b"y"])
        method = getattr(log.scan(), name)
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = [p for p in inspect.signature(method).parameters.values() if p.kind in named]
        assert list(absurd.raw_errors(method, name, parameters)) == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"path": None}, "path: found None, wanted a folder's path"),
        ({"path": ""}, "path: it is empty; give a folder's path"),
        ({"path": "b", "config": "x"}, "config: found str, wanted a mapping"),
        ({"path": "b", "config": {"nope": 1}}, "nope is not a broker setting"),
        ({"path": "b", "listeners": 9092}, "listeners: found 9092, wanted host:port"),
        ({"path": "b", "listeners": [None]}, "listeners: found [None], wanted host:port"),
    ],
)
def test_a_brokers_error_names_argument_found_and_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KafkalogError) as error:
        Broker(**how)
    assert str(error.value).startswith(told)
    assert not list(tmp_path.iterdir())
