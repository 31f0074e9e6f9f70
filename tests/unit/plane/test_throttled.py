"""A leader throttles what out-of-sync replicas fetch of throttled partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.log.log import handle_of
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.plane.peer import Peer, Served
from tests.unit.plane.test_fetch import fill
from tests.unit.plane.test_followers import follow, in_sync, lead, outside, who

TINY = 1
WINDOWS = {"replication.quota.window.num": 4, "replication.quota.window.size.seconds": 1}


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    made = serve(**WINDOWS)
    made.put()
    fill(made.logs["t", 0], 9)
    lead(made, in_sync(2), outside(3), throttled=True)
    made.reactor.set_replication_rate(TINY)
    return made


def test_one_that_is_behind_waits(served: Served, peer: Peer) -> None:
    """The first piece is sent at any rate; the next once that one is old enough."""
    assert follow(peer, 0, 3, max_bytes=1).records
    held = follow(peer, 5, 3)
    assert (held.error_code, held.records) == (0, b"")
    served.advance(3_999)
    assert not follow(peer, 5, 3).records
    served.advance(1)
    assert follow(peer, 5, 3).records


def test_a_throttled_fetch_is_answered_at_its_timeout(
    served: Served, peer: Peer, wait_until: Any
) -> None:
    """The answer is empty, as if nothing had been written."""
    follow(peer, 0, 3)
    peer.send_fetch({("t", 0): 5}, version=17, max_wait_ms=500, **who(17, 3))
    wait_until(lambda: served.parked() == 1, "it waits")
    fill(served.logs["t", 0], 3)
    served.advance(500)
    (topic,) = peer.receive().responses
    assert topic.partitions[0].records == b""


def test_one_in_sync_is_never_held_back_but_counts(served: Served, peer: Peer) -> None:
    assert follow(peer, 0, 2).records
    assert follow(peer, 1, 2).records, "it is in sync"
    assert not follow(peer, 0, 3).records, "there is no room for others"


def test_consumers_and_other_partitions_are_as_ever(served: Served, peer: Peer) -> None:
    served.put("u")
    fill(served.logs["u", 0], 3)
    served.reactor.set_followers("u", 0, [outside(3)])
    follow(peer, 0, 3)
    assert not follow(peer, 0, 3).records
    found = peer.fetch({("u", 0): 0, ("t", 0): 0}, version=17, **who(17, 3)).responses
    assert [bool(topic.partitions[0].records) for topic in found] == [True, False]
    follow(peer, 9, 2)
    assert peer.fetch_one(0).records, "a consumer"


def test_without_a_rate_or_a_name_nobody_waits(served: Served, peer: Peer) -> None:
    follow(peer, 0, 3)
    assert not follow(peer, 0, 3).records
    served.reactor.set_replication_rate((1 << 63) - 1)
    assert follow(peer, 0, 3).records
    served.reactor.set_replication_rate(TINY)
    assert not follow(peer, 0, 3).records
    role = {"leader_epoch": 0, "durable": False, "throttled": False}
    served.reactor.put_partition(handle_of(served.logs["t", 0]), **role)
    assert follow(peer, 0, 3).records


def test_errors_are_answered_at_once(served: Served, peer: Peer) -> None:
    follow(peer, 0, 3)
    assert follow(peer, 99, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_one_that_is_held_back_is_heard(served: Served, peer: Peer) -> None:
    """Its position counts, and it joins the ISR when it has everything."""
    follow(peer, 0, 3)
    follow(peer, 4, 3)
    assert [s.log_end for s in served.reactor.followers("t", 0)] == [-1, 4]
    follow(peer, 9, 3)
    told = served.reactor.caught_up(5_000)
    assert told is not None and told.id == 3
