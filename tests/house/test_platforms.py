"""docs/platforms.md has a row for each target of `make platforms`."""

from __future__ import annotations

import json
import re

from tests.house import tree
from tests.platforms.targets import RESULTS, TARGETS, render_markdown


def test_the_page_names_each_target() -> None:
    page = (tree.ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)`: ", page, re.MULTILINE)
    assert rows == [target.name for target in TARGETS]
    assert set(json.loads(RESULTS.read_text(encoding="utf-8"))) <= set(rows)


def test_a_target_without_tests_says_why() -> None:
    assert [target.name for target in TARGETS if bool(target.tests) == bool(target.why_not)] == []


def test_a_target_that_was_not_tried_says_so() -> None:
    text = render_markdown({})
    assert text.count("| not tried |") == len(TARGETS)
    failed = render_markdown({"portable": {"built": "FAILED", "date": "2026-01-02"}})
    assert "| FAILED | not run | 2026-01-02 |" in failed
