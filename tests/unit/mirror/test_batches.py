"""Which records of a Fetch answer are copied."""

from __future__ import annotations

from pathlib import Path

import kafkalog
from kafkalog.client.fetch.fetched import Fetched, FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.mirror.batches import parts
from kafkalog.mirror.spans import Copied
from kafkalog.types import TopicPartition
from tests.support.stable import stable_ends


def fetched(store: kafkalog.Store, offset: int = 0) -> Fetched:
    """The answer to a reader of committed records."""
    tp = TopicPartition("t", 0)
    with Cluster(store) as cluster:
        fetcher = Fetcher(cluster, {tp: offset}, FetchOptions(committed=True))
        try:
            (found,) = fetcher.poll(30_000)
        finally:
            fetcher.close()
    return found


def values(store: kafkalog.Store, one: Fetched) -> list[bytes | None]:
    """The values in the parts, read from a topic to which they are sent."""
    with kafkalog.Producer(store) as producer:
        for part in parts(one.data, one.start, one.aborted):
            for record in part.records:
                producer.send("copy", record.value)
            if not part.records:
                producer.send_batches("copy", part.data, partition=0)
    return [record.value for record in store["copy"][0].read()]


def test_neither_markers_nor_aborted_records_are_copied(tmp_path: Path) -> None:
    """Two producers with interleaved transactions."""
    with kafkalog.Store(tmp_path) as store:
        with (
            kafkalog.Producer(store, transactional_id="a") as a,
            kafkalog.Producer(store, transactional_id="b") as b,
        ):
            for turn in range(4):
                a.begin_transaction()
                b.begin_transaction()
                for text in ("x", "y"):
                    a.send("t", b"a%d%s" % (turn, text.encode())).result()
                    b.send("t", b"b%d%s" % (turn, text.encode())).result()
                (a.commit_transaction if turn % 2 else a.abort_transaction)()
                (b.abort_transaction if turn % 2 else b.commit_transaction)()
        with kafkalog.Producer(store) as plain:
            plain.send("t", b"last").result()
        stable_ends(store, "t")
        one = fetched(store)
        assert values(store, one) == [
            b"b0x", b"b0y", b"a1x", b"a1y", b"b2x", b"b2y", b"a3x", b"a3y", b"last",
        ]  # fmt: skip


def test_of_a_batch_that_begins_before_the_rest_is_copied(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path) as store:
        with kafkalog.Producer(store) as producer:
            producer.send_many("t", [b"%d" % i for i in range(5)], partition=0).result()
        one = fetched(store, 3)
        (part,) = parts(one.data, one.start, one.aborted)
        assert part.batches == [Copied(3, 4, 2)]
        assert values(store, one) == [b"3", b"4"]
        assert parts(one.data, 5, ()) == []
