"""The parts of the C core that decide what is stored assert what they rely on."""

from __future__ import annotations

import re

from tests.house import tree

FOLDERS = ("log", "segment", "plane", "replica", "net", "scan", "clean", "python")
PER_1000_LINES = 12
ASSERTION = re.compile(r"\bKL_(?:STATIC_|TEST_)?ASSERT(?:_HELD)?\(")
ASKED = re.compile(r"\bKL_(?:TEST_)?ASSERT\(([^;]*);")
CHANGES = re.compile(
    r"\bkl_\w+_(?:add|put|remove|take|set)\(|\batomic_(?:fetch|exchange|store)|\+\+|--"
    r"|[^=!<>]=[^=]"
)


def test_there_are_enough_assertions() -> None:
    few = {}
    for folder in FOLDERS:
        files = [p for p in tree.with_suffix(".c", ".h") if p.parent.name == folder]
        texts = [path.read_text(encoding="utf-8") for path in files]
        lines = sum(text.count("\n") for text in texts)
        found = sum(len(ASSERTION.findall(text)) for text in texts)
        assert lines > 1000, folder
        if found * 1000 < PER_1000_LINES * lines:
            few[folder] = f"{found} in {lines} lines"
    assert few == {}


def test_an_assertion_changes_nothing() -> None:
    """Actions stand on their own line; only system calls, such as that of a lock, are made and
    checked in one."""
    found = [
        f"{tree.named(path)}: {condition.strip()}"
        for path in tree.with_suffix(".c", ".h")
        if path.name != "base.h"  # defines them
        for condition in ASKED.findall(path.read_text(encoding="utf-8"))
        if CHANGES.search(condition)
    ]
    assert found == []


def test_a_change_in_an_assertion_is_seen() -> None:
    """A canary: without it, a pattern that matches nothing would pass."""
    code = (
        "KL_ASSERT(kl_table_add(&t, 1,\n p) == KL_OK); KL_TEST_ASSERT(n == 1); KL_ASSERT(n++ > 0);"
    )
    assert [bool(CHANGES.search(one)) for one in ASKED.findall(code)] == [True, False, True]
