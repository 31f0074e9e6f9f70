"""Quotas of clients in C: bytes are counted, connections muted, fetches withheld."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog._native import lib
from kafkalog.server.network.buckets import Buckets
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.plane.peer import ALL, LEADER, NONE, Peer, Served, one
from tests.unit.plane.test_fetch import fill

WINDOWS = {"quota.window.num": 11, "quota.window.size.seconds": 1}
PRODUCE, FETCH = 0, 1
"""Keys of the APIs."""
TAKE_MS = 5_000
WINDOW_MS = 10_000
"""The windows before the current one, over which the first rate is measured."""


class Quotas:
    """Says which buckets clients have, as the broker does: one for each client id."""

    def __init__(self, served: Served) -> None:
        self.buckets = served.reactor.buckets
        self.reactor = served.reactor
        self.version = 1
        self.buckets.set_version(1)
        self.known: dict[str | None, tuple[int, int, int]] = {}

    def limit(self, client: str, kind: int, limit: float, place: int = 0) -> int:
        bucket = self.buckets.set(place, limit, True)
        assert bucket
        found = [0, 0, 0]
        found[kind] = bucket
        self.known[client] = tuple(found)  # type: ignore[assignment]
        return bucket

    def resolve(self) -> str | None:
        """Answer C's next question; the client that it is about."""
        raw = self.reactor.take(TAKE_MS)
        assert raw is not None and raw.not_fast == lib.KL_UP_QUOTA
        self.buckets.resolve(raw.id, self.version, self.known.get(raw.client_id, (0, 0, 0)))
        return raw.client_id

    def change(self) -> None:
        self.version += 1
        self.buckets.set_version(self.version)


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    made = serve(**WINDOWS)
    made.put()
    return made


@pytest.fixture
def quotas(served: Served) -> Quotas:
    return Quotas(served)


def size_of(data: bytes, client: str = "peer") -> int:
    """The bytes of a Produce request of version 9 with one batch of topic t."""
    return (
        8
        + 2
        + len(client)
        + 1
        + 1
        + 2
        + 4
        + 1
        + 2
        + 1
        + 4
        + (2 if len(data) > 126 else 1)
        + len(data)
        + 1
        + 1
        + 1
    )


def wait_of(count_bytes: int, limit: int, window_ms: int = WINDOW_MS) -> int:
    """Kafka's throttle time, for bytes that were all counted in the windows."""
    return max(round(count_bytes * 1000 / limit - window_ms), 0)


def test_without_quotas_python_is_never_asked(served: Served, peer: Peer) -> None:
    assert peer.produce({("t", 0): one()}).throttle_time_ms == 0
    assert peer.fetch({("t", 0): 0}).throttle_time_ms == 0
    assert served.reactor.stats().fast == 2


def test_a_client_is_asked_about_once(served: Served, peer: Peer, quotas: Quotas) -> None:
    """And again for another client id, and when the quotas have changed."""
    peer.send_produce({("t", 0): one()})
    assert quotas.resolve() == "peer"
    assert peer.receive().throttle_time_ms == 0
    assert peer.produce({("t", 0): one()}).throttle_time_ms == 0
    assert peer.fetch({("t", 0): 0}).throttle_time_ms == 0
    peer.send_produce({("t", 0): one()}, client_id="other")
    assert quotas.resolve() == "other"
    peer.receive()
    quotas.change()
    peer.send_produce({("t", 0): one()}, client_id="other")
    assert quotas.resolve() == "other"
    assert peer.receive().responses[0].partition_responses[0].base_offset == 3


