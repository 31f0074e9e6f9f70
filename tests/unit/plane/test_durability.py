"""acks=all under kafkalog.durability=fsync: a record is on disk before consumers see it, and before
it is acknowledged; no network thread waits for the disk."""

from __future__ import annotations

import errno

import pytest

from kafkalog.errors import StaleLog
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.unit.plane.peer import ALL, LEADER, NONE, one


def test_an_acknowledged_batch_is_on_disk(served, peer):
    log = served.put(durable=True)
    for i in range(5):
        assert peer.produce_one(one(), acks=ALL).base_offset == i
        assert log.flushed_offset == i + 1 == log.high_watermark


def test_acks_1_does_not_wait_for_the_disk(served, peer, faults):
    log = served.put(durable=True)
    before = faults.kl_io_calls(b"fdatasync")
    for acks in (LEADER, LEADER, LEADER):
        assert peer.produce_one(one(), acks=acks).error_code == 0
    assert faults.kl_io_calls(b"fdatasync") == before
    assert (log.flushed_offset, log.high_watermark) == (0, 3)


def test_a_failing_sync_is_answered_and_nothing_was_shown(served, peer, faults, wait_until):
    log = served.put(durable=True)
    served.put("other", durable=True)
    peer.produce_one(one(), acks=ALL)
    reader, others = served.connect(), [served.connect() for _ in range(3)]
    reader.send_fetch({("t", 0): 1}, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 1, "the reader waits")
    faults.kl_io_fail(b"fdatasync", 1, 5, 0, 0)
    faults.kl_io_hold(b"fdatasync", 1)
    for one_of_them in (peer, *others):
        one_of_them.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: served.parked() == 5 and log.end_offset == 5, "all wait for one sync")
    faults.kl_io_hold(b"fdatasync", 0)
    for one_of_them in (peer, *others):
        (found,) = one_of_them.receive().responses[0].partition_responses
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    seen = reader.receive().responses[0].partitions[0]
    assert seen.records == b"" and seen.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    # The failure is final: no later sync can prove that the bytes are on disk.
    assert peer.produce_one(one(), acks=ALL).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert peer.produce_one(one(), acks=LEADER).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.high_watermark == 1
    assert peer.produce_one(one(), ("other", 0), acks=ALL).error_code == 0


def test_a_failing_write_is_answered_and_passes(served, peer, faults):
    log = served.put(durable=True)
    peer.produce_one(one(), acks=ALL)
    faults.kl_io_fail(b"pwrite", 1, 28, 0, 0)
    assert peer.produce_one(one(), acks=ALL).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert peer.produce_one(one(), acks=ALL).base_offset == 1
    assert (log.end_offset, log.high_watermark, log.flushed_offset) == (2, 2, 2)


def test_a_failing_write_does_not_hold_others_back(served, peer, faults):
    """The acks=all batch was never written: records after it are visible immediately."""
    log = served.put(durable=True)
    peer.produce_one(one(), acks=LEADER)
    faults.kl_io_fail(b"pwrite", 1, 28, 0, 0)
    assert peer.produce_one(one(), acks=ALL).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert peer.produce_one(one(), acks=LEADER).error_code == 0
    assert (log.high_watermark, log.flushed_offset) == (2, 0)


def test_a_repeated_batch_waits_for_the_disk(served, peer):
    """First sent with acks=1, then with acks=all, which is a promise."""
    log = served.put(durable=True)
    data = one(producer_id=5, producer_epoch=0, base_sequence=0)
    assert peer.produce_one(data, acks=LEADER).base_offset == 0
    assert log.flushed_offset == 0
    assert peer.produce_one(data, acks=ALL).base_offset == 0
    assert (log.flushed_offset, log.end_offset) == (1, 1)


def test_flush_messages_is_waited_for_whatever_acks_is(served, peer):
    log = served.put(config={"flush.messages": 2})
    assert peer.produce_one(one(), acks=LEADER).base_offset == 0
    assert log.flushed_offset == 0
    for end in (2, 4, 6):
        peer.produce_one(one(), acks=LEADER)
        if end > 2:
            peer.produce_one(one(), acks=LEADER)
        assert log.flushed_offset == end


