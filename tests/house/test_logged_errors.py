"""docs/operations.md explains the errors that a node logs, in the words of the code."""

from __future__ import annotations

import re

from tests.house import tree

PAGE = tree.ROOT / "docs" / "operations.md"
HOLE = "…"
CALL = re.compile(r'\b(?:_?logger|LOG)\.error\(\s*"((?:[^"\\]|\\.)*)"')
JOINED = re.compile(r'"\s*\n?\s*f?"')
"""Between the parts of one text."""
HOLES = re.compile(r"%[srd]|\{[^{}]*\}")
CLIENTS = ("kafkalog/client/",)
"""Not the log of a node."""


def sources() -> dict[str, str]:
    """The code of the modules that log, with each text whole, and holes for what it is given."""
    found = {}
    for path in tree.with_suffix(".py"):
        name = tree.named(path)
        if name.startswith("kafkalog/") and not name.startswith(CLIENTS):
            text = path.read_text(encoding="utf-8")
            if "logger." in text or "LOG." in text:
                found[name] = HOLES.sub(HOLE, JOINED.sub("", text))
    return found


def logged(source: str) -> list[str]:
    """The texts of errors with words of their own; others only carry an exception's."""
    return [text for text in CALL.findall(source) if len(re.findall(r"[A-Za-z]{3,}", text)) > 1]


def rows(page: str) -> list[str]:
    """The lines that the page explains."""
    part = page.partition("\n## Errors in the log\n")[2].partition("\n## ")[0]
    return [text for text in re.findall(r"^\| `([^`]+)`", part, re.MULTILINE) if text != HOLE]


def test_each_error_that_a_node_logs_is_explained() -> None:
    explained = [one.removesuffix(HOLE) for one in rows(PAGE.read_text(encoding="utf-8"))]
    found = [text for source in sources().values() for text in logged(source)]
    assert len(found) > 20
    assert [text for text in found if not any(one in text for one in explained)] == []


def test_each_line_that_is_explained_is_logged() -> None:
    explained = [one.removesuffix(HOLE) for one in rows(PAGE.read_text(encoding="utf-8"))]
    whole = "\n".join(sources().values())
    assert len(explained) > 30
    assert [one for one in explained if one not in whole] == []


def test_texts_are_read_whole() -> None:
    source = (
        '_logger.error("%s-%d: the disk "\n    "is full: %s", *tp, problem)\nLOG.error("%s", x)'
    )
    assert logged(HOLES.sub(HOLE, JOINED.sub("", source))) == ["…-…: the disk is full: …"]
    assert rows("x\n## Errors in the log\n\n| `a …` | b |\n\n## C\n| `d` |\n") == ["a …"]