def test_a_change_while_python_answers_is_noticed(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    peer.send_produce({("t", 0): one()})
    raw = served.reactor.take(TAKE_MS)
    assert raw is not None
    quotas.change()
    quotas.buckets.resolve(raw.id, quotas.version - 1, (0, 0, 0))
    quotas.resolve()
    assert peer.receive().responses[0].partition_responses[0].base_offset == 0


def test_bytes_of_produce_requests_count(served: Served, peer: Peer, quotas: Quotas) -> None:
    """Kafka's formula; the answer is sent at once, and the next request read after the time."""
    data = one(b"x" * 1000)
    size, limit = size_of(data), 100
    quotas.limit("peer", Buckets.PRODUCE, limit)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    wait_ms = peer.receive().throttle_time_ms
    assert wait_ms == wait_of(size, limit) > 0
    peer.send_fetch({("t", 0): 0})
    served.advance(wait_ms - 1)
    assert served.reactor.stats().requests[PRODUCE] == 1
    assert FETCH not in served.reactor.stats().requests, "the fetch was not read"
    served.advance(1)
    assert peer.receive().throttle_time_ms == 0
    assert served.reactor.stats().requests[FETCH] == 1


def test_below_the_limit_nobody_waits_and_old_windows_are_forgotten(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    data = one(b"x" * 1000)
    size = size_of(data)
    limit = 2 * size // 10 + 1
    quotas.limit("peer", Buckets.PRODUCE, limit)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    assert peer.receive().throttle_time_ms == 0
    assert peer.produce({("t", 0): data}).throttle_time_ms == 0
    wait_ms = peer.produce({("t", 0): data}).throttle_time_ms
    assert wait_ms == wait_of(3 * size, limit) > 0
    served.advance(11_000)
    assert peer.produce({("t", 0): data}).throttle_time_ms == 0


def test_acks_0_is_muted_without_an_answer(
    served: Served, peer: Peer, quotas: Quotas, wait_until: Any
) -> None:
    data = one(b"x" * 1000)
    quotas.limit("peer", Buckets.PRODUCE, 100)
    peer.send_produce({("t", 0): data}, acks=NONE)
    peer.expects_nothing()
    quotas.resolve()
    wait_until(lambda: served.reactor.stats().fast == 1, "it is appended")
    served.reactor.pause(True)  # the thread has ended what it did
    served.reactor.pause(False)
    peer.send_fetch({("t", 0): 0})
    wait_ms = wait_of(size_of(data), 100)
    served.advance(wait_ms - 1)
    assert FETCH not in served.reactor.stats().requests
    served.advance(1)
    assert peer.receive().responses[0].partitions[0].records


def test_requests_in_flight_are_answered_and_no_more_is_read(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    data = one(b"x" * 1000)
    quotas.limit("peer", Buckets.PRODUCE, 100)
    for _ in range(3):
        peer.send_produce({("t", 0): data}, acks=ALL)
    quotas.resolve()
    first = peer.receive().throttle_time_ms
    assert first > 0
    served.advance(first)
    second = peer.receive().throttle_time_ms
    assert served.reactor.stats().requests[PRODUCE] == 2
    served.advance(second)
    peer.receive()


def test_a_fetch_above_its_quota_is_empty_and_does_not_count(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    fill(served.logs["t", 0], 50)
    total = len(peer_records(peer, quotas))
    limit = total // 10
    quotas.limit("peer", Buckets.FETCH, limit)
    quotas.change()
    peer.send_fetch({("t", 0): 0})
    quotas.resolve()
    found = peer.receive()
    assert found.throttle_time_ms == 0
    got = len(found.responses[0].partitions[0].records)
    assert 0 < got <= limit * 10, "no more than could be sent without a wait"
    found = peer.fetch({("t", 0): 0})
    wait_ms = found.throttle_time_ms
    assert (found.error_code, found.responses) == (0, [])
    assert wait_ms == wait_of(2 * got, limit) > 0
    served.advance(wait_ms)
    found = peer.fetch({("t", 0): 0})
    assert 0 < found.throttle_time_ms < wait_ms + WINDOW_MS
    served.advance(11_000)
    found = peer.fetch({("t", 0): 0})
    assert found.throttle_time_ms == 0 and found.responses[0].partitions[0].records


def peer_records(peer: Peer, quotas: Quotas) -> bytes:
    peer.send_fetch({("t", 0): 0})
    quotas.resolve()
    records: bytes = peer.receive().responses[0].partitions[0].records
    return records


def test_a_session_survives_a_withheld_answer(served: Served, peer: Peer, quotas: Quotas) -> None:
    """No session begins with one; an incremental fetch gets the same records later."""
    fill(served.logs["t", 0], 9)
    size = len(peer_records(peer, quotas))
    bucket = quotas.limit("peer", Buckets.FETCH, size)
    quotas.change()
    peer.send_fetch({("t", 0): 0}, session_id=0, session_epoch=0)
    quotas.resolve()
    first = peer.receive()
    assert first.session_id > 0 and first.responses[0].partitions[0].records
    assert quotas.buckets.charge(bucket, 100 * size) > 0
    held = peer.fetch({}, session_id=first.session_id, session_epoch=1)
    assert (held.error_code, held.responses) == (0, [])
    assert held.session_id == first.session_id and held.throttle_time_ms > 0
    fill(served.logs["t", 0], 1)
    served.advance(200_000)
    later = peer.fetch({}, session_id=first.session_id, session_epoch=2)
    assert later.error_code == 0 and later.responses[0].partitions[0].records
    assert quotas.buckets.charge(bucket, 100 * size) > 0
    full = peer.fetch({("t", 0): 0}, session_id=0, session_epoch=0)
    assert (full.session_id, full.responses) == (0, [])


def test_followers_have_no_quota(served: Served, peer: Peer, quotas: Quotas) -> None:
    fill(served.logs["t", 0], 3)
    assert peer.fetch({("t", 0): 0}, replica_id=3).throttle_time_ms == 0


def test_time_of_threads_counts(served: Served, peer: Peer, quotas: Quotas) -> None:
    """At most one window; and not for acks=0."""
    quotas.limit("peer", Buckets.REQUEST, 1e-9)
    peer.send_produce({("t", 0): one()}, acks=LEADER)
    quotas.resolve()
    assert peer.receive().throttle_time_ms == 1000
    served.advance(1000)
    peer.send_produce({("t", 0): one()}, acks=NONE)
    peer.expects_nothing()
    found = peer.fetch({("t", 0): 0})
    assert (found.throttle_time_ms, found.responses) == (1000, [])


def test_two_connections_share_a_bucket(served: Served, quotas: Quotas) -> None:
    data = one(b"x" * 1000)
    limit = size_of(data) * 3 // 20
    quotas.limit("peer", Buckets.PRODUCE, limit)
    first, second = served.connect(), served.connect()
    first.send_produce({("t", 0): data})
    quotas.resolve()
    assert first.receive().throttle_time_ms == 0
    second.send_produce({("t", 0): data})
    quotas.resolve()
    assert second.receive().throttle_time_ms == wait_of(2 * size_of(data), limit) > 0
    assert first.fetch({("t", 0): 0}).throttle_time_ms == 0, "only its own connection is muted"


def test_a_limit_changes_for_open_connections(served: Served, peer: Peer, quotas: Quotas) -> None:
    data = one(b"x" * 1000)
    quotas.limit("peer", Buckets.PRODUCE, 1e9)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    assert peer.receive().throttle_time_ms == 0
    quotas.buckets.set(0, 100, False)
    assert peer.produce({("t", 0): data}).throttle_time_ms == wait_of(2 * size_of(data), 100)


def test_a_quota_removed_while_muted_leaves_the_time_as_it_was(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    """As in Kafka: the client was told how long; from then on it is free."""
    data = one(b"x" * 1000)
    quotas.limit("peer", Buckets.PRODUCE, 100)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    wait_ms = peer.receive().throttle_time_ms
    quotas.buckets.set_version(0)
    peer.send_produce({("t", 0): data})
    served.advance(wait_ms)
    assert peer.receive().throttle_time_ms == 0


def test_a_bucket_with_another_owner_is_not_charged(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    """The client is asked about again."""
    data = one(b"x" * 1000)
    old = quotas.limit("peer", Buckets.PRODUCE, 100)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    served.advance(peer.receive().throttle_time_ms)
    new = quotas.buckets.set(0, 100, True)
    assert new and new != old
    assert (quotas.buckets.used_ms(old), quotas.buckets.used_ms(new)) == (-1, 0)
    assert quotas.buckets.charge(old, 1 << 30) == 0
    quotas.known["peer"] = (0, 0, 0)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    assert peer.receive().throttle_time_ms == 0


def test_places_are_bounded(quotas: Quotas) -> None:
    assert quotas.buckets.set(1 << 14, 1.0, True) is None
    assert quotas.buckets.set((1 << 14) - 1, 1.0, True)
    assert quotas.buckets.set(-1, 1.0, True) is None


def test_a_muted_connection_may_be_closed_as_idle(
    serve: Callable[..., Served], wait_until: Any
) -> None:
    served = serve(**WINDOWS, **{"connections.max.idle.ms": 1000})
    served.put()
    quotas, peer = Quotas(served), served.connect()
    quotas.limit("peer", Buckets.PRODUCE, 1)
    peer.send_produce({("t", 0): one(b"x" * 1000)})
    quotas.resolve()
    assert peer.receive().throttle_time_ms > 1000
    served.advance(1000)
    assert peer.is_closed()
    wait_until(lambda: served.reactor.stats().connections == 0, "it is gone")


def test_a_muted_connection_does_not_delay_the_end(
    served: Served, peer: Peer, quotas: Quotas
) -> None:
    quotas.limit("peer", Buckets.PRODUCE, 1)
    peer.send_produce({("t", 0): one(b"x" * 1000)})
    quotas.resolve()
    assert peer.receive().throttle_time_ms > 0
    peer.send_produce({("t", 0): one()})
    served.reactor.stop(60_000)
    assert peer.is_closed()
    assert served.logs["t", 0].end_offset == 1


def test_a_muted_connection_moves_to_another_thread(
    served: Served, peer: Peer, quotas: Quotas, wait_until: Any
) -> None:
    """And stays muted there."""
    peers = [peer, served.connect()]
    for each in peers:
        quotas.limit("peer", Buckets.PRODUCE, 100)
        each.send_produce({("t", 0): one(b"x" * 1000)})
        quotas.resolve()
        wait_ms = each.receive().throttle_time_ms
        assert wait_ms == wait_of(size_of(one(b"x" * 1000)), 100)
    served.reactor.set_threads(1)
    wait_until(lambda: served.reactor.stats().network_threads == 1, "the other thread ends")
    quotas.buckets.set_version(0)
    for each in peers:
        each.send_fetch({("t", 0): 0})
    served.advance(wait_ms - 1)
    assert FETCH not in served.reactor.stats().requests
    served.advance(1)
    for each in peers:
        assert each.receive().responses


def test_a_large_frame_that_has_begun_is_read(served: Served, peer: Peer, quotas: Quotas) -> None:
    """It would hold the memory of others for as long as the connection is muted."""
    quotas.limit("peer", Buckets.PRODUCE, 1000)
    big = one(b"y" * 100_000)
    peer.send_produce({("t", 0): one(b"x" * 20_000)}, acks=ALL)
    peer.send_produce({("t", 0): big}, acks=ALL)
    quotas.resolve()
    assert peer.receive().throttle_time_ms > 0
    found = peer.receive() if served.reactor.stats().requests[PRODUCE] == 2 else None
    if found is None:  # not a byte of it was read before
        served.advance(200_000)
        found = peer.receive()
    assert found.throttle_time_ms > 0
    assert found.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_nothing_is_allocated_after_the_first(served: Served, peer: Peer, quotas: Quotas) -> None:
    data = one(b"x" * 1000)
    quotas.limit("peer", Buckets.PRODUCE, 1000)
    peer.send_produce({("t", 0): data})
    quotas.resolve()
    peer.receive()
    served.advance(100_000)
    before = served.reactor.stats().allocations
    for _ in range(50):
        served.advance(peer.produce({("t", 0): data}).throttle_time_ms)
    assert served.reactor.stats().allocations == before