def test_a_waiting_request_outlives_a_lack_of_descriptors(served, peer, faults, wait_until):
    """If no descriptor is free, the sync is retried: nothing has failed, and the answer follows
    once one is free, unless the request times out first."""
    log = served.put(durable=True)
    peer.produce_one(one(), acks=ALL)
    faults.kl_io_hold(b"fdatasync", faults.KL_HOLD_ALL)
    log.roll()
    peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 2, "it is appended")
    before = faults.kl_io_calls(b"openat")
    faults.kl_io_fail(b"openat", 1, errno.EMFILE, 1, 0)
    faults.kl_io_hold(b"fdatasync", faults.KL_HOLD_NONE)
    wait_until(lambda: faults.kl_io_calls(b"openat") > before + 2, "it was tried more than once")
    assert (served.parked(), log.high_watermark) == (1, 1)
    faults.kl_io_reset()
    assert peer.receive().responses[0].partition_responses[0].error_code == 0
    assert log.flushed_offset == 2


@pytest.mark.parametrize("acks", [NONE, LEADER])
def test_the_timeout_is_of_acks_all_alone(served, peer, faults, acks, wait_until):
    """As in Kafka: with other acks an appended batch is no failure, however slow the disk is."""
    log = served.put(config={"flush.messages": 1})
    faults.kl_io_hold(b"fdatasync", 1)
    try:
        peer.send_produce({("t", 0): one()}, acks=acks, timeout_ms=0)
        wait_until(lambda: log.end_offset == 1, "it is appended")
        wait_until(lambda: served.parked() == 1, "it waits for the disk")
        held(faults, wait_until)
        served.advance(60_000)
        assert served.parked() == 1
    finally:
        faults.kl_io_hold(b"fdatasync", 0)
    if acks == NONE:
        peer.expects_nothing()
    else:
        assert peer.receive().responses[0].partition_responses[0].error_code == 0
    assert peer.produce_one(one(), acks=LEADER).base_offset == 1


@pytest.mark.parametrize("again", [False, True], ids=["cut", "cut and rewritten"])
@pytest.mark.parametrize("acks", [NONE, LEADER, ALL])
def test_a_truncation_answers_waiting_requests(served, peer, faults, wait_until, acks, again):
    """No timeout would end the wait, and other records may be at the same offsets by then."""
    config = {} if acks == ALL else {"flush.messages": 1}
    log = served.put(durable=acks == ALL, config=config)
    faults.kl_io_hold_one(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=acks, timeout_ms=60_000)
    held(faults, wait_until)
    wait_until(lambda: served.parked() == 1, "it waits for the disk")
    log.truncate(0)
    if again:
        served.reactor.append("t", 0, one(b"another"), acks=LEADER)
    faults.kl_io_hold(b"fdatasync", 0)
    if acks == NONE:
        assert peer.is_closed()
        return
    found = peer.receive().responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert peer.produce_one(one(), acks=acks).base_offset == (1 if again else 0)


@pytest.mark.parametrize("start", [1, 5])
def test_a_restarted_log_answers_waiting_requests(served, peer, faults, wait_until, start):
    """Also with the same end offset: the records below it were never on disk."""
    log = served.put(durable=True)
    faults.kl_io_hold_one(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=ALL, timeout_ms=60_000)
    held(faults, wait_until)
    wait_until(lambda: served.parked() == 1, "it waits for the disk")
    truncate_fully(handle_of(log), start)
    faults.kl_io_hold(b"fdatasync", 0)
    found = peer.receive().responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert peer.produce_one(one(), acks=ALL).base_offset == start


def test_a_roll_within_a_promise(served, peer):
    log = served.put(durable=True, config={"segment.bytes": 300})
    for i in range(20):
        assert peer.produce_one(one(bytes(100)), acks=ALL).base_offset == i
        assert log.high_watermark == log.flushed_offset == i + 1
    assert len(log.segments) > 5


def test_a_connection_goes_on_while_its_produce_waits(served, peer):
    """Many requests in flight share a sync; answers stay in order."""
    log = served.put(durable=True)
    for _ in range(100):
        peer.send_produce({("t", 0): one()}, acks=ALL)
    got = [peer.receive().responses[0].partition_responses[0] for _ in range(100)]
    assert [found.base_offset for found in got] == list(range(100))
    assert log.flushed_offset == 100


