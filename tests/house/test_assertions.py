"""The parts of the C core that decide what is stored say what they take for granted."""

from __future__ import annotations

import re

from tests.house import tree

FOLDERS = ("log", "plane", "replica")
PER_1000_LINES = 12
ASSERTION = re.compile(r"\bKL_(?:STATIC_|TEST_)?ASSERT(?:_HELD)?\(")


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
