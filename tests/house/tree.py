"""The project's hand-written files, and small parsers for them."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_SKIPPED = {"build", "dist", "demo-data", "__pycache__"}
_WRITTEN = {".py", ".c", ".h", ".md", ".toml", ".sh", ".json", ".txt", ""}


@lru_cache(maxsize=1)
def files() -> tuple[Path, ...]:
    """Every hand-written file, sorted, without built and hidden ones (except .ci)."""

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            hidden = path.name.startswith(".") and path.name != ".ci"
            if hidden or path.name in _SKIPPED or path.suffix == ".egg-info":
                continue
            if path.is_dir():
                yield from walk(path)
            elif path.suffix in _WRITTEN and not generated(path):
                yield path

    return tuple(walk(ROOT))


def generated(path: Path) -> bool:
    """True if cffi wrote the file."""
    return path.parent.name == "_native" and path.suffix == ".c"


def named(path: Path) -> str:
    """The path as messages show it, from the top of the checkout."""
    return str(path.relative_to(ROOT))


def with_suffix(*suffixes: str) -> list[Path]:
    return [path for path in files() if path.suffix in suffixes]


@cache
def parse(path: Path) -> ast.Module:
    """All trees are kept, so Python's garbage collector must not look through them each time."""
    text = path.read_text(encoding="utf-8")
    gc.disable()
    try:
        return ast.parse(text, str(path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a Python file: walking a tree takes longer than parsing it."""
    return tuple(ast.walk(parse(path)))


def c_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, first and last line of each function; the layout is clang-format's, so that a
    body begins with a line that ends in `{` and ends with `}` in the first column."""
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        head = lines[start]
        if not re.match(r"[a-zA-Z_]", head) or "(" not in head or head.endswith(";"):
            start += 1
            continue
        body = start
        while body < len(lines) and not lines[body].endswith(("{", ";", "}")):
            body += 1
        if body == len(lines) or not lines[body].endswith("{"):
            start = body + 1
            continue
        end = next((i for i in range(body, len(lines)) if lines[i] == "}"), len(lines) - 1)
        name = re.search(r"(\w+)\s*\(", head)
        yield (name.group(1) if name else head), start + 1, end + 1
        start = end + 1
