"""Two scripted nodes: each request goes to the leader, also when that changes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.client.calls.offsets import LATEST, list_offsets
from kafkalog.client.calls.replicas import list_reassignments
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Address, Options, Tcp
from kafkalog.client.producer.producer import Producer
from kafkalog.log.log import Log
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, STALL, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.conftest import QUICK

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def pair() -> Iterator[tuple[Peer, Peer]]:
    """Node 1 leads partition 0, node 2 partition 1."""
    with Peer() as one, Peer() as two:
        lead(one, two, {0: 1, 1: 2})
        for peer in (one, two):
            peer.on(apis.PRODUCE, produced([]))
            peer.on(apis.INIT_PRODUCER_ID, {"producer_id": 1, "producer_epoch": 0})
        yield one, two


def lead(one: Peer, two: Peer, leaders: dict[int, int]) -> None:
    """Both nodes report these leaders of t's partitions."""
    metadata = one.metadata({"t": len(leaders)})
    metadata["brokers"].append({"node_id": 2, "host": "127.0.0.1", "port": two.port})
    for row in metadata["topics"][0]["partitions"]:
        row["leader_id"] = leaders[row["partition_index"]]
    for peer in (one, two):
        peer.on(apis.METADATA, metadata)


def partitions(peer: Peer) -> list[int]:
    """The partitions of the batches that arrived, in order."""
    return [
        row.index
        for request in peer.sent(apis.PRODUCE)
        for topic in request.topic_data
        for row in topic.partition_data
    ]


def test_each_leader_gets_its_partitions(pair: tuple[Peer, Peer]) -> None:
    one, two = pair
    with Cluster(one.servers, QUICK) as cluster, Producer(cluster) as producer:
        for i in range(6):
            producer.send("t", b"x", partition=i % 2)
        producer.flush()
    assert (set(partitions(one)), set(partitions(two))) == ({0}, {1})


@pytest.mark.parametrize("last", [{"error_code": ErrorCode.NOT_CONTROLLER}, CLOSE])
def test_a_new_controller_is_found(pair: tuple[Peer, Peer], last: Any) -> None:
    """The old one answers that it no longer is, or has gone; the new one is asked."""
    one, two = pair

    def resigned(request: Any, version: int) -> Any:
        metadata = one.metadata({}) | {"controller_id": 2}
        metadata["brokers"].append({"node_id": 2, "host": "127.0.0.1", "port": two.port})
        for peer in (one, two):
            peer.on(apis.METADATA, metadata)
        return last

    one.on(apis.LIST_PARTITION_REASSIGNMENTS, resigned)
    two.on(apis.LIST_PARTITION_REASSIGNMENTS, {})
    with Cluster(one.servers, QUICK) as cluster:
        assert list_reassignments(cluster) == {}


def test_a_new_leader_is_found(pair: tuple[Peer, Peer]) -> None:
    """The old one answers that it no longer leads; the batch goes to the new one."""
    one, two = pair

    def resigned(request: Any, version: int) -> Any:
        lead(one, two, {0: 2, 1: 2})
        return produced([ErrorCode.NOT_LEADER_OR_FOLLOWER])(request, version)

    one.on(apis.PRODUCE, resigned)
    with Cluster(one.servers, QUICK) as cluster, Producer(cluster) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
    assert (partitions(one), partitions(two)) == ([0], [0])


def test_an_answer_that_names_the_new_leader_is_believed(pair: tuple[Peer, Peer]) -> None:
    """KIP-951: no metadata is requested, and there is no pause."""
    one, two = pair

    def resigned(request: Any, version: int) -> Any:
        answer = produced([ErrorCode.NOT_LEADER_OR_FOLLOWER])(request, version)
        row = answer["responses"][0]["partition_responses"][0]
        row["current_leader"] = {"leader_id": 3, "leader_epoch": 7}
        place = {"node_id": 3, "host": "127.0.0.1", "port": two.port}
        return {**answer, "node_endpoints": [place]}

    one.on(apis.PRODUCE, resigned)
    config = {"retry.backoff.ms": 60_000, "retry.backoff.max.ms": 60_000}
    with Producer(one.servers, config=config) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
    assert (partitions(one), partitions(two)) == ([0], [0])
    assert one.count(apis.METADATA) == 1


def test_a_node_that_is_gone_is_left(pair: tuple[Peer, Peer]) -> None:
    """It closes the connection; the other node leads by then."""
    one, two = pair

    def gone(request: Any, version: int) -> Any:
        lead(one, two, {0: 2, 1: 2})
        return CLOSE

    one.on(apis.PRODUCE, gone)
    with Cluster(f"{one.servers},{two.servers}", QUICK) as cluster, Producer(cluster) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
    assert partitions(two) == [0]


