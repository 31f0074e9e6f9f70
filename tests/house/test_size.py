"""Files, functions and lines stay small enough to read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house import tree

FILE_LINES = {".py": 600, ".c": 800, ".h": 800}
FUNCTION_LINES = 60
COLUMNS = 100
CODE = tree.with_suffix(".py", ".c", ".h")


def test_a_file_is_not_too_long() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    long = [(tree.named(path), n) for path, n in lines.items() if n > FILE_LINES[path.suffix]]
    assert long == []


def test_a_line_is_not_too_long() -> None:
    long = [
        f"{tree.named(path)}:{number}: {len(line)} columns"
        for path in CODE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert long == []


def functions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, first and last line of each."""
    if path.suffix != ".py":
        yield from tree.c_functions(path.read_text(encoding="utf-8"))
        return
    for node in tree.nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, node.end_lineno or node.lineno


def test_a_function_fits_a_screen() -> None:
    long = [
        f"{tree.named(path)}:{first}: {name} has {last - first + 1} lines"
        for path in CODE
        for name, first, last in functions(path)
        if last - first + 1 > FUNCTION_LINES
    ]
    assert long == []


def test_the_parser_of_c_finds_functions() -> None:
    text = "static int one(int a,\n               int b) {\n    return a;\n}\n\nint two(void);\n"
    assert list(tree.c_functions(text + "int three(void) {\n}\n")) == [
        ("one", 1, 4),
        ("three", 7, 8),
    ]
    sources = [path for path in CODE if path.suffix == ".c"]
    assert sum(len(list(tree.c_functions(path.read_text()))) for path in sources) > 100
