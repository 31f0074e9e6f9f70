"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from kafkalog._native import ffi, lib
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.plane.peer import named, one, topic_id

VERSIONS = [7, 11, 12, 13, 17]
FULL, FINAL = 0, -1


def begin(peer, wanted, version=11, **more):
    """Send a full fetch that asks for a session; returns the response."""
    return peer.fetch(wanted, version=version, session_id=0, session_epoch=FULL, **more)


def again(peer, session, epoch, wanted=None, version=11, **more):
    return peer.fetch(
        wanted or {}, version=version, session_id=session, session_epoch=epoch, **more
    )


def told(response) -> list[tuple[int, int]]:
    """Partition and number of bytes, for each partition in the response."""
    return [(p.partition_index, len(p.records)) for t in response.responses for p in t.partitions]


def stats(served):
    out = ffi.new("kl_session_stats *")
    lib.kl_server_get_sessions(served.reactor._c, out)
    return out


@pytest.mark.parametrize("version", VERSIONS)
def test_only_changes_are_answered(served, peer, version):
    served.put(partitions=3)
    wanted = {("t", p): 0 for p in range(3)}
    first = begin(peer, wanted, version)
    session = first.session_id
    assert session > 0 and told(first) == [(0, 0), (1, 0), (2, 0)]
    assert told(again(peer, session, 1, version=version)) == []
    data = one()
    peer.produce_one(data, ("t", 1))
    news = again(peer, session, 2, version=version)
    assert (news.session_id, told(news)) == (session, [(1, len(data))])
    # The consumer continues after it: the request names only that change.
    assert told(again(peer, session, 3, {("t", 1): 1}, version)) == []
    served.logs["t", 2].append(b"v")
    served.logs["t", 2].delete_before(1)
    assert told(again(peer, session, 4, {("t", 2): 1}, version)) == [(2, 0)]
    assert told(again(peer, session, 5, version=version)) == []
    assert stats(served).sessions == 1 and stats(served).session_partitions == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_come_and_are_forgotten(served, peer, version):
    served.put(partitions=3)
    served.put("u")
    session = begin(peer, {("t", 0): 0}, version).session_id
    more = again(peer, session, 1, {("t", 1): 0, ("u", 0): 0}, version)
    assert sorted(told(more)) == [(0, 0), (1, 0)]
    assert stats(served).session_partitions == 3
    for place in [("t", 0), ("t", 1), ("u", 0)]:
        peer.produce_one(one(), place)
    left = again(peer, session, 2, version=version, forgotten={"t": [0, 2], "u": [0, 9]})
    assert [p for p, _ in told(left)] == [1]
    assert stats(served).session_partitions == 1
    # With no partition left the session ends, and the rest is read without one.
    gone = again(peer, session, 3, {("t", 0): 0}, version, forgotten={"t": [0, 1]})
    assert (gone.session_id, gone.error_code) == (0, 0)
    assert stats(served).sessions == 0


