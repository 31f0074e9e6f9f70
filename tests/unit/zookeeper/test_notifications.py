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
    new_numbers,
    numbered,
)
from kafkalog.zookeeper.session import Create, Delete, open_session

FOLDER = "/changes"


def name(number: int) -> str:
    return f"change_{number:010d}"


@pytest.mark.parametrize(
    ("there", "last", "new"),
    [
        ([], -1, []), ([0, 1], -1, [0, 1]), ([1, 2], -1, None), ([1, 2], 2, []),
        ([1, 3, 2], 2, [3]), ([3, 4], 2, [3, 4]), ([4], 2, None), ([3, 5], 2, None),
        ([], 9, None), ([8], 9, None),
    ],
)  # fmt: skip
def test_new_numbers(there: list[int], last: int, new: list[int] | None) -> None:
    """If the last one is gone, newer ones may be, too."""
    assert new_numbers(there, last) == new


def test_other_children_are_no_notifications() -> None:
    others = ["zzz", "zzz_0000000009", "change_", "change_1", "change_00000000010"]
    assert numbered([name(2), *others, name(1)], "change_") == {1: name(1), 2: name(2)}


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

        followed = Notifications(session, FOLDER, "change_")
        followed.begin()
        assert followed.look() == []
        told.clear()
        other.ensure([FOLDER])
        assert told, "it is watched while it is missing"
        assert followed.look() == []
        announce(b"a")
        announce(b"b")
        assert followed.look() == [
            Notified(f"{FOLDER}/{name(0)}", b"a"), Notified(f"{FOLDER}/{name(1)}", b"b")
        ]  # fmt: skip
        assert followed.look() == []
        announce(b"c")
        announce(b"d")
        other.commit([Delete(f"{FOLDER}/{name(2)}")])
        assert followed.look() is None
        followed.begin()
        told.clear()
        announce(b"e", created_ms=5)
        assert told, "it is watched again"
        assert followed.look() == [Notified(f"{FOLDER}/{name(4)}", b"e")]
        for path in (name(0), name(1), name(3)):
            other.commit([Delete(f"{FOLDER}/{path}")])
        announce(b"f", created_ms=OBSOLETE_MS + 6)
        found = followed.look()
        assert found == [Notified(f"{FOLDER}/{name(5)}", b"f")]
        assert other.children(FOLDER) == [name(5)], "the old one is deleted"


def test_the_newest_are_not_deleted_and_all_clocks_but_zookeepers_are_ignored() -> None:
    with StandIn() as inside, open_session(inside.hosts, lambda _: None) as session:
        followed = Notifications(session, FOLDER, "change_")
        session.ensure([FOLDER])
        followed.begin()
        for created_ms in (1, 2, OBSOLETE_MS + 2):
            inside.now_ms = created_ms
            session.commit([Create(f"{FOLDER}/change_", b"", sequence=True)])
        assert len(followed.look() or ()) == 3
        assert len(session.children(FOLDER) or ()) == 3, "others may not have read them"
        session.commit([Create(f"{FOLDER}/change_", b"", sequence=True)])
        assert len(followed.look() or ()) == 1
        assert session.children(FOLDER) == [name(1), name(2), name(3)]
        session.commit([Delete(f"{FOLDER}/{name(3)}")])
        assert followed.look() is None
