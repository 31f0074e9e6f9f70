"""Producers, consumers, removals, deletions and the cleaner at once: ThreadSanitizer, or a wrong
answer, shows races."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import Closed, NotFound, StorageOffline
from kafkalog.log.log import handle_of
from kafkalog.replication.followers import Follower
from tests.support import batches
from tests.support.waiting import wait_for
from tests.unit.plane.peer import ALL, LEADER, Peer, Served, one

ROUNDS = 60
GONE = {0, 3, 6, 100}
"""Success, or the topic is being removed."""
CUT = 6
"""A truncation removed records that waited for the disk."""


def run_all(*works: Callable[[], None]) -> None:
    """Run each in its own thread; what one raises fails the test."""
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def run_beside_python(served: Served, *works: Callable[[], None]) -> None:
    """Run each in its own thread, while another returns unknown requests, as Python does."""
    done = threading.Event()

    def work() -> None:
        try:
            run_all(*works)
        finally:
            done.set()

    def hand_back() -> None:
        while not done.is_set():
            request = served.reactor.take(10)
            if request is not None:
                request.again()

    run_all(work, hand_back)


def produce(peer: Peer, acks: int, codes: set[int]) -> None:
    for _ in range(ROUNDS):
        found = peer.produce_one(one(), acks=acks)
        assert found.error_code in codes


def consume(peer: Peer, **more: Any) -> None:
    offset = 0
    for _ in range(ROUNDS):
        found = peer.fetch_one(offset, **more)
        if found.error_code == 1:
            offset = max(peer.fetch_one(0, version=5).log_start_offset, 0)
        assert found.error_code in GONE | {1}
        for header in batches.headers(found.records):
            assert batches.crc_is_right(found.records, header)
            offset = header.last_offset + 1


@pytest.mark.parametrize("durable", [False, True])
def test_a_topic_comes_and_goes_under_load(served, durable):
    served.put(durable=durable)
    peers = [served.connect() for _ in range(5)]

    run_beside_python(
        served,
        lambda: produce(peers[0], ALL, GONE),
        lambda: produce(peers[1], LEADER, GONE),
        lambda: consume(peers[2]),
        lambda: consume(peers[3], version=13, isolation_level=1),
        lambda: consume(peers[4], version=11, session_epoch=0),
        lambda: come_and_go(served, durable),
    )


def come_and_go(served: Served, durable: bool) -> None:
    for _ in range(10):
        log = served.logs["t", 0]
        served.reactor.remove_topic("t")
        log.close()  # no call uses it any more
        served.put(durable=durable)


def test_deletion_and_truncation_under_load(served):
    log = served.put(config={"segment.bytes": 2000, "file.delete.delay.ms": 0})
    peers = [served.connect() for _ in range(4)]

    def change() -> None:
        for i in range(20):
            end = log.end_offset
            if i % 5 == 4:
                log.truncate(max(log.start_offset, end - 3))
            else:
                log.delete_before(max(log.start_offset, log.high_watermark - 5))

    run_beside_python(
        served,
        lambda: produce(peers[0], ALL, {0, CUT}),
        lambda: produce(peers[1], LEADER, {0}),
        lambda: consume(peers[2]),
        lambda: consume(peers[3], version=16),
        change,
    )
    report = log.verify()
    assert report.clean, report


def test_python_appends_concurrently_with_producers(served):
    log = served.put(durable=True)
    peers = [served.connect() for _ in range(2)]

    def append() -> None:
        for _ in range(ROUNDS):
            appended = served.reactor.append("t", 0, one(), acks=ALL)
            while not served.reactor.wait("t", 0, appended.last_offset + 1, 100):
                pass
            assert log.flushed_offset > appended.last_offset

    run_all(append, append, *(lambda peer=p: produce(peer, ALL, {0}) for p in peers))
    assert log.end_offset == 4 * ROUNDS == log.high_watermark


def test_waits_of_python_end_with_the_topic(served, faults):
    served.put(durable=True)
    faults.kl_io_hold(b"fdatasync", 1)
    served.reactor.append("t", 0, one(), acks=ALL)

    def wait() -> None:
        with pytest.raises((Closed, NotFound, StorageOffline)):
            while True:
                served.reactor.wait("t", 0, 1, 50)

    run_all(wait, wait, lambda: served.reactor.remove_topic("t"))
    faults.kl_io_hold(b"fdatasync", 0)


def test_a_topic_lookup_waits_for_no_log(served: Served, peer: Peer, faults: Any) -> None:
    """A partition is added whose log is locked by an append that waits for the disk."""
    served.put()
    peer.produce_one(one())
    busy = kafkalog.Log(served.folder / "t-1")
    served.logs["t", 1] = busy
    busy.append(b"first")  # a log's first write does some work without the lock
    faults.kl_io_hold(b"pwrite", 1)

    def others() -> None:
        wait_for(lambda: faults.kl_io_waiting(b"pwrite") == 1, "the append writes")
        adding = threading.Thread(
            target=lambda: served.reactor.put_partition(
                handle_of(busy), leader_epoch=0, durable=False
            )
        )
        adding.start()
        try:
            # None of these may wait for the lock, whether or not the other thread already does.
            for offset in [0, 1] * 50:
                assert peer.fetch_one(offset).error_code == 0
            assert adding.is_alive()
        finally:
            faults.kl_io_hold(b"pwrite", 0)
        adding.join()

    run_all(lambda: busy.append(b"v"), others)
    assert peer.fetch_one(0, ("t", 1)).records


def test_a_role_changes_under_load(served: Served) -> None:
    """Acknowledged records are there, and a replica that follows accepts none."""
    log = served.put()
    served.reactor.set_followers("t", 0, [Follower(2, True, True)])
    epoch = 0
    acknowledged: list[int] = []
    changed = threading.Event()
    over = threading.Event()

    def write(acks: int) -> None:
        """Produce while the role changes, and until one batch was accepted."""
        peer, taken = served.connect(), False
        while not taken or not changed.is_set():
            found = peer.produce_one(one(), acks=acks)
            assert found.error_code in (0, CUT)
            if found.error_code == 0:
                acknowledged.append(found.base_offset)
                taken = True

    def follow() -> None:
        peer, offset = served.connect(), 0
        while not over.is_set():
            found = peer.fetch_one(offset, replica_id=2, version=11)
            assert found.error_code in (0, CUT)
            assert found.high_watermark <= offset, "shown before it is copied"
            for header in batches.headers(found.records):
                offset = header.last_offset + 1

    def change() -> None:
        nonlocal epoch
        for _ in range(ROUNDS // 3):
            epoch += 1
            served.reactor.put_partition(
                handle_of(log), leader_epoch=epoch, durable=False, led_by=2
            )
            end = log.end_offset
            served.reactor.followers("t", 0)
            assert log.end_offset == end
            epoch += 1
            served.reactor.put_partition(handle_of(log), leader_epoch=epoch, durable=False)
            served.reactor.set_followers("t", 0, [Follower(2, True, True)])
            wait_for(lambda past=end: over.is_set() or log.high_watermark >= past, "it is copied")

    def change_all() -> None:
        try:
            change()
        finally:
            changed.set()

    def load() -> None:
        try:
            run_all(lambda: write(LEADER), lambda: write(ALL), change_all)
        finally:
            over.set()

    run_all(load, follow)
    assert len(set(acknowledged)) == len(acknowledged) > 0
    assert max(acknowledged) < log.end_offset
