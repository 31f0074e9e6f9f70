"""The imports of kafkalog's own modules, as a graph of files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.house import tree

PACKAGE = tree.ROOT / "kafkalog"


def name_of(path: Path) -> str:
    """The dotted name of a module's file."""
    pieces = path.relative_to(tree.ROOT).with_suffix("").parts
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


MODULES = {name_of(path): path for path in tree.with_suffix(".py") if PACKAGE in path.parents}


@cache
def imports_of(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and name of each module of kafkalog that a file imports, wherever the import is: at
    the top, in a function, or for types only."""
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in tree.nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                pieces = path.relative_to(tree.ROOT).with_suffix("").parts
                base = ".".join([*pieces[: len(pieces) - node.level], *filter(None, [base])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in MODULES:
                    yield node.lineno, full
                elif base in MODULES:
                    yield node.lineno, base


def graph() -> dict[str, set[str]]:
    """The modules that each module imports."""
    return {
        name: {other for _, other in imports_of(path)} - {name} for name, path in MODULES.items()
    }


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which reaches all others of its group; sorted."""
    reached = {name: _reached(name, edges) for name in edges}
    found = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in edges
    }
    return sorted(sorted(group) for group in found if len(group) > 1)


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        for other in edges.get(left.pop(), ()):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen
