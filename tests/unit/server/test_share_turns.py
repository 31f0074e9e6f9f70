"""Members that read the same share partition at the same time, and the threads that serve them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest

from kafkalog.clock import ManualClock
from kafkalog.server.broker import Broker, node_of
from kafkalog.shares import reading
from kafkalog.shares.leader import CLOSED, CLOSED_MS, FETCH, Shares
from kafkalog.shares.partition import Refused
from kafkalog.shares.requests import Led
from kafkalog.shares.sessions import Where
from kafkalog.shares.waiting import Fetching
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.share_member import ShareMember, acquired, codes
from tests.support.share_persister import kept_in_memory
from tests.support.waiting import LIMIT_S, wait_for

GROUP_KIND = 32
LONG_MS = 600_000


class Watch:
    """Which threads try to acquire records; reads can be held."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.reading = threading.Event()
        self.free = threading.Event()
        self.free.set()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    found, attempt, read = Watch(), Shares._try, reading.read

    def trying(shares: Shares, fetch: Any) -> None:
        found.tried.append(threading.current_thread().name)
        attempt(shares, fetch)

    def held(*args: Any) -> reading.Read:
        found.reading.set()
        assert found.free.wait(60)
        return read(*args)

    monkeypatch.setattr(Shares, "_try", trying)
    monkeypatch.setattr(reading, "read", held)
    yield found
    found.free.set()


@pytest.fixture
def clock() -> ManualClock:
    """No timer wakes the thread of share groups."""
    return ManualClock()


@pytest.fixture
def broker(
    make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> Broker:
    kept_in_memory(monkeypatch)
    return make_broker(clock)


@pytest.fixture
def topic(raw: Raw) -> UUID:
    """A topic with one partition of six records, of which groups read from the beginning."""
    raw.alter(GROUP_KIND, "g", share_auto_offset_reset="earliest")
    found: UUID = raw.create("t").topic_id
    for number in range(6):
        assert not raw.produce("t", b"%d" % number).error_code
    return found


Join = Callable[[str], ShareMember]


@pytest.fixture
def join(broker: Broker, topic: UUID) -> Iterator[Join]:
    """Members with a session and one record each."""
    with ExitStack() as connections:

        def joined(name: str) -> ShareMember:
            connection = connections.enter_context(Raw(broker.bootstrap_servers))
            member = ShareMember(connection, "g", {topic: [0]}, name)
            found = member.fetch(max_records=1, max_wait_ms=LONG_MS)
            assert acquired(found)
            return member

        yield joined


def of(member: ShareMember) -> dict[int, int]:
    """The records of the answer to its ShareFetch."""
    return acquired(member.fetched())[0]


def _asked(topic_id: UUID) -> list[dict[str, Any]]:
    partition = {"partition_index": 0, "acknowledgement_batches": []}
    return [{"topic_id": topic_id, "partitions": [partition]}]


def test_one_member_reads_and_the_others_try_in_turn(
    broker: Broker, join: Join, watch: Watch, topic: UUID
) -> None:
    """An acknowledgement in the meantime lets none try in vain; and those threads try again that
    brought requests."""
    members = [join(f"member-{number}") for number in range(3)]
    (entry,) = node_of(broker).shares._entries
    watch.reading.clear()
    watch.free.clear()
    watch.tried.clear()
    members[0].send_fetch(max_records=1, max_wait_ms=LONG_MS)
    assert watch.reading.wait(60)
    members[1].send_fetch(max_records=1, max_wait_ms=LONG_MS)
    wait_for(lambda: len(entry.blocked) == 1, "the second member")
    assert codes(members[2].acknowledge({(topic, 0): [(2, 2, [1])]})) == {0: 0}
    assert len(watch.tried) == 2
    watch.free.set()
    assert [of(members[0]), of(members[1])] == [{3: 1}, {4: 1}]
    assert len(watch.tried) == 3
    assert not [name for name in watch.tried if name.endswith("shares")]
    assert not entry.blocked and not entry.reading


def test_a_member_that_leaves_passes_its_turn_on(
    broker: Broker, join: Join, watch: Watch, clock: ManualClock
) -> None:
    members = [join(f"member-{number}") for number in range(3)]
    shares = node_of(broker).shares
    (entry,) = shares._entries
    watch.reading.clear()
    watch.free.clear()
    members[0].send_fetch(max_records=1, max_wait_ms=LONG_MS)
    assert watch.reading.wait(60)
    for count, member in enumerate(members[1:], 1):
        member.send_fetch(max_records=1, max_wait_ms=LONG_MS)
        wait_for(lambda wanted=count: len(entry.blocked) == wanted, "the others")
    members[1].raw.close()

    def ended() -> bool:
        """One look at the connections for each that ends, as the time of locks goes on, too."""
        look_ms = shares._timers._at.get((CLOSED, 0, "", ""), 0)
        if shares._connections.some_ended() and look_ms > shares.now_ms():
            clock.advance(CLOSED_MS)
        return len(shares._sessions) == 2

    wait_for(ended, "the end of the second one's session")
    watch.free.set()
    assert [of(members[0]), of(members[2])] == [{3: 1}, {1: 2}]


def test_a_member_that_lost_a_partition_passes_its_turn_on(
    broker: Broker, join: Join, raw: Raw, watch: Watch, topic: UUID
) -> None:
    """When it finds that, and later, while it waits for its other partition.  Those that read wait
    for more bytes than there are, so that their ends do not pass anything on."""
    one, another, loser, last = (join(name) for name in ("one", "another", "loser", "last"))
    shares = node_of(broker).shares
    (entry,) = shares._entries
    other = raw.create("other").topic_id
    loser.send_fetch(max_records=1, topics=_asked(other))
    assert of(loser) == {4: 1}
    assert not raw.produce("t", b"6").error_code

    def reads(member: ShareMember) -> None:
        watch.reading.clear()
        watch.free.clear()
        member.send_fetch(max_records=1, max_wait_ms=LONG_MS, min_bytes=1 << 20)
        assert watch.reading.wait(60)

    def blocked(member: ShareMember) -> Fetching:
        found = []

        def waits() -> bool:
            with shares._lock:
                found[:] = [shares._fetches[number] for number in entry.blocked]
            return bool(found) and found[-1].ask.key.member == member.member

        wait_for(waits, f"{member.member} behind the one that reads")
        return found[-1]

    def lost(where: Where) -> Led:
        if where.topic_id == topic:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "lost")
        return find(where)

    reads(one)
    loser.send_fetch(max_records=1, max_wait_ms=LONG_MS)
    waiting = blocked(loser)
    find, waiting.find = waiting.find, lost
    last.send_fetch(max_records=1, max_wait_ms=LONG_MS)
    blocked(last)
    watch.free.set()
    assert of(last) == {5: 1}
    assert list(waiting.refused) == [entry.key.where] and not waiting.over
    reads(another)
    assert codes(last.acknowledge({(topic, 0): [(3, 3, [1])]})) == {0: 0}
    assert blocked(loser) is waiting
    last.send_fetch(max_records=1, max_wait_ms=LONG_MS)
    blocked(last)
    watch.free.set()
    assert of(last) == {6: 1}


