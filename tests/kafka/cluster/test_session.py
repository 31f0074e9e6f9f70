"""A session with a real ZooKeeper."""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.errors import DuplicateBrokerRegistration
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.documents import DENIED
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.registering import cluster_id, patiently, register
from kafkalog.zookeeper.session import (
    Check,
    Create,
    Delete,
    Life,
    Seen,
    Session,
    Set,
    Timeouts,
)  # fmt: skip
from tests.support import apache
from tests.support.waiting import LIMIT_S, wait_for
from tests.support.zookeeper import ZooKeeper, ends

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]


class Told:
    """The reports of a session, in order."""

    def __init__(self) -> None:
        self.said: queue.Queue[Any] = queue.Queue()

    def __call__(self, what: Any) -> None:
        self.said.put(what)

    def next(self) -> Any:
        return self.said.get(timeout=LIMIT_S)

    def until(self, wanted: Any) -> None:
        while self.next() != wanted:
            pass


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def session(zookeeper: ZooKeeper, told: Told, request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(f"{zookeeper.hosts}/tests/{request.node.name}", told, Timeouts(10_000)) as made:
        assert told.next() is Life.CONNECTED
        yield made


def test_znodes_are_made_read_changed_and_removed(session: Session) -> None:
    made = session.commit([Create("/a", b"1"), Create("/a/b_", b"", sequence=True)])
    assert (made.done, made.paths) == (True, ("/a", "/a/b_0000000000"))
    assert session.children("/a") == ["b_0000000000"]
    found = session.read("/a")
    assert found is not None and (found.data, found.version) == (b"1", 0)
    assert session.commit([Set("/a", b"2", 0), Delete("/a/b_0000000000")]).done
    session.sync("/a")
    changed = session.read("/a")
    assert changed is not None and (changed.data, changed.version) == (b"2", 1)
    assert changed.created == found.created
    assert session.read("/a/b_0000000000") is None
    assert session.children("/nothing") is None
    assert {*session.tree("/")} == {"/", "/a"}


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (Create("/a"), "NodeExists"),
        (Set("/a", b"x", 7), "BadVersion"),
        (Delete("/none"), "NoNode"),
        (Check("/a", 7), "BadVersion"),
        (Delete("/a"), "NotEmpty"),
        (Create("/none/b"), "NoNode"),
    ],
)
def test_all_is_done_or_nothing(session: Session, refused: Any, why: str) -> None:
    assert session.commit([Create("/a", b"1"), Create("/a/child")]).done
    done = session.commit([Set("/a", b"2"), refused, Create("/c")])
    assert (done.done, done.refused, done.why, done.paths) == (False, 1, why, ())
    found = session.read("/a")
    assert found is not None and (found.data, found.version) == (b"1", 0)
    assert session.read("/c") is None


def test_a_watch_tells_once(session: Session, told: Told) -> None:
    assert session.read("/a", watch=True) is None  # nothing is there: its creation is reported
    session.commit([Create("/a", b"1")])
    assert told.next() == Seen("/a", children=False)
    session.commit([Set("/a", b"2")])  # no new watch was set
    assert session.read("/a", watch=True) is not None
    assert session.children("/a", watch=True) == []
    session.commit([Create("/a/b")])
    assert told.next() == Seen("/a", children=True)
    session.commit([Create("/a/c"), Set("/a", b"3")])
    assert told.next() == Seen("/a", children=False)
    assert told.said.empty()


def test_ephemeral_znodes_end_with_their_session(session: Session) -> None:
    with Session(session.hosts, lambda _: None) as other:
        assert other.commit([Create("/mine", b"x", ephemeral=True)]).done
        assert session.read("/mine") is not None
    assert session.read("/mine") is None


def test_an_expired_session_reports_it_and_reconnects(session: Session, told: Told) -> None:
    first = session.id
    session.commit([Create("/mine", b"x", ephemeral=True)])
    ends(session.hosts, "/mine")
    told.until(Life.EXPIRED)
    told.until(Life.CONNECTED)
    assert session.id not in (0, first)
    assert session.read("/mine") is None


