"""Very many things are sorted as few are, in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.controller import ordered as module
from kafkalog.controller.ordered import ordered


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=2))), st.integers(1, 9))
def test_pieces_are_merged_in_order(things: list[tuple[int, str]], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", piece)
        assert list(ordered(iter(things))) == sorted(things)


def test_no_call_sorts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest one decides how long other threads wait."""
    lengths: list[int] = []

    def noted(some: list[int]) -> list[int]:
        lengths.append(len(some))
        return sorted(some)

    monkeypatch.setattr(module, "sorted", noted, raising=False)
    assert list(ordered(range(20_000, 0, -1))) == list(range(1, 20_001))
    assert max(lengths) <= module.PIECE and sum(lengths) == 20_000