def test_names_and_ids_do_not_mix(served, peer):
    served.put()
    by_name = begin(peer, {("t", 0): 0}, 12).session_id
    by_id = begin(peer, {("t", 0): 0}, 13).session_id
    assert again(peer, by_name, 1, version=13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert again(peer, by_id, 1, version=12).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert again(peer, by_name, 1, version=12).error_code == 0
    assert again(peer, by_id, 1, version=13).error_code == 0


def test_unknown_sessions_and_wrong_epochs(served, peer):
    served.put()
    response = again(peer, 12345, 1)
    assert (response.error_code, response.session_id) == (70, 0)
    assert response.responses == []
    session = begin(peer, {("t", 0): 0}).session_id
    for epoch in (2, 7, -2):
        assert again(peer, session, epoch).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert again(peer, session, 1).error_code == 0
    assert again(peer, session, 1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert again(peer, session, 2).error_code == 0


def test_a_full_fetch_ends_the_session_that_it_names(served, peer):
    served.put()
    session = begin(peer, {("t", 0): 0}).session_id
    other = peer.fetch({("t", 0): 0}, session_id=session, session_epoch=FULL)
    assert other.session_id not in (0, session)
    assert again(peer, session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closing = peer.fetch({}, session_id=other.session_id, session_epoch=FINAL)
    assert (closing.session_id, closing.error_code) == (0, 0)
    assert stats(served).sessions == 0


def test_without_a_session_all_is_told(served, peer):
    served.put()
    for _ in range(2):
        response = peer.fetch({("t", 0): 0}, session_id=0, session_epoch=FINAL)
        assert (response.session_id, told(response)) == (0, [(0, 0)])
    for version in (4, 6):
        assert told(peer.fetch({("t", 0): 0}, version=version)) == [(0, 0)]
    assert stats(served).sessions == 0


def test_the_cache_is_bounded(serve):
    served = serve(**{"max.incremental.fetch.session.cache.slots": 3})
    peer = served.connect()
    served.put(partitions=2)
    made = [begin(peer, {("t", 0): 0}).session_id for _ in range(5)]
    assert made[3:] == [0, 0] and 0 not in made[:3]
    served.advance(60_000)
    assert again(peer, made[0], 1).error_code == 0
    served.advance(61_000)
    # The session that was unused for two minutes is evicted, the others stay.
    newest = begin(peer, {("t", 0): 0}).session_id
    assert newest > 0 and stats(served).sessions_evicted == 1
    assert again(peer, made[0], 2).error_code == 0
    codes = sorted(again(peer, session, 1).error_code for session in made[1:3])
    assert codes == [0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND]


def test_a_larger_session_takes_the_place_of_a_smaller_old_one(serve):
    served = serve(**{"max.incremental.fetch.session.cache.slots": 1})
    peer = served.connect()
    served.put(partitions=2)
    small = begin(peer, {("t", 0): 0}).session_id
    served.advance(100_000)
    again(peer, small, 1)
    served.advance(100_000)
    again(peer, small, 2)
    assert begin(peer, {("t", 0): 0}).session_id == 0
    assert begin(peer, {("t", 0): 0, ("t", 1): 0}).session_id > 0
    assert again(peer, small, 3).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_errors_are_told_each_time(served, peer):
    served.put()
    session = begin(peer, {("t", 0): 5}).session_id
    for epoch in (1, 2):
        response = again(peer, session, epoch)
        assert response.responses[0].partitions[0].error_code == 1
    # When the error is gone, its high watermark is news.
    assert told(again(peer, session, 3, {("t", 0): 0})) == [(0, 0)]
    assert told(again(peer, session, 4)) == []


def test_partitions_take_turns(served, peer):
    """With little room, the partitions take turns."""
    served.put(partitions=3)
    for partition in range(3):
        peer.produce_one(one(bytes(100)), ("t", partition))
    first = begin(peer, {("t", p): 0 for p in range(3)}, max_bytes=1)
    turns = [[p for p, size in told(first) if size]]
    for epoch in range(1, 6):
        turns.append(
            [p for p, size in told(again(peer, first.session_id, epoch, max_bytes=1)) if size]
        )
    assert turns == [[0], [1], [2], [0], [1], [2]]


def test_a_session_in_use_is_not_lent(served, peer, wait_until):
    served.put()
    session = begin(peer, {("t", 0): 0}).session_id
    peer.send_fetch({}, session_id=session, session_epoch=1, max_wait_ms=10_000)
    other = served.connect()
    wait_until(lambda: served.parked() == 1, "the fetch is parked")
    assert again(other, session, 2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    # It may be ended in between; waiting requests are still answered.
    assert peer_close(other, session).session_id == 0
    other.produce_one(one())
    assert told(peer.receive())[0][0] == 0
    assert stats(served).sessions == 0


def peer_close(peer, session):
    return peer.fetch({}, session_id=session, session_epoch=FINAL)


def test_a_lost_connection_gives_its_session_back(served, wait_until):
    served.put()
    peer, other = served.connect(), served.connect()
    session = begin(peer, {("t", 0): 0}).session_id
    peer.send_fetch({}, session_id=session, session_epoch=1, max_wait_ms=10_000)
    wait_until(lambda: served.parked() == 1, "the fetch is parked")
    peer.close()
    wait_until(lambda: served.parked() == 0, "the fetch is gone")
    # The same consumer starts over on another connection.
    assert begin(other, {("t", 0): 0}).session_id not in (0, session)
    peer_close(other, session)
    wait_until(lambda: stats(served).sessions == 1, "the session is gone")


def test_a_removed_topic_is_an_error_in_its_session(served, peer):
    served.put()
    served.put("u")
    for version in (12, 13):
        session = begin(peer, {("t", 0): 0, ("u", 0): 0}, version).session_id
        served.remove("u")
        response = again(peer, session, 1, version=version)
        (topic,) = response.responses
        assert (topic.topic if version == 12 else topic.topic_id) == (
            "u" if version == 12 else topic_id("u")
        )
        assert topic.partitions[0].error_code == (3 if version == 12 else 100)
        served.put("u")
        assert again(peer, session, 2, version=version).responses[0].partitions[0].error_code == 0


def test_large_sessions(served, peer):
    """Thousands of partitions are added, change and are removed."""
    count = 3000
    served.put(partitions=2)
    peer.send_fetch({("t", p): 0 for p in range(count)}, version=13, session_epoch=FULL)
    served.reactor.take(20_000).again()
    response = peer.receive()
    assert len(told(response)) == count
    session = response.session_id
    peer.produce_one(one(), ("t", 1))
    gone = list(range(2, count, 2))
    left = again(peer, session, 1, version=13, forgotten={"t": gone})
    assert len(told(left)) == 1 + len(range(3, count, 2))
    assert stats(served).session_partitions == count - len(gone)
    assert named("t", 13)["topic_id"] == left.responses[0].topic_id


PARTITIONS_MAX = 200_000
"""The limit for all sessions together: session.c."""


def begin_large(served, peer, count):
    """Begin a session of missing partitions, as Python hands it back; returns its id."""
    peer.send_fetch(
        {("t", p): 0 for p in range(count)}, version=13, session_id=0, session_epoch=FULL
    )
    served.reactor.take(20_000).again()
    frame = peer.receive_frame()  # not decoded, as it is large
    peer._expected.pop()
    return int.from_bytes(frame[11:15], "big")


def test_at_the_bound_of_partitions_old_sessions_make_room(served, peer):
    """Those of clients that vanished must not keep others out forever."""
    served.put()
    half = PARTITIONS_MAX // 2
    first, second = begin_large(served, peer, half), begin_large(served, peer, half)
    assert 0 not in (first, second) and begin(peer, {("t", 0): 0}).session_id == 0
    assert stats(served).session_partitions == PARTITIONS_MAX
    served.advance(121_000)
    newest = begin(peer, {("t", 0): 0}).session_id
    assert newest > 0
    assert stats(served).sessions_evicted == 1
    assert stats(served).session_partitions == half + 1
    assert again(peer, first, 1, version=13).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert again(peer, newest, 1).error_code == 0


def test_added_partitions_count_at_once(served, peer):
    """Not when its fetch ends, maybe minutes later: without room, the session ends at once."""
    served.put(partitions=2)
    half = PARTITIONS_MAX // 2
    session = begin(peer, {("t", 0): 0}).session_id
    assert 0 not in (begin_large(served, peer, half), begin_large(served, peer, half - 1))
    assert stats(served).session_partitions == PARTITIONS_MAX
    full = again(peer, session, 1, {("t", 1): 0}, max_wait_ms=60_000)
    assert full.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert stats(served).session_partitions == PARTITIONS_MAX - 1


def test_a_closed_session_counts_until_its_fetch_ends(served, peer, wait_until):
    served.put(partitions=2)
    session = begin(peer, {("t", 0): 0, ("t", 1): 0}).session_id
    peer.send_fetch({}, session_id=session, session_epoch=1, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 1, "the fetch is parked")
    peer_close(served.connect(), session)
    assert (stats(served).sessions, stats(served).session_partitions) == (0, 2)
    served.connect().produce_one(one())
    peer.receive()
    wait_until(lambda: stats(served).session_partitions == 0, "nothing is kept")


def test_no_session_goes_where_that_makes_no_room(served, peer):
    served.put()
    small = begin(peer, {("t", 0): 0}).session_id
    served.advance(121_000)
    half = PARTITIONS_MAX // 2
    assert 0 not in (begin_large(served, peer, half), begin_large(served, peer, half - 1000))
    assert begin_large(served, peer, 2000) == 0
    assert stats(served).sessions_evicted == 0
    assert again(peer, small, 1).error_code == 0


def test_a_partition_that_is_named_often_is_told_once(served, peer):
    """As in Kafka: with the last fields given."""
    log = served.put()
    log.append_many([b"v"] * 3)
    asked = {
        "partition": 0, "current_leader_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20,
        "isolation_level": 0, "session_id": 0, "session_epoch": FINAL, "rack_id": "",
        "topics": [{"topic": "t", "partitions": [{**asked, "fetch_offset": 0}] * 99}],
        "forgotten_topics_data": [],
    }  # fmt: skip
    fields["topics"].append({"topic": "t", "partitions": [{**asked, "fetch_offset": 3}]})
    assert told(peer.ask(apis.FETCH, 11, fields)) == [(0, 0)]


@pytest.mark.parametrize("epoch", [FULL, FINAL])
def test_a_large_fetch_waits_as_a_small_one_does(served, peer, wait_until, epoch):
    """With a request of more than 64 KiB, with and without a session."""
    served.put()
    asked = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20,
        "isolation_level": 0, "session_id": 0, "session_epoch": epoch,
        "topics": [{"topic": "t", "partitions": [asked] * 9000}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    body = apis.FETCH.encode_request(12, fields)
    assert len(body) > 256 << 10
    peer.send_body(apis.FETCH, 12, body)
    wait_until(lambda: served.parked() == 1, "the fetch waits")
    served.connect().produce_one(one())
    assert (0, len(one())) in told(peer.receive())


def crafted(seed: int, topic: str, count: int) -> list[int]:
    """Partitions that would collide in a table whose seed is made of the session's id."""
    mask, found, have = (1 << 17) - 1, [], 0
    for start in range(0, 1 << 31, 1 << 22):
        numbers = np.arange(start, start + (1 << 22), dtype=np.uint64)
        hashes = np.uint64(seed) ^ (numbers * np.uint64(0x9E3779B97F4A7C15))
        for byte in topic.encode():
            hashes = (hashes ^ np.uint64(byte)) * np.uint64(1099511628211)
        places = (hashes ^ (hashes >> np.uint64(29))) & np.uint64(mask)
        found.append(numbers[places < 64])
        have += len(found[-1])
        if have >= count:
            break
    return [int(number) for number in np.concatenate(found)[:count]]


def cost_of(served, peer, session: int, partitions: list[int]) -> float:
    """The CPU seconds of this process for adding them to the session."""
    fields = {("t", p): 0 for p in partitions}
    peer.send_fetch(fields, version=11, session_id=session, session_epoch=1)
    taken = served.reactor.take(20_000)
    before = time.process_time()
    taken.again()
    peer.receive_frame()
    peer._expected.pop()
    return time.process_time() - before


def test_no_choice_of_partitions_makes_a_session_slow(served, peer):
    """A client knows its session's id, and may name any partitions."""
    served.put()
    count = 40_000
    mine = begin(peer, {("t", 0): 0}).session_id
    seed = mine * 0x9E3779B97F4A7C15 % 2**64
    slow = cost_of(served, peer, mine, crafted(seed, "t", count))
    other = begin(peer, {("t", 0): 0}).session_id
    usual = cost_of(served, peer, other, random.Random(1).sample(range(1, 2**31), count))
    assert slow < 10 * usual, (slow, usual)
