"""Clients' patterns: they match what RE2 matches, here through pyarrow, which contains RE2."""

from __future__ import annotations

import pyarrow
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import ArgumentError
from kafkalog.pattern import CACHED_MAX, NODES_MAX, WORK_MAX, Pattern


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
def test_patterns_match_as_re2(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == as_re2(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[a", "*", "a|*", "+a", "a**", "a{3,2}", "a{1001}", "[b-a]", "\\",
     r"\x", r"\x{110000}", "(?P<a>b"],
)  # fmt: skip
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ArgumentError):
        Pattern(pattern)
    with pytest.raises(pyarrow.ArrowInvalid):
        as_re2(pattern if pattern != ")" else "a))", "")


@pytest.mark.parametrize(
    "pattern", [r"\ba", r"\1", "(?i)a", "(?=a)", r"\pL", "[[:alpha:]]", r"\Qa\E", "(" * 99]
)
def test_unsupported_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ArgumentError):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["a" * 1_001, "(a{100}){100}", "((a{40}){40}){40}"])
def test_a_pattern_has_bounds(pattern: str) -> None:
    with pytest.raises(ArgumentError, match="wanted"):
        Pattern(pattern)


def test_no_pattern_takes_longer_than_its_text() -> None:
    """With backtracking, each of these would take years."""
    text = "a" * 3_000
    for pattern in ("(a+)+b", "(a|a)*b", "(.*)(.*)(.*)(.*)b", "(a?){150}b"):
        found = Pattern(pattern)
        assert not found.matches(text)
        assert len(found._steps) <= NODES_MAX


SET = "".join(map(chr, range(0x4E00, 0x4E00 + 980)))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (f"([^{SET}]?){{400}}", "a" * 3_000),
        ("(.*a.{200})", "ab" * 5_000 + "aabb" * 5_000),
        ("(" + "|" * 90 + "a){90}", "a" * 3_000),
    ],
)  # fmt: skip
def test_work_has_a_bound(pattern: str, text: str) -> None:
    """In all texts together; memory is bounded with it."""
    found = Pattern(pattern)
    with pytest.raises(ArgumentError, match="a simpler one"):
        for number in range(1_000):
            found.matches(text + chr(0x100 + number))
    assert found.work <= WORK_MAX + NODES_MAX
    assert found._cached <= CACHED_MAX


@pytest.mark.parametrize(
    "pattern",
    ["((((){1000}){1000}){1000}){1000}", "(" + "()" * 300 + "){1000}", "(" + "|" * 900 + "){100}"],
)
def test_parts_that_are_empty_count(pattern: str) -> None:
    with pytest.raises(ArgumentError, match="wanted fewer"):
        Pattern(pattern)


def test_texts_that_came_before_cost_nothing() -> None:
    found = Pattern("my-app-[0-9]+-(foo|bar).*")
    for number in range(100):
        assert found.matches(f"my-app-{number}-foo-xyz")
    before = found.work
    for number in range(1_000):
        assert found.matches(f"my-app-{number}-foo-xyz")
    assert found.work == before


def test_a_full_cache_is_cleared() -> None:
    found = Pattern("[^a]*a?[b-]*.")
    text = "".join(map(chr, range(0x4E00, 0x4E00 + CACHED_MAX // 2))) + "ab-"
    for pad in ("", "x", "yy", *map(chr, range(0x20000, 0x20000 + CACHED_MAX // 2, 5_000))):
        assert found.matches(pad + text)
    assert found._cached <= CACHED_MAX


def test_ranges_that_overlap() -> None:
    for pattern in ("[a-ce-gb-fx]", "[^a-ce-gb-fx]", "[c-ca-aa-b]", "[^\\W\\d]", "[\\W\\d]"):
        for text in "abcdefghxyz0_\n":
            assert Pattern(pattern).matches(text) == as_re2(pattern, text)