def test_acks_mixed_on_one_connection(served, peer):
    log = served.put(durable=True)
    for i in range(60):
        acks = (ALL, LEADER, NONE)[i % 3]
        peer.send_produce({("t", 0): one()}, acks=acks)
        if acks == NONE:
            peer.expects_nothing()
    got = [peer.receive().responses[0].partition_responses[0] for _ in range(40)]
    assert [found.base_offset for found in got] == [i for i in range(60) if i % 3 != 2]
    assert log.end_offset == 60


def test_python_waits_for_the_disk_too(served, peer):
    log = served.put(durable=True)
    for i in range(3):
        appended = served.reactor.append("t", 0, one(), acks=ALL)
        assert served.reactor.wait("t", 0, appended.last_offset + 1, 20_000)
        assert log.flushed_offset == i + 1


def test_several_partitions_wait_for_the_slowest(served, peer):
    served.put(partitions=5, durable=True)
    served.put("quick")
    places = [("t", p) for p in range(5)] + [("quick", 0)]
    for _ in range(10):
        response = peer.produce({place: one() for place in places}, acks=ALL)
        codes = [p.error_code for t in response.responses for p in t.partition_responses]
        assert codes == [0] * 6
        assert all(
            served.logs["t", p].flushed_offset == served.logs["t", p].end_offset for p in range(5)
        )


# ---- while the disk is busy ---------------------------------------------------------------------


def held(faults, wait_until) -> None:
    """Wait until a sync is held; all later ones wait, too."""
    wait_until(lambda: faults.kl_io_waiting(b"fdatasync") == 1, "a sync is under way")


def test_nothing_is_shown_before_it_is_on_disk(served, peer, faults, wait_until):
    log = served.put(durable=True)
    peer.produce_one(one(), acks=ALL)
    reader, other = served.connect(), served.connect()
    faults.kl_io_hold(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=ALL)
    held(faults, wait_until)
    # A later acks=1 record is acknowledged, but follows one that is not visible yet.
    assert other.produce_one(one(), acks=LEADER).base_offset == 2
    for isolation in (0, 1):
        seen = reader.fetch_one(1, isolation_level=isolation)
        assert (seen.records, seen.high_watermark, seen.last_stable_offset) == (b"", 1, 1)
    assert [record.offset for record in log.read(0)] == [0]
    assert (log.end_offset, log.high_watermark) == (3, 1)
    reader.send_fetch({("t", 0): 1}, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 2, "the reader waits, too")
    faults.kl_io_hold(b"fdatasync", 0)
    assert peer.receive().responses[0].partition_responses[0].base_offset == 1
    seen = reader.receive().responses[0].partitions[0]
    assert next(batches.headers(seen.records)).base_offset == 1
    wait_until(lambda: log.high_watermark == 3, "all is shown")


@pytest.mark.parametrize(
    ("durable", "acks"),
    [(True, NONE), (True, LEADER), (False, NONE), (False, LEADER), (False, ALL)],
)
def test_records_without_a_promise_of_durability_are_visible_at_once(
    served, peer, faults, wait_until, durable, acks
):
    """acks=0 and 1; acks=all where the topic's durability is not fsync."""
    log = served.put(durable=durable)
    faults.kl_io_hold(b"fdatasync", 1)
    if acks == NONE:
        peer.send_produce({("t", 0): one()}, acks=acks)
        peer.expects_nothing()
        wait_until(lambda: log.end_offset == 1, "it is written")
    else:
        assert peer.produce_one(one(), acks=acks).error_code == 0
    assert peer.fetch_one(0).high_watermark == 1 == log.high_watermark
    assert log.flushed_offset == 0


def test_a_promise_that_takes_too_long_times_out(served, peer, faults, wait_until):
    log = served.put(durable=True)
    faults.kl_io_hold(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=ALL, timeout_ms=1500)
    held(faults, wait_until)
    served.advance(1499)
    assert served.parked() == 1
    served.advance(1)
    found = peer.receive().responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert log.high_watermark == 0
    faults.kl_io_hold(b"fdatasync", 0)
    # It was written, and becomes visible once it is on disk.
    wait_until(lambda: log.high_watermark == 1, "it is shown")


