"""A list that is encoded piece by piece is the same on the wire."""

from __future__ import annotations

import pytest

from kafkalog.wire import apis

ROWS = [
    {"group_id": f"g{number}", "protocol_type": "consumer", "group_state": "Empty",
     "group_type": "classic"}
    for number in range(300)
]  # fmt: skip


@pytest.mark.parametrize("version", apis.LIST_GROUPS.versions)
@pytest.mark.parametrize("size", [1, 7, 300])
def test_pieces_are_the_same_as_the_whole(version: int, size: int) -> None:
    response = apis.LIST_GROUPS.response
    rows = response.rows(version, "groups")
    for first in range(0, len(ROWS), size):
        rows += ROWS[first : first + size]
    assert len(rows) == len(ROWS)
    assert response.encode(version, {"groups": rows}) == response.encode(version, {"groups": ROWS})


def test_each_piece_may_be_changed() -> None:
    response = apis.LIST_GROUPS.response
    rows = response.rows(4, "groups", lambda some: some[1:])
    rows += ROWS[:3]
    rows += ROWS[3:5]
    wanted = [*ROWS[1:3], ROWS[4]]
    assert response.encode(4, {"groups": rows}) == response.encode(4, {"groups": wanted})


def test_no_rows() -> None:
    response = apis.LIST_GROUPS.response
    assert response.encode(4, {"groups": response.rows(4, "groups")}) == response.encode(4, {})


def test_a_piece_that_cannot_be_encoded_is_left_out() -> None:
    """The error names the field; what came before stays."""
    response = apis.LIST_GROUPS.response
    rows = response.rows(4, "groups")
    rows += ROWS[:2]
    with pytest.raises(TypeError, match=r"\[1\]\.group_id"):
        rows += [ROWS[2], {"group_id": None}]
    rows += ROWS[2:3]
    assert response.encode(4, {"groups": rows}) == response.encode(4, {"groups": ROWS[:3]})