def offsets(base: int) -> Any:
    def answer(request: Any, version: int) -> Any:
        rows = [
            {"partition_index": p.partition_index, "offset": base + p.partition_index}
            for p in request.topics[0].partitions
        ]
        return {"topics": [{"name": "t", "partitions": rows}]}

    return answer


def test_offsets_are_gathered_from_all(pair: tuple[Peer, Peer]) -> None:
    one, two = pair
    one.on(apis.LIST_OFFSETS, offsets(10))
    two.on(apis.LIST_OFFSETS, offsets(20))
    with Cluster(two.servers, QUICK) as cluster:
        found = list_offsets(cluster, {ZERO: LATEST, ONE: LATEST})
    assert (found[ZERO].offset, found[ONE].offset) == (10, 21)


def test_a_slow_leader_does_not_hold_up_another(pair: tuple[Peer, Peer], tmp_path: Any) -> None:
    """One node's records are returned at once; the other's answer is still awaited."""
    with Log(tmp_path / "t-1") as log:
        log.append(b"here")
        data = log.read_batches(0, 1 << 20)
    one, two = pair
    hold = threading.Event()

    def slow(request: Any, version: int) -> Any:
        hold.wait(LIMIT_S)
        row = {"partition_index": 0, "records": data}
        return {"responses": [{"topic": "t", "partitions": [row]}]}

    row = {"partition_index": 1, "records": data}
    one.on(apis.FETCH, slow)
    two.on(apis.FETCH, {"responses": [{"topic": "t", "partitions": [row]}]}, {"responses": []})
    with Cluster(one.servers, QUICK) as cluster:
        fetcher = Fetcher(cluster, {ZERO: 0, ONE: 0}, FetchOptions(max_wait_ms=5))
        found: list[TopicPartition] = []
        while not found:
            found += [block.tp for block in fetcher.poll(5_000)]
        assert found == [ONE]
        hold.set()
        while ZERO not in found:
            found += [block.tp for block in fetcher.poll(5_000)]
        fetcher.close()
    assert found == [ONE, ZERO]


