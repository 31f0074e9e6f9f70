"""Calls that name more than one request may are split into several requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.client.admin import Admin
from kafkalog.client.calls import groups
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.chunks import portions
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.producer import Producer
from kafkalog.log.log import Log
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire import api, apis
from tests.support.scripted import Peer, produced
from tests.unit.client.producer.producing import PRODUCER_ID, make

MOST = 11


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker in this process accepts only MOST names per request."""
    monkeypatch.setattr(api, "REQUEST_NAMES_MAX", MOST)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "log") as made:
        yield made


def test_portions() -> None:
    assert list(portions([])) == [[]]
    assert [len(some) for some in portions(range(25))] == [11, 11, 3]


def test_an_administrator_names_many(broker: TestBroker) -> None:
    names = [f"t{i}" for i in range(30)]
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics(names).check()
        every = [TopicPartition(name, 0) for name in names]
        assert set(admin.list_offsets(dict.fromkeys(every, "latest")).check()) == {*every}
        assert set(admin.describe_topics(names).check()) == {*names}
        admin.delete_topics(names).check()


@pytest.mark.parametrize("transaction", [False, True], ids=["plain", "transaction"])
def test_many_partitions_are_written_read_and_committed(
    broker: TestBroker, transaction: bool
) -> None:
    every = [TopicPartition("t", p) for p in range(40)]
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([("t", 40)]).check()
    name = "one" if transaction else None
    committed = {tp: CommittedOffset(1) for tp in every}
    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        if transaction:
            producer.begin_transaction()
        for tp in every:
            producer.send("t", b"%d" % tp.partition, partition=tp.partition)
        if transaction:
            producer.send_offsets(committed, "g")
            producer.commit_transaction()
    with Cluster(broker.bootstrap_servers) as cluster:
        if not transaction:
            groups.commit_offsets(cluster, "g", committed)
        assert set(groups.committed_offsets(cluster, "g", every)) == {*every}
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(every)
        found: list[int] = []
        while len(found) < 40:
            found += [record.partition for record in consumer.poll()]
    assert sorted(found) == [*range(40)]


def names(request: Any, topics: str, rows: str) -> int:
    return sum(len(getattr(topic, rows)) for topic in getattr(request, topics))


def test_produce_and_fetch_name_no_more(peer: Peer, tmp_path: Path) -> None:
    """In our broker C counts these, without the limit set here: so a scripted peer is used."""
    with Log(tmp_path / "t-0") as log:
        log.append(b"here")
        data = log.read_batches(0, 1 << 20)

    def served(request: Any, version: int) -> Any:
        rows = [
            {"partition_index": p.partition, "records": b"" if p.fetch_offset else data}
            for p in request.topics[0].partitions
        ]
        return {"responses": [{"topic": "t", "partitions": rows}]}

    peer.on(apis.METADATA, peer.metadata({"t": 40}))
    peer.on(apis.INIT_PRODUCER_ID, PRODUCER_ID)
    peer.on(apis.PRODUCE, produced([]))
    peer.on(apis.FETCH, served)
    with make(peer, linger_ms=1_000_000) as producer:
        for partition in range(40):
            producer.send("t", b"x", partition=partition)
    with Cluster(peer.servers) as cluster:
        positions = {TopicPartition("t", p): 0 for p in range(40)}
        fetcher = Fetcher(cluster, positions, FetchOptions(max_wait_ms=5))
        while not all(fetcher.positions.values()):
            fetcher.poll(5_000)
        fetcher.close()
    put = [names(one, "topic_data", "partition_data") for one in peer.sent(apis.PRODUCE)]
    got = [names(one, "topics", "partitions") for one in peer.sent(apis.FETCH)]
    assert (sum(put), max(put), max(got)) == (40, MOST, MOST)
