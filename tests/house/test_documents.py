"""Every public thing is explained, and documents made from code are fresh."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import kafkalog
from tests.house import tree

HEADERS = [tree.ROOT / "kafkalog" / "_native" / name for name in ("kafkalog.h", "server.h")]


@pytest.mark.parametrize("name", sorted(kafkalog.__all__))
def test_every_export_has_a_docstring(name: str) -> None:
    thing = getattr(kafkalog, name)
    if not callable(thing):
        return
    assert (inspect.getdoc(thing) or "").strip(), f"kafkalog.{name} says nothing of itself"
    if inspect.isclass(thing):
        silent = [
            f"{name}.{member}"
            for member, value in vars(thing).items()
            if not member.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, property | classmethod))
            and not (inspect.getdoc(value) or "").strip()
        ]
        assert not silent


@pytest.mark.parametrize("path", tree.with_suffix(".py"), ids=tree.named)
def test_every_module_says_what_it_is(path: Path) -> None:
    parsed = tree.parse(path)
    if parsed.body:
        assert ast.get_docstring(parsed), f"{tree.named(path)} has no docstring"


def groups(header: str) -> list[str]:
    """Declarations of the header that stand together, without dividers between sections."""
    public = header.partition("/* cffi: begin */")[2].partition("/* cffi: end */")[0]
    public = re.sub(r"/\* ---- .* ---+ \*/", "", public)
    return [group for group in re.split(r"\n\s*\n", public) if group.strip()]


def test_every_public_c_function_has_a_comment() -> None:
    """Its own, or that of the group it stands in."""
    found = 0
    for group in [group for header in HEADERS for group in groups(header.read_text())]:
        bare = re.sub(r"/\*.*?\*/", "", group, flags=re.DOTALL)
        names = re.findall(r"\b(kl_\w+)\(", bare)
        found += len(names)
        assert not names or "/*" in group, f"no word about {', '.join(names)}"
    assert found > 50


def test_rendered_documents_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("render", tree.ROOT / "docs" / "render.py")
    assert spec and spec.loader
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    for path, content in render.rendered():
        assert path.read_text(encoding="utf-8") == content, (
            f"{tree.named(path)} is not what the code says: run `make docs`"
        )


@pytest.mark.parametrize("path", tree.with_suffix(".md"), ids=tree.named)
def test_links_of_documents_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{tree.named(path)}: no {target}"


COMMANDS = re.compile(r"^\s*(?:\$ )?make ([a-z-]+)", re.MULTILINE)


@pytest.mark.parametrize("path", tree.with_suffix(".md"), ids=tree.named)
def test_make_targets_that_documents_name_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (tree.ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", path.read_text())) | set(
        COMMANDS.findall(path.read_text())
    )
    assert named <= targets