def test_an_answer_to_a_fetch_names_the_new_leader(pair: tuple[Peer, Peer], tmp_path: Any) -> None:
    """KIP-951: the partition is fetched there at once, and the other partition is not disturbed."""
    with Log(tmp_path / "t-0") as log:
        log.append(b"here")
        data = log.read_batches(0, 1 << 20)
    one, two = pair
    topic_id = UUID(int=77)
    metadata = one.metadata({"t": 2})
    metadata["topics"][0]["topic_id"] = topic_id
    one.on(apis.METADATA, metadata)

    def resigned(request: Any, version: int) -> Any:
        rows: list[dict[str, Any]] = []
        for p in request.topics[0].partitions:
            rows.append({"partition_index": p.partition, "records": b""})
            if p.partition == 0:
                rows[-1]["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                rows[-1]["current_leader"] = {"leader_id": 3, "leader_epoch": 7}
            elif p.fetch_offset == 0:
                rows[-1]["records"] = data
        place = {"node_id": 3, "host": "127.0.0.1", "port": two.port}
        answer = {"responses": [{"topic_id": topic_id, "partitions": rows}]}
        return {**answer, "node_endpoints": [place]}

    def leads(request: Any, version: int) -> Any:
        row = {"partition_index": 0, "records": data}
        return {"responses": [{"topic_id": topic_id, "partitions": [row]}]}

    one.on(apis.FETCH, resigned)
    two.on(apis.FETCH, leads)
    never = QUICK._replace(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    with Cluster(one.servers, never) as cluster:
        fetcher = Fetcher(cluster, {ZERO: 0, ONE: 0}, FetchOptions(max_wait_ms=5))
        found: set[TopicPartition] = set()
        while found != {ZERO, ONE}:
            found |= {block.tp for block in fetcher.poll(5_000)}
        fetcher.close()
    assert one.count(apis.METADATA) == 1


def test_a_replica_that_is_nearer_is_asked(pair: tuple[Peer, Peer], tmp_path: Any) -> None:
    """KIP-392: the leader names it by the rack; what it lacks is fetched from the leader."""
    with Log(tmp_path / "t-0") as log:
        log.append(b"one")
        log.append(b"two")
        data = log.read_batches(0, 1 << 20)
    one, two = pair

    def leader(request: Any, version: int) -> Any:
        row: dict[str, Any] = {"partition_index": 0}
        if not asked(two):
            row["preferred_read_replica"] = 2
        else:
            row["records"] = data[len(data) // 2 :]
        return {"responses": [{"topic": "t", "partitions": [row]}]}

    def follower(request: Any, version: int) -> Any:
        at = request.topics[0].partitions[0].fetch_offset
        row: dict[str, Any] = {"partition_index": 0}
        row |= (
            {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
            if at
            else {"records": data[: len(data) // 2]}
        )
        return {"responses": [{"topic": "t", "partitions": [row]}]}

    def asked(peer: Peer) -> list[int]:
        return [r.topics[0].partitions[0].fetch_offset for r in peer.sent(apis.FETCH)]

    lead(one, two, {0: 1})
    one.on(apis.FETCH, leader)
    two.on(apis.FETCH, follower)
    options = FetchOptions(max_wait_ms=5, rack="here", out_of_range="earliest")
    with Cluster(one.servers, QUICK) as cluster:
        fetcher = Fetcher(cluster, {ZERO: 0}, options)
        found: list[bytes | None] = []
        while len(found) < 2:
            for block in fetcher.poll(5_000):
                found += [record.value for record in block.records()]
        fetcher.close()
    assert found == [b"one", b"two"]
    assert {r.rack_id for r in one.sent(apis.FETCH)} == {"here"}
    assert asked(two)[:2] == [0, 1] and asked(one)[:2] == [0, 1]


# ---- a slow node ---------------------------------------------------------------------------


class Held(Tcp):
    """A transport whose connection to one node waits until the test lets it."""

    def __init__(self, known: Peer, slow: Peer) -> None:
        super().__init__([Address("127.0.0.1", known.port)])
        self.slow = slow.port
        self.asked, self.let = threading.Event(), threading.Event()

    def connect(self, address: Address, options: Options) -> socket.socket:
        if address.port == self.slow:
            self.asked.set()
            assert self.let.wait(LIMIT_S)
        return super().connect(address, options)


def test_a_node_that_is_not_reached_does_not_hold_up_another(pair: tuple[Peer, Peer]) -> None:
    one, two = pair
    way = Held(two, one)
    with Producer(way, linger_ms=0) as producer:
        late = producer.send("t", b"late", partition=0)
        assert way.asked.wait(LIMIT_S)
        assert producer.send("t", b"x", partition=1).result(LIMIT_S).partition == 1
        assert not late.done()
        way.let.set()
        late.result(LIMIT_S)
    assert (partitions(one), partitions(two)) == ([0], [1])


def test_a_connection_that_comes_too_late_is_closed(pair: tuple[Peer, Peer]) -> None:
    one, two = pair
    way = Held(two, one)
    producer = Producer(way, linger_ms=0)
    late = producer.send("t", b"late", partition=0)
    assert way.asked.wait(LIMIT_S)
    with pytest.raises(errors.Timeout):
        producer.close(timeout=0)
    assert isinstance(late.exception(), errors.Closed)
    way.let.set()
    wait_for(lambda: one.connections == 1 and not one._open, "it came, and went")


def in_vain(producer: Producer) -> bool:
    """Send in vain; the sender may give up before the producer's thread begins to connect."""
    with pytest.raises(errors.Timeout):
        producer.send("t", b"x")
    return True


def test_a_producer_that_is_not_connected_yet_closes_at_once(pair: tuple[Peer, Peer]) -> None:
    """Its connection is never completed."""
    one, _ = pair
    way = Held(one, one)
    producer = Producer(way, max_block_ms=20)
    wait_for(lambda: in_vain(producer) and way.asked.is_set(), "it connects")
    producer.close()
    assert not producer._sender._thread.is_alive()
    way.let.set()


@pytest.mark.parametrize("api", [apis.API_VERSIONS, apis.METADATA, apis.INIT_PRODUCER_ID])
def test_a_producer_of_a_silent_broker_closes_at_once(pair: tuple[Peer, Peer], api: Any) -> None:
    """Whichever request is the first without an answer; the timeout is an hour."""
    one, _ = pair
    one.on(api, STALL)
    known = api is apis.INIT_PRODUCER_ID
    producer = Producer(
        one.servers, max_block_ms=60_000 if known else 20, linger_ms=0,
        request_timeout_ms=3_600_000, delivery_timeout_ms=7_200_000,
    )  # fmt: skip
    late = producer.send("t", b"x", partition=0) if known else None
    wait_for(lambda: (known or in_vain(producer)) and one.count(api) == 1, "it was asked")
    with pytest.raises(errors.Timeout) if late else nullcontext():
        producer.close(timeout=0)
    assert late is None or isinstance(late.exception(), errors.Closed)


def test_a_node_that_does_not_read_does_not_hold_up_another(pair: tuple[Peer, Peer]) -> None:
    """More is in flight there than the kernels buffer."""
    one, two = pair
    lead(one, two, {p: 2 if p == 1 else 1 for p in range(34)})
    let = threading.Event()

    def slow(request: Any, version: int) -> Any:
        assert let.wait(LIMIT_S)
        return produced([])(request, version)

    one.on(apis.PRODUCE, slow)
    config = {"max.request.size": 4 << 20}
    with Producer(
        one.servers, linger_ms=0, idempotent=False, in_flight=40, buffer_bytes=200 << 20,
        config=config,
    ) as producer:  # fmt: skip
        large = [producer.send("t", b"x" * (1 << 20), partition=p) for p in range(34) if p != 1]
        flights = producer._sender._flights
        wait_for(lambda: any(c.unsent for c in [*flights._connections.values()]), "it is full")
        assert producer.send("t", b"x", partition=1).result(LIMIT_S).partition == 1
        assert not large[-1].done()
        let.set()
        assert {future.result(LIMIT_S).partition for future in large} == {*range(34)} - {1}
    assert sorted(partitions(one)) == sorted({*range(34)} - {1})


def test_a_poll_waits_for_no_connection(pair: tuple[Peer, Peer], tmp_path: Any) -> None:
    """A connection that is not made in time serves a later poll; others are read until then."""
    with Log(tmp_path / "t-1") as log:
        log.append(b"here")
        data = log.read_batches(0, 1 << 20)

    def served(request: Any, version: int) -> Any:
        rows = [{"partition_index": p.partition, "records": b"" if p.fetch_offset else data}
                for p in request.topics[0].partitions]  # fmt: skip
        return {"responses": [{"topic": "t", "partitions": rows}]}

    one, two = pair
    for peer in pair:
        peer.on(apis.FETCH, served)
    way = Held(two, one)
    with Consumer(way, config={"fetch.max.wait.ms": 5}) as consumer:
        consumer.assign([ZERO, ONE])
        for tp in (ZERO, ONE):
            consumer.seek(tp, 0)
        found = []
        while not (found and way.asked.is_set()):  # polls end although the connection does not come
            found += consumer.poll(5)
        assert {record.partition for record in found} == {1}
        assert consumer.poll(0) == []
        way.let.set()
        while len(found) < 2:
            found += consumer.poll(None)
        assert {record.partition for record in found} == {0, 1}


@pytest.mark.parametrize("trouble", ["gone", "silent", "no leader"])
def test_a_failing_node_does_not_hold_up_other_nodes(
    pair: tuple[Peer, Peer], tmp_path: Any, trouble: str
) -> None:
    """Other partitions are read on, however long it lasts, and its own when it is back."""
    with Log(tmp_path / "t-1") as log:
        log.append(b"here")
        data = log.read_batches(0, 1 << 20)
    one, two = pair
    back = threading.Event()

    def failing(request: Any, version: int) -> Any:
        if not back.is_set():
            return {"gone": CLOSE, "silent": STALL, "no leader": CLOSE}[trouble]
        return served(request, version)

    def served(request: Any, version: int) -> Any:
        rows = [{"partition_index": p.partition, "records": b"" if p.fetch_offset else data}
                for p in request.topics[0].partitions]  # fmt: skip
        if not any(row["records"] for row in rows):
            back.wait(0.01)  # as a broker waits for max.wait.ms
        return {"responses": [{"topic": "t", "partitions": rows}]}

    if trouble == "no leader":
        lead(one, two, {0: -1, 1: 2})
    one.on(apis.FETCH, failing)
    two.on(apis.FETCH, served)
    # A consumer that reaches no broker gives up soon, but later than a busy machine pauses; this
    # one reads on.
    options = QUICK._replace(api_timeout_ms=1_000, request_timeout_ms=400)
    with Cluster(two.servers, options) as cluster:
        fetcher = Fetcher(cluster, {ZERO: 0, ONE: 0}, FetchOptions(max_wait_ms=5))
        found: list[TopicPartition] = []
        until_s = time.monotonic() + 1.5
        while ONE not in found or time.monotonic() < until_s:
            found += [block.tp for block in fetcher.poll(50)]
            fetcher.positions[ONE] = 0 if len(found) < 40 else fetcher.positions[ONE]
        assert set(found) == {ONE}
        back.set()
        lead(one, two, {0: 1, 1: 2})
        while ZERO not in found:
            found += [block.tp for block in fetcher.poll(50)]
        fetcher.close()
