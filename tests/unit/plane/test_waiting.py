"""Requests that wait for the disk, for bytes, or for their timeout.  The clock is stopped."""

from __future__ import annotations

import threading

import pytest

from kafkalog.errors import Closed, NotFound
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.batches import Row, batch
from tests.support.waiting import LIMIT_S
from tests.unit.plane.peer import ALL, FETCH_VERSIONS, LEADER, one

NOW_MS = 1_700_000_000_000


@pytest.fixture
def parked(served, wait_until):
    """Wait until that many requests are parked."""
    return lambda count: wait_until(
        lambda: served.parked() == count, f"{count} parked, not {served.parked()}"
    )


def no_answer(peer) -> bool:
    """True if no answer has arrived, although the test has done what could cause one."""
    peer.socket.setblocking(False)
    try:
        peer.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        peer.socket.settimeout(LIMIT_S)
    return False


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_waits_for_records(served, peer, parked, version):
    served.put()
    peer.send_fetch({("t", 0): 0}, version=version, max_wait_ms=60_000)
    parked(1)
    other = served.connect()
    other.produce_one(one())
    found = peer.receive().responses[0].partitions[0]
    assert (found.high_watermark, len(found.records)) == (1, len(one()))
    parked(0)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_ends_with_its_time(served, peer, parked, version):
    served.put()
    peer.send_fetch({("t", 0): 0}, version=version, max_wait_ms=500)
    parked(1)
    served.advance(499)
    assert served.connect().fetch_one(0).records == b""
    assert no_answer(peer)
    served.advance(1)
    assert peer.receive().responses[0].partitions[0].records == b""


def test_large_fetches_are_kept_up_to_a_bound(serve, wait_until):
    """A network thread keeps 64 MiB of those above 64 KiB: the next is answered immediately."""
    served = serve(**{"num.network.threads": 1})
    served.put()
    padding = {f"{i:04d}" + "x" * 16_000: [0] for i in range(1500)}
    fields = {
        "replica_id": -1, "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": "",
        "topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0,
            "current_leader_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1000}]}],
        "forgotten_topics_data": [{"topic": t, "partitions": ps} for t, ps in padding.items()],
    }  # fmt: skip
    body = apis.FETCH.encode_request(11, fields)
    assert 3 * len(body) > 64 << 20 > 2 * len(body)
    peers = [served.connect() for _ in range(3)]
    for peer in peers[:2]:
        peer.send_body(apis.FETCH, 11, body)
    wait_until(lambda: served.parked() == 2, "two wait")
    peers[2].send_body(apis.FETCH, 11, body)
    assert peers[2].receive().error_code == 0
    assert served.parked() == 2
    served.connect().produce_one(one())
    for peer in peers[:2]:
        assert len(peer.receive().responses[0].partitions[0].records) == len(one())
    # Their memory is free again.
    fields["topics"][0]["partitions"][0]["fetch_offset"] = 1
    for peer in peers[:2]:
        peer.send_body(apis.FETCH, 11, apis.FETCH.encode_request(11, fields))
    wait_until(lambda: served.parked() == 2, "two wait again")


