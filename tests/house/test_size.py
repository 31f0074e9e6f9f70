"""Files, functions and lines stay small enough to be read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house import tree

FILE_LINES = {".py": 600, ".c": 800, ".h": 800}
FUNCTION_LINES = 60
COLUMNS = 100
CODE = tree.with_suffix(".py", ".c", ".h")


@pytest.mark.parametrize("path", CODE, ids=tree.named)
def test_a_file_is_not_too_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES[path.suffix], f"{tree.named(path)} has {lines} lines"


@pytest.mark.parametrize("path", CODE, ids=tree.named)
def test_a_line_is_not_too_long(path: Path) -> None:
    long = [
        f"{tree.named(path)}:{number}: {len(line)} columns"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long


@pytest.mark.parametrize("path", CODE, ids=tree.named)
def test_a_function_fits_a_screen(path: Path) -> None:
    if path.suffix == ".py":
        found = [
            (node.name, node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(tree.parse(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    else:
        found = list(tree.c_functions(path.read_text(encoding="utf-8")))
    long = [
        f"{tree.named(path)}:{first}: {name} has {last - first + 1} lines"
        for name, first, last in found
        if last - first + 1 > FUNCTION_LINES
    ]
    assert not long


def test_the_parser_of_c_finds_functions() -> None:
    text = "static int one(int a,\n               int b) {\n    return a;\n}\n\nint two(void);\n"
    assert list(tree.c_functions(text + "int three(void) {\n}\n")) == [
        ("one", 1, 4),
        ("three", 7, 8),
    ]
    sources = [path for path in CODE if path.suffix == ".c"]
    assert sum(len(list(tree.c_functions(path.read_text()))) for path in sources) > 100
