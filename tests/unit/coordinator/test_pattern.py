"""Clients' patterns: they match what RE2 matches, here through pyarrow, which contains RE2."""

from __future__ import annotations

import pyarrow
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.coordinator.pattern import NODES_MAX, Pattern
from kafkalog.errors import ArgumentError


def as_re2(pattern: str, text: str) -> bool:
    whole = f"\\A(?:{pattern})\\z"
    return bool(pyarrow.compute.match_substring_regex(pyarrow.array([text]), whole)[0].as_py())


ATOMS = st.sampled_from(
    ["a", "b", ".", "-", r"\.", r"\d", r"\W", r"\S", "[ab]", "[^a]", "[a-c1]", r"[\d-]", r"[^\W_]",
     "[]a]", "^", "$", r"\A", r"\z", "é", r"\x61", r"\x{e9}", "{", "a{2}", "x{,3}"]
)  # fmt: skip
TIMES = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "{2}", "{1,}", "{0,2}"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    rows = st.lists(inner, min_size=1, max_size=4)
    return st.one_of(
        rows.map("".join),
        st.tuples(rows.map("|".join), TIMES).map(lambda found: f"({found[0]}){found[1]}"),
        st.tuples(inner, TIMES).map(lambda found: f"(?:{found[0]}){found[1]}"),
    )


@given(st.recursive(ATOMS, grown, max_leaves=8), st.text("ab1-.cé{x,3}\n", max_size=8))
def test_what_matches_re2_says(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == as_re2(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[a", "*", "a|*", "+a", "a**", "a{3,2}", "a{1001}", "[b-a]", "\\",
     r"\x", r"\x{110000}", "(?P<a>b"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ArgumentError):
        Pattern(pattern)
    with pytest.raises(pyarrow.ArrowInvalid):
        as_re2(pattern if pattern != ")" else "a))", "")


@pytest.mark.parametrize(
    "pattern", [r"\ba", r"\1", "(?i)a", "(?=a)", r"\pL", "[[:alpha:]]", r"\Qa\E", "(" * 99]
)
def test_what_is_not_taken_is_refused(pattern: str) -> None:
    with pytest.raises(ArgumentError):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["a" * 1_001, "(a{100}){100}", "((a{40}){40}){40}"])
def test_a_pattern_has_bounds(pattern: str) -> None:
    with pytest.raises(ArgumentError, match="wanted"):
        Pattern(pattern)


def test_no_pattern_takes_longer_than_its_text() -> None:
    """With backtracking, each of these would take years."""
    text = "a" * 3_000
    for pattern in ("(a+)+b", "(a|a)*b", "(.*)(.*)(.*)(.*)b", "(a?){300}b"):
        found = Pattern(pattern)
        assert not found.matches(text)
        assert len(found._steps) <= NODES_MAX