def test_partitions_of_fetches_that_wait_count_as_well(serve, wait_until):
    """Not only frames: a partition takes far more memory here than in its request."""
    served = serve(**{"num.network.threads": 1})
    count, frame_bytes, many = 300, 180_000, 300
    served.put(partitions=count)
    asked = {"current_leader_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1000}
    padding = {f"{i:04d}" + "x" * 16_000: [0] for i in range(frame_bytes // 16_000)}
    fields = {
        "replica_id": -1, "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": "",
        "topics": [{"topic": "t", "partitions": [
            {"partition": p, "fetch_offset": 0, **asked} for p in range(count)]}],
        "forgotten_topics_data": [{"topic": t, "partitions": ps} for t, ps in padding.items()],
    }  # fmt: skip
    body = apis.FETCH.encode_request(11, fields)
    assert many * len(body) < 64 << 20
    for _ in range(many):
        served.connect().send_body(apis.FETCH, 11, body)
    last = served.peers[-1]
    assert len(last.receive().responses[0].partitions) == count
    assert 200 < served.parked() < many


def test_a_fetch_waits_for_min_bytes(served, peer, parked):
    served.put(partitions=2)
    size = len(one())
    peer.send_fetch({("t", 0): 0, ("t", 1): 0}, max_wait_ms=60_000, min_bytes=3 * size)
    parked(1)
    other = served.connect()
    other.produce_one(one(), ("t", 0))
    other.produce_one(one(), ("t", 1))
    assert no_answer(peer) and served.parked() == 1
    other.produce_one(one(), ("t", 0))
    parts = peer.receive().responses[0].partitions
    assert [len(part.records) for part in parts] == [2 * size, size]


def test_a_fetch_returns_present_records_at_its_timeout(served, peer, parked):
    served.put()
    served.connect().produce_one(one())
    peer.send_fetch({("t", 0): 0}, max_wait_ms=500, min_bytes=10_000)
    parked(1)
    served.advance(500)
    assert len(peer.receive().responses[0].partitions[0].records) == len(one())


def test_min_bytes_beyond_the_limits_is_no_wait_for_ever(serve):
    served = serve(**{"fetch.max.bytes": 1024})
    peer = served.connect()
    log = served.put()
    for _ in range(30):
        log.append(bytes(100))
    assert peer.fetch_one(0, max_wait_ms=60_000, min_bytes=1 << 30).records
    assert peer.fetch_one(0, max_wait_ms=60_000, min_bytes=5000, max_bytes=2000).records
    # A partition's limit: there is more, but waiting would add nothing.
    found = peer.fetch_one(0, max_wait_ms=60_000, min_bytes=900, partition_max_bytes=200)
    assert found.records


def test_a_fetch_of_an_older_segment_does_not_wait(served, peer):
    log = served.put(config={"segment.bytes": 1000})
    for _ in range(20):
        log.append(bytes(100))
    assert peer.fetch_one(0, max_wait_ms=60_000, min_bytes=1_000_000).records


def test_an_error_does_not_wait(served, peer):
    served.put(partitions=2)
    parts = peer.fetch({("t", 0): 0, ("t", 1): 99}, max_wait_ms=60_000).responses[0].partitions
    assert [part.error_code for part in parts] == [0, 1]


def test_read_committed_waits_for_the_marker(served, peer, parked):
    log = served.put()
    rows = [Row(b"t", None, NOW_MS)]
    peer.send_fetch({("t", 0): 0}, max_wait_ms=60_000, isolation_level=1)
    parked(1)
    log.append_batches(
        batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    served.connect().fetch_one(0)
    assert no_answer(peer)
    log.append_marker(7, 0, True, timestamp_ms=NOW_MS)
    found = peer.receive().responses[0].partitions[0]
    assert [h.base_offset for h in batches.headers(found.records)] == [0, 1]


def test_every_way_of_appending_wakes(served, peer, parked):
    """The log itself reports its moves, so that no way is missed."""
    log = served.put()
    data = one()
    ways = [
        lambda: log.append(b"v"),
        lambda: log.append_many([b"v", b"w"]),
        lambda: log.append_batches(data),
        lambda: served.reactor.append("t", 0, data),
        lambda: served.connect().produce_one(data),
    ]
    for way in ways:
        end = log.end_offset
        peer.send_fetch({("t", 0): end}, max_wait_ms=60_000)
        parked(1)
        way()
        assert peer.receive().responses[0].partitions[0].high_watermark > end


def test_deleted_records_wake(served, peer, parked):
    log = served.put()
    for _ in range(5):
        log.append(b"v")
    peer.send_fetch({("t", 0): 5}, max_wait_ms=60_000, min_bytes=1)
    parked(1)
    log.delete_before(5)
    truncate_fully(handle_of(log), 9)
    assert peer.receive().responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_removed_topic_ends_waiting_fetches(served, peer, parked, version):
    served.put()
    served.put("u")
    peer.send_fetch({("t", 0): 0, ("u", 0): 0}, version=version, max_wait_ms=60_000)
    parked(1)
    served.remove("t")
    codes = [t.partitions[0].error_code for t in peer.receive().responses]
    assert codes == [3 if version < 13 else 100, 0]


def test_an_offline_log_ends_waiting_fetches(served, peer, parked, faults):
    log = served.put()
    served.put("other")
    for version in (5, 11):
        peer.send_fetch({("t", 0): log.end_offset}, version=version, max_wait_ms=60_000)
        if version == 5:
            parked(1)
            log.append(b"v")
            faults.kl_io_fail(b"fdatasync", 1, 5, 0, 0)
            with pytest.raises(OSError):
                log.flush()
            first = peer.receive().responses[0].partitions[0]
            assert first.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            found = peer.receive().responses[0].partitions[0]
            assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert peer.fetch_one(0, version=5).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert peer.produce_one(one()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert peer.produce_one(one(), ("other", 0)).error_code == 0


def test_many_waiters_are_all_woken(served, wait_until):
    served.put(partitions=3)
    peers = [served.connect() for _ in range(40)]
    for peer in peers:
        peer.send_fetch({("t", p): 0 for p in range(3)}, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 40, "all are parked")
    served.connect().produce_one(one(), ("t", 1))
    for peer in peers:
        sizes = [len(p.records) for p in peer.receive().responses[0].partitions]
        assert sizes == [0, len(one()), 0]
    assert served.parked() == 0


def test_a_lost_connection_leaves_nothing_behind(served, wait_until):
    log = served.put()
    for _ in range(20):
        peer = served.connect()
        peer.send_fetch({("t", 0): log.end_offset}, max_wait_ms=60_000)
        wait_until(lambda: served.parked() == 1, "it is parked")
        peer.close()
        log.append(b"v")
        wait_until(lambda: served.parked() == 0, "it is gone")


# ---- Python's own waits --------------------------------------------------------------------------


def test_python_waits_for_its_append(served, faults, wait_until):
    served.put(durable=True)
    faults.kl_io_hold(b"fdatasync", 1)
    appended = served.reactor.append("t", 0, one(), acks=ALL)
    assert (appended.base_offset, appended.last_offset) == (0, 0)
    assert not served.reactor.wait("t", 0, 1, 1)
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(served.reactor.wait("t", 0, 1, 20_000)))
    thread.start()
    wait_until(lambda: faults.kl_io_waiting(b"fdatasync") == 1, "a sync is under way")
    assert not done
    faults.kl_io_hold(b"fdatasync", 0)
    thread.join()
    assert done == [True] and served.reactor.wait("t", 0, 1, 0)


def test_removal_ends_pythons_wait(served, faults):
    served.put(durable=True)
    faults.kl_io_hold(b"fdatasync", 1)
    served.reactor.append("t", 0, one(), acks=ALL)
    failed: list[Exception] = []

    def wait():
        try:
            served.reactor.wait("t", 0, 1, 20_000)
        except (Closed, NotFound) as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    served.reactor.remove_topic("t")
    thread.join()
    assert len(failed) == 1
    faults.kl_io_hold(b"fdatasync", 0)


def test_requests_end_when_the_server_stops(served, peer, parked):
    served.put()
    peer.send_fetch({("t", 0): 0}, max_wait_ms=60_000)
    parked(1)
    served.reactor.stop(5_000)
    assert peer.receive().responses[0].partitions[0].records == b""
    assert peer.is_closed()


@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_produce_without_durability_does_not_wait(served, peer, acks):
    served.put()
    assert peer.produce_one(one(), acks=acks, timeout_ms=0).error_code == 0
