"""Batches from a scripted leader: positions, errors, and invalid bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.batch.walk import next_offset
from kafkalog.client.fetch.fetched import Fetched, FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.cluster import Cluster
from kafkalog.log.log import Log
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import wait_for

TP = TopicPartition("t", 0)
FAST = FetchOptions(max_wait_ms=10)


@pytest.fixture
def data(tmp_path: Any) -> bytes:
    """Three batches of ten records, offsets 0 to 29."""
    with Log(tmp_path / "t-0") as log:
        for i in range(3):
            log.append_many([b"%02d" % n for n in range(10 * i, 10 * i + 10)])
        return log.read_batches(0, 1 << 20)


@pytest.fixture
def leader(peer: Peer) -> Peer:
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    return peer


def rows(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"responses": [{"topic": "t", "partitions": list(partitions)}]}


def row(**fields: Any) -> dict[str, Any]:
    return {"partition_index": 0, "error_code": 0, "high_watermark": 30, **fields}


def serve(data: bytes, base: int = 0) -> Callable[[Any, int], Any]:
    """The whole batches from the requested offset on, ten records each."""

    def answer(request: Any, version: int) -> Any:
        pending = request.topics[0].partitions[0].fetch_offset
        size = len(data) // 3
        return rows(row(records=data[(pending - base) // 10 * size :]))

    return answer


def poll(fetcher: Fetcher) -> list[Fetched]:
    """The next batches, however long they take."""
    while True:
        if found := fetcher.poll(5_000):
            return found


def values(found: list[Fetched]) -> list[int]:
    return [int(r.value or b"-1") for f in found for r in f.records()]


def test_records_come_once_and_in_order(leader: Peer, scripted: Cluster, data: bytes) -> None:
    leader.on(apis.FETCH, rows(row(records=data[: len(data) // 3])), serve(data))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    assert values(poll(fetcher)) == [*range(10)]
    assert fetcher.positions == {TP: 10}
    assert values(poll(fetcher)) == [*range(10, 30)]
    fetcher.close()


def test_a_start_within_a_batch(leader: Peer, scripted: Cluster, data: bytes) -> None:
    """The broker sends the whole batch; the records before the position are skipped."""
    leader.on(apis.FETCH, serve(data))
    fetcher = Fetcher(scripted, {TP: 17}, FAST)
    assert values(poll(fetcher)) == [*range(17, 30)]
    fetcher.close()


def test_a_batch_that_is_cut_off_is_asked_for_again(
    leader: Peer, scripted: Cluster, data: bytes
) -> None:
    leader.on(apis.FETCH, rows(row(records=data[: len(data) // 3 + 70])), serve(data))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    assert values(poll(fetcher)) == [*range(10)]
    assert fetcher.positions == {TP: 10}
    fetcher.close()


def test_half_a_batch_alone_is_no_answer(leader: Peer, scripted: Cluster, data: bytes) -> None:
    leader.on(apis.FETCH, rows(row(records=data[:70])))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    with pytest.raises(errors.BadAnswer, match="t-0 at offset 0: 70 bytes hold no whole batch"):
        poll(fetcher)
    fetcher.close()


def test_a_damaged_batch_is_told_with_its_place(
    leader: Peer, scripted: Cluster, data: bytes
) -> None:
    bad = bytearray(data)
    bad[-1] ^= 1
    leader.on(apis.FETCH, rows(row(records=bytes(bad))))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    (found,) = poll(fetcher)
    with pytest.raises(errors.CorruptMessage, match="crc"):
        found.records()
    fetcher.close()


def from_zero(data: bytes, *others: dict[str, Any]) -> Callable[[Any, int], Any]:
    """Answers a fetch from offset 0 with these bytes and other rows, any other with nothing."""

    def answer(request: Any, version: int) -> Any:
        pending = {(p.partition, p.fetch_offset) for t in request.topics for p in t.partitions}
        return rows(row(records=data), *others) if (0, 0) in pending else rows()

    return answer


@pytest.mark.parametrize("sought", [0, 1])
def test_a_failure_is_not_raised_for_a_partition_that_was_sought_since(
    peer: Peer, scripted: Cluster, data: bytes, sought: int
) -> None:
    """It came with the records of partition 0, which are returned before it."""
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    refused = row(partition_index=1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    peer.on(apis.FETCH, from_zero(data, refused))
    one = TopicPartition("t", 1)
    fetcher = Fetcher(scripted, {TP: 0, one: 0}, FAST)
    assert values(poll(fetcher)) == [*range(30)]
    fetcher.seek(TopicPartition("t", sought), 7)
    if sought == 1:
        assert fetcher.poll(0) == []
    else:
        with pytest.raises(errors.KafkalogError, match="t-1") as raised:
            fetcher.poll(0)
        assert raised.value.partition == one
    fetcher.close()


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_damage_is_not_raised_for_a_partition_that_was_sought_since(
    leader: Peer, scripted: Cluster, data: bytes, columns: bool
) -> None:
    bad = bytearray(data)
    bad[-1] ^= 1
    leader.on(apis.FETCH, from_zero(bytes(bad)))
    reading = Reading(Fetcher(scripted, {TP: 0}, FAST))

    def take() -> int:
        found = reading.take_columns() if columns else [reading.take(1_000)]
        return sum(map(len, found))

    reading.seek(TP, 0)
    reading.add(poll(reading.fetcher))
    assert take() == 20 and reading.position(TP) == 20
    reading.seek(TP, 30)
    assert take() == 0

    reading.seek(TP, 0)
    reading.add(poll(reading.fetcher))
    assert take() == 20
    with pytest.raises(errors.CorruptMessage, match="crc") as raised:
        take()
    assert raised.value.partition == TP
    reading.fetcher.close()


def test_bytes_that_are_no_batch(leader: Peer, scripted: Cluster, data: bytes) -> None:
    """The next answer may be valid: the position stays."""
    leader.on(apis.FETCH, rows(row(records=b"\xff" * 200)), serve(data))
    fetcher = Fetcher(scripted, {TP: 5}, FAST)
    with pytest.raises(errors.CorruptMessage, match="t-0 at 5") as raised:
        poll(fetcher)
    assert raised.value.partition == TP
    assert values(poll(fetcher)) == [*range(5, 30)]
    fetcher.close()


@pytest.mark.parametrize(
    "trouble",
    [
        rows(row(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        rows(row(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        rows(row(error_code=ErrorCode.KAFKA_STORAGE_ERROR)),
        {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND},
        CLOSE,
    ],
    ids=["leader", "unknown", "storage", "session", "close"],
)
def test_retriable_errors_are_retried(
    leader: Peer, scripted: Cluster, data: bytes, trouble: Any
) -> None:
    """With fresh metadata, from the same position."""
    leader.on(apis.FETCH, trouble, serve(data))
    fetcher = Fetcher(scripted, {TP: 10}, FAST)
    assert values(poll(fetcher)) == [*range(10, 30)]
    assert leader.count(apis.METADATA) > 1
    fetcher.close()


def test_lasting_errors_are_raised(leader: Peer, scripted: Cluster) -> None:
    leader.on(apis.FETCH, rows(row(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    with pytest.raises(errors.KafkalogError, match="fetch of t-0: TOPIC_AUTHORIZATION_FAILED"):
        poll(fetcher)
    fetcher.close()


def ends(request: Any, version: int) -> Any:
    """A log with offsets 10 to 30."""
    time_ms = request.topics[0].partitions[0].timestamp
    return {
        "topics": [
            {
                "name": "t",
                "partitions": [{"partition_index": 0, "offset": 10 if time_ms == -2 else 30}],
            }
        ]
    }


def test_an_offset_out_of_range_names_the_range(leader: Peer, scripted: Cluster) -> None:
    leader.on(apis.FETCH, rows(row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)))
    leader.on(apis.LIST_OFFSETS, ends)
    fetcher = Fetcher(scripted, {TP: 99}, FAST)
    with pytest.raises(errors.OffsetOutOfRange, match="t-0: offset 99, wanted 10 to 30"):
        poll(fetcher)
    fetcher.close()


def test_an_offset_out_of_range_may_go_to_the_start(
    leader: Peer, scripted: Cluster, data: bytes
) -> None:
    leader.on(apis.FETCH, rows(row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)), serve(data))
    leader.on(apis.LIST_OFFSETS, ends)
    fetcher = Fetcher(scripted, {TP: 99}, FAST._replace(out_of_range="earliest"))
    (moved,) = poll(fetcher)  # the caller learns the new position
    assert (moved.next_offset, moved.records()) == (10, [])
    assert values(poll(fetcher)) == [*range(10, 30)]
    fetcher.close()


def test_a_seek_during_a_fetch_wins(leader: Peer, scripted: Cluster, data: bytes) -> None:
    """The answer for the old position is dropped."""
    leader.on(apis.FETCH, serve(data))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    fetcher.poll(0)
    fetcher.positions[TP] = 20
    assert values(poll(fetcher)) == [*range(20, 30)]
    fetcher.close()


def test_topics_are_told_by_id_where_the_broker_has_ids(
    leader: Peer, scripted: Cluster, data: bytes
) -> None:
    topic_id = UUID(int=77)
    metadata = leader.metadata({"t": 1})
    metadata["topics"][0]["topic_id"] = topic_id
    leader.on(apis.METADATA, metadata)
    partition = {"partition_index": 0, "records": data}
    leader.on(apis.FETCH, {"responses": [{"topic_id": topic_id, "partitions": [partition]}]})
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    assert values(poll(fetcher)) == [*range(30)]
    _, version, request = next(r for r in leader.requests if r[0] == "Fetch")
    assert version == 16 and request.topics[0].topic_id == topic_id
    fetcher.close()


def test_without_ids_the_version_is_one_with_names(
    leader: Peer, scripted: Cluster, data: bytes
) -> None:
    leader.on(apis.FETCH, serve(data))
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    poll(fetcher)
    assert next(r[1] for r in leader.requests if r[0] == "Fetch") == 12
    fetcher.close()


def test_a_throttled_fetcher_pauses(leader: Peer, scripted: Cluster, data: bytes) -> None:
    """The answer's records are returned; the node is asked again after the pause."""
    leader.on(apis.FETCH, {**rows(row(records=data)), "throttle_time_ms": 3_600_000})
    fetcher = Fetcher(scripted, {TP: 0}, FAST)
    assert values(poll(fetcher)) == [*range(30)]
    assert fetcher.poll(20) == []
    assert leader.count(apis.FETCH) == 1
    fetcher.core.paused[1] = 0.0
    fetcher.poll(0)
    wait_for(lambda: leader.count(apis.FETCH) == 2, "it is asked again")
    fetcher.close()


def test_aborted_transactions_are_left_out(kafka_cases: Any) -> None:
    """The result matches what Kafka's own read_committed consumer saw of a real log."""
    from tests.support.kafka_data import expected_records, has_expected_records, readable

    seen = 0
    for found in readable():
        if not has_expected_records(found):
            continue
        with Log(found.path, mode="r", topic=found.topic, partition=found.number) as log:
            aborted = tuple(
                (a.producer_id, a.first_offset)
                for a in log.aborted(log.start_offset, log.last_stable_offset)
            )
            if not aborted:
                continue
            raw, offset = b"", log.start_offset
            while offset < log.last_stable_offset:  # a read ends with its segment
                raw += log.read_batches(offset, 64 << 20)
                offset = next_offset(raw) or 0
            fetched = Fetched(
                TopicPartition(log.topic, log.partition), raw, log.start_offset, 0, 0, 0, 0,
                aborted, True,
            )  # fmt: skip
            rows = [r for r in fetched.records() if r.offset < log.last_stable_offset]
        wanted = expected_records(found, committed=True)
        assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in rows] == [
            (r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in wanted
        ], found
        seen += 1
    assert seen
