"""Who may know whom: the layers of docs/architecture.md, in Python and in C."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import tree

# Low to high.  Parts on one line do not know each other.
PYTHON = [
    ["errors"],
    ["types", "config", "clock", "metrics"],
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

PACKAGE = tree.ROOT / "kafkalog"
# What still looks up: each of these is to go.
UPWARD = {
    ("kafkalog/batch/incoming.py", "log"),
    ("kafkalog/coordinator/journal.py", "inspect"),
    ("kafkalog/log/compaction.py", "directory"),
    ("kafkalog/log/log.py", "inspect"),
    ("kafkalog/log/ownership.py", "directory"),
    ("kafkalog/metadata/kraft/batches.py", "inspect"),
    ("kafkalog/metadata/kraft/snapshots.py", "inspect"),
}
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


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import of kafkalog's own, wherever it stands."""
    parsed = tree.parse(path)
    skipped = typing_only(parsed)
    for node in ast.walk(parsed):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                pieces = path.relative_to(tree.ROOT).with_suffix("").parts
                base = ".".join([*pieces[: len(pieces) - node.level], *filter(None, [base])])
            if base == "kafkalog":
                # `from kafkalog import errors` imports a part, any other name the package.
                for alias in node.names:
                    yield node.lineno, f"kafkalog.{alias.name}" if alias.name in RANK else base
            else:
                yield node.lineno, base


@pytest.mark.parametrize("path", MODULES, ids=tree.named)
def test_a_part_imports_only_lower_parts(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in RANK, f"kafkalog/{part} has no layer: give it one in {__name__}"
    for line, module in imports(path):
        if module.split(".")[0] == "kafkalog":
            other = part_of(module)
            if (tree.named(path), other) in UPWARD:
                continue
            assert other == part or RANK[other] < RANK[part], (
                f"{tree.named(path)}:{line}: {part} imports {other}, which is not below it"
            )


@pytest.mark.parametrize("path", MODULES, ids=tree.named)
def test_heavy_packages_are_imported_when_first_used(path: Path) -> None:
    parsed = tree.parse(path)
    skipped = typing_only(parsed)
    inside = {
        inner
        for node in ast.walk(parsed)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(parsed):
        if not isinstance(node, ast.Import | ast.ImportFrom) or node in skipped | inside:
            continue
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        for name in names:
            assert (name or "").split(".")[0] not in HEAVY, (
                f"{tree.named(path)}:{node.lineno}: {name} is imported with the module"
            )


def test_importing_kafkalog_loads_nothing_heavy() -> None:
    program = "import sys, kafkalog; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tree.ROOT
    ).stdout.split()
    assert "kafkalog" in loaded
    assert not HEAVY & set(loaded)


C_FILES = [path for path in tree.with_suffix(".c", ".h") if NATIVE in path.parents]


@pytest.mark.parametrize("path", C_FILES, ids=tree.named)
def test_c_includes_only_lower_layers(path: Path) -> None:
    if path.parent == NATIVE:
        return
    rank = C.index(path.parent.name)
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if not (match := re.match(r'\s*#\s*include\s+"([^"]+)"', text)):
            continue
        where = f"{tree.named(path)}:{line}"
        found = [p for p in (path.parent / match[1], NATIVE / match[1]) if p.exists()]
        assert found, f"{where}: no such file: {match[1]}"
        folder = found[0].resolve().parent
        if folder != NATIVE:
            assert C.index(folder.name) <= rank, (
                f"{where}: {path.parent.name} includes {folder.name}, which is above it"
            )


def test_the_parser_of_imports_sees_every_form(tmp_path: Path) -> None:
    """The rule above would hold for ever if nothing were found."""
    found = {module for path in MODULES for _, module in imports(path)}
    assert "kafkalog.errors" in found
    assert "os" in found
    assert len(C_FILES) > 10
