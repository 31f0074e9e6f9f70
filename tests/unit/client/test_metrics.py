"""metrics() of a producer and a consumer: actual counts under Kafka's names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog import Consumer, Producer, TopicPartition, aio, errors
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.gate import Gate
from tests.unit.client.producer.producing import make

LIMIT_MS = LIMIT_S * 1000
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
NOTHING = {
    "record-send-total", "record-retry-total", "record-error-total", "records-per-request-avg",
    "record-queue-time-avg", "record-queue-time-max", "produce-throttle-time-avg",
    "produce-throttle-time-max", "batch-size-avg", "batch-size-max", "byte-total",
    "request-total", "request-latency-avg",
    "request-latency-max", "requests-in-flight",
}  # fmt: skip


@pytest.fixture
def shared(tmp_path: Any) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t", 2)
        with Producer(broker.bootstrap_servers) as producer:
            for partition in (0, 1):
                producer.send_many("t", [b"%d" % i for i in range(5)], partition=partition)
        yield broker


# ---- a producer --------------------------------------------------------------------------------


def test_sent_retried_and_refused_records(broker: Peer) -> None:
    with make(broker, linger_ms=1_000_000) as producer:
        before = producer.metrics()
        assert before.pop("buffer-total-bytes") == before.pop("buffer-available-bytes") > 0
        assert before == dict.fromkeys(NOTHING, 0.0)
        for codes in ([], [ErrorCode.NOT_LEADER_OR_FOLLOWER], [ErrorCode.INVALID_RECORD]):
            broker.on(apis.PRODUCE, produced(codes), produced([]))
            futures = [producer.send("t", b"%d" % i, partition=0) for i in range(4)]
            failed = futures[0].exception(LIMIT_S) is not None
            assert failed == (codes == [ErrorCode.INVALID_RECORD])
        found = producer.metrics()
        with pytest.raises(errors.KafkalogError):
            producer.flush()
    sent = [
        len(row.records)
        for request in broker.sent(apis.PRODUCE)
        for topic in request.topic_data
        for row in topic.partition_data
    ]
    assert len(sent) == 4
    wanted = {
        "record-send-total": 16, "record-retry-total": 4, "record-error-total": 4,
        "records-per-request-avg": 4, "batch-size-avg": sum(sent) / 4,
        "batch-size-max": max(sent), "byte-total": sum(sent), "request-total": 4,
        "requests-in-flight": 0,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    assert 0 < found["request-latency-avg"] <= found["request-latency-max"] < LIMIT_MS
    after = producer.metrics()  # closed
    assert after["record-send-total"] == 16
    assert after["buffer-available-bytes"] == after["buffer-total-bytes"]


def test_requests_in_flight(broker: Peer) -> None:
    gate = Gate(produced([]))
    with make(broker) as producer:
        broker.on(apis.PRODUCE, gate)
        future = producer.send("t", b"x", partition=0)
        assert gate.reached.wait(LIMIT_S)
        wait_for(lambda: producer.metrics()["record-send-total"], "it is counted")
        now = producer.metrics()
        assert (now["requests-in-flight"], now["record-send-total"]) == (1, 1)
        assert now["buffer-available-bytes"] < now["buffer-total-bytes"]
        gate.open.set()
        future.result(LIMIT_S)
        assert producer.metrics()["requests-in-flight"] == 0


# ---- a consumer --------------------------------------------------------------------------------


def test_consumed_records(shared: TestBroker) -> None:
    """Each kind of call is counted; iteration is counted record by record."""
    with Consumer(shared.bootstrap_servers, auto_offset_reset="earliest") as reader:
        assert set(reader.metrics().values()) == {0.0}
        reader.assign([ZERO, ONE])
        taken = len(reader.poll(LIMIT_MS, 3))
        assert taken == 3 == reader.metrics()["records-consumed-total"]
        coming = iter(reader)
        for count in range(1, 4):
            next(coming)
            assert reader.metrics()["records-consumed-total"] == 3 + count
        found = 6
        while found < 10:
            found += sum(len(one) for one in reader.poll_arrow(LIMIT_MS))
        now = reader.metrics()
        assert now["records-consumed-total"] == 10
        assert now["assigned-partitions"] == 2 and now["records-lag-max"] == 0
        logs = [shared.broker._node.partitions.existing_log("t", number) for number in (0, 1)]
        stored = sum(log.size_bytes for log in logs if log is not None)
        assert now["bytes-consumed-total"] == stored
        assert stored / now["fetch-total"] == now["fetch-size-avg"] <= now["fetch-size-max"]
        assert 0 < now["fetch-latency-avg"] <= now["fetch-latency-max"] < LIMIT_MS
        reader.seek(ZERO, 2)
        assert reader.metrics()["records-lag-max"] == 3
        with ThreadPoolExecutor() as pool:
            assert pool.submit(reader.metrics).result(LIMIT_S)["records-lag-max"] == 3
    assert reader.metrics()["records-consumed-total"] == 10


def test_commits_heartbeats_and_rebalances(shared: TestBroker) -> None:
    done: list[Any] = []
    with Consumer(
        shared.bootstrap_servers, "t", group="g", auto_offset_reset="earliest", heartbeat_ms=10,
        auto_commit=False,
    ) as reader:  # fmt: skip
        wait_for(lambda: reader.poll(10) and reader.assignment, "it has joined")
        assert reader.metrics()["rebalance-total"] == 1
        reader.commit()
        reader.commit(wait=False, callback=lambda *_: done.append(1))
        wait_for(lambda: reader.poll(1) or done, "it is committed")
        shared.fail("OffsetCommit", error="INVALID_COMMIT_OFFSET_SIZE")
        with pytest.raises(errors.KafkalogError, match="INVALID_COMMIT_OFFSET_SIZE"):
            reader.commit()
        wait_for(lambda: reader.poll(1) or reader.metrics()["heartbeat-total"] > 1, "it beats")
        now = reader.metrics()
        assert now["commit-total"] == 2
        assert 0 < now["commit-latency-avg"] <= now["commit-latency-max"] < LIMIT_MS
        assert 0 < now["heartbeat-response-time-max"] < LIMIT_MS
        reader.unsubscribe()
        reader.subscribe("t")
        wait_for(lambda: reader.poll(10) or reader.assignment, "it has joined again")
        assert reader.metrics()["rebalance-total"] == 2


def test_asyncio_has_them_at_once(shared: TestBroker) -> None:
    """Also while the underlying thread waits for records."""

    async def work() -> None:
        async with (
            aio.Producer(shared.bootstrap_servers) as producer,
            aio.Consumer(shared.bootstrap_servers, "t", auto_offset_reset="latest") as reader,
        ):
            coming = asyncio.create_task(reader.poll(LIMIT_MS))
            while not (await reader.metrics())["fetch-total"]:
                await asyncio.sleep(0)
            await producer.send("t", b"x")
            assert len(await coming) == 1
            assert (await producer.metrics())["record-send-total"] == 1
            assert (await reader.metrics())["records-consumed-total"] == 1

    asyncio.run(work())
