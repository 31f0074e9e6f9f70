"""What must not be in the project: things left undone, and words of elsewhere."""

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
