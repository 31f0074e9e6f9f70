"""Who may know whom: the layers of docs/architecture.md, in Python and in C."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.house import tree
from tests.house.imports import imports_of

# Low to high.  Parts on one line do not know each other.
PYTHON = [
    ["errors"],
    ["types", "config", "clock", "metrics", "report"],
    ["_native"],
    ["wire"],
    ["batch"],
    ["disk"],
    ["log"],
    ["directory"],
    ["inspect", "metadata", "coordinator", "security", "client"],
    ["replication"],
    ["cluster"],
    ["server"],
    ["store"],
    ["__init__"],
    # The command line and the plugin use the public names, as everybody else does.
    ["cli", "pytest_plugin"],
    ["__main__"],
]
RANK = {part: rank for rank, parts in enumerate(PYTHON) for part in parts}
C = ["base", "batch", "log", "scan", "clean", "replica", "net", "plane", "server"]
RANK_C = {part: rank for rank, part in enumerate(C)}

PACKAGE = tree.ROOT / "kafkalog"
NATIVE = PACKAGE / "_native"
MODULES = [path for path in tree.with_suffix(".py") if PACKAGE in path.parents]
HEAVY = {"numpy", "pyarrow", "pandas", "polars", "pyspark", "kazoo"}


def part_of(module: str) -> str:
    """The part of a dotted name under kafkalog; the package itself is `__init__`."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else "__init__"


def typing_only(tree_: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING`: it is never run."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree_):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            found.update(inner for statement in node.body for inner in ast.walk(statement))
    return found


def test_every_part_has_a_layer() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert parts - RANK.keys() == set(), f"give them one in {__name__}"


def test_a_part_imports_only_lower_parts() -> None:
    upward = []
    for path in MODULES:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for line, module in imports_of(path):
            other = part_of(module)
            if other != part and RANK[other] >= RANK[part]:
                upward.append(f"{tree.named(path)}:{line}: {part} imports {other}")
    assert upward == []


def imported_with(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of what is imported when the module is, and not later by a function."""
    parsed = tree.parse(path)
    later = typing_only(parsed)
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            later.update(ast.walk(node))
    for node in ast.walk(parsed):
        if node in later:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def test_heavy_packages_are_imported_when_first_used() -> None:
    heavy = [
        f"{tree.named(path)}:{line}: {name}"
        for path in MODULES
        for line, name in imported_with(path)
        if name.split(".")[0] in HEAVY
    ]
    assert heavy == []


def test_importing_kafkalog_loads_nothing_heavy() -> None:
    program = "import sys, kafkalog; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tree.ROOT
    ).stdout.split()
    assert "kafkalog" in loaded
    assert not HEAVY & set(loaded)


C_FILES = [path for path in tree.with_suffix(".c", ".h") if NATIVE in path.parents]


def includes(path: Path) -> Iterator[tuple[int, Path | None]]:
    """Line and file of each of our own headers that a file includes; None: there is none."""
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if match := re.match(r'\s*#\s*include\s+"([^"]+)"', text):
            found = [p for p in (path.parent / match[1], NATIVE / match[1]) if p.exists()]
            yield line, found[0].resolve() if found else None


def test_c_includes_only_lower_layers() -> None:
    wrong = []
    for path in C_FILES:
        if path.parent == NATIVE:
            continue
        for line, header in includes(path):
            if header is None:
                wrong.append(f"{tree.named(path)}:{line}: no such file")
            elif header.parent != NATIVE and RANK_C[header.parent.name] > RANK_C[path.parent.name]:
                wrong.append(f"{tree.named(path)}:{line}: {tree.named(header)} is above it")
    assert wrong == []


def test_the_parser_of_imports_sees_every_form(tmp_path: Path) -> None:
    """The rule above would hold for ever if nothing were found."""
    assert "kafkalog.errors" in {module for path in MODULES for _, module in imports_of(path)}
    assert len(C_FILES) > 10