@pytest.mark.long
def test_a_zookeeper_that_is_away_for_a_while(told: Told, tmp_path: Any) -> None:
    with (
        ZooKeeper(tmp_path / "away") as ensemble,
        Session(ensemble.hosts, told, Timeouts(8_000)) as session,
    ):
        assert told.next() is Life.CONNECTED
        assert session.commit([Create("/kept", b"1")]).done
        ensemble.kill()
        told.until(Life.AWAY)
        with pytest.raises(errors.ZooKeeperAway, match="ZooKeeper at "):
            session.read("/kept")
        ensemble.begin()
        told.until(Life.CONNECTED)

        def kept() -> bytes | None:
            with contextlib.suppress(
                errors.ZooKeeperAway
            ):  # it may be away once more on a machine that stalls
                found = session.read("/kept")
                return None if found is None else found.data
            return None

        wait_for(lambda: kept() == b"1", "the data is there")


@pytest.mark.long
def test_a_start_waits_for_zookeeper(told: Told, tmp_path: Any) -> None:
    with (
        ZooKeeper(tmp_path / "away") as ensemble,
        Session(ensemble.hosts, told, Timeouts(8_000)) as session,
    ):
        assert told.next() is Life.CONNECTED
        ensemble.kill()
        told.until(Life.AWAY)
        with pytest.raises(errors.ZooKeeperAway):
            cluster_id(session, "mine")
        beginning = threading.Thread(target=ensemble.begin)
        beginning.start()
        assert patiently(lambda: cluster_id(session, "mine"), LIMIT_S) == "mine"
        beginning.join()


def test_a_chroot_is_made_by_the_first_write(zookeeper: ZooKeeper) -> None:
    """A refused start, or a plan that is only shown, leaves none behind; kazoo's warning about it
    is nobody's business."""
    with (
        warnings.catch_warnings(record=True) as warned,
        Session(zookeeper.hosts, lambda _: None) as outside,
        Session(f"{zookeeper.hosts}/never/made/", lambda _: None) as inside,
    ):
        assert (inside.read("/a"), inside.children("/"), inside.tree("/")) == (None, None, {})
        assert outside.read("/never") is None
        assert inside.commit([Create("/a", b"1")]).done
        inside.ensure(["/b/c"])
        assert outside.children("/never/made") == ["a", "b"]
    assert [*map(str, warned)] == []


def test_a_znode_that_may_not_be_read(session: Session) -> None:
    """Its error takes its place; others are read."""
    from kazoo.client import KazooClient
    from kazoo.security import make_acl, make_digest_acl

    session.ensure(["/open"])
    owner = KazooClient(session.hosts, auth_data=[("digest", "me:secret")])
    owner.start(10)
    try:
        sees_nothing = make_acl("world", "anyone", create=True)
        acl = [make_digest_acl("me", "secret", all=True), sees_nothing]
        owner.create("/closed", b"secret", acl=acl)
        found = session.look([("/closed", False, True), ("/closed", True, False),
                              ("/open", False, False), ("/open", True, False)])  # fmt: skip
        closed, names, data, children = found
        assert closed == Znode(DENIED)
        assert isinstance(names, errors.BadZnode) and "/closed: ZooKeeper does not let" in str(
            names
        )
        assert isinstance(data, Znode) and data.data == b"" and children == []
        assert session.read("/closed") == closed
        for call in (session.children, session.tree):
            with pytest.raises(errors.BadZnode, match=r"/closed: .*\(NoAuth\)"):
                call("/closed")
        assert session.commit([Set("/closed", b"x")]).why == "NoAuth"
    finally:
        owner.stop()
        owner.close()


def test_where_no_zookeeper_is() -> None:
    with pytest.raises(errors.ZooKeeperAway, match="no ZooKeeper answers at"):
        Session(f"127.0.0.1:{apache.free_port()}/x", lambda _: None, Timeouts(connection_ms=300))


def test_a_broker_is_registered_once(session: Session, tmp_path: Any) -> None:
    """By one session: its own registration, whose answer was lost, is recognized."""
    place = (tree.Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT"),)
    session.ensure([tree.BROKERS])
    epoch = register(session, 7, place, "r1", 1)
    assert register(session, 7, place, "r1", 1) == epoch
    with Session(session.hosts, lambda _: None) as other:
        with pytest.raises(DuplicateBrokerRegistration, match="broker 7 is registered"):
            register(other, 7, place, None, 0.1)
        assert session.commit([Delete(tree.broker_path(7))]).done
        assert register(other, 7, place, None, 1) > epoch
    assert register(session, 7, place, None, LIMIT_S) > epoch, "that session has ended"


def test_a_cluster_gets_an_id_once(session: Session) -> None:
    session.commit([Delete(tree.CLUSTER_ID)])
    assert cluster_id(session, "first") == "first"
    assert cluster_id(session, "second") == "first"
