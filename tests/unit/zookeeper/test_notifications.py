"""Notifications are read once each; a gap between them is noticed, old ones are deleted."""

from __future__ import annotations

import pytest

from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.notifications import (
    OBSOLETE_MS,
    Notifications,
    Notified,
    is_obsolete,
    new_names,
)
from kafkalog.zookeeper.session import Create, Delete, open_session

FOLDER = "/changes"


def name(number: int) -> str:
    return f"change_{number:010d}"


@pytest.mark.parametrize(
    ("there", "last", "new"),
    [
        ([], None, []), ([1, 2], None, [1, 2]), ([1, 2], 2, []), ([1, 2, 3], 2, [3]),
        ([3, 4], 2, [3, 4]), ([4], 2, None), ([3, 5], 2, None), ([5, 7], None, None),
        ([], 9, []),
    ],
)  # fmt: skip
def test_new_names(there: list[int], last: int | None, new: list[int] | None) -> None:
    found = new_names([*map(name, there), "other"], "" if last is None else name(last))
    assert found == (None if new is None else [*map(name, new)])


@pytest.mark.parametrize(
    ("created_ms", "obsolete"),
    [(0, False), (1, True), (10_000_000 - OBSOLETE_MS, False), (9_999_999 - OBSOLETE_MS, True)],
)
def test_age(created_ms: int, obsolete: bool) -> None:
    """0 is not known."""
    assert is_obsolete(Znode(b"", created_ms=created_ms), 10_000_000) is obsolete


def test_a_folder_is_followed_from_before_its_creation() -> None:
    told: list[object] = []
    with (
        StandIn() as inside,
        open_session(inside.hosts, told.append) as session,
        open_session(inside.hosts, lambda _: None) as other,
    ):

        def announce(data: bytes, created_ms: int = 0) -> None:
            inside.now_ms = created_ms
            assert other.commit([Create(f"{FOLDER}/change_", data, sequence=True)]).done

        followed = Notifications(session, FOLDER)
        followed.begin()
        assert followed.look(1) == []
        told.clear()
        other.ensure([FOLDER])
        assert told, "it is watched while it is missing"
        assert followed.look(1) == []
        announce(b"a")
        announce(b"b")
        assert followed.look(1) == [
            Notified(f"{FOLDER}/{name(0)}", b"a"), Notified(f"{FOLDER}/{name(1)}", b"b")
        ]  # fmt: skip
        assert followed.look(1) == []
        announce(b"c")
        announce(b"d")
        other.commit([Delete(f"{FOLDER}/{name(2)}")])
        assert followed.look(1) is None
        followed.begin()
        told.clear()
        announce(b"e", created_ms=5)
        assert told, "it is watched again"
        assert followed.look(5) == [Notified(f"{FOLDER}/{name(4)}", b"e")]
        for path in (name(0), name(1), name(3)):
            other.commit([Delete(f"{FOLDER}/{path}")])
        announce(b"f", created_ms=OBSOLETE_MS + 6)
        found = followed.look(OBSOLETE_MS + 6)
        assert found == [Notified(f"{FOLDER}/{name(5)}", b"f")]
        assert other.children(FOLDER) == [name(5)], "the old one is deleted"
