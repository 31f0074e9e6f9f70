"""Columns of an offset range of a partition, read from its leader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafkalog import Store, TopicPartition, errors
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.fetch.ranges import sample_bytes, scan_range
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.wire import apis
from tests.support.scripted import Peer

TP = TopicPartition("a", 0)
RECORDS = 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A topic of 100 batches of 10 records of 100 bytes."""
    with Store(tmp_path) as made:
        log = made.create_topic("a")[0]
        for first in range(0, RECORDS, 10):
            log.append_many([b"%099d" % i for i in range(first, first + 10)])
        yield made


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    """The positions in every Fetch."""
    seen: list[dict[TopicPartition, int]] = []
    real = Fetcher._ask

    def ask(self: Fetcher, node: int, partitions: Any) -> None:
        seen.append({tp: self.positions[tp] for tp in partitions})
        real(self, node, partitions)

    monkeypatch.setattr(Fetcher, "_ask", ask)
    return seen


def offsets(blocks: Any) -> list[int]:
    return [int(one) for block in blocks for one in block.numpy("offset")]


def test_a_range_costs_the_answers_that_it_needs(store: Store, pending: Any) -> None:
    """Records after the range are not fetched."""
    with Cluster(store) as cluster:
        options = FetchOptions(partition_bytes=10_000)
        blocks = list(scan_range(cluster, TP, 105, 307, ("value", "offset"), options))
        assert offsets(blocks) == [*range(105, 307)]
        assert blocks[0].columns == ("value", "offset")
        assert blocks[0].numpy("value")[0] == b"%099d" % 105
        positions = [one[TP] for one in pending]
        assert positions[0] == 105 and len(positions) in (3, 4) and positions[-1] < 307


def test_an_early_stop_leaves_no_connection(store: Store) -> None:
    with Cluster(store) as cluster:
        made: list[Any] = []
        real = cluster.another
        cluster.another = lambda node: made.append(real(node)) or made[-1]  # type: ignore
        blocks = scan_range(cluster, TP, 0, RECORDS, None, FetchOptions(partition_bytes=1_000))
        next(blocks)
        assert not made[0].closed
        blocks.close()
        assert made[0].closed


def test_records_that_are_not_there_yet_are_waited_for(store: Store) -> None:
    with Cluster(store) as cluster:
        blocks = scan_range(cluster, TP, 990, RECORDS + 5, ("offset",), FetchOptions())
        assert offsets([next(blocks)]) == [*range(990, RECORDS)]
        thread = threading.Thread(target=store["a"][0].append_many, args=([b"x"] * 9,))
        thread.start()
        assert offsets(blocks) == [*range(RECORDS, RECORDS + 5)]
        thread.join()


def test_an_end_that_does_not_come_is_named(store: Store) -> None:
    with Cluster(store) as cluster:
        cluster.topic("a")
        cluster.options = Options(api_timeout_ms=1, retry_backoff_ms=1)
        blocks = scan_range(cluster, TP, 0, RECORDS + 1, ("offset",), FetchOptions(max_wait_ms=1))
        with pytest.raises(errors.OffsetOutOfRange, match="a-0: offset 1000, wanted 0 to 1000"):
            list(blocks)


def test_a_start_that_was_deleted_is_named(store: Store) -> None:
    store["a"][0].delete_before(500)
    with Cluster(store) as cluster, pytest.raises(errors.OffsetOutOfRange, match="wanted 500 to"):
        list(scan_range(cluster, TP, 0, 600, ("offset",), FetchOptions()))


def test_another_topic_of_the_name_is_not_read(store: Store) -> None:
    with Cluster(store) as cluster:
        known = cluster.topic("a").topic_id
        assert offsets(scan_range(cluster, TP, 0, 5, ("offset",), FetchOptions(), known)) == [
            *range(5)
        ]
        with pytest.raises(errors.UnknownTopicOrPartition, match="was deleted and recreated"):
            list(scan_range(cluster, TP, 0, 5, ("offset",), FetchOptions(), uuid4()))


def test_a_sample_says_how_large_offsets_are(store: Store) -> None:
    with Cluster(store) as cluster:
        found = sample_bytes(cluster, {TP: 500}, FetchOptions())
        assert 100 < found[TP] < 130
        store["a"][0].delete_before(700)
        assert sample_bytes(cluster, {TP: 500, TopicPartition("b", 0): 0}, FetchOptions()) == {}


def test_a_sample_from_the_end_of_a_batch(store: Store) -> None:
    """The whole batch is sent: its size is not one record's."""
    log = store.create_topic("one")[0]
    log.append_many([b"%099d" % i for i in range(RECORDS)])
    with Cluster(store) as cluster:
        (size,) = sample_bytes(
            cluster, {TopicPartition("one", 0): RECORDS - 1}, FetchOptions()
        ).values()
    assert 100 < size < 130


def test_a_sample_counts_no_batch_that_is_cut_off(store: Store) -> None:
    """Apache Kafka fills an answer up with the start of the next batch, whose end is missing."""
    whole = store["a"][0].read_batches(0, 1)
    torn = whole + store["a"][0].read_batches(10, 1)[:-1]
    answer = {
        "topic": "a",
        "partitions": [
            {"partition_index": 0, "error_code": 0, "high_watermark": RECORDS, "records": torn}
        ],
    }
    with Peer({apis.FETCH: (12, 12)}) as peer:
        peer.on(apis.METADATA, peer.metadata({"a": 1}))
        peer.on(apis.FETCH, {"responses": [answer]})
        with Cluster(peer.servers) as cluster:
            assert sample_bytes(cluster, {TP: 0}, FetchOptions()) == {TP: len(whole) / 10}
