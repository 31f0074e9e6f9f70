"""Every public thing is explained, and documents made from code are fresh."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import kafkalog
from benchmarks import report
from tests.house import tree

HEADERS = [
    tree.ROOT / "kafkalog" / "_native" / name for name in ("kafkalog.h", "columns.h", "server.h")
]


def named_things() -> Iterator[tuple[str, object]]:
    """The package's exports, and the public members of its classes."""
    for name in kafkalog.__all__:
        thing = getattr(kafkalog, name)
        if callable(thing):
            yield name, thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                public = inspect.isfunction(value) or isinstance(value, property | classmethod)
                if public and not member.startswith("_"):
                    yield f"{name}.{member}", value


def test_every_export_has_a_docstring() -> None:
    things = dict(named_things())
    silent = [name for name, thing in things.items() if not (inspect.getdoc(thing) or "").strip()]
    assert silent == []
    assert len(things) > 50


def test_every_module_has_a_docstring() -> None:
    silent = [
        tree.named(path)
        for path in tree.with_suffix(".py")
        if tree.parse(path).body and not ast.get_docstring(tree.parse(path))
    ]
    assert silent == []


def groups(header: str) -> list[str]:
    """Groups of declarations in the header, without the dividers between sections."""
    public = header.partition("/* cffi: begin */")[2].partition("/* cffi: end */")[0]
    public = re.sub(r"/\* ---- .* ---+ \*/", "", public)
    return [group for group in re.split(r"\n\s*\n", public) if group.strip()]


def test_every_public_c_function_has_a_comment() -> None:
    """Its own comment, or that of its group."""
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


def test_every_figure_of_the_readme_is_taken_from_the_measurements() -> None:
    """Each row of its table names the benchmark, so that performance.md cannot say otherwise."""
    text = (tree.ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("| kafkalog | the other |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "---" not in row]
    assert len(rows) == 6
    assert [row for row in rows if not report.FIGURES.fullmatch(row)] == []
    assert [row for row in rows if re.search(r"\|\s*\|", row)] == [], "a cell without a figure"
    results = report.merge([json.loads(report.RESULTS.read_text(encoding="utf-8"))])
    emptied = re.sub(r" --> \|.*$", " --> | | |", text, flags=re.MULTILINE)
    assert emptied != text and report.front(emptied, results) == text


def test_links_of_documents_lead_somewhere() -> None:
    astray = [
        f"{tree.named(path)}: no {target}"
        for path in tree.with_suffix(".md")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert astray == []


PAGE = re.compile(r"(?<![\w/.-])[\w/-]+\.md\b")


def unknown_pages(path: Path, text: str) -> list[str]:
    """Documents that a file names and the checkout lacks: here, in docs/, next to the file."""
    places = (tree.ROOT, tree.ROOT / "docs", path.parent)
    return [n for n in PAGE.findall(text) if not any((place / n).exists() for place in places)]


def test_documents_that_code_names_exist() -> None:
    astray = {
        tree.named(path): missing
        for path in tree.with_suffix(".py", ".c", ".h")
        if (missing := unknown_pages(path, path.read_text(encoding="utf-8")))
    }
    assert astray == {}
    missing = "a_specification" + ".md"
    assert unknown_pages(tree.ROOT / "x.py", f"docs/format.md, {missing} 4.2") == [missing]


COMMANDS = re.compile(r"^\s*(?:\$ )?make ([a-z-]+)", re.MULTILINE)


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (tree.ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [
        f"{tree.named(path)}: make {name}"
        for path in tree.with_suffix(".md")
        for name in [*re.findall(r"`make ([a-z-]+)`", path.read_text()),
                     *COMMANDS.findall(path.read_text())]
        if name not in targets
    ]  # fmt: skip
    assert missing == []


PATHS = re.compile(r"`((?:kafkalog|tests|docs|benchmarks|examples|spark_connector|\.ci)/[\w./-]*)")
MODULES = re.compile(r"`(kafkalog(?:\.[a-z_]+)+)")


def lost(text: str) -> list[str]:
    """Files, folders and modules that a text names and the checkout lacks."""
    paths = [p.rstrip("./") for p in PATHS.findall(text)]
    gone = [p for p in paths if not ((tree.ROOT / p).exists() or (tree.ROOT / f"{p}.py").exists())]
    settings = (tree.ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for module in MODULES.findall(text):
        if f"`{module}" in settings or module == "kafkalog.h":
            continue
        parts = tree.ROOT / module.replace(".", "/")
        # The last word may be a name inside of the module.
        some = (parts, parts.with_suffix(".py"), parts.parent.with_suffix(".py"))
        inside = (parts.parent / "__init__.py").exists() and hasattr(kafkalog, parts.name)
        if not (inside or any(path.exists() for path in some)):
            gone.append(module)
    return gone


def test_paths_and_modules_that_documents_name_exist() -> None:
    astray = {
        tree.named(path): gone
        for path in tree.with_suffix(".md")
        if (gone := lost(path.read_text(encoding="utf-8")))
    }
    assert astray == {}
    assert lost("`kafkalog/no.py`, `tests/none/`, `kafkalog.no.such`, `kafkalog/log/`") == [
        "kafkalog/no.py", "tests/none", "kafkalog.no.such",
    ]  # fmt: skip


def test_changes_have_their_place() -> None:
    """CONTRIBUTING.md: each row names where the change goes and where its test does."""
    text = (tree.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Where a line belongs")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "`" in line[:-1] and
            line.startswith("|")]  # fmt: skip
    assert len(rows) >= 10
    for change, where, test in rows:
        places, tests = (PATHS.findall(cell) for cell in (where, test))
        assert places and tests, change
        assert all((tree.ROOT / path).exists() for path in [*places, *tests]), change
        assert all(path.startswith("tests/") for path in tests), change


def test_every_page_is_in_the_contents() -> None:
    """mkdocs.yml names each document."""
    contents = (tree.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [p for p in tree.with_suffix(".md") if (tree.ROOT / "docs") in p.parents]
    missing = [
        tree.named(page)
        for page in pages
        if f"- {page.relative_to(tree.ROOT / 'docs')}\n" not in contents
    ]
    assert missing == []


def test_no_two_pages_have_one_title() -> None:
    pages = [p for p in tree.with_suffix(".md") if (tree.ROOT / "docs") in p.parents]
    titles = [page.read_text(encoding="utf-8").partition("\n")[0] for page in pages]
    assert len(titles) > 20 and all(title.startswith("# ") for title in titles)
    assert sorted(titles) == sorted(set(titles))


def test_fences_are_read_by_every_builder() -> None:
    """One word after the backticks: the site's builder takes two for text, and what follows for
    code."""
    wrong = [
        f"{tree.named(path)}: {fence}"
        for path in tree.with_suffix(".md")
        for fence in re.findall(r"^ *(```\S+ .*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert wrong == []
