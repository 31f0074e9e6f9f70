"""CI runs every command of the Makefile, whole or in its short form."""

from __future__ import annotations

import re

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
