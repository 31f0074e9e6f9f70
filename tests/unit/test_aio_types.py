"""The asyncio clients are typed: a checker knows what each call takes and returns."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkalog import aio

PROGRAM = Path(__file__).with_name("aio_program.py")


def public(kind: Any) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_program_has_every_call() -> None:
    kinds = aio.Admin, aio.Producer, aio.Consumer, aio.ShareConsumer
    wanted = set().union(*map(public, kinds)) - {"Below"}
    tree = ast.walk(ast.parse(PROGRAM.read_text(encoding="utf-8")))
    found = {node.attr for node in tree if isinstance(node, ast.Attribute)}
    assert len(wanted) > 60
    assert wanted <= found, wanted - found


@pytest.mark.long  # the checker reads the whole package
def test_a_type_checker_finds_exactly_the_marked_lines() -> None:
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", "mypy", "--strict", PROGRAM]
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
