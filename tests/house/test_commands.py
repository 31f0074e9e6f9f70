"""CI runs every command of the Makefile, whole or in its short form."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import tree

NO_TEST = {"clean", "distclean", "format"}
"""They remove or rewrite files of the checkout."""
NOT_NIGHTLY = {"help", "build", "print-python", "demo", "bench", "torture", "test-busy", "nightly"}
"""demo is a part of demo-full; a bench, a torture and a busy machine take hours more."""


def read(name: str) -> str:
    return (tree.ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")


def listed(pattern: str, text: str) -> set[str]:
    """The words of each match's group."""
    return {word for found in re.findall(pattern, text, re.MULTILINE) for word in found.split()}


COMMANDS = listed(r"^\.PHONY: (.*)", read("Makefile")) - NO_TEST
WHOLE = listed(r"^[^#\n]*\bmake (?:-\S+ )*([a-z][a-z-]*)", read(".ci/run"))
SHORT = listed(r"\.ci/short ([a-z -]+)", read(".ci/run"))
FORMS = {
    name
    for form in re.findall(r"^    ([a-z| -]+)\)", read(".ci/short"), re.MULTILINE)
    for name in form.split(" | ")
}


def test_ci_runs_every_command_whole_or_in_its_short_form() -> None:
    assert len(COMMANDS) > 15
    forgotten = COMMANDS - WHOLE - SHORT
    assert forgotten == set()


def test_ci_runs_every_short_form() -> None:
    default = listed(r"\|\| set -- ([a-z -]+)", read(".ci/short"))
    assert (SHORT, default) == (FORMS, FORMS)
    assert FORMS <= COMMANDS


def test_nightly_runs_every_command_whole() -> None:
    assert listed(r"\|\| set -- ([a-z -]+)", read(".ci/nightly")) == COMMANDS - NOT_NIGHTLY


# ---- environments of other versions --------------------------------------------------------

PACKAGES = {"kafka": "kafka-python", "xdist": "pytest-xdist"}
"""Names of packages whose module has another name."""


def imported(path: Path) -> Iterator[str]:
    """Names that a file of tests imports when it is loaded."""
    for node in tree.parse(path).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needed(folders: list[str]) -> set[str]:
    """Modules outside the standard library that the tests in these folders import, also through
    other files of tests, and the files that pytest loads with them."""
    found: set[str] = set()
    left = [path for name in folders for path in (tree.ROOT / name).rglob("*.py")]
    above = {parent for path in left for parent in path.parents if tree.ROOT in parent.parents}
    left += [folder / "conftest.py" for folder in above if (folder / "conftest.py").exists()]
    seen = set(left)
    while left:
        for name in imported(left.pop()):
            top, *_ = pieces = name.split(".")
            if top == "tests":
                file = tree.ROOT.joinpath(*pieces)
                for one in (file.with_suffix(".py"), file.parent.with_suffix(".py")):
                    if one.exists() and one not in seen:
                        seen.add(one)
                        left.append(one)
            elif top not in sys.stdlib_module_names and not top.endswith("kafkalog"):
                found.add(top)
    return found


@pytest.mark.parametrize(("script", "folders"), [
    (".ci/sparks", r"(tests/spark)$"), (".ci/versions", r'^tests="([^"]+)"'),
])  # fmt: skip
def test_environments_of_other_versions_have_the_imports_of_their_tests(
    script: str, folders: str
) -> None:
    commands = re.sub(r"#.*", "", read(script))
    installed = listed(r"([a-z0-9-]+)", commands)
    if "$wheel" in commands:
        [own] = re.findall(r"^dependencies = (\[[^]]+)", read("pyproject.toml"), re.MULTILINE)
        installed |= listed(r'"([a-z0-9-]+)', own)
    wanted = needed(sorted(listed(folders, read(script))))
    assert len(wanted) > 3
    assert {PACKAGES.get(name, name) for name in wanted} - installed == set()
