"""Results of public calls have types: a checker knows it, and nothing heavy is imported for it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import kafkalog
from kafkalog import Log, Scan, Store
from kafkalog.log.scan.topic import TopicScan
from kafkalog.store import Topic

PROGRAM = Path(__file__).with_name("types_program.py")
ARRAYS = re.compile(r"np\.ndarray\[Any, Any\]")


def calls() -> Iterator[tuple[str, Any]]:
    """The public methods and properties of the public classes."""
    kinds = {name: getattr(kafkalog, name) for name in kafkalog.__all__}
    for name, kind in {**kinds, "Topic": Topic, "TopicScan": TopicScan}.items():
        for member, _ in inspect.getmembers(kind) if inspect.isclass(kind) else ():
            found = inspect.getattr_static(kind, member)
            call = found.fget if isinstance(found, property) else found
            known = inspect.isfunction(call) and call.__module__.startswith("kafkalog")
            if known and (member == "__getitem__" or not member.startswith("_")):
                yield f"{name}.{member}", call


ABOVE = ["Broker.store"]
"""Returns a type of a layer above its own, which it cannot name without a circle of files."""


def test_no_call_returns_just_anything() -> None:
    found = {name: str(call.__annotations__.get("return", "nothing")) for name, call in calls()}
    assert len(found) > 150
    assert [
        name for name, kind in found.items() if re.search(r"\bAny\b", ARRAYS.sub("", kind))
    ] == ABOVE


@pytest.mark.parametrize(
    ("call", "kind"),
    [(Store.__getitem__, Topic), (Topic.__getitem__, Log)],
    ids=["store", "topic"],
)
def test_a_store_and_its_parts_have_their_types(call: Any, kind: type) -> None:
    assert get_type_hints(call, localns={"Store": Store})["return"] is kind


def test_frames_have_their_types_without_their_packages() -> None:
    program = (
        "import sys, kafkalog; found = kafkalog.Scan.to_arrow, kafkalog.Scan.to_pandas\n"
        "print(*(one.__annotations__['return'] for one in found), 'pyarrow' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["pyarrow.Table", "pandas.DataFrame", "False"]
    import pandas
    import pyarrow

    assert get_type_hints(Scan.to_arrow, localns={"pyarrow": pyarrow})["return"] is pyarrow.Table
    assert get_type_hints(Scan.to_pandas, localns={"pandas": pandas})["return"] is pandas.DataFrame


@pytest.mark.long  # the checker reads the whole package
def test_a_type_checker_finds_exactly_the_marked_lines() -> None:
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", "--strict", str(PROGRAM)]
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
