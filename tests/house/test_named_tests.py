"""Tests that a document names, as `folder/file.py::test`, exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house import tree

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def missing(text: str) -> list[str]:
    """Test names in a text that do not exist."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(text)
        if not (tree.ROOT / path).exists() or name not in functions(tree.ROOT / path)
    ]


def functions(path: Path) -> set[str]:
    return {node.name for node in tree.parse(path).body if isinstance(node, ast.FunctionDef)}


def test_named_tests_exist() -> None:
    texts = {tree.named(path): path.read_text("utf-8") for path in tree.with_suffix(".md")}
    assert {name: gone for name, text in texts.items() if (gone := missing(text))} == {}


@pytest.mark.parametrize("name", ["guarantees.md", "pairs.md"])
def test_tables_are_proved(name: str) -> None:
    """Every promise, and every pair, names a test."""
    text = (tree.ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(NAMED.findall(text)) > 20
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows
    bare = [row for row in rows if "::" not in row and not row.startswith("| |")]
    assert [row for row in bare if "what happens" not in row] == []


def test_a_missing_test_is_found() -> None:
    here = "tests/house/test_named_tests.py"
    assert missing(f"`{here}::test_named_tests_exist`") == []
    assert missing(f"`{here}::test_of_nothing`, `tests/none.py::test_x`") == [
        f"{here}::test_of_nothing",
        "tests/none.py::test_x",
    ]