def test_one_round_serves_all_that_wait(served, faults, wait_until):
    log = served.put(durable=True)
    log.flush()  # syncs what only the first round must sync
    peers = [served.connect() for _ in range(16)]
    faults.kl_io_hold(b"fdatasync", 1)
    peers[0].send_produce({("t", 0): one()}, acks=ALL)
    held(faults, wait_until)
    for peer in peers[1:]:
        peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: served.parked() == 16, "all wait")
    before = faults.kl_io_calls(b"fdatasync")
    faults.kl_io_hold(b"fdatasync", 0)
    codes = [peer.receive().responses[0].partition_responses[0].error_code for peer in peers]
    assert codes == [0] * 16 and log.flushed_offset == 16
    assert faults.kl_io_calls(b"fdatasync") - before <= 1


def test_no_network_thread_waits_for_the_disk(serve, faults, wait_until):
    served = serve(**{"num.network.threads": 1})
    served.put(durable=True)
    served.put("u")
    peer, other = served.connect(), served.connect()
    faults.kl_io_hold(b"fdatasync", 1)
    for _ in range(3):  # the same connection is still read
        peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: served.parked() == 3, "all three wait")
    for i in range(20):
        assert other.produce_one(one(), ("u", 0), acks=ALL).base_offset == i
        assert other.fetch_one(i, ("u", 0)).records
    faults.kl_io_hold(b"fdatasync", 0)
    offsets = [peer.receive().responses[0].partition_responses[0].base_offset for _ in range(3)]
    assert offsets == [0, 1, 2]


def test_removal_ends_a_produce_that_waits(served, peer, faults, wait_until):
    served.put(durable=True)
    faults.kl_io_hold(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=ALL)
    held(faults, wait_until)
    served.reactor.remove_topic("t")
    found = peer.receive().responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    faults.kl_io_hold(b"fdatasync", 0)
    served.logs.pop(("t", 0)).close()


def test_a_lost_connection_leaves_its_records(served, faults, wait_until):
    log = served.put(durable=True)
    peer = served.connect()
    faults.kl_io_hold(b"fdatasync", 1)
    peer.send_produce({("t", 0): one()}, acks=ALL)
    held(faults, wait_until)
    peer.close()
    faults.kl_io_hold(b"fdatasync", 0)
    wait_until(lambda: log.high_watermark == 1, "the record is there")


def test_pythons_appends_are_held_back_as_well(served, faults, wait_until):
    log = served.put(durable=True)
    faults.kl_io_hold(b"fdatasync", 1)
    appended = served.reactor.append("t", 0, one(), acks=ALL)
    held(faults, wait_until)
    assert not served.reactor.wait("t", 0, appended.last_offset + 1, 1)
    assert log.high_watermark == 0
    faults.kl_io_hold(b"fdatasync", 0)
    assert served.reactor.wait("t", 0, appended.last_offset + 1, 20_000)
    assert log.high_watermark == 1


def test_python_hears_of_a_cut(served, faults, wait_until):
    log = served.put(durable=True)
    faults.kl_io_hold_one(b"fdatasync", 1)
    appended = served.reactor.append("t", 0, one(), acks=ALL)
    held(faults, wait_until)
    log.truncate(0)
    with pytest.raises(StaleLog, match="cut below offset 1"):
        served.reactor.wait("t", 0, appended.last_offset + 1, 20_000)
    faults.kl_io_hold(b"fdatasync", 0)


def test_python_learns_of_a_truncation_followed_by_other_records(served):
    """The offset that it waits for is committed, but with another record."""
    log = served.put()
    appended = served.reactor.append("t", 0, one(), acks=ALL)
    log.truncate(0)
    again = served.reactor.append("t", 0, one(), acks=ALL)
    assert again.last_offset == appended.last_offset and again.cuts > appended.cuts
    end = again.last_offset + 1
    assert served.reactor.wait("t", 0, end, 20_000, cuts=again.cuts)
    with pytest.raises(StaleLog, match="cut below offset 1"):
        served.reactor.wait("t", 0, end, 20_000, cuts=appended.cuts)
