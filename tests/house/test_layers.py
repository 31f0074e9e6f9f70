"""The layers of docs/architecture.md: which part may import which, in Python and in C."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.house import tree
from tests.house.imports import imports_of
from tests.house.layers import PYTHON, RANK, C

PACKAGE = tree.ROOT / "kafkalog"
# Circles that are left, each as its files: they are to be removed.
CIRCLES_OF_C: list[list[str]] = []
NATIVE = PACKAGE / "_native"
MODULES = [path for path in tree.with_suffix(".py") if PACKAGE in path.parents]
HEAVY = {"numpy", "pyarrow", "pandas", "polars", "pyspark", "kazoo"}


def part_of(module: str) -> str:
    """The part of a dotted name under kafkalog; the package itself is `__init__`."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else "__init__"


def typing_only(tree_: ast.Module) -> set[ast.AST]:
    """The nodes under `if TYPE_CHECKING`, which never run."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree_):
        if _for_types(node):
            found.update(inner for statement in node.body for inner in ast.walk(statement))
    return found


def _for_types(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def test_every_part_has_a_layer() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert parts == RANK.keys(), "each has a layer in tests/house/layers.py, and it has no others"
    assert len(RANK) == sum(map(len, PYTHON))
    assert {path.parent.name for path in C_FILES if path.parent != NATIVE} == C.keys()


def test_a_part_imports_only_lower_parts() -> None:
    upward = []
    for path in MODULES:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for line, module in imports_of(path):
            other = part_of(module)
            if other != part and RANK[other] >= RANK[part]:
                upward.append(f"{tree.named(path)}:{line}: {part} imports {other}")
    assert upward == []


# Where a node's metadata come from.  All other code sees them through metadata/source.py and
# replication/membership.py.
SOURCES = ("kafkalog.kraft", "kafkalog.zookeeper", "kafkalog.cluster")
CHOOSES = "kafkalog/server/opening.py"
# Commands that look at a source itself, and parts that replace one.
BY_NAME = {"kraft", "zookeeper", "quorum", "cluster", "cli", "testing", "simulate"}


def sources_of(path: Path) -> list[tuple[int, str]]:
    """Line and name of each source of metadata that a file imports, also for types only."""
    return [
        (line, module)
        for line, module in imports_of(path)
        if any(module == source or module.startswith(f"{source}.") for source in SOURCES)
    ]


def test_one_file_chooses_where_metadata_come_from() -> None:
    """This file does; nothing else outside the stores and cluster/ knows its choice."""
    known = {
        tree.named(path): [f"line {line}: {module}" for line, module in found]
        for path in MODULES
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in BY_NAME
        and (found := sources_of(path))
    }
    assert {module.rpartition(".")[2] for _, module in sources_of(tree.ROOT / CHOOSES)} >= {
        "kraftlog", "member", "driver",
    }  # fmt: skip
    assert {name: found for name, found in known.items() if name != CHOOSES} == {}


def imported_with(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each module that is imported on import, not later by a function."""
    left: list[ast.AST] = [tree.parse(path)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
        elif _for_types(node):
            left += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            left += ast.iter_child_nodes(node)


def test_heavy_packages_are_imported_when_first_used() -> None:
    heavy = [
        f"{tree.named(path)}:{line}: {name}"
        for path in MODULES
        for line, name in imported_with(path)
        if name.split(".")[0] in HEAVY
    ]
    assert heavy == []


# In the standard library; each costs more than all our modules that a Log needs.
SLOW = {"asyncio", "concurrent", "dataclasses", "inspect", "logging", "ssl", "subprocess"}


NOT_LOADED = {
    "Log": SLOW | {"hashlib", "shutil", "urllib"},
    "Producer": {"asyncio", "dataclasses", "hashlib", "inspect", "shutil", "ssl", "urllib"},
    "Broker": {"asyncio", "dataclasses", "email", "http", "inspect", "shutil", "ssl"},
}
"""Slow modules of the standard library that each class does without until it needs them."""


@pytest.mark.parametrize("name", NOT_LOADED)
def test_importing_a_public_class_loads_nothing_heavy(name: str) -> None:
    program = (
        f"import sys; from kafkalog import {name};"
        " print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tree.ROOT
    ).stdout.split()
    assert "kafkalog" in loaded
    assert not (HEAVY | NOT_LOADED[name]) & set(loaded)


C_FILES = [path for path in tree.with_suffix(".c", ".h") if NATIVE in path.parents]


def includes(path: Path) -> Iterator[tuple[int, Path | None]]:
    """Line and file of each of our own headers that a file includes; None: there is none."""
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if match := re.match(r'\s*#\s*include\s+"([^"]+)"', text):
            found = [p for p in (path.parent / match[1], NATIVE / match[1]) if p.exists()]
            yield line, found[0].resolve() if found else None


def c_code(path: Path) -> str:
    """The text of a C file without comments, strings and includes."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def c_functions() -> dict[str, Path]:
    """The file of each function that other files may call: those in headers are inline."""
    found = {}
    for path in C_FILES:
        lines = path.read_text().splitlines()
        for name, first, _ in tree.c_functions(path.read_text()):
            if lines[first - 1].startswith("static ") == (path.suffix == ".h"):
                found[name] = path
    return found


FORMS_OF_C = (("base/poller_epoll", "base/poller_poll"), ("base/system_linux", "base/system_posix"))
"""Files of which one is compiled, with the same functions."""


def c_calls() -> dict[Path, set[Path]]:
    """For each file, without its suffix: the other files whose functions it names.  A file that
    puts a function in a table names it; a file that calls it through the table does not."""
    functions = c_functions()
    graph: dict[Path, set[Path]] = {}
    for path in C_FILES:
        text = c_code(path)
        if path.suffix == ".h":  # declarations call nothing: inline functions do
            text = "".join(re.findall(r"^static inline.*?^}", text, re.DOTALL | re.MULTILINE))
        names = set(re.findall(r"\bkl_\w+", text))
        known = {functions[name].with_suffix("") for name in names & functions.keys()}
        forms = next(({NATIVE / one for one in each} for each in FORMS_OF_C
                      if tree.named(path.with_suffix("")).endswith(each)), set())  # fmt: skip
        graph.setdefault(path.with_suffix(""), set()).update(known - {path.with_suffix("")} - forms)
    return graph


def may_know(path: Path, other: Path) -> bool:
    """True if the part of a C file may use the other file's part.  Every part may use the public
    headers, and they may use every part."""
    if NATIVE in (path.parent, other.parent) or path.parent == other.parent:
        return True
    return other.parent.name in C[path.parent.name]


def test_c_knows_only_lower_layers() -> None:
    """By includes, and by the functions that are named."""
    wrong = []
    for path in C_FILES:
        for line, header in includes(path):
            if header is None:
                wrong.append(f"{tree.named(path)}:{line}: no such file")
            elif not may_know(path, header):
                wrong.append(f"{tree.named(path)}:{line}: {tree.named(header)}")
    for path, known in c_calls().items():
        for other in known:
            if not may_know(path, other):
                wrong.append(f"{tree.named(path)} calls {tree.named(other)}")
    assert wrong == []


def test_no_c_files_call_each_other_in_a_circle() -> None:
    graph = c_calls()
    circles = [sorted(map(tree.named, one)) for one in strong_components(graph) if len(one) > 1]
    assert [one for one in circles if one not in CIRCLES_OF_C] == []


def strong_components(graph: dict[Path, set[Path]]) -> list[set[Path]]:
    """Files that reach each other, by Tarjan's algorithm."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[set[Path]] = []

    def visit(node: Path) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(set(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_the_parser_of_c_sees_calls() -> None:
    """A canary: without it, a parser that finds nothing would pass."""
    graph = c_calls()
    assert NATIVE / "net/up" in graph[NATIVE / "net/exchange"]
    assert NATIVE / "base/buffer" in graph[NATIVE / "net/response"]
    assert NATIVE / "base/count" in graph[NATIVE / "net/response"]  # an inline function
    assert strong_components({NATIVE: {PACKAGE}, PACKAGE: {NATIVE}}) == [{NATIVE, PACKAGE}]


def test_the_parser_of_imports_sees_every_form(tmp_path: Path) -> None:
    """A canary: without it, a parser that finds nothing would pass."""
    assert "kafkalog.errors" in {module for path in MODULES for _, module in imports_of(path)}
    assert len(C_FILES) > 10