def test_a_member_that_finds_records_sets_no_timer_and_watches_no_log(
    broker: Broker, join: Join, watch: Watch
) -> None:
    member = join("member")
    shares = node_of(broker).shares
    watch.reading.clear()
    watch.free.clear()
    member.send_fetch(max_records=1, max_wait_ms=LONG_MS)
    assert watch.reading.wait(60)
    with shares._lock:
        assert not shares._news
        assert FETCH not in {key[0] for key in shares._timers._at}
    watch.free.set()
    assert of(member) == {1: 1}


def test_a_member_that_finds_none_waits_for_them(broker: Broker, join: Join, raw: Raw) -> None:
    """Its time does not pass while another one has all records."""
    member, other = join("member"), join("another-member")
    assert acquired(member.fetch(max_wait_ms=LONG_MS))[0].keys() == {2, 3, 4, 5}
    other.send_fetch(max_wait_ms=LONG_MS)
    wait_for(lambda: bool(node_of(broker).shares._news), "the wait")
    assert not raw.produce("t", b"more").error_code
    assert of(other) == {6: 1}
    wait_for(lambda: not node_of(broker).shares._news, "the end of the wait")


def test_a_member_without_a_session_gets_that_of_one_that_leaves(
    make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits to be refused, but no longer than until there is room."""
    kept_in_memory(monkeypatch)
    broker = make_broker(group_share_max_share_sessions=1, group_share_max_size=1)
    shares = node_of(broker).shares
    with Raw(broker.bootstrap_servers) as first, Raw(broker.bootstrap_servers) as second:
        topics = {first.create("t").topic_id: [0]}
        one, other = ShareMember(first, "g", topics, "one"), ShareMember(second, "g", topics, "two")
        assert one.fetch(min_bytes=0).error_code == 0
        refused = other.fetch().error_code
        assert refused == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        other.send_fetch(min_bytes=0, max_wait_ms=LONG_MS)
        wait_for(lambda: len(shares._waits.without_room) == 1, "the second member")
        first.close()
        assert other.fetched().error_code == 0
        assert [key.member for key in shares._sessions._all] == ["two"]
        assert not shares._waits.without_room and not shares._fetches


Crowd = Callable[[str, int], ShareMember]


@pytest.fixture
def crowd(broker: Broker, raw: Raw) -> Iterator[Crowd]:
    """Members that read so many partitions, of which nobody writes any."""
    topics = {count: raw.create(f"of-{count}", count).topic_id for count in (1, 10)}
    with ExitStack() as connections:

        def member(name: str, count: int) -> ShareMember:
            connection = connections.enter_context(Raw(broker.bootstrap_servers))
            return ShareMember(connection, "g", {topics[count]: list(range(count))}, name)

        yield member


def begins(member: ShareMember) -> None:
    assert member.fetch(min_bytes=0).error_code == 0


def leaves(member: ShareMember) -> None:
    member.epoch = -1
    assert member.fetch(topics=[]).error_code == 0


def waits_for_room(shares: Shares, member: ShareMember, **fields: Any) -> Fetching:
    """It sends a ShareFetch, for which there is no room."""
    member.send_fetch(min_bytes=0, max_wait_ms=LONG_MS, **fields)
    found: list[Fetching] = []

    def waits() -> bool:
        with shares._lock:
            every = [shares._fetches[number] for number in shares._waits.without_room]
        found[:] = [one for one in every if one.ask.key.member == member.member]
        return bool(found)

    wait_for(waits, f"{member.member}, for room")
    return found[0]


def test_room_goes_to_all_those_for_which_it_is_enough(broker: Broker, crowd: Crowd) -> None:
    """In their order; one that needs more keeps none of the others waiting."""
    shares = node_of(broker).shares
    sessions = shares._sessions
    leaving, large = crowd("leaving", 1), crowd("large", 10)
    small, smaller, later = (crowd(name, 1) for name in ("small", "smaller", "later"))
    begins(leaving)
    one = sessions.bytes_max = sessions.bytes
    for member in (large, small, smaller, later):
        waits_for_room(shares, member)
    sessions.bytes_max = 2 * one
    leaves(leaving)
    assert [member.fetched().error_code for member in (small, smaller)] == [0, 0]
    leaves(small)
    assert later.fetched().error_code == 0
    sessions.bytes_max = 4 * one
    leaves(smaller)
    assert large.fetched().error_code == 0
    assert not shares._waits.without_room


def test_a_member_that_leaves_waits_for_none_that_comes(broker: Broker, crowd: Crowd) -> None:
    """The one that comes looks up its partitions after the one that leaves is answered."""
    shares = node_of(broker).shares
    leaving, comes = crowd("leaving", 1), crowd("comes", 1)
    begins(leaving)
    shares._sessions.sessions_max = 1
    waiting = waits_for_room(shares, comes)
    find, go_on, went_on = waiting.find, threading.Event(), list[bool]()

    def slow(where: Where) -> Led:
        went_on.append(go_on.wait(LIMIT_S))
        return find(where)

    waiting.find = slow
    leaves(leaving)
    go_on.set()
    assert comes.fetched().error_code == 0
    assert went_on and all(went_on)


def test_a_member_whose_second_attempt_fails_is_refused(
    broker: Broker, crowd: Crowd, join: Join, raw: Raw, topic: UUID
) -> None:
    """And the next one gets the room."""
    shares = node_of(broker).shares
    leaving, fails, comes = crowd("leaving", 1), join("fails"), crowd("comes", 1)
    begins(leaving)
    shares._sessions.bytes_max = shares._sessions.bytes
    more = [{"topic_id": raw.create("more").topic_id, "partitions": [
        {"partition_index": 0, "acknowledgement_batches": []}]}]  # fmt: skip
    more += [{"topic_id": topic, "partitions": [{"partition_index": 0, "acknowledgement_batches": [
        {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]}]}]  # fmt: skip
    waiting = waits_for_room(shares, fails, topics=more)
    waits_for_room(shares, comes)

    def broken(_where: Where) -> Led:
        raise RuntimeError("a fault")

    waiting.find = broken
    leaves(leaving)
    assert fails.fetched().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert comes.fetched().error_code == 0
