"""acks=all under kafkalog.durability=fsync: on disk before it is shown, and before it is
acknowledged; no network thread waits for the disk."""

from __future__ import annotations

from kafkalog.wire.error_codes import ErrorCode
from tests.dataplane.peer import ALL, LEADER, NONE, one


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
    reader = served.connect()
    reader.send_fetch({("t", 0): 1}, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 1, "the reader waits")
    faults.kl_io_fail(b"fdatasync", 1, 5, 0, 0)
    found = peer.produce_one(one(), acks=ALL)
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    seen = reader.receive().responses[0].partitions[0]
    assert seen.records == b"" and seen.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    # It is final: no later sync can say that the bytes are there.
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
    """What was to be promised was never written: records behind it are shown at once."""
    log = served.put(durable=True)
    peer.produce_one(one(), acks=LEADER)
    faults.kl_io_fail(b"pwrite", 1, 28, 0, 0)
    assert peer.produce_one(one(), acks=ALL).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert peer.produce_one(one(), acks=LEADER).error_code == 0
    assert (log.high_watermark, log.flushed_offset) == (2, 0)


def test_a_repeated_batch_waits_for_the_disk(served, peer):
    """First with acks=1, then again with acks=all: then it is a promise."""
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


def test_a_roll_within_a_promise(served, peer):
    log = served.put(durable=True, config={"segment.bytes": 300})
    for i in range(20):
        assert peer.produce_one(one(bytes(100)), acks=ALL).base_offset == i
        assert log.high_watermark == log.flushed_offset == i + 1
    assert len(log.segments) > 5


def test_a_connection_goes_on_while_its_produce_waits(served, peer):
    """Many in flight share rounds; answers stay in order."""
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
