"""While one disk call is held, network threads serve the same partition and others."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kafkalog.log.log import handle_of
from kafkalog.replication.followers import Follower
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.unit.log.test_held_disk import CONFIG, NotHeld, delete_segments, fill, held
from tests.unit.plane.peer import ALL, LEADER, NONE, Peer, Served, one

Wait = Callable[..., None]


@pytest.fixture
def cold(serve: Callable[..., Served], faults: Any) -> Iterator[Served]:
    """Two partitions with several segments, no index of which is in memory; one network thread."""
    served = serve(**{"num.network.threads": 1})
    served.put(partitions=2, config=CONFIG)
    for log in served.logs.values():
        fill(log)
    served.reactor.remove_topic("t")
    for log in served.logs.values():
        log.close()
    served.put(partitions=2, config=CONFIG)
    for partition in range(2):  # the first change removes the marker of a clean close
        served.connect().produce_one(one(key=b"k"), ("t", partition))
        served.logs["t", partition].flush()
    yield served
    faults.kl_io_reset()


def offsets(peer: Peer, place: tuple[str, int], offset: int) -> list[int]:
    """The base offsets of the batches that a Fetch returns."""
    return [h.base_offset for h in batches.headers(peer.fetch_one(offset, place).records)]


def meanwhile(served: Served) -> None:
    """Produce and fetch on other connections; if the network thread waits, these time out."""
    peer = served.connect()
    for place in [("t", 0), ("t", 1)]:
        end = peer.produce_one(one(key=b"k"), place, acks=LEADER).base_offset
        assert end == served.logs[place].end_offset - 1
        assert offsets(peer, place, end) == [end]


def first_of(served: Served, segment: int) -> int:
    """The start of a segment, from its file name: asking for segments would load indexes."""
    return sorted(int(path.stem) for path in (served.folder / "t-0").glob("*.log"))[segment]


@pytest.mark.parametrize("nth", [1, 2], ids=["its folder", "its file"])
def test_an_index_that_is_loaded(cold: Served, faults: Any, wait_until: Wait, nth: int) -> None:
    """For one fetch, and for another that needs the same index."""
    offset = first_of(cold, 2) + 3
    peers = [cold.connect() for _ in range(2)]

    def get() -> None:
        peers[0].send_fetch({("t", 0): offset}, max_bytes=1000)
        assert peers[0].receive().responses[0].partitions[0].error_code == 0

    with held(faults, b"openat", get, wait_until, nth):
        peers[1].send_fetch({("t", 0): offset}, max_bytes=1000)
        meanwhile(cold)
    found = peers[1].receive().responses[0].partitions[0]
    assert next(iter(batches.headers(found.records))).base_offset == offset


def test_a_client_leaves_during_the_load_of_an_index(
    cold: Served, faults: Any, wait_until: Wait
) -> None:
    offset = first_of(cold, 2)
    peer = cold.connect()
    faults.kl_io_hold_one(b"openat", 1)
    peer.send_fetch({("t", 0): offset}, max_wait_ms=60_000)
    wait_until(lambda: faults.kl_io_waiting(b"openat") == 1, "the index is opened")
    peer.close()
    wait_until(lambda: cold.parked() == 0, "the request has ended")
    meanwhile(cold)
    faults.kl_io_hold(b"openat", faults.KL_HOLD_NONE)
    assert offsets(cold.connect(), ("t", 0), offset)[0] == offset


def test_a_stop_while_an_index_is_loaded(cold: Served, faults: Any, wait_until: Wait) -> None:
    """A waiting request is answered, without what is only on disk."""
    peer = cold.connect()
    faults.kl_io_hold_one(b"openat", 1)
    peer.send_fetch({("t", 0): first_of(cold, 2)}, max_wait_ms=60_000)
    wait_until(lambda: faults.kl_io_waiting(b"openat") == 1, "the index is opened")
    peer.socket.shutdown(1)
    found = peer.receive().responses[0].partitions[0]
    assert (found.error_code, found.records) == (0, b"")
    faults.kl_io_hold(b"openat", faults.KL_HOLD_NONE)


def test_an_index_that_cannot_be_read(cold: Served, faults: Any) -> None:
    """The request gets the error as if it had read itself; later ones succeed."""
    offset = first_of(cold, 2)
    peer = cold.connect()
    faults.kl_io_fail(b"openat", 1, 5, 1, 0)
    assert peer.fetch_one(offset, ("t", 0)).error_code != 0
    faults.kl_io_reset()
    assert offsets(peer, ("t", 0), offset)[0] == offset


def test_some_indexes_are_loaded_and_others_not(cold: Served) -> None:
    """All partitions are answered, loaded or not."""
    last = cold.logs["t", 1].end_offset - 1
    wanted = {("t", 0): first_of(cold, 2), ("t", 1): last}
    first, second = cold.connect().fetch(wanted).responses[0].partitions
    assert next(iter(batches.headers(first.records))).base_offset == wanted["t", 0]
    assert next(iter(batches.headers(second.records))).base_offset == last


@pytest.mark.parametrize("call", [b"unlinkat", b"renameat", b"fdatasync", b"fsync"])
def test_a_deletion_that_waits(cold: Served, faults: Any, wait_until: Wait, call: bytes) -> None:
    log = cold.logs["t", 0]
    before = first_of(cold, 3)
    try:
        with held(faults, call, lambda: delete_segments(log, before), wait_until):
            meanwhile(cold)
    except NotHeld:
        assert call != b"fsync"
    assert log.start_offset == before


def test_compaction_that_waits(cold: Served, faults: Any, wait_until: Wait) -> None:
    log = cold.logs["t", 0]
    log.roll()
    log.flush()  # otherwise a sync of the roll may be the one held
    with held(faults, b"fsync", log.compact, wait_until):
        meanwhile(cold)


def test_a_sync_that_waits(cold: Served, faults: Any, wait_until: Wait) -> None:
    log = handle_of(cold.logs["t", 0])
    cold.connect().produce_one(one(key=b"k"))
    with held(faults, b"fdatasync", log.flush, wait_until):
        meanwhile(cold)


LARGE = one(b"v" * 3_900, key=b"k")
"""A batch that needs its own segment."""


def elsewhere(served: Served) -> None:
    """While a partition accepts no append, read it, and produce to and read another one."""
    peer = served.connect()
    end = peer.produce_one(one(key=b"k"), ("t", 1), acks=LEADER).base_offset
    assert offsets(peer, ("t", 1), end) == [end]
    last = served.logs["t", 0].end_offset - 1
    assert offsets(peer, ("t", 0), last) == [last]


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_an_append_that_rolls(cold: Served, faults: Any, wait_until: Wait, acks: int) -> None:
    """Its connection waits, keeping the order of its requests; the network thread does not."""
    log, peer = cold.logs["t", 0], cold.connect()
    end, segments = log.end_offset, len(log.segments)
    peer.send_produce({("t", 0): one(key=b"k")}, acks=acks)

    def produce() -> None:
        peer.send_produce({("t", 0): LARGE, ("t", 1): one(key=b"k")}, acks=acks)
        peer.send_produce({("t", 0): one(key=b"k")}, acks=acks)
        places = [peer.receive().responses[0].partition_responses[0] for _ in range(3)]
        assert [(p.error_code, p.base_offset) for p in places] == [
            (0, end), (0, end + 1), (0, end + 2),
        ]  # fmt: skip

    with held(faults, b"renameat", produce, wait_until):
        assert log.end_offset == end + 1
        elsewhere(cold)
    assert log.end_offset == end + 3
    assert len(log.segments) == segments + 2


def test_many_producers_of_a_log_that_rolls(cold: Served, faults: Any, wait_until: Wait) -> None:
    """They must not take every thread that may wait for the disk: other logs load indexes."""
    log, peers = cold.logs["t", 0], [cold.connect() for _ in range(8)]
    end = log.end_offset
    with held(faults, b"renameat", lambda: peers[0].produce_one(LARGE), wait_until):
        for i, peer in enumerate(peers[1:], 1):
            peer.send_produce({("t", 0): LARGE})
            wait_until(lambda parked=i + 1: cold.parked() == parked, "it waits for the roll")
        offset = first_of(cold, 2) + 3
        assert offsets(cold.connect(), ("t", 1), offset)
        peers[1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peers[1].close()  # its request is no longer wanted
        wait_until(lambda: cold.parked() == len(peers) - 1, "its request has ended")
    places = [peer.receive().responses[0].partition_responses[0] for peer in peers[2:]]
    assert sorted(place.base_offset for place in places) == [*range(end + 1, end + 7)]


def test_a_roll_that_the_servers_clock_asks_for(
    serve: Callable[..., Served], faults: Any, wait_until: Wait
) -> None:
    """The check whether an append rolls uses the same clock as the append itself."""
    served = serve(manual_clock=False, **{"num.network.threads": 1})
    served.put(partitions=2, config={"segment.ms": 60_000})
    untimed = batches.batch([batches.Row(b"v", b"k", -1)])
    for partition in range(2):
        assert served.connect().produce_one(untimed, ("t", partition)).error_code == 0
    served.advance(120_000)  # ahead of the machine's clock
    peer = served.connect()
    with held(faults, b"renameat", lambda: peer.produce_one(untimed), wait_until):
        elsewhere(served)
    assert [len(log.segments) for log in served.logs.values()] == [2, 2]


@pytest.mark.parametrize("acks", [NONE, LEADER])
def test_a_client_leaves_during_a_roll(
    cold: Served, faults: Any, wait_until: Wait, acks: int
) -> None:
    """Its batch is appended, as with a fast disk."""
    log, peer = cold.logs["t", 0], cold.connect()
    end = log.end_offset
    faults.kl_io_hold_one(b"renameat", 1)
    peer.send_produce({("t", 0): LARGE}, acks=acks)
    wait_until(lambda: faults.kl_io_waiting(b"renameat") == 1, "the roll is held")
    peer.close()
    elsewhere(cold)
    assert (cold.parked(), log.end_offset) == (1, end)
    faults.kl_io_hold(b"renameat", faults.KL_HOLD_NONE)
    wait_until(lambda: log.end_offset == end + 1, "it is there")
    assert cold.connect().produce_one(one(key=b"k")).base_offset == end + 1


def test_a_client_is_cut_off_during_a_roll(cold: Served, faults: Any, wait_until: Wait) -> None:
    log, peer = cold.logs["t", 0], cold.connect()
    end = log.end_offset
    faults.kl_io_hold_one(b"renameat", 1)
    peer.send_produce({("t", 0): LARGE})
    wait_until(lambda: faults.kl_io_waiting(b"renameat") == 1, "the roll is held")
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    wait_until(lambda: cold.parked() == 0, "the request has ended")
    elsewhere(cold)
    faults.kl_io_hold(b"renameat", faults.KL_HOLD_NONE)
    assert cold.connect().produce_one(one(key=b"k")).base_offset == end


def test_a_roll_without_room(cold: Served, faults: Any) -> None:
    """An append without room for its roll is refused, and nothing of it is stored."""
    log, peer = cold.logs["t", 0], cold.connect()
    end = log.end_offset
    faults.kl_io_fail(b"pwrite", 1, 28, 2, 0)  # in the roll ahead, and in the append itself
    assert peer.produce_one(LARGE).error_code != 0
    faults.kl_io_reset()
    assert log.end_offset == end
    assert peer.produce_one(LARGE).base_offset == end


@pytest.mark.parametrize("what", ["roll", "truncate"])
def test_an_append_during_other_work_on_its_log(
    cold: Served, faults: Any, wait_until: Wait, what: str
) -> None:
    log, peer = cold.logs["t", 0], cold.connect()
    peer.produce_one(one(key=b"k"))
    log.flush()
    end, call = log.end_offset, b"renameat"
    work = log.roll
    if what == "truncate":
        end, call = end - 1, b"ftruncate"
        work = partial(log.truncate, end)
    with held(faults, call, work, wait_until):
        peer.send_produce({("t", 0): one(key=b"k")})
        elsewhere(cold)
        assert log.end_offset == end
    (found,) = peer.receive().responses[0].partition_responses
    assert found.base_offset == end


@pytest.mark.parametrize("call", [b"unlinkat", b"fsync"])
def test_a_first_append_that_takes_the_marker_away(
    serve: Callable[..., Served], faults: Any, wait_until: Wait, call: bytes
) -> None:
    """And records its leader epoch."""
    served = serve(**{"num.network.threads": 1})
    served.put(partitions=2)
    peer = served.connect()
    for partition in range(2):
        peer.produce_one(one(), ("t", partition))
    served.reactor.remove_topic("t")
    for log in served.logs.values():
        log.close()
    served.put(partitions=2)
    with held(faults, call, lambda: served.connect().produce_one(one()), wait_until):
        elsewhere(served)
    assert served.logs["t", 0].end_offset == 2


@pytest.mark.parametrize("acks", [LEADER, ALL])
@pytest.mark.parametrize("followed", [False, True])
def test_an_append_that_was_accepted_in_an_earlier_epoch(
    cold: Served, faults: Any, wait_until: Wait, acks: int, followed: bool
) -> None:
    """While it waited for another partition's disk, another node led this one, or it was elected
    again: the append is refused although this node leads once more."""
    log, peer = cold.logs["t", 0], cold.connect()
    end = log.end_offset

    def produce() -> None:
        peer.send_produce({("t", 0): one(key=b"k"), ("t", 1): LARGE}, acks=acks)
        here, beside = peer.receive().responses[0].partition_responses
        assert (here.error_code, here.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert "leader epoch 7, expected 0" in here.error_message
        assert beside.error_code == 0

    with held(faults, b"renameat", produce, wait_until):
        handle = handle_of(log)
        if followed:
            cold.reactor.put_partition(handle, leader_epoch=6, durable=False, led_by=2)
        cold.reactor.put_partition(handle, leader_epoch=7, durable=False)
    assert log.end_offset == end, "nothing of it is stored"
    assert peer.produce_one(one(key=b"k"), acks=acks).base_offset == end
    assert handle_of(log).state().leader_epoch == 7


@pytest.mark.parametrize("joins", [False, True], ids=["it hands over", "a copy joins"])
def test_an_append_while_its_leader_hands_over(
    cold: Served, faults: Any, wait_until: Wait, joins: bool
) -> None:
    """Where the log ends is known once no append with acks=1 is under way."""
    log, handle = cold.logs["t", 0], handle_of(cold.logs["t", 0])
    end = log.end_offset
    role = {"leader_epoch": 0, "durable": False}
    cold.reactor.put_partition(handle, hands_over=joins, **role)
    cold.reactor.set_followers("t", 0, [Follower(2, not joins, not joins, 7)])

    def hand_over() -> bool:
        if joins:
            cold.reactor.set_followers("t", 0, [Follower(2, False, True, 7)])
        else:
            cold.reactor.put_partition(handle, hands_over=True, **role)
        return cold.reactor.wait("t", 0, end + 1, 0)  # raises StaleLog if it ends before

    def append() -> None:
        cold.reactor.append("t", 0, one(key=b"k"), acks=LEADER)

    with ThreadPoolExecutor(1) as pool:
        with held(faults, b"pwrite", append, wait_until):
            ended = pool.submit(hand_over)
            wait_until(lambda: not pool._work_queue.qsize(), "it has begun")
        ended.result()
    assert log.end_offset == end + 1
