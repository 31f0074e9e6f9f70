"""What must not be in the project: things left undone, words of elsewhere, translated phrases."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.house import tree

# Each is written so that this file does not hold the word itself.
UNDONE = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b|NotImplemented[E]rror")
ELSEWHERE = re.compile(
    r"/w[o]rk/|/f[a]rm/|/r[o]ot/|\bthe C[E]O\b|steering re[p]o"
    r"|\bdeveloper ses[s]ion\b|sub-?ag[e]nt"
    r"|\b[Ii]ss[u]es? (\*|#?\d)|\bthe br[i]ef\b",
)
TRANSLATED = re.compile(
    r"\b([Aa]ne[w]|[Mm]eanwhil[e])\b"
    r"|(^\W*|[.:;!?\"] +|[\"#*(|] ?)Wh[o] (?![^.]*\?)"
)
"""Phrases that docs/style.md refuses, and sentences that begin with a person and ask nothing."""
NO_CHECK = re.compile(r"\bassert (True|1)\b|except( Exception| BaseException)?: *(pass|\.\.\.)$")


def matches(paths: Iterable[Path], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{tree.named(path)}:{number}: {match[0]}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := pattern.search(line))
    ]


def test_nothing_is_left_undone() -> None:
    assert matches(tree.files(), UNDONE) == []


def test_no_words_of_elsewhere() -> None:
    assert matches(tree.files(), ELSEWHERE) == []


def plain(path: Path) -> bool:
    """Whether the prose rules hold for a file."""
    parts = path.relative_to(tree.ROOT).parts
    if parts[:2] in (("docs", "performance.md"), ("docs", "performance"), ("docs", "style.md")):
        return False  # rendered from measurements; and the page that shows what not to write
    return parts[0] in PLAIN and tree.named(path) not in TO_DO


PLAIN = ("README.md", "CHANGELOG.md", "Makefile", "docs", "kafkalog", "spark_connector")
PLAIN += ("benchmarks", "examples")
TO_DO = ("kafkalog/_native/net/exchange.h",)
"""Files that are not rewritten yet."""


def test_prose_is_plain_english() -> None:
    """docs/style.md, "Plain English": rewrite the sentence, do not just replace the word."""
    assert matches(filter(plain, tree.files()), TRANSLATED) == []


TESTS = [path for path in tree.with_suffix(".py") if tree.ROOT / "tests" in path.parents]


def test_tests_wait_for_conditions() -> None:
    assert matches(TESTS, re.compile(r"\btime\.slee[p]\(")) == []


def test_tests_can_fail() -> None:
    assert matches((path for path in TESTS if path != Path(__file__)), NO_CHECK) == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert UNDONE.search("# TO" + "DO: later")
    assert ELSEWHERE.search("see /wo" + "rk/main")
    assert ELSEWHERE.search("as iss" + "ue 12 says")
    assert not ELSEWHERE.search("the group's session timeout")
    for text in (
        "made ane" + "w",
        "Meanwhil" + "e it",
        "# Wh" + "o asks waits.",
        "It ends.  Wh" + "o is",
    ):
        assert TRANSLATED.search(text)
    assert not TRANSLATED.search("test_what_begins_ane" + "w")
    assert not TRANSLATED.search("Wh" + "o leads?")
