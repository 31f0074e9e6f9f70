"""Produce through Python: batches that C hands up are checked, appended and answered as in C."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.batches import Row, batch
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.server.conftest import MakeBroker


@pytest.fixture
def compacted(raw: Raw) -> Iterator[Raw]:
    """A connection, and a topic `t` whose compressed batches C hands up."""
    raw.create("t", 2, cleanup_policy="compact")
    yield raw


def packed(*rows: Row, **more: Any) -> bytes:
    """A batch that C hands up."""
    return batch(rows or [Row(b"v", b"k", 5)], codec="gzip", **more)


def test_one_answer_for_partitions_of_both_ways_and_of_none(compacted: Raw) -> None:
    compacted.create("plain")
    good, bad = packed(), packed(Row(b"v", None, 5))
    part = [
        {"index": 0, "records": good},
        {"index": 1, "records": bad},
        {"index": 7, "records": good},
    ]
    topics = [
        {"name": "t", "partition_data": part},
        {"name": "plain", "partition_data": [{"index": 0, "records": batch([Row(b"v")])}]},
        {"name": "missing", "partition_data": [{"index": 0, "records": good}]},
    ]
    found = compacted.call(apis.PRODUCE, 9, acks=-1, timeout_ms=30_000, topic_data=topics)
    codes = {
        (topic.name, one.index): one.error_code
        for topic in found.responses
        for one in topic.partition_responses
    }
    assert codes == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.INVALID_RECORD,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("plain", 0): ErrorCode.NONE,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert compacted.offsets("t", -1).offset == 1
    assert compacted.offsets("t", -1, 1).offset == 0


def test_acks_all_is_on_disk_when_it_is_answered(broker: Broker, compacted: Raw) -> None:
    assert compacted.produce_batch("t", packed()).base_offset == 0
    assert broker._node.partitions.log("t", 0).flushed_offset == 1


def test_without_acks_there_is_no_answer_and_a_failure_closes(
    broker: Broker, compacted: Raw
) -> None:
    compacted.produce_batch("t", packed(), acks=0)
    assert compacted.offsets("t", -1).offset == 1  # the next response answers this request
    with Raw(broker.bootstrap_servers) as other:
        other.produce_batch("t", packed(Row(b"v", None)), acks=0)
        with pytest.raises(ConnectionError):
            other.receive_frame()


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(compacted: Raw, acks: int) -> None:
    found = compacted.produce_batch("t", packed(), acks=acks)
    assert found.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_zstd_needs_a_client_that_knows_it(compacted: Raw) -> None:
    data = batch([Row(b"v", b"k")], codec="zstd")
    assert compacted.produce_batch("t", data, version=6).error_code == (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )
    assert compacted.produce_batch("t", data, version=7).error_code == ErrorCode.NONE


def test_a_body_that_does_not_decompress_is_refused(compacted: Raw) -> None:
    whole = bytearray(packed())
    body = whole[batches.HEADER_BYTES :]
    broken = batches.seal(bytes(whole[21 : batches.HEADER_BYTES]) + bytes(reversed(body)))
    assert compacted.produce_batch("t", broken).error_code == ErrorCode.CORRUPT_MESSAGE
    torn = bytes(whole[:-1])
    assert compacted.produce_batch("t", torn).error_code != ErrorCode.NONE
    assert compacted.offsets("t", -1).offset == 0


def test_records_that_do_not_add_up_are_refused(compacted: Raw) -> None:
    whole = packed(Row(b"a", b"k"), Row(b"b", b"k"))
    after = bytearray(whole[21:])
    after[36:40] = struct.pack(">i", 3)  # the record count
    after[2:6] = struct.pack(">i", 2)  # the last offset delta
    found = compacted.produce_batch("t", batches.seal(bytes(after)))
    assert found.error_code == ErrorCode.INVALID_RECORD


def test_a_transaction_without_an_id_is_refused_on_both_ways(compacted: Raw) -> None:
    more = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for data in (packed(**more), batch([Row(b"v", b"k")], **more)):
        found = compacted.produce_batch("t", data)
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_internal_topics_are_nobodys_on_both_ways(broker: Broker, raw: Raw) -> None:
    raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
    for data in (packed(), batch([Row(b"v", b"k")])):
        found = raw.produce_batch("__consumer_offsets", data)
        assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with Raw(broker.bootstrap_servers, "__admin_client") as tool:
        for data in (packed(), batch([Row(b"v", b"k")])):
            assert tool.produce_batch("__consumer_offsets", data).error_code == ErrorCode.NONE


def test_an_idempotent_producer_may_repeat_itself(compacted: Raw) -> None:
    first = packed(producer_id=9, producer_epoch=0, base_sequence=0)
    assert compacted.produce_batch("t", first).base_offset == 0
    again = compacted.produce_batch("t", first)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    later = packed(producer_id=9, producer_epoch=0, base_sequence=5)
    assert compacted.produce_batch("t", later).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert compacted.offsets("t", -1).offset == 1


def test_a_recompressed_batch_keeps_its_records(raw: Raw) -> None:
    raw.create("t", compression_type="lz4")
    rows = [Row(b"a", b"k", 10, [("h", b"1")]), Row(None, b"l", 30), Row(b"c", None, 20)]
    data = batch(rows, codec="zstd", producer_id=9, producer_epoch=1, base_sequence=0)
    assert raw.produce_batch("t", data).error_code == ErrorCode.NONE
    stored = raw.fetch("t").records
    (header,) = batches.headers(stored)
    assert header.attributes & 7 == batches.CODECS["lz4"]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 0)
    assert (header.record_count, header.max_timestamp) == (3, 30)
    assert batches.crc_is_right(stored, header)


def test_a_batch_in_the_topics_own_codec_is_stored_as_it_came(make_broker: MakeBroker) -> None:
    with Raw(make_broker().bootstrap_servers) as raw:
        raw.create("t", compression_type="gzip")
        data = packed(Row(b"v" * 100, b"k", 5))
        assert raw.produce_batch("t", data).error_code == ErrorCode.NONE
        assert raw.fetch("t").records[21:] == data[21:]


@pytest.mark.parametrize("acks", [1, -1])
def test_flush_messages_is_waited_for_whatever_acks_says(
    broker: Broker, raw: Raw, native_test: Any, acks: int
) -> None:
    """With the topic's own codec the batch goes through Python, and must still be on disk first."""
    _, lib = native_test
    raw.create("t", compression_type="gzip", flush_messages="1")
    raw.create("other", compression_type="gzip")
    lib.kl_io_reset()
    lib.kl_io_hold(b"fdatasync", 1)
    try:
        part = [{"index": 0, "records": batch([Row(b"v")])}]
        topics = [{"name": "t", "partition_data": part}]
        # With acks=1 only the disk is waited for, whatever the client's timeout.
        timeout_ms = 30_000 if acks == -1 else 0
        raw.send(apis.PRODUCE, 9, {"acks": acks, "timeout_ms": timeout_ms, "topic_data": topics})
        wait_for(lambda: lib.kl_io_waiting(b"fdatasync"), "the disk works")
        with Raw(broker.bootstrap_servers) as other:  # quick enough to see a wrong early answer
            for _ in range(20):
                found = other.produce_batch("other", batch([Row(b"v")]), acks=1)
                assert found.error_code == ErrorCode.NONE
        raw.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.socket.recv(1)
        raw.socket.settimeout(LIMIT_S)
    finally:
        lib.kl_io_hold(b"fdatasync", 0)
        lib.kl_io_reset()
    found = raw.receive(apis.PRODUCE, 9)
    assert found.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetched(raw: Raw, names: list[str], session: int, epoch: int) -> Any:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return raw.call(
        apis.FETCH, 11, session_id=session, session_epoch=epoch, max_wait_ms=0, max_bytes=1000,
        topics=[{"topic": name, "partitions": [part]} for name in names],
    )  # fmt: skip


@pytest.mark.parametrize(("size", "kept"), [(249, True), (250, False), (32_767, False)])
def test_names_longer_than_a_topic_can_have_are_in_no_session(
    raw: Raw, size: int, kept: bool
) -> None:
    """Sessions are bounded in partitions, so their names must be short."""
    raw.create("t")
    names = ["t", "x" * size]
    found = fetched(raw, names, 0, 0)
    assert (found.session_id > 0) == kept
    assert [one.topic for one in found.responses] == names
    session = fetched(raw, ["t"], 0, 0).session_id
    code = ErrorCode.NONE if kept else ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetched(raw, names[1:], session, 1).error_code == code
